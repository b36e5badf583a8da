//! Running programs.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use stockade_wire::codec::Bytes;
use stockade_wire::message::{ErrorKind, Exec, Exit, Reply, Request, Stdio};

use crate::client::{ERRORS, Guest, INPUT, OUTPUT, Output, Scratch, data, eventually, exec, shell};

#[test]
fn stdout_stderr_and_code_arrive_apart() {
    let mut guest = Guest::start();
    let output = guest.shell("echo out; echo err >&2; exit 7");
    let expected = Output { stdout: b"out\n".to_vec(), stderr: b"err\n".to_vec(), exit: Some(Exit::Code { code: 7 }) };
    assert_eq!(output, expected);
}

#[test]
fn started_comes_first_and_exited_last_after_both_ends() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("echo x", false));
    let mut replies = Vec::new();
    loop {
        replies.push(guest.reply(id));
        if matches!(replies.last(), Some(Reply::Exited { .. })) {
            break;
        }
    }
    let Some(Reply::Started { program, .. }) = replies.first() else { panic!("not started: {replies:?}") };
    assert!(program.0.starts_with(b"/") && program.0.ends_with(b"/sh"), "the file that was executed is named: {program:?}");
    for stream in [OUTPUT, ERRORS] {
        assert_eq!(replies.iter().filter(|reply| **reply == Reply::Eof { stream: stream.clone() }).count(), 1);
    }
}

#[test]
fn a_signal_is_told_from_a_code() {
    let mut guest = Guest::start();
    assert_eq!(guest.shell("kill -TERM $$").exit, Some(Exit::Signal { signal: 15 }));
    assert_eq!(guest.shell("exit 143").exit, Some(Exit::Code { code: 143 }));
}

#[test]
fn stdin_is_carried_and_without_it_ends_at_once() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("cat", true));
    guest.send(id, &data(b"one "));
    guest.send(id, &data(b"two"));
    guest.send(id, &Request::Eof { stream: INPUT });
    assert_eq!(guest.collect(id).stdout, b"one two");
    assert_eq!(guest.shell("cat; echo end").text(), "end\n");
    assert_eq!(guest.shell("readlink /proc/self/fd/0").text(), "/dev/null\n");
}

#[test]
fn the_environment_is_exactly_what_was_asked_for() {
    let mut guest = Guest::start();
    let mut program = exec(&["/usr/bin/env"], Stdio::Piped { stdin: false });
    program.env.push((Bytes::from("GREETING"), Bytes::from("a=b c")));
    let id = guest.request(&Request::Run { exec: program });
    assert_eq!(guest.collect(id).text(), "PATH=/usr/bin:/bin\nGREETING=a=b c\n");
}

#[test]
fn passed_descriptors_are_used_and_nothing_is_copied() {
    let mut guest = Guest::start();
    let (stdin, mut feed) = std::io::pipe().unwrap();
    let (mut result, stdout) = std::io::pipe().unwrap();
    let (mut errors, stderr) = std::io::pipe().unwrap();
    feed.write_all(b"through a pipe").unwrap();
    drop(feed);
    let id = guest.fresh();
    let passed: [OwnedFd; 3] = [stdin.into(), stdout.into(), stderr.into()];
    let program = exec(&["sh", "-c", "cat; echo err >&2; exit 5"], Stdio::Passed {});
    guest.send_with(id, &Request::Run { exec: program }, &passed);
    drop(passed);
    assert!(matches!(guest.reply(id), Reply::Started { .. }));
    assert_eq!(guest.reply(id), Reply::Exited { exit: Exit::Code { code: 5 } });
    let (mut out, mut err) = (String::new(), String::new());
    result.read_to_string(&mut out).unwrap();
    errors.read_to_string(&mut err).unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("through a pipe", "err\n"));
}

#[test]
fn each_of_many_requests_gets_its_own_descriptors() {
    let mut guest = Guest::start();
    let mut results = Vec::new();
    for number in 0..60 {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (result, stdout) = std::io::pipe().unwrap();
        let id = guest.fresh();
        let argument = format!("{number} {}", "x".repeat(number * 1000));
        let program = exec(&["/bin/echo", &argument], Stdio::Passed {});
        guest.send_with(id, &Request::Run { exec: program }, &[null(), stdout.into(), null()]);
        // Frames without descriptors stand between them.
        guest.request(&Request::Ping {});
        results.push((id, argument, result));
    }
    for (id, argument, mut result) in results {
        let mut out = String::new();
        result.read_to_string(&mut out).unwrap();
        assert_eq!(out, format!("{argument}\n"));
        assert_eq!(guest.collect(id).exit, Some(Exit::Code { code: 0 }));
    }
}

