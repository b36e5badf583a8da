//! Callers in odd surroundings: homes, places, names, limits, signals and owners that are not the usual ones.

use std::os::unix::fs::{MetadataExt, chown};
use std::process::Stdio;

use super::ground::{ended, finish};
use super::{Ground, Who, as_both};

#[test]
fn a_workspace_below_home_brings_nothing_else_of_it() {
    as_both(|ground| {
        ground.plant(&ground.home.join("secret"), "PLANTED", 0o644);
        ground.plant(&ground.home.join("src/secret"), "PLANTED", 0o644);
        ground.plant(&ground.home.join("src/project/file"), "file\n", 0o644);
        let mut command =
            ground.running(&[], &["bash", "-c", "pwd; cat file; ls -A ~ ..; cat ../secret ~/secret; echo x >~/own; echo x >new"]);
        let outcome = finish(command.current_dir(ground.home.join("src/project")));
        let (project, home) = (ground.home.join("src/project"), ground.home.display());
        assert_eq!(outcome.stdout, format!("{}\nfile\n..:\nproject\n\n{home}:\nsrc\n", project.display()), "{outcome:?}");
        assert!(!ground.home.join("own").exists() && !project.join("new").exists());
    });
}

#[test]
fn a_workspace_may_lie_in_tmp() {
    as_both(|ground| {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        ground.own(directory.path());
        let outcome = finish(ground.running(&[], &["bash", "-c", "pwd; ls -A /tmp; echo x >new; ls"]).current_dir(directory.path()));
        let name = directory.path().file_name().expect("a name").to_string_lossy();
        assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("/tmp/{name}\n{name}\nnew\n")), "{}", outcome.stderr);
        assert!(!directory.path().join("new").exists());
    });
}

#[test]
fn names_that_mean_something_to_a_shell_or_to_mount_are_names() {
    as_both(|ground| {
        for name in ["a b", "com,ma:co\\lon", "quo'te\"s", "$x `id` #%s", "-dash", "ünï", "new\\nline", "lowerdir=x"] {
            let directory = ground.base.join(name);
            ground.directory(&directory);
            ground.plant(&directory.join("file"), "file\n", 0o644);
            for mode in ["overlay", "rw", "ro"] {
                let mut command =
                    ground.running(&["--workspace-mode", mode], &["bash", "-c", "pwd; cat file; [ $0 = ro ] || echo $0 >file", mode]);
                let outcome = finish(command.current_dir(&directory));
                assert_eq!(
                    (outcome.code, outcome.stdout),
                    (Some(0), format!("{}\nfile\n", directory.display())),
                    "{mode}: {}",
                    outcome.stderr
                );
                let expected = if mode == "rw" { "rw\n" } else { "file\n" };
                assert_eq!(std::fs::read_to_string(directory.join("file")).expect("there"), expected, "{mode} {name}");
                ground.plant(&directory.join("file"), "file\n", 0o644);
            }
        }
    });
}

#[test]
fn a_home_that_is_no_place_of_its_own() {
    as_both(|ground| {
        for home in ["/", "/usr"] {
            let outcome = finish(ground.running(&[], &["bash", "-c", "cd && touch x && pwd"]).env("HOME", home));
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "/home/sandbox\n"), "{home}: {outcome:?}");
        }
        let outcome = finish(ground.running(&[], &["bash", "-c", "touch ~/x && echo ~"]).env("HOME", "/nonexistent"));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "/nonexistent\n"), "{outcome:?}");
        let outcome = finish(ground.running(&[], &["true"]).env_remove("HOME"));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("HOME"), "{outcome:?}");
        let outcome = finish(ground.running(&[], &["true"]).env("HOME", "relative"));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("relative"), "{outcome:?}");
        let outcome = finish(ground.running(&[], &["sh", "-c", "echo $PATH"]).env_remove("PATH"));
        assert!(outcome.code == Some(0) && outcome.stdout.contains("/usr/bin"), "{outcome:?}");
    });
}

#[test]
fn a_home_behind_a_link() {
    as_both(|ground| {
        let link = ground.base.join("link");
        std::os::unix::fs::symlink(&ground.home, &link).expect("linked");
        ground.plant(&ground.home.join("secret"), "PLANTED", 0o644);
        let outcome = finish(ground.running(&[], &["bash", "-c", "cd && pwd && touch x && ls -A; cat ~/secret"]).env("HOME", &link));
        assert_eq!(outcome.stdout, format!("{}\nx\n", link.display()), "{outcome:?}");
        assert!(!ground.home.join("x").exists());
        // Home is refused as a workspace by any of its names.
        let outcome = finish(ground.running(&[], &["true"]).env("HOME", &link).current_dir(&ground.home));
        assert_eq!(outcome.code, Some(125), "{outcome:?}");
    });
}

