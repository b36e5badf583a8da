//! Credit in both directions.

use std::time::Duration;

use stockade_wire::frame::WINDOW;
use stockade_wire::message::{ErrorKind, Exit, Reply, Request};

use crate::client::{Guest, INPUT, OUTPUT, data, shell};

#[test]
fn output_stops_at_the_window_and_the_rest_comes_with_credit() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("head -c 3000000 /dev/zero; exit 9", false));
    let mut received = 0;
    while received < WINDOW as usize {
        if let Reply::Data { bytes, .. } = guest.reply(id) {
            received += bytes.0.len();
        }
    }
    assert_eq!(received, WINDOW as usize);
    // Nothing more comes, but other requests are answered.
    std::thread::sleep(Duration::from_millis(100));
    let ping = guest.request(&Request::Ping {});
    loop {
        match guest.next_reply().unwrap() {
            (other, Reply::Pong {}) if other == ping => break,
            (_, Reply::Eof { .. }) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    guest.grant(id, OUTPUT, 3_000_000);
    let output = guest.collect(id);
    assert_eq!(received + output.stdout.len(), 3_000_000);
    assert_eq!(output.exit, Some(Exit::Code { code: 9 }));
}

#[test]
fn a_program_that_ended_keeps_its_output_until_there_is_credit() {
    let mut guest = Guest::start();
    // The window and half a pipe: the program can end, its last bytes wait in the pipe.
    let total = WINDOW as usize + 30_000;
    let id = guest.request(&shell(&format!("head -c {total} /dev/zero"), false));
    std::thread::sleep(Duration::from_millis(300));
    let output = guest.collect(id);
    assert_eq!(output.stdout.len(), total);
    assert_eq!(output.exit, Some(Exit::Code { code: 0 }));
}

#[test]
fn a_kill_works_and_memory_is_bounded_though_the_host_reads_nothing() {
    let mut guest = Guest::start();
    let ids: Vec<_> = (0..20).map(|_| guest.request(&shell("yes", false))).collect();
    std::thread::sleep(Duration::from_millis(500));
    assert!(guest.memory("VmHWM") < 8 << 10, "{} KiB", guest.memory("VmHWM"));
    for id in &ids {
        guest.send(*id, &Request::Cancel {});
    }
    for id in ids {
        assert_eq!(guest.collect(id).exit, Some(Exit::Signal { signal: 9 }));
    }
}

#[test]
fn input_beyond_its_credit_fails_the_request() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("sleep 1000", true));
    let Reply::Started { pid, .. } = guest.reply(id) else { panic!("not started") };
    for _ in 0..40 {
        guest.send(id, &data(&vec![0; 64 << 10]));
    }
    assert!(matches!(guest.reply(id), Reply::Failed { kind: ErrorKind::Invalid {}, .. }));
    crate::client::eventually("it is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(guest.memory("VmHWM") < 8 << 10, "{} KiB", guest.memory("VmHWM"));
    assert_eq!(guest.shell("echo on").text(), "on\n");
}

#[test]
fn the_host_cannot_write_what_is_output() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("sleep 1000", true));
    guest.reply(id);
    guest.send(id, &Request::Data { stream: OUTPUT, bytes: stockade_wire::codec::Bytes::from(b"x") });
    assert!(matches!(guest.reply(id), Reply::Failed { kind: ErrorKind::Invalid {}, .. }));
}

#[test]
fn much_input_is_echoed_completely() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("cat", true));
    let total = 8 << 20;
    let pattern: Vec<u8> = (0..total).map(|at: u32| (at / 7) as u8).collect();
    let mut credit = WINDOW as usize;
    let mut sent = 0;
    let mut received = Vec::new();
    while received.len() < pattern.len() {
        while credit > 0 && sent < pattern.len() {
            let count = credit.min(50_000).min(pattern.len() - sent);
            guest.send(id, &data(&pattern[sent..sent + count]));
            sent += count;
            credit -= count;
        }
        match guest.reply(id) {
            Reply::Data { bytes, .. } => {
                received.extend_from_slice(&bytes.0);
                guest.grant(id, OUTPUT, bytes.0.len());
            }
            Reply::Credit { stream, bytes } => {
                assert_eq!(stream, INPUT);
                credit += bytes as usize;
            }
            Reply::Started { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(received == pattern);
    guest.send(id, &Request::Eof { stream: INPUT });
    assert_eq!(guest.collect(id).exit, Some(Exit::Code { code: 0 }));
}

#[test]
fn a_program_that_closes_its_stdin_does_not_block_the_host() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("exec 0<&-; echo closed; sleep 1; echo end", true));
    guest.reply(id);
    assert!(matches!(guest.reply(id), Reply::Data { .. }));
    let mut credit = WINDOW as usize;
    let mut sent = 0;
    while sent < 4 * WINDOW as usize {
        while credit >= 65536 {
            guest.send(id, &data(&vec![0; 65536]));
            credit -= 65536;
            sent += 65536;
        }
        if let Reply::Credit { bytes, .. } = guest.reply(id) {
            credit += bytes as usize;
        }
    }
    assert_eq!(guest.collect(id).text(), "end\n");
}
