//! Files of the host: reading what is private, writing outside, leaving traps in the workspace.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::call::{pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_secret};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("read_beside_workspace", |facts| read(facts, facts.text("secret_file"))),
    ("read_ssh_key", |facts| read(facts, &format!("{}/.ssh/id_ed25519", facts.text("home")))),
    ("read_cloud_credentials", |facts| read(facts, &format!("{}/.aws/credentials", facts.text("home")))),
    ("read_shell_history", |facts| read(facts, &format!("{}/.bash_history", facts.text("home")))),
    ("read_upwards", |facts| read(facts, &format!("{}/../secret", facts.text("work")))),
    ("read_proc_root", |facts| read(facts, &format!("/proc/self/root{}", facts.text("secret_file")))),
    ("read_hard_link", read_hard_link),
    ("read_symbolic_link", read_symbolic_link),
    ("read_shadow", |_| if_it_works(std::fs::read("/etc/shadow").and_then(|bytes| some(bytes.len())))),
    ("read_other_home", |_| if_it_works(std::fs::read_dir("/root").map(Iterator::count).and_then(some))),
    ("read_state", |facts| if_it_works(std::fs::read_dir(facts.text("state")).map(Iterator::count).and_then(some))),
    ("write_outside", |facts| write(facts.text("out"))),
    ("write_home", |facts| write(facts.text("home"))),
    ("write_shared_tmp", |facts| write(facts.text("tmp"))),
    ("write_system", |_| if_it_works(crate::call::open("/usr/bin/env", libc::O_WRONLY))),
    ("write_etc", |_| if_it_works(crate::call::open("/etc/passwd", libc::O_WRONLY))),
    ("rename_out", rename_out),
    ("git_hook", git_hook),
    ("setuid_chmod", setuid_chmod),
    ("setuid_open", setuid_open),
    ("setuid_openat2", setuid_openat2),
    ("setgid_directory", setgid_directory),
    ("give_away", give_away),
    ("file_capability", file_capability),
    ("immutable_flag", immutable_flag),
];

fn some(count: usize) -> std::io::Result<usize> {
    if count == 0 { Err(std::io::Error::other("empty")) } else { Ok(count) }
}

fn read(facts: &Facts, path: &str) -> Finding {
    if_secret(std::fs::read(path), facts.text("secret"))
}

/// Leaves the file `written`; whether it arrived is looked at from outside.
fn write(directory: &str) -> Finding {
    if_it_works(std::fs::write(format!("{directory}/written"), "x"))
}

fn read_hard_link(facts: &Facts) -> Finding {
    let link = format!("{}/hard-{}", facts.text("work"), std::process::id());
    match std::fs::hard_link(facts.text("secret_file"), &link) {
        Ok(()) => read(facts, &link),
        Err(error) => Finding::Held(error.to_string()),
    }
}

fn read_symbolic_link(facts: &Facts) -> Finding {
    let link = format!("{}/soft-{}", facts.text("work"), std::process::id());
    match std::os::unix::fs::symlink(facts.text("secret_file"), &link) {
        Ok(()) => read(facts, &link),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn rename_out(facts: &Facts) -> Finding {
    let from = format!("{}/leaving-{}", facts.text("work"), std::process::id());
    let _ = std::fs::write(&from, "x");
    if_it_works(std::fs::rename(from, format!("{}/renamed", facts.text("out"))))
}

/// Code that git runs outside, later.
fn git_hook(facts: &Facts) -> Finding {
    let path = format!("{}/.git/hooks/post-checkout", facts.text("work"));
    if_it_works(std::fs::write(&path, "#!/bin/sh\n").and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))))
}

/// Whether the bits are really there.
fn has_bits(path: &str) -> Finding {
    let mode = std::fs::metadata(path).map_or(0, |m| m.mode());
    if mode & 0o6000 == 0 { Finding::Held(format!("mode {mode:o}")) } else { Finding::Open(format!("mode {mode:o}")) }
}

fn setuid_chmod(facts: &Facts) -> Finding {
    let path = format!("{}/setuid-chmod", facts.text("work"));
    let _ = std::fs::write(&path, "");
    let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755));
    has_bits(&path)
}

fn setuid_open(facts: &Facts) -> Finding {
    let path = format!("{}/setuid-open", facts.text("work"));
    let name = text(&path);
    let _ = raw(libc::SYS_openat, &[i64::from(libc::AT_FDCWD), pointer(&name), i64::from(libc::O_CREAT | libc::O_WRONLY), 0o4755]);
    has_bits(&path)
}

/// Its mode lies behind a pointer, where a filter cannot look.
fn setuid_openat2(facts: &Facts) -> Finding {
    let path = format!("{}/setuid-openat2", facts.text("work"));
    let name = text(&path);
    let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
    let _ = raw(libc::SYS_openat2, &[i64::from(libc::AT_FDCWD), pointer(&name), crate::call::address(&how), 24]);
    has_bits(&path)
}

fn setgid_directory(facts: &Facts) -> Finding {
    let path = format!("{}/setgid-directory", facts.text("work"));
    let name = text(&path);
    let _ = raw(libc::SYS_mkdirat, &[i64::from(libc::AT_FDCWD), pointer(&name), 0o2777]);
    let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o2777));
    has_bits(&path)
}

/// A file given to somebody else.
fn give_away(facts: &Facts) -> Finding {
    let path = format!("{}/given", facts.text("work"));
    let _ = std::fs::write(&path, "");
    if_it_works(std::os::unix::fs::chown(&path, Some(1), Some(1)))
}

/// `security.capability` on a file of one's own.
fn file_capability(facts: &Facts) -> Finding {
    let path = format!("{}/capable", facts.text("work"));
    let _ = std::fs::write(&path, "");
    let _ = crate::call::gain();
    let (path, name) = (text(&path), text("security.capability"));
    let value = [0x0200_0001u32, 0x20, 0, 0, 0].map(u32::to_le);
    if_it_works(raw(libc::SYS_setxattr, &[pointer(&path), pointer(&name), crate::call::address(&value), 20, 0]))
}

/// A file that its owner could not remove again: `FS_IMMUTABLE_FL`.
fn immutable_flag(facts: &Facts) -> Finding {
    let path = format!("{}/immutable", facts.text("work"));
    let _ = std::fs::write(&path, "");
    let flags = 0x10i64;
    match crate::call::open(&path, libc::O_RDONLY) {
        Ok(fd) => if_it_works(raw(libc::SYS_ioctl, &[fd, 0x4008_6602, crate::call::address(&flags)])),
        Err(error) => Finding::Broken(error.to_string()),
    }
}
