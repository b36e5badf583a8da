//! What exists behind the wall, and above all what does not.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::ground::{PATH, finish};
use super::{Ground, Who, as_both};

/// Where people keep what nobody else may read.
const SECRETS: [&str; 22] = [
    ".ssh/id_rsa",
    ".ssh/config",
    ".aws/credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".docker/config.json",
    ".config/gcloud/credentials.db",
    ".config/gh/hosts.yml",
    ".config/stockade/settings.json.bak",
    ".kube/config",
    ".bash_history",
    ".python_history",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".git-credentials",
    ".gnupg/private-keys-v1.d/key",
    ".mozilla/firefox/x.default/logins.json",
    ".config/google-chrome/Default/Cookies",
    ".local/share/keyrings/login.keyring",
    ".vault-token",
    "Documents/diary.txt",
];

#[test]
fn secrets_of_home_do_not_exist() {
    as_both(|ground| {
        for secret in SECRETS {
            // Readable by all, so that only absence protects them.
            ground.plant(&ground.home.join(secret), "PLANTED", 0o644);
        }
        ground.plant(&ground.home.join(".cargo/bin/tool"), "#!/bin/sh\n", 0o755);
        let list = SECRETS.join("\n");
        let script = format!(
            "for root in '' /proc/self/root /proc/1/root /proc/$$/root /proc/self/cwd/../../../..; do while read -r name; do cat \"$root$HOME/$name\"; done <<'EOF'\n{list}\nEOF\ndone\n\
             grep -rl PLANTED \"$HOME\" /var /run /tmp /home /root /mnt /srv /media /dev/shm\n\
             grep -c PLANTED /proc/1/environ /proc/1/cmdline"
        );
        let mut command = ground.running(&[], &["bash", "-c", &script]);
        let outcome = finish(command.env("PATH", format!("{}:{PATH}", ground.home.join(".cargo/bin").display())));
        let told = outcome.stdout.lines().filter(|line| !line.ends_with(":0")).collect::<Vec<_>>();
        assert_eq!(told, Vec::<&str>::new(), "{outcome:?}");
    });
}

#[test]
fn home_is_empty_and_writable() {
    as_both(|ground| {
        ground.plant(&ground.home.join("letter"), "dear", 0o644);
        assert_eq!(ground.good(&[], "ls -A ~; cd ~ && pwd && mkdir -p .cache/x && echo a >.cache/x/y && cat ~/.cache/x/y"), {
            format!("{}\na\n", ground.home.display())
        });
        assert!(!ground.home.join(".cache").exists());
    });
}

#[test]
fn other_homes_and_our_own_state_do_not_exist() {
    as_both(|ground| {
        ground.plant(&ground.base.join("other/secret"), "PLANTED", 0o644);
        ground.plant(&ground.state.join("stockade/secret"), "PLANTED", 0o644);
        let script = format!(
            "cat {0}/other/secret {1}/stockade/secret; ls -A {0}; ls -A /root /home /srv /media; \
             cut -d: -f1,3 /etc/passwd | while IFS=: read -r name id; do [ $id -ge 1000 ] && [ $id != 65534 ] && [ $id != $(id -u) ] && echo $name; done",
            ground.base.display(),
            ground.state.display()
        );
        let outcome = ground.sh(&[], &script);
        let seen = outcome.stdout.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect::<Vec<_>>();
        assert_eq!(seen, ["home", "work"], "{outcome:?}");
    });
}

#[test]
fn private_files_of_the_system_cannot_be_read() {
    let private = "find /etc -xdev -type f ! -perm -004 -size +0";
    let ground = Ground::new(Who::Root);
    let list = ground.host(private);
    assert!(list.contains("/etc/shadow\n"), "the test needs something that it could find: {list}");
    as_both(|ground| {
        let script = format!(
            "while read -r name; do cat \"$name\"; done <<'EOF'\n{list}/etc/ssh/ssh_host_rsa_key\n/etc/ssh/ssh_host_ed25519_key\nEOF\nls -A /etc/ssl/private"
        );
        assert_eq!(ground.sh(&[], &script).stdout, "");
    });
}

#[test]
fn sockets_of_the_host_cannot_be_connected() {
    as_both(|ground| {
        let name = ground.base.file_name().expect("a name").to_string_lossy().into_owned();
        let in_run = Path::new("/run").join(format!("{name}.sock"));
        let beside = ground.base.join("agent.sock");
        let sockets = [in_run.clone(), beside, ground.home.join("agent.sock")];
        let listeners: Vec<UnixListener> = sockets.iter().map(|path| UnixListener::bind(path).expect("bound")).collect();
        for path in &sockets {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("mode");
        }
        let program = format!(
            "import socket\nfor path in {:?}:\n  for root in ['', '/proc/self/root', '/proc/1/root']:\n    try: socket.socket(socket.AF_UNIX).connect(root + path); print('connected', path)\n    except OSError: pass",
            sockets.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        );
        let could = finish(ground.outside("/usr/bin/python3").args(["-c", &program]));
        assert!(could.stdout.lines().count() >= 3, "outside they can: {could:?}");
        let outcome = ground.python(&[], &program);
        drop(listeners);
        std::fs::remove_file(&in_run).expect("removed");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
        assert_eq!(ground.sh(&[], "find /run /tmp /var/run/ -type s").stdout, "");
    });
}

