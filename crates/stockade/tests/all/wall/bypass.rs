//! Ways around the wall that were open once, each by the name of what it did.

use super::ground::{finish, finish_with};
use super::{Ground, as_both};

const RW: [&str; 2] = ["--workspace-mode", "rw"];

fn repository(ground: &Ground) {
    ground.plant(&ground.home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n[protocol \"file\"]\n\tallow = always\n", 0o644);
    ground.host("git init -q -b main . && git commit -q --allow-empty -m one");
}

#[test]
fn a_setuid_file_in_a_workspace_that_is_written_through() {
    as_both(|ground| {
        ground.sh(&RW, "cp /bin/true by-chmod; chmod 4755 by-chmod; chmod 2755 by-chmod; mkdir d; chmod 6777 d");
        ground.python(
            &RW,
            "import os\nfor call in (lambda: os.open('by-open', os.O_CREAT | os.O_WRONLY, 0o4755), lambda: os.mknod('by-mknod', 0o104755),\n             lambda: os.fchmod(os.open('by-chmod', os.O_RDONLY), 0o6755)):\n    try:\n        call()\n    except OSError as e:\n        print(e)",
        );
        assert_eq!(ground.host("find . -perm /6000"), "");
        assert_eq!(ground.host("ls by-chmod"), "by-chmod\n", "the rest of the script ran");
    });
}

#[test]
fn hooks_and_settings_of_a_submodule() {
    as_both(|ground| {
        repository(ground);
        ground.directory(&ground.base.join("other"));
        ground.host("git init -q ../other && git -C ../other commit -q --allow-empty -m a && git submodule --quiet add ../other sub && git commit -qm sub");
        let git = ground.work.join(".git/modules/sub");
        let script = format!(
            "cd sub; echo x >> {0}/config; echo x > {0}/hooks/pre-commit; echo n > n && git add n && git commit -qm n && echo committed; git config core.fsmonitor ./evil; echo ../../evil > {0}/commondir",
            git.display()
        );
        let before = ground.host("cat .git/modules/sub/config");
        let mut command = ground.running(&RW, &["bash", "-c", &script]);
        command.current_dir(&ground.work);
        let outcome = finish(&mut command);
        assert!(outcome.stdout.contains("committed"), "{outcome:?}");
        assert_eq!(ground.host("cat .git/modules/sub/config"), before);
        assert_eq!(ground.host("ls .git/modules/sub/hooks | grep -v sample || true"), "");
        assert_eq!(ground.host("ls .git/modules/sub/commondir 2>/dev/null || true"), "");
        // The same with the submodule itself as the workspace: its git directory lies outside.
        let mut command =
            ground.running(&RW, &["bash", "-c", &script.replace("cd sub;", "").replace("echo n > n", "echo m > m; git add m; echo n > n")]);
        command.current_dir(ground.work.join("sub"));
        let outcome = finish(&mut command);
        assert!(outcome.stdout.contains("committed"), "{outcome:?}");
        assert_eq!(ground.host("cat .git/modules/sub/config"), before);
        assert_eq!(ground.host("ls .git/modules/sub/hooks | grep -v sample || true"), "");
        assert_eq!(ground.host("ls .git/modules/sub/commondir 2>/dev/null || true"), "");
    });
}

#[test]
fn a_protected_file_hidden_in_a_directory_that_cannot_be_listed() {
    as_both(|ground| {
        let outcome = ground.sh(&RW, "mkdir -p sub/deep; echo evil > sub/deep/.envrc; chmod 311 sub/deep; chmod 000 sub");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains(".envrc"), "{outcome:?}");
        ground.host("chmod -R u+rwx sub; test ! -e sub/deep/.envrc");
    });
}

#[test]
fn a_commondir_that_leads_git_elsewhere() {
    let script = "mkdir -p x/objects x/refs/heads sub; echo 'ref: refs/heads/main' > sub/HEAD; echo ../x > sub/commondir; printf '[core]\\n\\tpager = evil\\n' > x/config; echo fine > fine";
    as_both(|ground| {
        let outcome = ground.sh(&["--apply"], script);
        assert!(outcome.stderr.contains("sub/commondir") && outcome.stderr.contains("x/config"), "{outcome:?}");
        assert_eq!(ground.host("ls fine; find . -name commondir -o -name config"), "fine\n");
        ground.host("rm -rf ./*");
        ground.sh(&RW, script);
        assert_eq!(ground.host("ls fine; find . -name commondir -o -name config"), "fine\n");
    });
}