#[test]
fn missing_descriptors_fail_the_request_only() {
    let mut guest = Guest::start();
    let (kind, _) = guest.failure(&Request::Run { exec: exec(&["true"], Stdio::Passed {}) });
    assert_eq!(kind, ErrorKind::Invalid {});
    assert_eq!(guest.shell("echo on").text(), "on\n");
}

#[test]
fn a_failed_start_uses_up_its_descriptors() {
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    let before = guest.open_descriptors();
    for name in ["missing-program", "sh"] {
        let (mut result, stdout) = std::io::pipe().unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let id = guest.fresh();
        guest.send_with(id, &Request::Run { exec: exec(&[name, "-c", "echo mine"], Stdio::Passed {}) }, &[null(), stdout.into(), null()]);
        let first = guest.reply(id);
        if name == "sh" {
            assert!(matches!(first, Reply::Started { .. }));
            guest.reply(id);
        } else {
            assert!(matches!(first, Reply::Failed { kind: ErrorKind::NotExecutable {}, .. }));
        }
        let mut out = String::new();
        result.read_to_string(&mut out).unwrap();
        assert_eq!(out, if name == "sh" { "mine\n" } else { "" });
    }
    assert_eq!(guest.open_descriptors(), before);
}

#[test]
fn programs_inherit_exactly_three_descriptors_a_session_and_clean_signals() {
    let mut guest = Guest::start();
    // Another program runs meanwhile, whose pipes must not leak either.
    let other = guest.request(&shell("cat", true));
    let fds = guest.run(&["ls", "-l", "/proc/self/fd"]).text();
    let open: Vec<_> =
        fds.lines().filter(|line| line.contains(" -> ")).filter_map(|line| line.split(" -> ").next()?.split_whitespace().last()).collect();
    // The fourth is the directory that `ls` itself reads.
    assert_eq!(open, ["0", "1", "2", "3"], "{fds}");
    assert!(fds.lines().any(|line| line.contains("3 -> /proc/")), "{fds}");
    let status = guest.shell("grep -E '^Sig(Blk|Ign)|^Umask' /proc/self/status").text();
    assert!(status.contains("SigBlk:\t0000000000000000") && status.contains("SigIgn:\t0000000000000000"), "{status}");
    assert!(status.contains("Umask:\t0022"), "{status}");
    let ids = guest.shell("cut -d' ' -f1,5,6 /proc/$$/stat").text();
    let mut ids = ids.split_whitespace();
    let pid = ids.next();
    assert!(ids.all(|id| Some(id) == pid));
    guest.send(other, &Request::Cancel {});
    assert_eq!(guest.collect(other).exit, Some(Exit::Signal { signal: 9 }));
}

#[test]
fn programs_that_cannot_start_say_why() {
    let scratch = Scratch::new("unstartable");
    let write = |name: &str, contents: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = scratch.0.join(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = write("plain", "#!/bin/sh\n", 0o644);
    let orphan = write("orphan", "#!/no/such/interpreter -x\n", 0o755);
    let noise = write("noise", "neither script nor program", 0o755);
    let mut guest = Guest::start();
    for (program, part) in [
        ("no-such-program", "no such program in PATH"),
        ("/no/such/program", "`/no/such/program`: no such program"),
        ("./none", "no such program"),
        (scratch.0.to_str().unwrap(), "is a directory"),
        (&plain, "not executable"),
        (&orphan, "`/no/such/interpreter`, which does not exist"),
        (&noise, "is not a program"),
        ("", "empty"),
    ] {
        let (kind, message) = guest.failure(&Request::Run { exec: exec(&[program], Stdio::Piped { stdin: false }) });
        assert_eq!(kind, ErrorKind::NotExecutable {}, "{program}: {message}");
        assert!(message.contains(part), "{program}: {message}");
    }
    let with_cwd = |cwd: &str| Request::Run { exec: Exec { cwd: Bytes::from(cwd), ..exec(&["pwd"], Stdio::Piped { stdin: false }) } };
    let (kind, message) = guest.failure(&with_cwd("/no/such/place"));
    assert_eq!((kind, message.starts_with("working directory `/no/such/place`")), (ErrorKind::NotFound {}, true), "{message}");
    assert_eq!(guest.failure(&with_cwd("relative")).0, ErrorKind::Invalid {});
    let id = guest.request(&with_cwd("/usr"));
    assert_eq!(guest.collect(id).text(), "/usr\n");
}

#[test]
fn names_with_a_slash_count_from_the_working_directory() {
    let mut guest = Guest::start();
    let program = Exec { cwd: Bytes::from("/usr"), ..exec(&["bin/echo", "found"], Stdio::Piped { stdin: false }) };
    let id = guest.request(&Request::Run { exec: program });
    assert_eq!(guest.collect(id).text(), "found\n");
}

#[test]
fn a_program_is_killed_by_its_id_while_its_stdin_is_full() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("sleep 1000", true));
    // All the credit there is: the pipe takes 64 KiB and the rest waits in the guest.
    for _ in 0..16 {
        guest.send(id, &data(&vec![0; 64 << 10]));
    }
    guest.send(id, &Request::Signal { signal: 9 });
    assert_eq!(guest.collect(id).exit, Some(Exit::Signal { signal: 9 }));
}

