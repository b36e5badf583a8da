//! Starting the guest program in fresh namespaces.
//!
//! The child does as little as possible before `execveat`: join the cgroup, wait until its id maps are written, take its
//! identity, keep its capabilities across the exec (they mean something only in the new user namespace), arrange three
//! null descriptors and the control stream, and execute. Everything else is the guest's own work, driven by the plan.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};

use crate::raw;

/// Which ids the sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User and group as the kernel outside counts them.
    pub outside: (u32, u32),
    /// User and group as programs inside see them.
    pub inside: (u32, u32),
}

/// Where the guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// Fresh user, mount, pid, network, ipc and uts namespaces.
    All,
    /// None: the caller's own (no isolation).
    None,
}

/// How to start a guest.
pub struct Start<'a> {
    /// The guest program, as an open file (a sealed memory file).
    pub program: &'a OwnedFd,
    /// Its end of the control stream, which becomes descriptor 3.
    pub control: &'a OwnedFd,
    /// `NAME=value` entries of its environment.
    pub environment: Vec<CString>,
    /// Which namespaces.
    pub namespaces: Namespaces,
    /// Which ids; only with namespaces.
    pub identity: Identity,
    /// Files into which the child writes `0` to join its cgroups.
    pub join: &'a [OwnedFd],
}

/// A started guest.
#[derive(Debug)]
pub struct Guest {
    /// Its number outside.
    pub pid: i32,
    /// Refers to the process whatever happens to the number.
    pub pidfd: OwnedFd,
    /// End of file here means that the program was executed; otherwise the failing stage and error are read from it.
    pub failure: OwnedFd,
}