#[test]
fn a_socket_of_the_host_in_a_workspace() {
    as_both(|ground| {
        let server = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX); s.bind('host.sock'); os.chmod('host.sock', 0o777); s.listen(); open('ready', 'w').close()\nsys.stdin.read()";
        let mut host = ground.outside("python3");
        host.args(["-c", server]).current_dir(&ground.work).stdin(std::process::Stdio::piped());
        let mut host = host.spawn().unwrap();
        super::ground::eventually("the socket", || ground.work.join("ready").exists());
        for mode in ["overlay", "ro", "rw"] {
            let probe = "import socket\ntry:\n    socket.socket(socket.AF_UNIX).connect('host.sock')\n    print('reached')\nexcept OSError as e:\n    print('held', e.errno)";
            let outcome = ground.python(&["--workspace-mode", mode], probe);
            assert!(outcome.stdout.starts_with("held"), "{mode}: {outcome:?}");
        }
        drop(host.stdin.take());
        host.wait().unwrap();
    });
}

#[test]
fn a_reader_that_stalls_does_not_stop_the_clock() {
    as_both(|ground| {
        let mut command = ground.running(&["--timeout", "1s", "--output-limit", "100M"], &["yes"]);
        // Nobody reads the pipe.
        let (_reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer);
        let outcome = finish(&mut command);
        assert_eq!(outcome.code, Some(124), "{outcome:?}");
    });
}

#[test]
fn a_directory_as_standard_input() {
    as_both(|ground| {
        let mut command = ground.running(&[], &["true"]);
        command.stdin(std::fs::File::open(&ground.base).unwrap());
        let outcome =
            super::ground::ended(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap());
        assert_eq!(outcome.code, Some(125), "{outcome:?}");
    });
}

#[test]
fn a_named_pipe_in_place_of_a_git_configuration() {
    as_both(|ground| {
        repository(ground);
        ground.host("rm .git/config && mkfifo .git/config");
        let outcome = finish_with(&mut ground.running(&RW, &["true"]), b"");
        assert!(matches!(outcome.code, Some(0 | 125)), "it ends: {outcome:?}");
    });
}

#[test]
fn protected_files_of_a_mount_that_is_written_through() {
    as_both(|ground| {
        ground.directory(&ground.base.join("data"));
        ground.plant(&ground.base.join("data/.envrc"), "mine\n", 0o644);
        let mount = format!("{}:/data:rw", ground.base.join("data").display());
        let outcome = ground
            .sh(&["--mount", &mount], "echo evil > /data/.envrc; mkdir -p /data/sub; echo evil > /data/sub/.envrc; echo fine > /data/fine");
        assert!(outcome.stderr.contains("sub/.envrc"), "{outcome:?}");
        assert_eq!(ground.host("cat ../data/.envrc ../data/fine; ls -A ../data/sub"), "mine\nfine\n");
    });
}

#[test]
fn a_whiteout_by_rename() {
    as_both(|ground| {
        let program = "import ctypes, os\nopen('a', 'w').close()\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.renameat2(-100, b'a', -100, b'b', 4), ctypes.get_errno())";
        let outcome = ground.python(&RW, program);
        assert_eq!(outcome.stdout, "-1 22\n", "{outcome:?}");
        assert_eq!(ground.host("find . -type c"), "");
    });
}

#[test]
fn protected_files_left_by_a_run_that_was_killed() {
    as_both(|ground| {
        let mut child = ground.running(&RW, &["sh", "-c", "echo evil > .envrc; touch made; sleep 1000"]).spawn().unwrap();
        super::ground::eventually("the file", || ground.work.join("made").exists());
        // The child is a chain of helpers that become the program; the one to kill is the last.
        for pid in super::ground::processes(&ground.work.display().to_string()) {
            ground.host(&format!("kill -9 {pid} 2>/dev/null || true"));
        }
        child.kill().ok();
        child.wait().unwrap();
        ground.sh(&["--workspace-mode", "ro"], "true");
        assert_eq!(ground.host("ls -A"), "made\n");
    });
}

#[test]
fn a_listed_program_that_can_be_rewritten() {
    as_both(|ground| {
        ground.host("cp /bin/true ./tool");
        let tool = ground.work.join("tool");
        let tool = tool.to_str().unwrap();
        ground.refused(125, &["--workspace-mode", "rw", "--exec-allow", tool], &[tool], &["may write"]);
    });
}
