//! Starting the guest program in fresh namespaces.
//!
//! The child does as little as possible before `execveat`: join the cgroups of version 1, unshare the namespaces that the clone did not
//! make, keep its capabilities across the exec (they mean something only in the new user namespace), arrange three null descriptors and
//! the control stream, and execute. Everything else is the guest's own work, driven by the plan; the identity too, because the
//! id maps are written while the child is already on its way.
//!
//! Only the user and pid namespaces are made by the clone, on the caller's time. The others, the network namespace above all, cost more
//! than everything else here, and the child makes them on its own processor while the caller goes on planning.

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
    /// Fresh user, mount, pid, network, ipc, uts and cgroup namespaces.
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
    /// Files into which the child writes `0` to join its cgroups of version 1.
    pub join: &'a [OwnedFd],
    /// The cgroup of version 2 that it is cloned into.
    pub cgroup: Option<BorrowedFd<'a>>,
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
const STAGES: [&str; 5] =
    ["joining the cgroup", "making namespaces", "keeping capabilities", "arranging descriptors", "executing the guest"];

/// What the child unshares by itself.
const UNSHARED: c_int = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
/// From `linux/sched.h`; it lies beyond the 32 bits of the other flags.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

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

/// Starts a guest. It is running (or has failed, see [`failure_of`]) when this returns, and its id maps are written.
pub fn start(start: &Start<'_>) -> Result<Guest, StartError> {
    let (failure_read, failure_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(StartError::Prepare)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .map_err(StartError::Prepare)?;
    let (program, control) = (lift(start.program.as_fd())?, lift(start.control.as_fd())?);
    let (failure_write, null) = (lift(failure_write.as_fd())?, lift(null.as_fd())?);
    let environment: Vec<*const c_char> = start.environment.iter().map(|e| e.as_ptr()).chain([std::ptr::null()]).collect();
    let (into, procs) = version_two(start.cgroup)?;
    let joins: Vec<RawFd> = start.join.iter().chain(&procs).map(AsRawFd::as_raw_fd).collect();
    let child = Child {
        program: program.as_raw_fd(),
        control: control.as_raw_fd(),
        environment: &environment,
        joins: &joins,
        failure: failure_write.as_raw_fd(),
        null: null.as_raw_fd(),
        namespaces: start.namespaces,
    };
    let namespaces = match start.namespaces {
        Namespaces::All => libc::CLONE_NEWUSER | libc::CLONE_NEWPID,
        Namespaces::None => 0,
    };
    let mut pidfd: c_int = -1;
    let args = raw::CloneArgs {
        flags: (namespaces | libc::CLONE_PIDFD) as u64 | into.map_or(0, |_| CLONE_INTO_CGROUP),
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: into.map_or(0, |directory| directory.as_raw_fd() as u64),
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
    let guest = Guest { pid, pidfd, failure: failure_read };
    if start.namespaces == Namespaces::All
        && let Err(error) = write_maps(pid, start.identity)
    {
        // Without its maps it can become nobody; killing it here leaves no process, and waiting no zombie.
        let _ = rustix::process::pidfd_send_signal(&guest.pidfd, rustix::process::Signal::KILL);
        let _ = rustix::process::waitid(WaitId::PidFd(guest.pidfd.as_fd()), WaitIdOptions::EXITED);
        return Err(error);
    }
    Ok(guest)
}

/// How the child gets into its cgroup of version 2: cloned into it, or, where a container's filter knows no `clone3`, by writing to a file.
fn version_two(cgroup: Option<BorrowedFd<'_>>) -> Result<(Option<BorrowedFd<'_>>, Option<OwnedFd>), StartError> {
    let Some(directory) = cgroup else { return Ok((None, None)) };
    if raw::has_clone3() {
        return Ok((Some(directory), None));
    }
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let procs = rustix::fs::openat(directory, "cgroup.procs", flags, rustix::fs::Mode::empty()).map_err(StartError::Prepare)?;
    Ok((None, Some(procs)))
}

/// A copy of a descriptor with a number that the child's own arrangements cannot overwrite.
fn lift(fd: BorrowedFd<'_>) -> Result<OwnedFd, StartError> {
    rustix::io::fcntl_dupfd_cloexec(fd, 10).map_err(StartError::Prepare)
}

fn write_maps(pid: i32, identity: Identity) -> Result<(), StartError> {
    let write = |file: &'static str, text: String| fs::write(format!("/proc/{pid}/{file}"), text).map_err(|e| StartError::IdMap(file, e));
    // Who maps only itself keeps the groups: the kernel asks for rights to map another, and allows setgroups only to those who have them.
    if identity.outside.0 == rustix::process::geteuid().as_raw() {
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
    failure: RawFd,
    null: RawFd,
    namespaces: Namespaces,
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
        if self.namespaces == Namespaces::All {
            // The cgroups are joined by now, so that the new cgroup namespace begins there.
            // SAFETY: plain integers; a fresh child has one thread and shares nothing.
            raw::check(c_long::from(unsafe { libc::unshare(UNSHARED) })).map_err(|e| (1, e))?;
            keep_capabilities().map_err(|e| (2, e))?;
        }
        self.arrange_descriptors().map_err(|e| (3, e))?;
        let argv: [*const c_char; 2] = [c"stockade-shim".as_ptr(), std::ptr::null()];
        let empty: &CStr = c"";
        // SAFETY: argv and environment are null-terminated arrays of C strings that live in this address space.
        unsafe {
            libc::syscall(libc::SYS_execveat, self.program, empty.as_ptr(), argv.as_ptr(), self.environment.as_ptr(), libc::AT_EMPTY_PATH)
        };
        Err((4, raw::last()))
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
