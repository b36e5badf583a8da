//! Programs in a sandbox that stands: codes, streams, signals, limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::{as_both, parse, send};
use crate::wall::ground::{ended, eventually, finish, finish_with, processes, unique_seconds};

#[test]
fn the_code_is_the_programs() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
            assert_eq!(yard.exec("box", script).code, Some(code), "{script}");
        }
        yard.inside("box", "mkdir d; echo >plain; printf '#!/no/such\\n' >script; chmod +x script");
        for program in ["no-such-program", "./d", "./plain", "./script", "/no/such"] {
            let outcome = yard.sandbox(&["exec", "box", "--", program]);
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(127), ""), "{program}: {outcome:?}");
            assert!(outcome.stderr.starts_with("stockade: exec: "), "{program}: {outcome:?}");
        }
        yard.rejects(&["exec", "box", "--cwd", "missing", "--", "true"], &["missing"]);
        yard.rejects(&["exec", "box", "--cwd", "../..", "--", "true"], &["`..`"]);
    });
}

#[test]
fn json_has_everything() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        let outcome = yard.sandbox(&["exec", "--json", "box", "--", "bash", "-c", "echo out; echo err >&2; exit 3"]);
        let mut value = parse(&outcome);
        let mut taken = |name: &str| value.as_object_mut().expect("an object").remove(name).unwrap_or_default();
        let (duration, receipt) = (taken("duration_ms"), taken("receipt_id"));
        assert!(outcome.code == Some(3) && outcome.stderr.is_empty() && duration.is_u64() && receipt.is_string(), "{outcome:?}");
        assert_eq!(
            value,
            json!({
                "sandbox_id": id, "exit_code": 3, "signal": null, "timed_out": false, "limit": null, "stdout": "out\n", "stderr": "err\n",
                "truncated": {"stdout": false, "stderr": false}, "violations": [],
                "decision": {"verdict": "allow", "rule": "no-policy", "reason": null, "source": null, "suggest": null},
            })
        );
        let outcome = yard.sandbox(&["exec", "--json", "box", "--", "bash", "-c", "printf '\\xff'; kill -9 $$"]);
        let value = parse(&outcome);
        assert_eq!((outcome.code, &value["signal"], &value["exit_code"]), (Some(137), &json!(9), &json!(null)), "{value}");
        assert_eq!((&value["stdout_base64"], value.get("stdout")), (&json!("/w=="), None), "{value}");
        let outcome = yard.sandbox(&["exec", "--json", "box", "--timeout", "100ms", "--", "sleep", "60"]);
        let value = parse(&outcome);
        assert_eq!((outcome.code, &value["timed_out"], &value["exit_code"]), (Some(124), &json!(true), &json!(null)), "{value}");
        let outcome = yard.sandbox(&["exec", "--json", "box", "--", "no-such-program"]);
        assert_eq!((outcome.code, &parse(&outcome)["error"]["step"]), (Some(127), &json!("exec")), "{outcome:?}");
    });
}

#[test]
fn a_limit_of_time_kills_the_program_and_leaves_the_sandbox() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let seconds = unique_seconds();
        let begun = Instant::now();
        let outcome =
            yard.sandbox(&["exec", "box", "--timeout", "300ms", "--", "bash", "-c", &format!("sleep {seconds} & sleep {seconds}")]);
        assert_eq!(outcome.code, Some(124), "{outcome:?}");
        assert!(outcome.stderr.contains("time limit") && begun.elapsed() < Duration::from_secs(5), "{outcome:?}");
        eventually("they are gone", || processes(&format!("sleep\0{seconds}")).is_empty());
        assert_eq!(yard.inside("box", "echo alive"), "alive\n");
    });
}

#[test]
fn limits_of_create_hold_for_every_program() {
    as_both(|yard| {
        yard.create(&["--name", "box", "--timeout", "400ms", "--output-limit", "1K"]);
        assert_eq!(yard.sandbox(&["exec", "box", "--", "sleep", "60"]).code, Some(124));
        assert_eq!(yard.sandbox(&["exec", "box", "--timeout", "1h", "--", "sleep", "60"]).code, Some(124));
        let outcome = yard.exec("box", "head -c 5000 /dev/zero; head -c 1024 /dev/zero >&2");
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(0), 1024), "{outcome:?}");
        assert!(outcome.stderr.contains("output was cut"), "{outcome:?}");
        let outcome = yard.sandbox(&["exec", "--json", "box", "--", "head", "-c", "5000", "/dev/zero"]);
        assert_eq!(parse(&outcome)["truncated"], json!({"stdout": true, "stderr": false}), "{outcome:?}");
        assert_eq!(parse(&outcome)["stdout"].as_str().map(str::len), Some(1024), "{outcome:?}");
    });
}