/// What a caller may hand down: ignored and blocked signals. Programs inside begin with none.
#[test]
fn signals_that_the_caller_ignores_or_blocks_are_as_usual_inside() {
    as_both(|ground| {
        let program = "import os, signal as s, sys\n\
                       for n in [s.SIGCHLD, s.SIGPIPE, s.SIGINT, s.SIGHUP, s.SIGTERM]: s.signal(n, s.SIG_IGN)\n\
                       s.pthread_sigmask(s.SIG_BLOCK, [s.SIGTERM, s.SIGCHLD, s.SIGUSR1, s.SIGALRM])\n\
                       os.execv(sys.argv[1], sys.argv[1:])";
        let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t'; echo x >new; exit 5";
        let mut command = ground.outside("/usr/bin/python3");
        command.arg("-c").arg(program).arg(&ground.binary).args(["run", "--", "bash", "-c", script]);
        let outcome = finish(&mut command);
        let none = "0000000000000000";
        assert_eq!((outcome.code, outcome.stdout), (Some(5), format!("SigBlk:{none}\nSigIgn:{none}\n")), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("copied"), "ids are mapped as ever: {}", outcome.stderr);
    });
}

#[test]
fn a_stdin_that_never_ends_holds_nothing_up() {
    as_both(|ground| {
        for flags in [&[][..], &["--json"]] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            let mut command = ground.running(flags, &["bash", "-c", "exit 3"]);
            let child = command.stdin(reader).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
            let outcome = ended(child);
            drop(writer);
            assert_eq!(outcome.code, Some(3), "{outcome:?}");
        }
    });
}

#[test]
fn masks_of_the_caller_open_nothing() {
    as_both(|ground| {
        for mask in ["000", "022", "077"] {
            let script = format!("umask {mask}; \"$0\" run -- bash -c 'echo x >kept; touch ~/x /tmp/x'");
            let outcome = finish(ground.outside("bash").arg("-c").arg(&script).arg(&ground.binary));
            assert_eq!(outcome.code, Some(0), "{mask}: {outcome:?}");
        }
        let open =
            finish(ground.outside("find").arg(ground.state.join("stockade")).args(["-maxdepth", "2", "-type", "d", "-perm", "/077"]));
        assert_eq!(open.stdout, "", "only the caller may look in");
    });
}

#[test]
fn odd_files_of_a_workspace_are_no_trouble() {
    as_both(|ground| {
        ground.host(
            "mkfifo fifo; ln -s /etc/shadow link; echo a >one; ln one two; touch closed; chmod 000 closed; mkdir shut; chmod 000 shut",
        );
        ground.host("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'");
        let before = ground.snapshot();
        let script = "cat link; echo b >one; cat two; rm fifo; mkfifo other; rm closed; mv link moved";
        let (code, value) = ground.json(&[], &["bash", "-c", script]);
        assert_eq!((code, value["stdout"].as_str()), (0, Some("a\n")), "{value}");
        assert_eq!(ground.snapshot(), before);
        let paths: Vec<&str> = value["changes"].as_array().expect("changes").iter().filter_map(|c| c["path"].as_str()).collect();
        assert!(["closed", "fifo", "moved", "one", "other"].iter().all(|path| paths.contains(path)), "{value}");
        // A FIFO is never made on the host.
        ground.sh(&["--apply"], "mkfifo later; echo plain >plain");
        assert!(!ground.work.join("later").exists() && ground.read("plain") == "plain\n");
        ground.host("chmod 700 shut");
    });
}

/// `sudo stockade` in somebody's project: what is written stays theirs.
#[test]
fn root_in_somebody_elses_workspace() {
    let ground = Ground::new(Who::Root);
    let owner = 4711;
    ground.file("file", "before\n");
    for path in [ground.work.clone(), ground.work.join("file")] {
        chown(path, Some(owner), Some(owner)).expect("chown");
    }
    let of = |name: &str| std::fs::metadata(ground.work.join(name)).map(|meta| (meta.uid(), meta.gid())).expect("there");
    for (flags, name) in [(&["--apply"][..], "applied"), (&["--workspace-mode", "rw"], "written")] {
        let outcome = ground.sh(flags, &format!("echo more >>file; echo new >{name}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!((of("file"), of(name)), ((owner, owner), (owner, owner)), "{name}");
    }
    assert_eq!(ground.read("file"), "before\nmore\nmore\n");
}
