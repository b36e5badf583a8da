//! Requests that make no sense: a clear error that names the thing, the right code, the same in JSON, nothing left behind.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::ground::finish;
use super::{Ground, Who, as_both};

fn refused_workspace(ground: &Ground, path: &str, says: &[&str]) {
    ground.refused(125, &["--workspace", path], &["true"], says);
}

#[test]
fn workspaces_that_are_none() {
    as_both(|ground| {
        let path = |name: &str| ground.base.join(name).display().to_string();
        ground.host("echo x >file && mkfifo fifo && ln -s . link && ln -s nowhere dangling");
        for (name, says) in [
            ("missing", "does not exist"),
            ("work/file", "is a file"),
            ("work/fifo", "FIFO"),
            ("work/link", "symbolic link"),
            ("work/dangling", "symbolic link"),
        ] {
            refused_workspace(ground, &path(name), &[&path(name), says]);
        }
        refused_workspace(ground, "/", &["`/`"]);
        refused_workspace(ground, "/proc", &["/proc"]);
        refused_workspace(ground, "/dev/shm", &["/dev"]);
        refused_workspace(ground, "", &["--workspace"]);
        refused_workspace(ground, &path("home"), &[&path("home"), "home directory"]);
        refused_workspace(ground, &path(""), &["home directory"]);
        refused_workspace(ground, "/var/tmp", &["home directory"]);
        for mode in ["overlay", "rw", "ro"] {
            ground.refused(125, &["--workspace-mode", mode, "--workspace", "/var/.."], &["true"], &[".."]);
        }
    });
}

#[test]
fn home_and_root_are_refused_as_current_directories() {
    as_both(|ground| {
        for directory in [ground.home.as_path(), std::path::Path::new("/"), ground.base.as_path()] {
            let outcome = finish(ground.running(&[], &["true"]).current_dir(directory));
            assert!(outcome.code == Some(125) && outcome.stderr.contains("hint: "), "{}: {outcome:?}", directory.display());
        }
    });
}

#[test]
fn paths_that_are_malformed() {
    as_both(|ground| {
        let long = format!("/{}", "x/".repeat(2500));
        let wide = format!("/{}", "x".repeat(300));
        let work = ground.work.display().to_string();
        for bad in ["/a/../b", "/..", "/a\nb", "/a\u{1b}[2Jb", long.as_str(), wide.as_str()] {
            for flags in [["--workspace", bad], ["--cwd", bad], ["--mount", &format!("{work}:{bad}")], ["--mount", &format!("{bad}:/a")]] {
                let outcome = ground.run(&flags, &["true"]);
                assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{flags:?}: {outcome:?}");
                assert!(outcome.stderr.lines().count() <= 3 && !outcome.stderr.contains('\u{1b}'), "{flags:?}: {outcome:?}");
                assert_eq!(ground.sandboxes(), Vec::<String>::new(), "{flags:?}");
            }
        }
        ground.refused(125, &["--cwd", "../.."], &["true"], &[".."]);
        ground.refused(125, &["--cwd", "missing"], &["true"], &["missing"]);
        ground.refused(125, &["--cwd", "/etc/passwd"], &["true"], &["/etc/passwd"]);
    });
}

#[test]
fn names_that_are_not_text_work_or_are_named() {
    as_both(|ground| {
        let odd = ground.base.join(OsStr::from_bytes(b"odd\xff name"));
        std::fs::create_dir(&odd).expect("made");
        ground.own(&odd);
        let mut command = ground.running(&[], &["bash", "-c", "pwd | od -An -tx1 | tr -d ' \\n' | grep -q 6f6464ff && echo x >new"]);
        let outcome = finish(command.current_dir(&odd));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(!odd.join("new").exists());
        let newline = ground.base.join("new\nline");
        std::fs::create_dir(&newline).expect("made");
        ground.own(&newline);
        let outcome = finish(ground.running(&[], &["true"]).current_dir(&newline));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("new\\n"), "{outcome:?}");
        let outcome = finish(&mut ground.stockade([OsStr::from_bytes(b"run"), OsStr::from_bytes(b"--"), OsStr::from_bytes(b"\xff\xfe")]));
        assert_eq!(outcome.code, Some(127), "{outcome:?}");
        let outcome = finish(&mut ground.stockade([
            OsStr::from_bytes(b"run"),
            OsStr::from_bytes(b"--"),
            OsStr::from_bytes(b"printf"),
            OsStr::from_bytes(b"a\xc3\xbc b"),
        ]));
        assert_eq!(outcome.stdout, "aü b", "{outcome:?}");
    });
}