#[test]
fn processes_of_the_host_cannot_be_seen_or_killed() {
    as_both(|ground| {
        let seconds = super::ground::unique_seconds();
        let mut bystander = ground.outside("sleep").arg(&seconds).spawn().expect("started");
        ground.file("word", &seconds);
        let program = "import os, signal\n\
                       word = open('word').read().encode()\n\
                       pids = [p for p in os.listdir('/proc') if p.isdigit()]\n\
                       print(len(pids) < 10, any(word in open(f'/proc/{p}/cmdline', 'rb').read() for p in pids))\n\
                       try: os.kill(-1, signal.SIGKILL)\n\
                       except ProcessLookupError: pass\n";
        let outcome = ground.python(&[], program);
        let pid = bystander.id().to_string();
        let killed = ground.sh(&[], &format!("kill -9 {pid}; kill -0 {pid} && echo there"));
        let alive = bystander.try_wait().expect("waited").is_none();
        bystander.kill().expect("killed");
        bystander.wait().expect("waited");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "True False\n"), "{outcome:?}");
        assert!(alive, "the bystander died: {outcome:?} {killed:?}");
    });
}

#[test]
fn the_environment_is_clean() {
    as_both(|ground| {
        let mut command = ground.running(&["--env", "GIVEN=1", "--env", "PASSED", "--env", "SPACES=a b=c"], &["env", "-0"]);
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "LD_LIBRARY_PATH",
            "DBUS_SESSION_BUS_ADDRESS",
            "DISPLAY",
            "BASH_ENV",
            "CI",
        ] {
            command.env(name, "PLANTED");
        }
        command.env("PASSED", "2").env("TERM", "dumb").env("TZ", "Asia/Tokyo").env("LC_ALL", "C").env("USER", "me");
        let outcome = finish(&mut command);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(!outcome.stdout.contains("PLANTED"), "{outcome:?}");
        let mut variables: Vec<&str> = outcome.stdout.split_terminator('\0').collect();
        variables.sort_unstable();
        let home = format!("HOME={}", ground.home.display());
        let path = format!("PATH={PATH}");
        let expected =
            ["GIVEN=1", &home, "LANG=C.UTF-8", "LC_ALL=C", "PASSED=2", &path, "SPACES=a b=c", "TERM=dumb", "TZ=Asia/Tokyo", "USER=me"];
        let missing: Vec<_> = expected.iter().filter(|e| !variables.contains(*e)).collect();
        assert!(missing.is_empty(), "{missing:?} of {variables:?}");
        let allowed = ["PWD=", "SHELL=", "LOGNAME="];
        let more: Vec<_> = variables.iter().filter(|v| !expected.contains(*v) && !allowed.iter().any(|a| v.starts_with(a))).collect();
        assert!(more.is_empty(), "{more:?}");
    });
}

#[test]
fn nobody_is_root_inside() {
    as_both(|ground| {
        let ids = ground.good(&[], "id -u; id -g; id -G; awk '$1 == 0' /proc/self/uid_map /proc/self/gid_map; whoami >/dev/null");
        let ids: Vec<&str> = ids.split_whitespace().collect();
        assert!(ids.len() == 3 && !ids.contains(&"0"), "{ids:?}");
    });
}

#[test]
fn git_knows_its_user_and_nothing_else() {
    as_both(|ground| {
        let config =
            "[user]\n\tname = A B\n\temail = a@b.example\n\tsigningkey = KEY\n[credential]\n\thelper = store\n[alias]\n\tx = !sh\n";
        ground.plant(&ground.home.join(".gitconfig"), config, 0o644);
        let script =
            "git init -q r && cd r && git commit -q --allow-empty -m one && git log --format='%an %ae'; git config --global -l | sort";
        assert_eq!(ground.good(&[], script), "A B a@b.example\nuser.email=a@b.example\nuser.name=A B\n");
    });
}

#[test]
fn the_workspace_is_the_git_top_level_at_its_own_path() {
    as_both(|ground| {
        ground.host("git init -q . && mkdir -p a/b && echo top >top");
        let mut command = ground.running(&[], &["bash", "-c", "pwd; cat ../../top; git rev-parse --show-toplevel"]);
        let outcome = finish(command.current_dir(ground.work.join("a/b")));
        let work = ground.work.display();
        assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("{work}/a/b\ntop\n{work}\n")), "{}", outcome.stderr);
        assert_eq!(ground.good(&["--cwd", "a"], "pwd"), format!("{work}/a\n"));
        assert_eq!(ground.good(&["--cwd", "/tmp"], "pwd"), "/tmp\n");
    });
}

#[test]
fn a_directory_without_git_is_its_own_workspace() {
    as_both(|ground| {
        ground.file("sub/file", "below");
        ground.file("above", "PLANTED");
        let mut command = ground.running(&[], &["bash", "-c", "cat file; cat ../above"]);
        let outcome = finish(command.current_dir(ground.work.join("sub")));
        assert_eq!(outcome.stdout, "below", "{outcome:?}");
    });
}

#[test]
fn a_linked_worktree_brings_its_repository() {
    as_both(|ground| {
        let identity = "[user]\n\tname = A\n\temail = a@b\n";
        ground.plant(&ground.home.join(".gitconfig"), identity, 0o644);
        ground.host("git init -q -b main main && cd main && git commit -q --allow-empty -m one && git worktree add -q ../linked");
        let head = "git -C main log --format=%s --all; ls main/.git/hooks | grep -v sample; cat main/.git/config";
        let before = ground.host(&format!("{{ {head}; }} || true"));
        let script = "git status --porcelain && echo x >new && git add new && git commit -q -m two && git log --format=%s";
        let mut command = ground.running(&[], &["bash", "-c", script]);
        let outcome = finish(command.current_dir(ground.work.join("linked")));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "two\none\n"), "{outcome:?}");
        assert_eq!(ground.host(&format!("{{ {head}; }} || true")), before);
    });
}
