//! Further mounts: what they show, who may write, what they may not cover.

use super::{Ground, as_both};

fn data(ground: &Ground) -> String {
    ground.plant(&ground.base.join("data/file"), "data\n", 0o644);
    ground.base.join("data").display().to_string()
}

#[test]
fn read_only_is_the_default() {
    as_both(|ground| {
        let data = data(ground);
        for mount in [format!("{data}:/data"), format!("{data}:/data:ro")] {
            let outcome = ground.sh(&["--mount", &mount], "cat /data/file; echo x >/data/new; echo x >/data/file; rm /data/file; exit 0");
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "data\n"), "{outcome:?}");
            assert_eq!(ground.host(&format!("ls {data}; cat {data}/file")), "file\ndata\n");
        }
    });
}

#[test]
fn writable_when_it_says_so() {
    as_both(|ground| {
        let data = data(ground);
        ground.good(&["--mount", &format!("{data}:/data:rw")], "echo more >>/data/file; echo new >/data/new");
        assert_eq!(
            ground.host(&format!("cat {data}/file {data}/new; stat -c %u {data}/new")),
            format!("data\nmore\nnew\n{}\n", ground.who.uid())
        );
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn an_overlay_is_writable_and_forgotten() {
    as_both(|ground| {
        let data = data(ground);
        let said = ground.good(
            &["--mount", &format!("{data}:/data:overlay")],
            "echo more >>/data/file; rm -f /data/none; echo new >/data/new; cat /data/file /data/new",
        );
        assert_eq!(said, "data\nmore\nnew\n");
        assert_eq!(ground.host(&format!("ls {data}; cat {data}/file")), "file\ndata\n");
    });
}

#[test]
fn one_file_can_be_mounted() {
    as_both(|ground| {
        let data = data(ground);
        let said = ground.good(
            &["--mount", &format!("{data}/file:/somewhere/else.txt")],
            "cat /somewhere/else.txt; ls /somewhere; echo x 2>/dev/null >/somewhere/else.txt || echo refused",
        );
        assert_eq!(said, "data\nelse.txt\nrefused\n");
    });
}

#[test]
fn a_mount_may_lie_in_home_or_in_the_workspace() {
    as_both(|ground| {
        let data = data(ground);
        let home = ground.home.join("data").display().to_string();
        assert_eq!(ground.good(&["--mount", &format!("{data}:{home}:rw")], "cat ~/data/file"), "data\n");
        ground.directory(&ground.work.join("data"));
        let inside = ground.work.join("data").display().to_string();
        for mode in ["overlay", "rw", "ro"] {
            assert_eq!(
                ground.good(&["--workspace-mode", mode, "--mount", &format!("{data}:{inside}:rw")], "cat data/file"),
                "data\n",
                "{mode}"
            );
        }
        assert_eq!(ground.host("find ."), ".\n./data\n");
    });
}

#[test]
fn a_relative_source_is_relative_to_the_caller() {
    as_both(|ground| {
        ground.file("data/file", "relative\n");
        assert_eq!(ground.good(&["--mount", "data:/data"], "cat /data/file"), "relative\n");
    });
}

#[test]
fn mounts_that_collide_are_refused() {
    as_both(|ground| {
        let data = data(ground);
        let work = ground.work.display().to_string();
        for target in [work.as_str(), "/", "/usr", "/etc", "/proc", "/dev", "/sys", "/proc/self", "/bin", "/lib"] {
            ground.refused(125, &["--mount", &format!("{data}:{target}")], &["true"], &[target]);
        }
        ground.refused(125, &["--mount", &format!("{data}:/a"), "--mount", &format!("{data}:/a:rw")], &["true"], &["/a"]);
        // Something that contains the workspace would cover it.
        ground.refused(125, &["--mount", &format!("{data}:{}", ground.base.display())], &["true"], &[&ground.base.display().to_string()]);
    });
}

#[test]
fn sources_that_cannot_be_mounted_are_refused() {
    as_both(|ground| {
        let missing = ground.base.join("missing").display().to_string();
        ground.refused(125, &["--mount", &format!("{missing}:/a")], &["true"], &[&missing]);
        let fifo = ground.base.join("work/fifo").display().to_string();
        ground.host("mkfifo fifo");
        ground.refused(125, &["--mount", &format!("{fifo}:/a")], &["true"], &[&fifo]);
        let file = ground.base.join("data/file").display().to_string();
        data(ground);
        ground.refused(125, &["--mount", &format!("{file}:/a:overlay")], &["true"], &[&file]);
    });
}

#[test]
fn our_own_state_is_never_shown() {
    as_both(|ground| {
        ground.plant(&ground.state.join("stockade/secret"), "PLANTED", 0o644);
        for (mode, part) in
            [("ro", "state"), ("rw", "state"), ("overlay", "state"), ("ro", "state/stockade"), ("rw", "state/stockade/sandboxes")]
        {
            let mount = format!("{}:/data:{mode}", ground.base.join(part).display());
            let outcome = ground.sh(&["--mount", &mount], "find /data -type f | xargs -r cat; find /data");
            let seen = &outcome.stdout;
            assert!(!seen.contains("PLANTED") && !seen.contains("sandboxes") && !seen.contains("record"), "{mode} {part}: {outcome:?}");
        }
    });
}