#[test]
fn environment_and_directory_are_the_sandboxes_or_asked_for() {
    as_both(|yard| {
        yard.file("sub/f", "x\n");
        yard.create(&["--name", "box", "--env", "A=1", "--env", "B=2"]);
        let mut command = yard.stockade(["sandbox", "exec", "box", "--env", "B=3", "--env", "C", "--cwd", "sub", "--", "bash", "-c"]);
        command.arg("pwd; echo $A $B $C ${D:-none}").env("C", "4").env("D", "5");
        assert_eq!(finish(&mut command).stdout, format!("{}\n1 3 4 none\n", yard.inner("sub")));
    });
}

#[test]
fn stdin_reaches_the_program() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let bytes: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
        for words in [&["sandbox", "exec", "box", "--", "sha256sum"][..], &["sandbox", "exec", "--json", "box", "--", "sha256sum"]] {
            let sum = finish_with(&mut yard.stockade(words), &bytes).stdout;
            let expected = finish_with(&mut yard.outside("sha256sum"), &bytes).stdout;
            assert!(sum.contains(&expected[..64]), "{words:?}: {sum}");
        }
    });
}

#[test]
fn large_output_comes_whole() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let mut child = yard.stockade(["sandbox", "exec", "box", "--", "head", "-c", "200000000", "/dev/zero"]);
        let mut child = child.stdout(Stdio::piped()).spawn().expect("started");
        let mut output = child.stdout.take().expect("piped");
        let (mut total, mut buffer) = (0usize, vec![0; 1 << 20]);
        loop {
            match output.read(&mut buffer).expect("read") {
                0 => break,
                n => total += n,
            }
        }
        assert_eq!((total, child.wait().expect("ended").code()), (200_000_000, Some(0)));
        let outcome = yard.sandbox(&["exec", "--json", "box", "--", "head", "-c", "9000000", "/dev/zero"]);
        assert_eq!(parse(&outcome)["stdout"].as_str().map(str::len), Some(9_000_000));
    });
}

#[test]
fn programs_talk_while_others_run() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let mut first = yard.start("box", &["bash", "-c", "mkfifo f; echo made; cat f"]);
        let mut line = String::new();
        let mut output = BufReader::new(first.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("read");
        assert_eq!(line, "made\n");
        assert_eq!(yard.inside("box", "echo over >f"), "");
        line.clear();
        output.read_line(&mut line).expect("read");
        assert_eq!((line.as_str(), ended(first).code), ("over\n", Some(0)));
    });
}

#[test]
fn signals_are_passed_on_and_a_killed_client_takes_its_program_along() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let seconds = unique_seconds();
        for (signal, code) in [(Signal::TERM, Some(143)), (Signal::INT, Some(130)), (Signal::KILL, None)] {
            let mut child = yard.start("box", &["bash", "-c", &format!("echo ready; exec sleep {seconds}")]);
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("read");
            send(child.id(), signal);
            let outcome = ended(child);
            assert_eq!(outcome.code, code, "{signal:?}: {outcome:?}");
            eventually("the program is gone", || processes(&format!("sleep\0{seconds}")).is_empty());
        }
        let mut child = yard.start("box", &["bash", "-c", "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"]);
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        output.read_line(&mut said).expect("read");
        send(child.id(), Signal::USR1);
        output.read_to_string(&mut said).expect("read");
        assert_eq!((said.as_str(), ended(child).code), ("ready\ncaught\n", Some(5)));
    });
}

#[test]
fn what_a_program_leaves_running_stays_until_the_sandbox_ends() {
    as_both(|yard| {
        let id = yard.create(&[]);
        let seconds = unique_seconds();
        yard.inside(&id, &format!("setsid sleep {seconds} >/dev/null 2>&1 </dev/null & echo"));
        eventually("it runs", || processes(&format!("sleep\0{seconds}")).len() == 1);
        assert_eq!(yard.inside(&id, "echo x").as_str(), "x\n");
        yard.says(&["destroy", &id]);
        assert_eq!(processes(&format!("sleep\0{seconds}")), Vec::<u32>::new());
    });
}

#[test]
fn a_program_that_does_not_read_its_stdin_holds_nobody_up() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let mut stuck = yard.stockade(["sandbox", "exec", "--json", "box", "--", "sleep", "60"]);
        let mut stuck = stuck.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        let mut pipe = stuck.stdin.take().expect("piped");
        let feeder = std::thread::spawn(move || while pipe.write_all(&[0; 4096]).is_ok() {});
        for _ in 0..5 {
            assert_eq!(yard.inside("box", "echo quick"), "quick\n");
        }
        stuck.kill().expect("killed");
        stuck.wait().expect("ended");
        feeder.join().expect("joined");
    });
}

#[test]
fn no_program_becomes_setuid() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let outcome = yard.exec("box", "echo >f; chmod 4755 f; chmod 2755 f; stat -c %a f");
        assert_eq!(outcome.stdout, "644\n", "{outcome:?}");
    });
}