#[test]
fn a_workspace_that_cannot_be_written() {
    let ground = Ground::new(Who::Ordinary);
    let path = ground.base.join("locked");
    std::fs::create_dir(&path).expect("made");
    std::fs::write(path.join("file"), "readable\n").expect("written");
    let path = path.display().to_string();
    ground.refused(125, &["--workspace", &path, "--workspace-mode", "rw"], &["true"], &[&path, "read-only", "hint: "]);
    assert_eq!(ground.good(&["--workspace", &path], "cat file"), "readable\n");
    assert_eq!(ground.good(&["--workspace", &path, "--workspace-mode", "ro"], "cat file"), "readable\n");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("mode");
    ground.refused(125, &["--workspace", &path], &["true"], &[&path]);
}

#[test]
fn absurd_limits() {
    as_both(|ground| {
        for (flag, value, says) in [
            ("--memory", "1", "memory"),
            ("--memory", "99999999G", "99999999G"),
            ("--memory", "0", "0"),
            ("--memory", "lots", "lots"),
            ("--timeout", "0", "0"),
            ("--timeout", "-1", "-1"),
            ("--timeout", "never", "never"),
            ("--pids", "0", "0"),
            ("--pids", "99999999999", "99999999999"),
            ("--cpus", "0", "0"),
            ("--cpus", "NaN", "NaN"),
            ("--disk", "0", "0"),
            ("--disk", "99999999G", "99999999G"),
            ("--output-limit", "x", "x"),
        ] {
            ground.refused(125, &[flag, value], &["true"], &[says]);
        }
    });
}

#[test]
fn limits_that_are_too_small_to_start() {
    as_both(|ground| {
        for (flag, value) in [("--pids", "1"), ("--disk", "1")] {
            let outcome = ground.run(&[flag, value], &["true"]);
            // Enough for nothing, or an error that names it: never a hang and never a crash.
            assert!(matches!(outcome.code, Some(0 | 125 | 137)), "{flag} {value}: {outcome:?}");
            assert_eq!(ground.sandboxes(), Vec::<String>::new());
        }
    });
}

#[test]
fn programs_that_cannot_run() {
    as_both(|ground| {
        ground.file("not-executable", "#!/bin/sh\n");
        ground.script("no-interpreter", "#!/no/such/interpreter -x\n");
        ground.script("garbage", "\u{1}\u{2}not a program");
        ground.script("no-bang", "echo ran without a line that says how\n");
        ground.directory(&ground.work.join("directory"));
        for (program, says) in [
            ("no-such-program", "no-such-program"),
            ("/no/such/program", "/no/such/program"),
            ("./directory", "directory"),
            ("./not-executable", "not-executable"),
            ("./no-interpreter", "interpreter"),
            ("/etc/passwd", "/etc/passwd"),
            ("./directory/", "directory"),
        ] {
            ground.refused(127, &[], &[program], &[says]);
        }
        let outcome = ground.run(&[], &["./garbage"]);
        assert!(matches!(outcome.code, Some(125..=127)) && outcome.stderr.contains("garbage"), "{outcome:?}");
        ground.refused(125, &[], &[""], &["empty"]);
    });
}

