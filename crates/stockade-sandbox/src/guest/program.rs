//! The guest program as an open file that can be executed.
//!
//! It is kept as a file in a private directory of the person who runs Stockade, made once per version: executing it then costs no copy, and
//! all sandboxes share its pages. Nothing inside can change it: it lies in no sandbox's root, the process that runs it cannot be looked
//! into, and Landlock grants writing nowhere near it. Where there is no such directory, or nothing on it may be executed, the program
//! is a sealed memory file instead, made for this one sandbox.
//!
//! A second file of the same bytes is for programs inside, which see it read-only ([`tool`]); the one that guests are started from is shown to nobody.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags};
use rustix::io::Errno;
use stockade_shim_image::{SHIM, SHIM_NAME};

/// Read and execute, for us alone.
const MODE: u32 = 0o500;
/// Read and execute, for whoever runs inside.
const TOOL_MODE: u32 = 0o555;

/// Opens the program, from `directory` where that is possible.
pub(super) fn open(directory: Option<&Path>) -> Result<OwnedFd, Errno> {
    match directory.and_then(|directory| kept(directory).ok()) {
        Some(file) => Ok(file),
        None => in_memory(),
    }
}

fn kept(directory: &Path) -> Result<OwnedFd, Errno> {
    let open = || {
        let file = rustix::fs::open(directory.join(SHIM_NAME), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        check(&file, MODE)?;
        if rustix::fs::fstat(&file)?.st_nlink == 1 { Ok(file) } else { Err(Errno::ACCESS) }
    };
    match open() {
        Err(Errno::NOENT) => make(directory, SHIM_NAME, MODE).and_then(|()| open()),
        opened => opened,
    }
}

/// Makes the program a file of a sandbox's directory that can be shown inside, and says where. Every sandbox has the same one, by a name of its own:
/// nothing inside writes through a mount that is read-only.
pub(crate) fn tool(programs: &Path, directory: &Path) -> Result<PathBuf, Errno> {
    let name = format!("{SHIM_NAME}-tool");
    let place = directory.join(&name);
    let good = || {
        let file = rustix::fs::open(&place, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        check(&file, TOOL_MODE)
    };
    let link = || rustix::fs::linkat(CWD, programs.join(&name), CWD, &place, AtFlags::empty());
    let linked = match link() {
        Err(Errno::NOENT) => make(programs, &name, TOOL_MODE).and_then(|()| link()),
        linked => linked,
    };
    // A sandbox that is started again has it already.
    if matches!(linked, Ok(()) | Err(Errno::EXIST)) && good().is_ok() {
        return Ok(place);
    }
    // What is there is not ours. Or nothing is: another file system, too many names, no right to link from there.
    match rustix::fs::unlink(&place) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    make(directory, &name, TOOL_MODE)?;
    good().map(|()| place)
}

/// Refuses what is not exactly the file that [`make`] makes, and file systems that execute nothing.
fn check(file: &OwnedFd, mode: u32) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(file)?;
    let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o7777 == mode
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && u64::try_from(stat.st_size) == Ok(SHIM.len() as u64);
    if !is_ours {
        return Err(Errno::ACCESS);
    }
    if rustix::fs::fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::NOEXEC) { Err(Errno::NOEXEC) } else { Ok(()) }
}

/// Writes the program without a name; it gets one only when it is complete and on the disk, so that a kill leaves nothing half made.
fn make(directory: &Path, name: &str, mode: u32) -> Result<(), Errno> {
    crate::state::private_directory(directory).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let file = rustix::fs::open(directory, OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::from_raw_mode(mode))?;
    write(&file)?;
    // The mode without whatever the umask took away.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    rustix::fs::fsync(&file)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, unnamed, CWD, directory.join(name), AtFlags::SYMLINK_FOLLOW) {
        // Somebody else was quicker.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn in_memory() -> Result<OwnedFd, Errno> {
    let name = c"stockade-shim";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag that says "this one is to be executed".
    let file = match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        other => other?,
    };
    write(&file)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file)
}

fn write(file: &OwnedFd) -> Result<(), Errno> {
    let mut rest = SHIM;
    while !rest.is_empty() {
        let n = rustix::io::write(file, rest)?;
        rest = rest.get(n..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn inode(file: &OwnedFd) -> u64 {
        rustix::fs::fstat(file).unwrap().st_ino
    }

    #[test]
    fn it_is_made_once_and_then_found() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("guest");
        let first = open(Some(&directory)).unwrap();
        let path = directory.join(SHIM_NAME);
        assert_eq!(fs::read(&path).unwrap(), SHIM);
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.ino()), (MODE, inode(&first)));
        assert_eq!(inode(&open(Some(&directory)).unwrap()), inode(&first));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_that_is_not_ours_is_not_executed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(SHIM_NAME);
        let expect_memory = |what: &str| {
            let file = open(Some(place.path())).unwrap();
            assert!(rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::WRITE)), "{what}");
        };
        open(Some(place.path())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        expect_memory("somebody may write to it");
        fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
        fs::hard_link(&path, place.path().join("second")).unwrap();
        expect_memory("it has a second name");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("second", &path).unwrap();
        expect_memory("it is a link");
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
        expect_memory("it has another size");
    }

    #[test]
    fn sandboxes_share_one_tool_by_names_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let programs = place.path().join("guest");
        let made = ["a", "b"].map(|name| {
            let directory = place.path().join(name);
            fs::create_dir(&directory).unwrap();
            let file = tool(&programs, &directory).unwrap();
            assert_eq!((file.parent(), tool(&programs, &directory).unwrap()), (Some(directory.as_path()), file.clone()));
            file
        });
        let [one, two] = made.clone().map(|file| fs::metadata(file).unwrap());
        assert_eq!((one.mode() & 0o7777, one.ino(), one.nlink()), (TOOL_MODE, two.ino(), 3));
        assert_ne!(one.ino(), inode(&open(Some(&programs)).unwrap()), "guests are started from another file");
        // What is not ours is replaced, and where nothing can be linked it is copied.
        let [file, _] = made;
        fs::remove_file(&file).unwrap();
        fs::write(&file, b"#!/bin/sh\n").unwrap();
        let own = tool(Path::new("/proc/none"), file.parent().unwrap()).unwrap();
        assert_eq!(fs::read(&own).unwrap(), SHIM);
        assert_eq!(fs::metadata(&own).unwrap().nlink(), 1);
    }

    #[test]
    fn without_a_directory_it_is_in_memory() {
        assert!(rustix::fs::fcntl_get_seals(open(None).unwrap()).is_ok());
        assert!(rustix::fs::fcntl_get_seals(open(Some(Path::new("/proc/none"))).unwrap()).is_ok());
    }
}
