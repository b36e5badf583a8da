//! Mounting from inside, with the old calls and the new ones; each first takes what a nested user namespace would give.

use crate::call::{self, pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_reached};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("mount_tmpfs", mount_tmpfs),
    ("mount_overlay", mount_overlay),
    ("mount_proc", mount_proc),
    ("mount_cgroup", mount_cgroup),
    ("mount_bind_secret", mount_bind_secret),
    ("remount_writable", remount_writable),
    ("umount", umount),
    ("fsopen", fsopen),
    ("fspick", fspick),
    ("open_tree", open_tree),
    ("move_mount", move_mount),
    ("mount_setattr", mount_setattr),
    ("pivot_root", pivot_root),
    ("chroot", chroot),
    ("chroot_escape", chroot_escape),
];

const HERE: i64 = libc::AT_FDCWD as i64;

/// Mounts in a namespace of its own, so that nothing shows outside even where it works. Refuses to go on as a root that has none.
fn apart() -> bool {
    call::gain().is_ok() || raw(libc::SYS_geteuid, &[]).is_ok_and(|uid| uid != 0)
}

fn mount(kind: &str, on: &str, flags: u64, options: &str) -> std::io::Result<i64> {
    let (kind, on, options) = (text(kind), text(on), text(options));
    raw(libc::SYS_mount, &[pointer(&kind), pointer(&on), pointer(&kind), flags as i64, pointer(&options)])
}

fn guarded(act: impl FnOnce() -> Finding) -> Finding {
    if apart() { act() } else { Finding::Broken("this is root without a wall: not tried".into()) }
}

fn mount_tmpfs(facts: &Facts) -> Finding {
    guarded(|| if_it_works(mount("tmpfs", facts.text("work"), 0, "")))
}

/// Overlay file systems mounted by ordinary users were behind CVE-2021-3493 and CVE-2023-0386.
fn mount_overlay(facts: &Facts) -> Finding {
    let work = facts.text("work");
    let scratch = format!("{work}/overlay-{}", std::process::id());
    for name in ["lower", "upper", "work", "on"] {
        let _ = std::fs::create_dir_all(format!("{scratch}/{name}"));
    }
    let options = format!("lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work,userxattr");
    guarded(|| if_it_works(mount("overlay", &format!("{scratch}/on"), 0, &options)))
}

/// A fresh /proc shows what masks hide.
fn mount_proc(facts: &Facts) -> Finding {
    guarded(|| {
        // A new process namespace, without which the kernel refuses; its first child is the one that mounts.
        let _ = raw(libc::SYS_unshare, &[i64::from(libc::CLONE_NEWPID)]);
        let answer = crate::isolate::in_child(|| match mount("proc", facts.text("work"), 0, "") {
            Ok(_) => b"mounted".to_vec(),
            Err(error) => error.to_string().into_bytes(),
        });
        match answer.as_deref() {
            Some(b"mounted") => Finding::Open("a second /proc".into()),
            Some(other) => Finding::Held(String::from_utf8_lossy(other).into_owned()),
            None => Finding::Held("no process in the new namespace".into()),
        }
    })
}

/// The first step of the release_agent escape, CVE-2022-0492.
fn mount_cgroup(facts: &Facts) -> Finding {
    guarded(|| {
        let first = mount("cgroup2", facts.text("work"), 0, "");
        if_it_works(first.or_else(|_| mount("cgroup", facts.text("work"), 0, "none,name=stockade-conformance")))
    })
}

/// A directory of the host bound into view.
fn mount_bind_secret(facts: &Facts) -> Finding {
    guarded(|| {
        let (from, on) = (text(facts.text("out")), text(facts.text("work")));
        if_it_works(raw(libc::SYS_mount, &[pointer(&from), pointer(&on), 0, libc::MS_BIND as i64, 0]))
    })
}

/// What is read-only becomes writable: the kernel locks such flags in nested namespaces, and the wall must not rely on that alone.
fn remount_writable(_: &Facts) -> Finding {
    guarded(|| {
        let on = text("/");
        if_reached(raw(libc::SYS_mount, &[0, pointer(&on), 0, (libc::MS_REMOUNT | libc::MS_BIND) as i64, 0]))
    })
}

fn umount(_: &Facts) -> Finding {
    guarded(|| {
        let on = text("/no/such");
        if_reached(raw(libc::SYS_umount2, &[pointer(&on), i64::from(libc::MNT_DETACH)]))
    })
}

fn fsopen(_: &Facts) -> Finding {
    let kind = text("tmpfs");
    guarded(|| if_it_works(raw(libc::SYS_fsopen, &[pointer(&kind), 0])))
}

fn fspick(_: &Facts) -> Finding {
    let on = text("/no/such");
    guarded(|| if_reached(raw(libc::SYS_fspick, &[HERE, pointer(&on), 0])))
}

fn open_tree(_: &Facts) -> Finding {
    let on = text("/usr");
    guarded(|| if_it_works(raw(libc::SYS_open_tree, &[HERE, pointer(&on), 1])))
}

fn move_mount(_: &Facts) -> Finding {
    let on = text("/no/such");
    guarded(|| if_reached(raw(libc::SYS_move_mount, &[HERE, pointer(&on), HERE, pointer(&on), 0])))
}

fn mount_setattr(_: &Facts) -> Finding {
    let on = text("/no/such");
    let attributes = [1u64, 0, 0, 0];
    guarded(|| if_reached(raw(libc::SYS_mount_setattr, &[HERE, pointer(&on), 0, call::address(&attributes), 32])))
}

fn pivot_root(_: &Facts) -> Finding {
    let on = text("/no/such");
    guarded(|| if_reached(raw(libc::SYS_pivot_root, &[pointer(&on), pointer(&on)])))
}

fn chroot(facts: &Facts) -> Finding {
    let on = text(facts.text("work"));
    guarded(|| if_it_works(raw(libc::SYS_chroot, &[pointer(&on)])))
}

/// The old way out of a root that is only a chroot: change the root again with a descriptor held outside, then climb.
fn chroot_escape(facts: &Facts) -> Finding {
    guarded(|| {
        let on = text(facts.text("work"));
        let up = text("..");
        let outside = call::open("/", libc::O_RDONLY | libc::O_DIRECTORY);
        let changed = raw(libc::SYS_chroot, &[pointer(&on)]);
        if let Ok(fd) = outside {
            let _ = raw(libc::SYS_fchdir, &[fd]);
        }
        for _ in 0..64 {
            let _ = raw(libc::SYS_chdir, &[pointer(&up)]);
        }
        let here = text(".");
        let again = raw(libc::SYS_chroot, &[pointer(&here)]);
        let secret = std::fs::read(facts.text("secret_file"));
        match (changed, again) {
            (Ok(_), Ok(_)) => crate::finding::if_secret(secret, facts.text("secret")),
            (Err(error), _) | (_, Err(error)) => Finding::Held(error.to_string()),
        }
    })
}