#[test]
fn signals_reach_the_whole_process_group() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("sleep 1000 & echo $!; wait", false));
    let Reply::Started { .. } = guest.reply(id) else { panic!("not started") };
    let Reply::Data { bytes, .. } = guest.reply(id) else { panic!("no data") };
    let sleeper = String::from_utf8(bytes.0).unwrap().trim().to_owned();
    guest.send(id, &Request::Signal { signal: 15 });
    assert_eq!(guest.collect(id).exit, Some(Exit::Signal { signal: 15 }));
    eventually("the child of the shell is gone too", || {
        std::fs::read_to_string(format!("/proc/{sleeper}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
    // Bad numbers are no reason to fail.
    let id = guest.request(&shell("sleep 0.2; echo fine", false));
    guest.send(id, &Request::Signal { signal: 0 });
    guest.send(id, &Request::Signal { signal: 1000 });
    guest.send(id, &Request::Signal { signal: -9 });
    assert_eq!(guest.collect(id).text(), "fine\n");
}

#[test]
fn descendants_that_hold_the_pipe_are_not_waited_for() {
    let mut guest = Guest::start();
    let start = std::time::Instant::now();
    let output = guest.shell("sleep 30 & echo done");
    assert_eq!(output.text(), "done\n");
    // One that writes without end does not keep the request alive either.
    let output = guest.shell("yes & echo $! >&2; exit 4");
    assert_eq!(output.exit, Some(Exit::Code { code: 4 }));
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
    guest.shell(&format!("kill {}", String::from_utf8(output.stderr).unwrap()));
}

#[test]
fn a_thousand_programs_leave_nothing_behind() {
    let mut guest = Guest::start();
    guest.shell("true");
    let before = guest.open_descriptors();
    for _ in 0..1000 {
        assert_eq!(guest.run(&["/bin/true"]).exit, Some(Exit::Code { code: 0 }));
    }
    assert_eq!(guest.open_descriptors(), before);
    let children = format!("/proc/{0}/task/{0}/children", guest.child.id());
    assert_eq!(std::fs::read_to_string(children).unwrap(), "");
}

#[test]
fn many_programs_run_at_once() {
    let mut guest = Guest::start();
    let ids: Vec<_> = (0..100).map(|number| (number, guest.request(&shell(&format!("read x; echo $x {number}"), true)))).collect();
    for (_, id) in &ids {
        guest.send(*id, &data(b"hi\n"));
    }
    for (number, id) in ids {
        assert_eq!(guest.collect(id).text(), format!("hi {number}\n"));
    }
}

#[test]
fn freezing_stops_programs_and_continuing_lets_them_end() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("echo up; read x; echo $x", true));
    let Reply::Started { pid, .. } = guest.reply(id) else { panic!("not started") };
    assert!(matches!(guest.reply(id), Reply::Data { .. }));
    assert_eq!(guest.ask(&Request::Freeze { frozen: true }), Reply::Done {});
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    eventually("it is stopped", || state().contains(") T "));
    assert_eq!(guest.failure(&shell("true", false)).0, ErrorKind::Invalid {});
    guest.send(id, &data(b"thawed\n"));
    assert_eq!(guest.ask(&Request::Freeze { frozen: false }), Reply::Done {});
    assert_eq!(guest.collect(id).text(), "thawed\n");
}

#[test]
fn other_programs_cannot_look_into_the_guest() {
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    let pid = guest.child.id();
    let output = guest.run(&["setpriv", "--reuid=65534", "--clear-groups", "cat", &format!("/proc/{pid}/environ")]);
    assert_eq!(output.stdout, b"");
}
