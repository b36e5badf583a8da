//! Real tools work behind the wall as they do outside, also those below the home directory.

use super::ground::{PATH, finish};
use super::{Ground, Who, as_both};

#[test]
fn tools_answer_as_they_do_outside() {
    as_both(|ground| {
        for tool in ["python3", "node", "npm", "git", "gcc", "make", "perl", "bash"] {
            let outside = finish(ground.outside(tool).arg("--version"));
            assert_eq!(outside.code, Some(0), "{tool} must be on this machine: {outside:?}");
            let inside = ground.run(&[], &[tool, "--version"]);
            assert_eq!((inside.code, &inside.stdout), (Some(0), &outside.stdout), "{tool}: {inside:?}");
        }
    });
}

#[test]
fn a_c_program_is_made_and_run() {
    as_both(|ground| {
        ground.file("main.c", "#include <stdio.h>\nint main(void) { puts(\"made\"); return 0; }\n");
        ground.file("Makefile", "main: main.c\n\tgcc -o main main.c\n");
        assert_eq!(ground.good(&[], "make -s && ./main"), "made\n");
        assert!(!ground.work.join("main").exists());
    });
}

#[test]
fn interpreters_work() {
    as_both(|ground| {
        let python = "import json, ssl, sqlite3, subprocess, threading, multiprocessing as m\n\
                      with m.Pool(2) as p: print(p.map(abs, [-1, 2]))\n\
                      print(subprocess.run(['uname'], capture_output=True, text=True).stdout, end='')";
        let outcome = ground.python(&[], python);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "[1, 2]\nLinux\n"), "{outcome:?}");
        let node = "const {Worker} = require('worker_threads'); new Worker('console.log(6*7)', {eval: true})";
        let outcome = ground.run(&[], &["node", "-e", node]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "42\n"), "{outcome:?}");
        ground.file("package.json", r#"{"name": "x", "version": "1.0.0", "scripts": {"hello": "node -p 40+2"}}"#);
        let outcome = ground.run(&[], &["npm", "run", "--silent", "hello"]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "42\n"), "{outcome:?}");
    });
}

#[test]
fn java_runs() {
    as_both(|ground| {
        ground.file("Hello.java", "class Hello { public static void main(String[] a) { System.out.println(\"java\"); } }\n");
        assert_eq!(ground.good(&[], "java Hello.java"), "java\n");
    });
}

/// Cargo lives below the home of whoever runs these tests; an ordinary user cannot reach that.
#[test]
#[expect(clippy::disallowed_methods, reason = "the person's own toolchain is what is tested")]
fn the_persons_own_cargo_builds() {
    let ground = Ground::new(Who::Root);
    ground.file("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    ground.file("src/main.rs", "fn main() { println!(\"built\"); }\n");
    let mut command = ground.running(&[], &["cargo", "run", "--quiet", "--offline"]);
    for name in ["HOME", "PATH", "CARGO_HOME", "RUSTUP_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let outcome = finish(&mut command);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "built\n"), "{outcome:?}");
    assert!(!ground.work.join("target").exists());
}

/// Runs with directories below home in front of `PATH`.
fn with_path(ground: &Ground, directories: &[&str], script: &str) -> crate::Outcome {
    let front: Vec<String> = directories.iter().map(|d| ground.home.join(d).display().to_string()).collect();
    let mut command = ground.running(&[], &["bash", "-c", script]);
    finish(command.env("PATH", format!("{}:{PATH}", front.join(":"))))
}

#[test]
fn toolchains_below_home_come_with_path() {
    as_both(|ground| {
        let tool = |path: &str, says: &str| ground.plant(&ground.home.join(path), &format!("#!/bin/sh\n{says}\n"), 0o755);
        tool(".pyenv/shims/pytool", "exec \"$HOME/.pyenv/versions/3/bin/real\"");
        tool(".pyenv/versions/3/bin/real", "echo pyenv");
        tool(".nvm/versions/node/v1/bin/nodetool", "echo nvm");
        tool(".cargo/bin/cargotool", "cat \"$HOME/.rustup/settings.toml\"");
        ground.plant(&ground.home.join(".rustup/settings.toml"), "rustup\n", 0o644);
        ground.plant(&ground.home.join(".cargo/credentials.toml"), "token = \"PLANTED\"\n", 0o600);
        let outcome = with_path(
            ground,
            &[".pyenv/shims", ".nvm/versions/node/v1/bin", ".cargo/bin"],
            "pytool; nodetool; cargotool; cat ~/.cargo/credentials.toml; echo >~/.cargo/bin/cargotool; echo >~/.nvm/new; ls -A ~",
        );
        assert_eq!(outcome.stdout, "pyenv\nnvm\nrustup\n.cargo\n.nvm\n.pyenv\n.rustup\n", "{outcome:?}");
        assert!(!outcome.stderr.contains("PLANTED"), "{outcome:?}");
        assert!(!ground.home.join(".nvm/new").exists());
    });
}

#[test]
fn an_unknown_directory_of_path_comes_alone() {
    as_both(|ground| {
        ground.plant(&ground.home.join("odd/tools/tool"), "#!/bin/sh\necho odd\n", 0o755);
        ground.plant(&ground.home.join("odd/secret"), "PLANTED", 0o644);
        ground.plant(&ground.home.join("secret"), "PLANTED", 0o644);
        let outcome = with_path(ground, &["odd/tools", "", "odd/missing", ".."], "tool; ls -A ~ ~/odd; cat ~/odd/secret ~/secret");
        assert!(outcome.stdout.starts_with("odd\n"), "{outcome:?}");
        assert!(!outcome.stdout.contains("secret") && !outcome.stdout.contains("PLANTED"), "{outcome:?}");
    });
}

#[test]
fn a_directory_of_path_is_reached_by_its_own_name_though_a_link_leads_there() {
    as_both(|ground| {
        ground.plant(&ground.home.join("apps/v2/bin/tool"), "#!/bin/sh\necho two\n", 0o755);
        std::os::unix::fs::symlink("v2", ground.home.join("apps/current")).expect("linked");
        let outcome = with_path(ground, &["apps/current/bin"], "tool; readlink ~/apps/current");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "two\nv2\n"), "{outcome:?}");
    });
}
