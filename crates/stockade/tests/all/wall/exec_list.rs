//! With an exec list only what is listed runs, however it is started.

use super::{Ground, as_both};

fn list(ground: &Ground, programs: &str, script: &str) -> crate::Outcome {
    ground.sh(&["--exec-allow", programs], script)
}

#[test]
fn only_listed_programs_run() {
    as_both(|ground| {
        ground.file("file", "contents\n");
        let outcome = list(ground, "bash,ls", "ls file; cat file; /usr/bin/cat file; /bin/cat file; echo end");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "file\nend\n"), "{outcome:?}");
        ground.refused(127, &["--exec-allow", "bash,ls"], &["cat", "file"], &["cat"]);
        ground.refused(127, &["--exec-allow", "ls"], &["/usr/bin/cat", "file"], &["cat"]);
        assert_eq!(ground.run(&["--exec-allow", "cat"], &["cat", "file"]).stdout, "contents\n");
    });
}

#[test]
fn the_loader_cannot_be_used_to_run_others() {
    as_both(|ground| {
        ground.file("file", "contents\n");
        let script = "for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2; do $loader /usr/bin/cat file; done; echo end";
        let outcome = list(ground, "bash,ls", script);
        assert_eq!(outcome.stdout, "end\n", "{outcome:?}");
    });
}

#[test]
fn copies_do_not_run() {
    as_both(|ground| {
        ground.file("file", "contents\n");
        for place in ["./copy", "/tmp/copy", "/dev/shm/copy", "~/copy", "/var/tmp/copy"] {
            let script = format!(
                "cp /usr/bin/cat {place} && chmod 755 {place} && {place} file; /lib64/ld-linux-x86-64.so.2 {place} file; ln -s /usr/bin/cat {place}-link; {place}-link file; echo end"
            );
            let outcome = list(ground, "bash,cp,chmod,ln", &script);
            assert_eq!(outcome.stdout, "end\n", "{place}: {outcome:?}");
        }
        std::fs::copy("/usr/bin/cat", ground.work.join("brought")).expect("copied");
        ground.own(&ground.work.join("brought"));
        for mode in ["overlay", "rw", "ro"] {
            let outcome = ground.sh(&["--exec-allow", "bash", "--workspace-mode", mode], "./brought file; echo end");
            assert_eq!(outcome.stdout, "end\n", "{mode}: {outcome:?}");
        }
    });
}

#[test]
fn memory_does_not_run() {
    as_both(|ground| {
        let program = "import os, ctypes\n\
                       try: fd = os.memfd_create('x')\n\
                       except OSError: print('refused'); raise SystemExit\n\
                       os.write(fd, open('/usr/bin/id', 'rb').read())\n\
                       for attempt in [lambda: os.execve(fd, ['id'], {}), lambda: os.execv(f'/proc/self/fd/{fd}', ['id']), lambda: ctypes.CDLL(f'/proc/self/fd/{fd}')]:\n\
                       \x20 try: attempt(); print('ran')\n\
                       \x20 except OSError as error: print('refused')\n";
        let outcome = ground.python(&["--exec-allow", "/usr/bin/python3"], program);
        // Either there is no such file at all, or none of the ways to run it works.
        assert!(outcome.code == Some(0) && ["refused\n", "refused\nrefused\nrefused\n"].contains(&outcome.stdout.as_str()), "{outcome:?}");
    });
}

#[test]
fn scripts_need_to_be_listed_and_bring_their_interpreter() {
    as_both(|ground| {
        ground.script("script", "#!/bin/sh\necho ran\n");
        ground.plant(&ground.home.join("tools/listed"), "#!/usr/bin/env perl\nprint \"listed\\n\";\n", 0o755);
        let listed = ground.home.join("tools/listed").display().to_string();
        let mut command = ground.running(&["--exec-allow", "listed"], &["listed"]);
        let path = format!("{}:{}", ground.home.join("tools").display(), super::ground::PATH);
        let outcome = super::ground::finish(command.env("PATH", &path));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "listed\n"), "{listed}: {outcome:?}");
        let outcome = list(ground, "bash,sh", "./script; echo end");
        assert_eq!(outcome.stdout, "end\n", "{outcome:?}");
    });
}

#[test]
fn libraries_of_the_workspace_are_not_loaded() {
    as_both(|ground| {
        ground.file("evil.c", "#include <stdio.h>\n__attribute__((constructor)) static void f(void) { puts(\"loaded\"); }\n");
        ground.host("gcc -shared -fPIC -o evil.so evil.c");
        let work = ground.work.display();
        assert!(ground.good(&["--env", &format!("LD_PRELOAD={work}/evil.so")], "true").contains("loaded"), "without a list it is");
        let outcome = ground.sh(&["--exec-allow", "bash", "--env", &format!("LD_PRELOAD={work}/evil.so")], "echo end");
        assert_eq!(outcome.stdout, "end\n", "{outcome:?}");
    });
}

#[test]
fn a_list_that_names_nothing_is_refused() {
    as_both(|ground| {
        ground.refused(125, &["--exec-allow", "no-such-program"], &["ls"], &["no-such-program"]);
        ground.refused(125, &["--exec-allow", "./ls"], &["ls"], &["./ls"]);
        ground.refused(125, &["--exec-allow", ""], &["ls"], &["exec-allow"]);
    });
}