/// Why a guest could not be started.
#[derive(Debug)]
pub enum StartError {
    /// Preparing pipes or descriptors.
    Prepare(Errno),
    /// `clone3` itself: the kernel refuses new namespaces, or there is no room for a process.
    Clone(Errno),
    /// Writing the id maps of the new user namespace.
    IdMap(&'static str, std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prepare(errno) => write!(f, "preparing to start the guest: {errno}"),
            Self::Clone(errno) => write!(f, "making namespaces: {errno}"),
            Self::IdMap(file, error) => write!(f, "writing {file}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The stages a child can fail in, by the number it reports.
const STAGES: [&str; 7] = [
    "joining the cgroup",
    "waiting for the id maps",
    "taking its group",
    "taking its user",
    "keeping capabilities",
    "arranging descriptors",
    "executing the guest",
];

/// Reads why a child failed before its exec; `None` when it did not.
pub fn failure_of(guest: &Guest) -> Option<(&'static str, Errno)> {
    let mut report = [0u8; 5];
    let n = rustix::io::read(&guest.failure, &mut report).ok()?;
    if n < report.len() {
        return None;
    }
    let [stage, e0, e1, e2, e3] = report;
    let name = STAGES.get(usize::from(stage)).copied().unwrap_or("starting");
    Some((name, Errno::from_raw_os_error(i32::from_le_bytes([e0, e1, e2, e3]))))
}

/// Starts a guest. It is running (or has failed, see [`failure_of`]) when this returns.
pub fn start(start: &Start<'_>) -> Result<Guest, StartError> {
    let (failure_read, failure_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(StartError::Prepare)?;
    let (go_read, go_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(StartError::Prepare)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .map_err(StartError::Prepare)?;
    let (program, control) = (lift(start.program.as_fd())?, lift(start.control.as_fd())?);
    let (failure_write, go_read, null) = (lift(failure_write.as_fd())?, lift(go_read.as_fd())?, lift(null.as_fd())?);
    let environment: Vec<*const c_char> = start.environment.iter().map(|e| e.as_ptr()).chain([std::ptr::null()]).collect();
    let joins: Vec<RawFd> = start.join.iter().map(AsRawFd::as_raw_fd).collect();
    // Who maps only itself keeps the groups: the kernel asks for rights to map another, and allows setgroups only to those who have them.
    let privileged = start.identity.outside.0 != rustix::process::geteuid().as_raw();
    let child = Child {
        program: program.as_raw_fd(),
        control: control.as_raw_fd(),
        environment: &environment,
        joins: &joins,
        go: go_read.as_raw_fd(),
        go_write: go_write.as_raw_fd(),
        failure: failure_write.as_raw_fd(),
        null: null.as_raw_fd(),
        identity: match start.namespaces {
            Namespaces::All => Some((start.identity.inside, privileged)),
            Namespaces::None => None,
        },
    };
    let namespaces = match start.namespaces {
        Namespaces::All => {
            libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS
        }
        Namespaces::None => 0,
    };
    let mut pidfd: c_int = -1;
    let args = raw::CloneArgs {
        flags: (namespaces | libc::CLONE_PIDFD) as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..raw::CloneArgs::default()
    };
    // SAFETY: the child calls `Child::run` at once, which makes raw calls on memory prepared above and never returns.
    let pid = match unsafe { raw::clone(&args) } {
        Ok(0) => child.run(),
        Ok(pid) => pid,
        Err(errno) => return Err(StartError::Clone(errno)),
    };
    // SAFETY: CLONE_PIDFD stored a fresh descriptor, owned by nobody else.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    drop(failure_write);
    drop(go_read);
    let guest = Guest { pid, pidfd, failure: failure_read };
    if start.namespaces == Namespaces::All
        && let Err(error) = write_maps(pid, start.identity, privileged)
    {
        // The child still waits for its go; closing the pipe ends it, and waiting here leaves no zombie.
        drop(go_write);
        let _ = rustix::process::waitid(WaitId::PidFd(guest.pidfd.as_fd()), WaitIdOptions::EXITED);
        return Err(error);
    }
    rustix::io::write(&go_write, b"g").map_err(StartError::Prepare)?;
    Ok(guest)
}

/// A copy of a descriptor with a number that the child's own arrangements cannot overwrite.
fn lift(fd: BorrowedFd<'_>) -> Result<OwnedFd, StartError> {
    rustix::io::fcntl_dupfd_cloexec(fd, 10).map_err(StartError::Prepare)
}

fn write_maps(pid: i32, identity: Identity, privileged: bool) -> Result<(), StartError> {
    let write = |file: &'static str, text: String| fs::write(format!("/proc/{pid}/{file}"), text).map_err(|e| StartError::IdMap(file, e));
    if !privileged {
        write("setgroups", "deny".into())?;
    }
    write("uid_map", format!("{} {} 1\n", identity.inside.0, identity.outside.0))?;
    write("gid_map", format!("{} {} 1\n", identity.inside.1, identity.outside.1))
}

/// What the child needs, all of it made before the clone.
struct Child<'a> {
    program: RawFd,
    control: RawFd,
    environment: &'a [*const c_char],
    joins: &'a [RawFd],
    go: RawFd,
    go_write: RawFd,
    failure: RawFd,
    null: RawFd,
    identity: Option<((u32, u32), bool)>,
}

impl Child<'_> {
    /// Runs in the child: never returns, never allocates.
    fn run(&self) -> ! {
        let (stage, errno) = match self.try_run() {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        let [e0, e1, e2, e3] = errno.raw_os_error().to_le_bytes();
        let _ = raw::write_all(self.failure, &[stage, e0, e1, e2, e3]);
        raw::exit_now(127)
    }

    fn try_run(&self) -> Result<std::convert::Infallible, (u8, Errno)> {
        for join in self.joins {
            raw::write_all(*join, b"0").map_err(|e| (0, e))?;
        }
        // While the child holds the other end, the death of the parent would not end the wait.
        // SAFETY: a plain integer; nobody in this process uses the descriptor again.
        unsafe { libc::close(self.go_write) };
        if !raw::read_byte(self.go) {
            return Err((1, Errno::PIPE));
        }
        if let Some(((uid, gid), privileged)) = self.identity {
            take_identity(uid, gid, privileged)?;
            keep_capabilities().map_err(|e| (4, e))?;
        }
        self.arrange_descriptors().map_err(|e| (5, e))?;
        let argv: [*const c_char; 2] = [c"stockade-shim".as_ptr(), std::ptr::null()];
        let empty: &CStr = c"";
        // SAFETY: argv and environment are null-terminated arrays of C strings that live in this address space.
        unsafe {
            libc::syscall(libc::SYS_execveat, self.program, empty.as_ptr(), argv.as_ptr(), self.environment.as_ptr(), libc::AT_EMPTY_PATH)
        };
        Err((6, raw::last()))
    }

    fn arrange_descriptors(&self) -> Result<(), Errno> {
        // SAFETY: setsid has no arguments; it fails only for a group leader, which a fresh child is not.
        unsafe { libc::setsid() };
        for standard in 0..3 {
            // SAFETY: both numbers are plain integers.
            raw::check(c_long::from(unsafe { libc::dup2(self.null, standard) }))?;
        }
        // SAFETY: plain integers; the parent lifted all our descriptors above the numbers that are filled here.
        raw::check(c_long::from(unsafe { libc::dup2(self.control, 3) }))?;
        // SAFETY: plain integers; everything above 3 closes at the exec, the program file included.
        raw::check(unsafe {
            libc::syscall(libc::SYS_close_range, 4 as c_ulong, c_ulong::from(u32::MAX), c_ulong::from(libc::CLOSE_RANGE_CLOEXEC))
        })?;
        // SAFETY: an all-zero signal set is a valid value to initialise.
        let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours and valid.
        unsafe { libc::sigemptyset(&raw mut none) };
        // SAFETY: the set is initialised; the old mask is not wanted.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
        Ok(())
    }
}

fn take_identity(uid: u32, gid: u32, privileged: bool) -> Result<(), (u8, Errno)> {
    if privileged {
        // SAFETY: a zero length reads no memory.
        raw::check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) }).map_err(|e| (2, e))?;
    }
    // SAFETY: plain integers. Raw calls, because the C library's versions signal other threads.
    raw::check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }).map_err(|e| (2, e))?;
    // SAFETY: plain integers.
    raw::check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map_err(|e| (3, e))?;
    Ok(())
}

/// Makes the capabilities of the new user namespace survive the exec.
fn keep_capabilities() -> Result<(), Errno> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    let mut data = [0u32; 6];
    // SAFETY: header and data have the layout of version 3 (two triples of 32-bit sets).
    raw::check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) })?;
    let [e0, p0, _, e1, p1, _] = data;
    let data = [e0, p0, p0, e1, p1, p1];
    // SAFETY: as above; only the inheritable sets differ.
    raw::check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })?;
    for number in 0..64u32 {
        let word = if number < 32 { p0 } else { p1 };
        if word >> (number % 32) & 1 == 1 {
            // SAFETY: PR_CAP_AMBIENT_RAISE takes integers and touches no memory.
            let result = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as c_ulong, c_ulong::from(number), 0, 0) };
            raw::check(c_long::from(result))?;
        }
    }
    Ok(())
}
