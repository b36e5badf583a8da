//! Programs on a pseudo-terminal.

use stockade_wire::message::{Exit, Reply, Request, Stdio};

use crate::client::{Guest, INPUT, OUTPUT, data, exec};

fn read_until(guest: &mut Guest, id: u32, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        if let Reply::Data { stream, bytes } = guest.reply(id) {
            assert_eq!(stream, OUTPUT);
            text.push_str(&String::from_utf8_lossy(&bytes.0));
        }
    }
    text
}

fn start(guest: &mut Guest, script: &str) -> u32 {
    guest.request(&Request::Run { exec: exec(&["sh", "-c", script], Stdio::Pty { rows: 24, cols: 80 }) })
}

#[test]
fn a_terminal_echoes_has_a_size_and_can_be_resized() {
    let mut guest = Guest::start();
    let id = start(&mut guest, "stty size; read line; echo got $line; stty size; test -t 0 && test -t 2 && exit 6");
    read_until(&mut guest, id, "24 80\r\n");
    guest.send(id, &Request::Resize { rows: 50, cols: 132 });
    guest.send(id, &data(b"hello\n"));
    let text = read_until(&mut guest, id, "50 132\r\n");
    assert!(text.contains("hello\r\n") && text.contains("got hello\r\n"), "{text}");
    assert_eq!(guest.collect(id).exit, Some(Exit::Code { code: 6 }));
}

#[test]
fn the_terminal_is_the_controlling_one() {
    let mut guest = Guest::start();
    let id = start(&mut guest, "echo here >/dev/tty; exec sleep 1000");
    read_until(&mut guest, id, "here");
    // Control-C reaches the foreground group. (`exec`, because this shell can lose it between fork and exec.)
    guest.send(id, &data(b"\x03"));
    assert_eq!(guest.collect(id).exit, Some(Exit::Signal { signal: 2 }));
}

#[test]
fn the_end_of_input_is_the_end_of_file() {
    let mut guest = Guest::start();
    let id = start(&mut guest, "cat >/dev/null; echo over");
    guest.send(id, &data(b"line\n"));
    guest.send(id, &Request::Eof { stream: INPUT });
    let output = guest.collect(id);
    assert!(output.text().contains("over"), "{}", output.text());
}

#[test]
fn much_output_of_a_terminal_arrives_completely() {
    let mut guest = Guest::start();
    for _ in 0..5 {
        let id = start(&mut guest, "seq 1 50000; echo last");
        let output = guest.collect(id);
        assert!(output.text().ends_with("50000\r\nlast\r\n"));
        assert_eq!(output.text().lines().count(), 50_001);
    }
}

#[test]
fn a_terminal_held_by_a_descendant_does_not_delay_the_end() {
    let mut guest = Guest::start();
    let start_time = std::time::Instant::now();
    let id = start(&mut guest, "trap '' HUP; sleep 30 & echo out");
    assert!(guest.collect(id).text().contains("out"));
    assert!(start_time.elapsed() < std::time::Duration::from_secs(10));
}
