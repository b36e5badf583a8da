//! Starting the guest program in fresh namespaces.
//!
//! The child does as little as possible before `execveat`: join cgroups, unshare the namespaces that the clone did not
//! make, keep its capabilities across the exec (they mean something only in the new user namespace), arrange three null descriptors and
//! the control stream, and execute. Everything else is the guest's own work, driven by the plan; the identity too, because the
//! id maps are written while the child is already on its way.
//!
//! Only the user and pid namespaces are made by the clone, on the caller's time. The child makes the others on its own processor while
//! the caller goes on planning.

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use crate::raw;
use crate::sharing::{self, Stack};

/// More than the child ever uses before it executes its program.
const STACK: usize = 32 << 10;

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
    /// Fresh user, mount, pid, ipc and uts namespaces. The guest gets its network and cgroup namespaces later: see [`crate::network`].
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
    /// Files into which the child writes `0` to join cgroups of version 1, where the guest does not do so itself later.
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
    /// Its user namespace, where that can be had.
    pub user_namespace: Option<OwnedFd>,
    /// End of file here means that the program was executed; otherwise the failing stage and error are read from it.
    pub failure: OwnedFd,
    /// What the child runs on until then.
    child: Option<Box<Child>>,
}

impl Guest {
    /// One that somebody else started, whose failures are told elsewhere: nothing is ever read from `failure`.
    pub fn adopted(pid: i32, pidfd: OwnedFd, failure: OwnedFd) -> Self {
        Self { pid, pidfd, user_namespace: None, failure, child: None }
    }
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
const UNSHARED: c_int = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
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
pub fn start(start: Start<'_>) -> Result<Guest, StartError> {
    let (failure_read, failure_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(StartError::Prepare)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .map_err(StartError::Prepare)?;
    let (program, control) = (lift(start.program.as_fd())?, lift(start.control.as_fd())?);
    let (failure_write, null) = (lift(failure_write.as_fd())?, lift(null.as_fd())?);
    let (into, procs) = version_two(start.cgroup)?;
    let pointers = start.environment.iter().map(|e| e.as_ptr()).chain([std::ptr::null()]).collect();
    let child = Box::new(Child {
        stack: Stack::new(STACK).map_err(StartError::Prepare)?,
        program: program.as_raw_fd(),
        control: control.as_raw_fd(),
        pointers,
        _environment: start.environment,
        joins: start.join.iter().chain(&procs).map(AsRawFd::as_raw_fd).collect(),
        failure: failure_write.as_raw_fd(),
        null: null.as_raw_fd(),
        namespaces: start.namespaces,
    });
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
    // SAFETY: the child makes raw calls only; what it runs on and reads is kept in `Guest` until it has executed its program.
    let pid = unsafe { sharing::clone(args, &child.stack, run, (&raw const *child).cast()) }.map_err(StartError::Clone)?;
    nudge(pid);
    // SAFETY: CLONE_PIDFD stored a fresh descriptor, owned by nobody else.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let mut guest = Guest { pid, pidfd, user_namespace: None, failure: failure_read, child: Some(child) };
    if start.namespaces == Namespaces::All
        && let Err(error) = write_maps(pid, start.identity)
    {
        // Without its maps it can become nobody; killing it here leaves no process, and waiting no zombie.
        let _ = rustix::process::pidfd_send_signal(&guest.pidfd, rustix::process::Signal::KILL);
        let _ = rustix::process::waitid(WaitId::PidFd(guest.pidfd.as_fd()), WaitIdOptions::EXITED);
        return Err(error);
    }
    if start.namespaces == Namespaces::All {
        // Now, before the guest takes an identity that may keep us from it.
        guest.user_namespace = fs::File::open(format!("/proc/{pid}/ns/user")).ok().map(OwnedFd::from);
    }
    Ok(guest)
}

impl Drop for Guest {
    /// What the child runs on goes only when it has executed its program or ended: both close its end of the pipe. Otherwise it stays.
    fn drop(&mut self) {
        let closed = PollFlags::HUP | PollFlags::IN;
        let mut poll = [PollFd::new(&self.failure, PollFlags::IN)];
        let ended = rustix::event::poll(&mut poll, Some(&rustix::time::Timespec::default())).is_ok()
            && poll.iter().any(|polled| polled.revents().intersects(closed));
        if !ended {
            std::mem::forget(self.child.take());
        }
    }
}

/// Moves a fresh child to another processor, if we have one, and lets it go from there where it will. The kernel tends to keep a child
/// that shares memory on its parent's own, above all in a virtual machine, whose idle processors it takes for busy; there the child would
/// wait until we do.
fn nudge(child: i32) {
    let Ok(all) = rustix::thread::sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(rustix::thread::sched_getcpu());
    if others.count() > 0 && rustix::thread::sched_setaffinity(Pid::from_raw(child), &others).is_ok() {
        let _ = rustix::thread::sched_setaffinity(Pid::from_raw(child), &all);
    }
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
#[derive(Debug)]
struct Child {
    stack: Stack,
    program: RawFd,
    control: RawFd,
    /// Leads to the entries below, and ends with a null.
    pointers: Vec<*const c_char>,
    _environment: Vec<CString>,
    joins: Vec<RawFd>,
    failure: RawFd,
    null: RawFd,
    namespaces: Namespaces,
}

// SAFETY: the pointers lead to entries that the value owns and nobody changes.
unsafe impl Send for Child {}
// SAFETY: as above.
unsafe impl Sync for Child {}

/// Runs in the child: never returns, never allocates, makes raw calls only.
extern "C" fn run(child: *const c_void) -> ! {
    // SAFETY: `start` passed a `Child` that it keeps until this process has executed its program or ended.
    let child = unsafe { &*child.cast::<Child>() };
    let (stage, errno) = match child.try_run() {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let [e0, e1, e2, e3] = errno.raw_os_error().to_le_bytes();
    let _ = raw::write_all(child.failure, &[stage, e0, e1, e2, e3]);
    raw::exit_now(127)
}

impl Child {
    fn try_run(&self) -> Result<std::convert::Infallible, (u8, Errno)> {
        for join in &self.joins {
            raw::write_all(*join, b"0").map_err(|e| (0, e))?;
        }
        if self.namespaces == Namespaces::All {
            call(libc::SYS_unshare, [UNSHARED as usize, 0, 0]).map_err(|e| (1, e))?;
            keep_capabilities().map_err(|e| (2, e))?;
        }
        self.arrange_descriptors().map_err(|e| (3, e))?;
        let argv: [*const c_char; 2] = [c"stockade-shim".as_ptr(), std::ptr::null()];
        let (argv, environment) = (argv.as_ptr() as usize, self.pointers.as_ptr() as usize);
        let arguments = [self.program as usize, c"".as_ptr() as usize, argv, environment, libc::AT_EMPTY_PATH as usize, 0];
        // SAFETY: argv and environment are null-terminated arrays of C strings that live in this address space.
        match unsafe { raw::call(libc::SYS_execveat, arguments) } {
            Ok(_) => Err((4, Errno::NOEXEC)),
            Err(errno) => Err((4, errno)),
        }
    }

    fn arrange_descriptors(&self) -> Result<(), Errno> {
        // It fails only for a group leader, which a fresh child is not.
        let _ = call(libc::SYS_setsid, [0; 3]);
        for standard in 0..3 {
            call(libc::SYS_dup3, [self.null as usize, standard, 0])?;
        }
        // The parent lifted all our descriptors above the numbers that are filled here.
        call(libc::SYS_dup3, [self.control as usize, 3, 0])?;
        // Everything above 3 closes at the exec, the program file included.
        call(libc::SYS_close_range, [4, u32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize])?;
        let none = 0u64;
        let arguments = [libc::SIG_SETMASK as usize, &raw const none as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel's signal set is one word, which is ours; the old mask is not wanted.
        unsafe { raw::call(libc::SYS_rt_sigprocmask, arguments) }.map(drop)
    }
}

/// A call that takes plain integers and touches no memory.
fn call(number: c_long, arguments: [usize; 3]) -> Result<usize, Errno> {
    let [a, b, c] = arguments;
    // SAFETY: as the callers here use it.
    unsafe { raw::call(number, [a, b, c, 0, 0, 0]) }
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
    let (header, sets) = (&raw const header as usize, data.as_mut_ptr() as usize);
    // SAFETY: header and data have the layout of version 3 (two triples of 32-bit sets).
    unsafe { raw::call(libc::SYS_capget, [header, sets, 0, 0, 0, 0]) }?;
    let [e0, p0, _, e1, p1, _] = data;
    let data = [e0, p0, p0, e1, p1, p1];
    // SAFETY: as above; only the inheritable sets differ.
    unsafe { raw::call(libc::SYS_capset, [header, data.as_ptr() as usize, 0, 0, 0, 0]) }?;
    for number in 0..64u32 {
        let word = if number < 32 { p0 } else { p1 };
        if word >> (number % 32) & 1 == 1 {
            let raise = [libc::PR_CAP_AMBIENT as usize, libc::PR_CAP_AMBIENT_RAISE as usize, number as usize];
            call(libc::SYS_prctl, raise)?;
        }
    }
    Ok(())
}