#[test]
fn a_program_with_more_arguments_than_fit() {
    as_both(|ground| {
        let many: Vec<String> = (0..60).map(|_| "x".repeat(100_000)).collect();
        let words: Vec<&str> = ["run", "--", "true"].into_iter().chain(many.iter().map(String::as_str)).collect();
        // The kernel may refuse to start Stockade itself with so much, which is as good.
        if let Ok(output) = ground.stockade(&words).output() {
            let code = output.status.code();
            assert!(
                matches!(code, Some(0 | 125 | 127)),
                "{code:?} {}",
                String::from_utf8_lossy(&output.stderr).chars().take(500).collect::<String>()
            );
        }
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn settings_that_are_wrong() {
    as_both(|ground| {
        let user = ground.home.join(".config/stockade/settings.json");
        for (text, says) in [
            (r#"{"sandbox": {"limits": {"memroy": 5}}}"#, vec!["memroy", "memory", "settings.json"]),
            (r#"{"sandbox": {"limits": {"pids": "many"}}}"#, vec!["pids", "settings.json"]),
            (r#"{"sandbox": "#, vec!["settings.json"]),
            ("[]", vec!["settings.json"]),
            (r#"{"sandbox": {"backend": "chroot"}}"#, vec!["chroot"]),
            (r#"{"sandbox": {"enabled": false}}"#, vec!["sandbox.enabled"]),
        ] {
            ground.plant(&user, text, 0o644);
            ground.refused(125, &[], &["true"], &says);
        }
        std::fs::write(&user, b"{\"sandbox\": \"\xff\"}").expect("written");
        ground.refused(125, &[], &["true"], &["settings.json"]);
        std::fs::remove_file(&user).expect("removed");
        // A project may only tighten.
        ground.file(".stockade/settings.json", r#"{"sandbox": {"workspaceMode": "rw"}}"#);
        ground.refused(125, &[], &["true"], &["workspaceMode"]);
        ground.file(".stockade/settings.json", r#"{"sandbox": {"backend": "local"}}"#);
        ground.refused(125, &[], &["true"], &["backend"]);
        ground.file(".stockade/settings.json", r#"{"sandbox": {"timeoutSeconds": 1}}"#);
        assert_eq!(ground.run(&[], &["sleep", "30"]).code, Some(124));
    });
}

#[test]
fn state_that_is_damaged() {
    as_both(|ground| {
        let sandboxes = ground.state.join("stockade/sandboxes");
        ground.run(&[], &["true"]);
        // Things that no run of ours has written there.
        ground.plant(&sandboxes.join("0000000000000001/record.json"), "{not json", 0o600);
        ground.plant(&sandboxes.join("0000000000000001/lock"), "", 0o600);
        ground.plant(&sandboxes.join("0000000000000002/record.json"), "{}", 0o600);
        ground.plant(&sandboxes.join("a-file"), "x", 0o600);
        ground.plant(&sandboxes.join("a directory/x"), "x", 0o600);
        ground.directory(&sandboxes.join("0000000000000003"));
        std::os::unix::fs::symlink(&ground.work, sandboxes.join("0000000000000004")).expect("linked");
        ground.file("precious", "precious\n");
        for _ in 0..2 {
            let outcome = ground.sh(&[], "cat precious");
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "precious\n"), "{outcome:?}");
        }
        assert_eq!(ground.read("precious"), "precious\n");
    });
}

#[test]
fn state_that_cannot_be_used() {
    as_both(|ground| {
        let with_state = |path: &std::path::Path| finish(ground.running(&[], &["true"]).env("XDG_STATE_HOME", path));
        ground.plant(&ground.base.join("file"), "", 0o644);
        let outcome = with_state(&ground.base.join("file"));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("file"), "{outcome:?}");
        let outcome = with_state(std::path::Path::new("/proc/nowhere"));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("/proc/nowhere"), "{outcome:?}");
        // Somebody else's directory, or one that everybody may write, could be prepared for us.
        ground.directory(&ground.base.join("open/stockade"));
        std::fs::set_permissions(ground.base.join("open/stockade"), PermissionsExt::from_mode(0o777)).expect("mode");
        let outcome = with_state(&ground.base.join("open"));
        let mode = std::fs::metadata(ground.base.join("open/stockade")).expect("there").permissions().mode() & 0o777;
        assert!(outcome.code == Some(125) || mode == 0o700, "{mode:o} {outcome:?}");
    });
}

#[test]
fn flags_of_later_versions_are_errors_and_not_passed_over() {
    as_both(|ground| {
        for flags in [["--checkpoint", "x"], ["--image", "x"], ["--require", "hardware-vm"], ["--backend", "docker"]] {
            let says = flags[1];
            let outcome = ground.run(&flags, &["true"]);
            assert!(outcome.code == Some(125) && !outcome.stderr.is_empty(), "{says}: {outcome:?}");
            assert_eq!(ground.sandboxes(), Vec::<String>::new());
        }
    });
}

#[test]
fn rules_that_cannot_be_read_stop_the_run() {
    as_both(|ground| {
        ground.file(".stockade/policy/x.cedar", "forbid(principal, action, resource)");
        ground.refused(125, &[], &["true"], &["policy", "x.cedar:1"]);
        ground.file(".stockade/policy/x.cedar", "forbid(principal, action == Stockade::Action::\"exce\", resource);");
        ground.refused(125, &[], &["true"], &["policy", "x.cedar:1", "exce"]);
    });
}
