//! Single files in and out of a sandbox.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;

use super::{as_both, parse, run};
use crate::wall::ground::finish_with;

#[test]
fn a_file_is_written_and_read_back() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let path = yard.inner("new/deep/file");
        let written = finish_with(&mut yard.stockade(["sandbox", "write", "box", &path]), b"text\n");
        assert_eq!((written.code, written.stdout.as_str(), written.stderr.as_str()), (Some(0), "", ""));
        assert_eq!(yard.says(&["read", "box", &path]), "text\n");
        assert_eq!(yard.tells(&["read", "box", &path]), json!({"path": path, "bytes": 5, "content": "text\n"}));
        assert_eq!(yard.inside("box", "stat -c '%a %U' new/deep/file; whoami").split_whitespace().next(), Some("644"));
        let told = finish_with(&mut yard.stockade(["sandbox", "write", "box", &path, "--json"]), b"\xff");
        assert_eq!(parse(&told), json!({"path": path, "bytes": 1}));
        assert_eq!(yard.tells(&["read", "box", &path]), json!({"path": path, "bytes": 1, "content_base64": "/w=="}));
        assert!(!yard.work.join("new").exists(), "the host has it only after apply");
    });
}

#[test]
fn a_hundred_megabytes_make_the_round_trip() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let bytes: Vec<u8> = (0..25_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let written = finish_with(&mut yard.stockade(["sandbox", "write", "box", &yard.inner("big")]), &bytes);
        assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""));
        let mut reader = yard.stockade(["sandbox", "read", "box", &yard.inner("big")]);
        let mut reader = reader.stdout(Stdio::piped()).spawn().expect("started");
        let mut back = Vec::with_capacity(bytes.len());
        reader.stdout.take().expect("piped").read_to_end(&mut back).expect("read");
        assert_eq!(reader.wait().expect("ended").code(), Some(0));
        assert!(back == bytes, "{} bytes came back of {}", back.len(), bytes.len());
    });
}

#[test]
fn copies_keep_contents_and_mode() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        yard.script("tool", "#!/bin/sh\necho tool\n");
        assert_eq!(yard.says(&["cp", "tool", "box:/tmp/copy"]), "");
        assert_eq!(yard.inside("box", "/tmp/copy"), "tool\n");
        assert_eq!(yard.says(&["cp", "tool", "box:/tmp/"]), "");
        assert_eq!(yard.inside("box", "/tmp/tool; chmod 711 /tmp/tool"), "tool\n");
        assert_eq!(yard.says(&["cp", "box:/tmp/tool", "back"]), "");
        assert_eq!(yard.read("back"), "#!/bin/sh\necho tool\n");
        let mode = std::fs::metadata(yard.work.join("back")).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o711);
        yard.directory(&yard.work.join("into"));
        assert_eq!(yard.says(&["cp", "box:/tmp/tool", "into"]), "");
        assert_eq!(yard.read("into/tool"), "#!/bin/sh\necho tool\n");
        assert_eq!(yard.tells(&["cp", "box:/tmp/tool", "back"])["bytes"], 20);
        // A link in the target's place is replaced, never followed.
        yard.file("victim", "untouched\n");
        yard.host("ln -s victim link");
        assert_eq!(yard.says(&["cp", "box:/tmp/tool", "link"]), "");
        assert_eq!((yard.read("victim").as_str(), yard.read("link").as_str()), ("untouched\n", "#!/bin/sh\necho tool\n"));
    });
}

#[test]
fn copies_that_cannot_be_made_leave_nothing() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        yard.file("here", "x\n");
        yard.inside("box", "mkdir /tmp/d; mkfifo /tmp/fifo");
        let before = yard.snapshot();
        for (words, says) in [
            (["cp", "missing", "box:/tmp/x"], "No such file"),
            (["cp", ".", "box:/tmp/x"], "not a file"),
            (["cp", "box:/tmp/missing", "out"], "/tmp/missing"),
            (["cp", "box:/tmp/d", "out"], "not a file"),
            (["cp", "box:/tmp/fifo", "out"], "not a file"),
            (["cp", "box:/tmp/../etc/passwd", "out"], "`..`"),
            (["cp", "here", "there"], "SANDBOX:/path"),
            (["cp", "box:/tmp/a", "box:/tmp/b"], "only one end"),
            (["cp", "here", "box:/proc/x"], "/proc/x"),
            (["cp", "box:/etc/passwd", "no/such/out"], "No such file"),
        ] {
            yard.rejects(&words, &[says]);
        }
        assert_eq!(yard.snapshot(), before);
        assert_eq!(yard.inside("box", "ls -A /tmp"), "d\nfifo\n");
    });
}

#[test]
fn bad_paths_are_refused_before_anything_happens() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let long = format!("/{}", "x/".repeat(2500));
        for path in ["/tmp/../etc/passwd", "relative", "", "/a\nb", "/\u{1b}[2J", &long] {
            for verb in ["read", "write"] {
                yard.rejects(&[verb, "box", path], &["stockade: arguments: "]);
            }
        }
        for (verb, path, says) in [
            ("read", "/tmp/missing", "/tmp/missing"),
            ("read", "/tmp", "directory"),
            ("write", "/tmp", "directory"),
            ("write", "/usr/bin/new", "/usr/bin/new"),
            ("write", "/etc/passwd/x", "/etc/passwd"),
        ] {
            yard.rejects(&[verb, "box", path], &[says]);
        }
        assert_eq!(yard.inside("box", "ls -A /tmp"), "");
    });
}

#[test]
fn reading_follows_no_link_out_of_the_sandbox() {
    as_both(|yard| {
        yard.plant(&yard.home.join("secret"), "SECRET\n", 0o600);
        yard.create(&["--name", "box"]);
        let secret = yard.home.join("secret");
        yard.inside("box", &format!("ln -s {} link", secret.display()));
        let outcome = yard.sandbox(&["read", "box", &yard.inner("link")]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{outcome:?}");
    });
}

#[test]
fn stdout_that_goes_away_or_is_full() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let path = yard.inner("f");
        finish_with(&mut yard.stockade(["sandbox", "write", "box", &path]), b"no newline");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let status =
            yard.stockade(["sandbox", "read", "box", "/usr/bin/bash"]).stdout(writer).stderr(Stdio::piped()).output().expect("ran");
        assert_eq!((status.status.code(), status.stderr.len()), (Some(0), 0), "a reader that goes away is no failure");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let output = yard.stockade(["sandbox", "read", "box", &path]).stdout(full).stderr(Stdio::piped()).output().expect("ran");
        assert_eq!(output.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
        assert_eq!(run(yard, &["sandbox", "read", "box", &path]).stdout, "no newline");
    });
}
