//! Starting a program: a child that shares our memory until `execve`, so nothing is copied.
//!
//! Owns the clone, what the child does before `execve`, and the lookup of the program in `PATH`. The child makes only
//! direct system calls on memory prepared beforehand, and reports a failing step by writing into that memory: the
//! parent is suspended until the child has executed or ended. Why a program could not start is worded in `diagnose`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};
use stockade_wire::message::Exec;

use crate::diagnose;
use crate::failure::Failure;
use crate::signals;

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// The child needs a few hundred bytes; the C library's wrappers a little more.
const STACK: usize = 32 << 10;

/// The three standard descriptors of a program, all above 2.
pub(crate) struct Standard {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Whether stdin becomes the controlling terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminal {
    Controlling,
    None,
}

/// Steps of the child that can fail; 0 means none did.
pub(crate) mod step {
    /// Making a session.
    pub(crate) const SESSION: u8 = 1;
    /// Taking the terminal.
    pub(crate) const TERMINAL: u8 = 2;
    /// Placing the three descriptors.
    pub(crate) const DESCRIPTORS: u8 = 3;
    /// Entering the working directory.
    pub(crate) const DIRECTORY: u8 = 4;
    /// Executing.
    pub(crate) const EXECUTE: u8 = 5;
}

/// A checked program, ready for the child.
pub(crate) struct Program {
    /// Paths to try, in order.
    pub(crate) candidates: Vec<CString>,
    /// Working directory.
    pub(crate) directory: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Program {
    /// Checks a request and looks up where the program may be.
    pub(crate) fn new(exec: &Exec) -> Result<Self, Failure> {
        let name = exec.argv.first().ok_or_else(|| Failure::invalid("no program given"))?.0.as_slice();
        if name.is_empty() {
            return Err(diagnose::not_executable("the name of the program is empty".to_owned()));
        }
        let directory = crate::paths::absolute(&exec.cwd.0)?;
        let argv = exec.argv.iter().map(|argument| text(&argument.0, "argument")).collect::<Result<Vec<_>, _>>()?;
        let mut env = Vec::with_capacity(exec.env.len());
        let mut path = DEFAULT_PATH;
        for (key, value) in &exec.env {
            if key.0.is_empty() || key.0.contains(&b'=') {
                return Err(Failure::invalid("an environment variable has a bad name"));
            }
            if key.0 == b"PATH" {
                path = &value.0;
            }
            let mut entry = Vec::with_capacity(key.0.len() + value.0.len() + 2);
            entry.extend_from_slice(&key.0);
            entry.push(b'=');
            entry.extend_from_slice(&value.0);
            env.push(text(&entry, "environment variable")?);
        }
        Ok(Self { candidates: candidates(name, path)?, directory, argv, env })
    }

    /// Where a candidate lies; a relative one counts from the working directory.
    fn located(&self, index: usize) -> Vec<u8> {
        let candidate = self.candidates.get(index).map_or(b"".as_slice(), |candidate| candidate.as_bytes());
        diagnose::located(self, candidate)
    }
}

fn text(bytes: &[u8], what: &str) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| Failure::invalid(format!("an {what} contains a NUL byte")))
}

/// A name with a slash stands for itself (relative to the working directory, which the child has entered by then).
fn candidates(name: &[u8], path: &[u8]) -> Result<Vec<CString>, Failure> {
    if name.contains(&b'/') {
        return Ok(vec![text(name, "argument")?]);
    }
    let mut found = Vec::new();
    for directory in path.split(|byte| *byte == b':') {
        let mut candidate = directory.to_vec();
        if !candidate.is_empty() {
            candidate.push(b'/');
        }
        candidate.extend_from_slice(name);
        found.push(text(&candidate, "argument")?);
    }
    Ok(found)
}

/// Starts programs; holds the stack that the children use one after another.
pub(crate) struct Spawner {
    stack: Vec<u128>,
}

/// All that the child needs, in memory that it shares with the suspended parent.
struct Orders<'a> {
    candidates: &'a [CString],
    directory: &'a CStr,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    stdin: BorrowedFd<'a>,
    stdout: BorrowedFd<'a>,
    stderr: BorrowedFd<'a>,
    terminal: Terminal,
    /// Which candidate was tried last; where the child executed, that one it was.
    tried: AtomicUsize,
    failed_step: AtomicU8,
    errno: AtomicI32,
}

impl Spawner {
    /// Allocates the stack.
    pub(crate) fn new() -> Self {
        Self { stack: vec![0; STACK / size_of::<u128>()] }
    }

    /// Starts a program in a session of its own; it has exactly the three descriptors. Says which file was executed.
    pub(crate) fn start(&mut self, program: &Program, standard: &Standard, terminal: Terminal) -> Result<(Pid, Vec<u8>), Failure> {
        let orders = Orders {
            candidates: &program.candidates,
            directory: &program.directory,
            argv: pointers(&program.argv),
            env: pointers(&program.env),
            stdin: standard.stdin.as_fd(),
            stdout: standard.stdout.as_fd(),
            stderr: standard.stderr.as_fd(),
            terminal,
            tried: AtomicUsize::new(0),
            failed_step: AtomicU8::new(0),
            errno: AtomicI32::new(0),
        };
        let top = self.stack.as_mut_ptr_range().end.cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let argument = (&raw const orders).cast_mut().cast::<c_void>();
        // SAFETY: `top` is the aligned end of a stack that only this child uses; CLONE_VFORK suspends us until the child
        // has executed or ended, so `orders` outlives its use and nothing else runs in this memory meanwhile. The child
        // shares no descriptor table, no signal handlers and no working directory with us.
        let answer = unsafe { libc::clone(child, top, flags, argument) };
        if answer < 0 {
            return Err(Failure::during("start a process", signals::last_error()));
        }
        let pid = Pid::from_raw(answer).ok_or_else(|| Failure::during("start a process", Errno::SRCH))?;
        let failed = orders.failed_step.load(Ordering::Relaxed);
        if failed == 0 {
            return Ok((pid, program.located(orders.tried.load(Ordering::Relaxed))));
        }
        // It is already ending; its number must not stay behind as a zombie's.
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        let errno = Errno::from_raw_os_error(orders.errno.load(Ordering::Relaxed));
        Err(diagnose::explain(program, failed, errno))
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Orders` of the suspended parent, alive until we execute or end.
    let orders = unsafe { &*argument.cast::<Orders<'_>>() };
    let (step, errno) = orders.carry_out();
    orders.errno.store(errno.raw_os_error(), Ordering::Relaxed);
    orders.failed_step.store(step, Ordering::Relaxed);
    127
}

impl Orders<'_> {
    /// Returns only if a step failed. Allocates nothing and takes no lock.
    fn carry_out(&self) -> (u8, Errno) {
        if let Err(errno) = rustix::process::setsid() {
            return (step::SESSION, errno);
        }
        if let Err(errno) = self.place_descriptors() {
            return (step::DESCRIPTORS, errno);
        }
        if self.terminal == Terminal::Controlling
            && let Err(errno) = rustix::process::ioctl_tiocsctty(self.stdin)
        {
            return (step::TERMINAL, errno);
        }
        // Everything of ours is close-on-exec; this also holds for what a later change might forget.
        // SAFETY: takes plain integers; the descriptor table is the child's own copy.
        unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
        signals::reset_in_child();
        if let Err(errno) = rustix::process::chdir(self.directory) {
            return (step::DIRECTORY, errno);
        }
        (step::EXECUTE, self.execute())
    }

    fn place_descriptors(&self) -> Result<(), Errno> {
        rustix::stdio::dup2_stdin(self.stdin)?;
        rustix::stdio::dup2_stdout(self.stdout)?;
        rustix::stdio::dup2_stderr(self.stderr)
    }

    /// Tries the candidates like a shell does: a missing one leads to the next, a forbidden one is remembered.
    fn execute(&self) -> Errno {
        let mut worst = Errno::NOENT;
        for (index, candidate) in self.candidates.iter().enumerate() {
            self.tried.store(index, Ordering::Relaxed);
            // SAFETY: all three point to NUL-terminated texts or null-terminated lists that outlive the call.
            unsafe { libc::execve(candidate.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            match signals::last_error() {
                Errno::NOENT | Errno::NOTDIR => {}
                Errno::ACCESS => worst = Errno::ACCESS,
                other => return other,
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_wire::codec::Bytes;
    use stockade_wire::message::Stdio;

    fn check(name: &str, path: Option<&str>, expected: &[&str]) {
        let exec = Exec {
            argv: vec![Bytes::from(name)],
            env: path.map(|path| (Bytes::from("PATH"), Bytes::from(path))).into_iter().collect(),
            cwd: Bytes::from("/"),
            stdio: Stdio::Passed {},
        };
        let found: Vec<_> = Program::new(&exec).unwrap().candidates.iter().map(|c| c.to_str().unwrap().to_owned()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn programs_are_looked_up_like_a_shell_does() {
        check("ls", None, &["/usr/local/bin/ls", "/usr/bin/ls", "/bin/ls"]);
        check("ls", Some("/a:/b"), &["/a/ls", "/b/ls"]);
        check("ls", Some("/a::b"), &["/a/ls", "ls", "b/ls"]);
        check("./ls", Some("/a"), &["./ls"]);
        check("/bin/ls", None, &["/bin/ls"]);
    }

    #[test]
    fn senseless_programs_are_refused() {
        let good = Exec { argv: vec![Bytes::from("a")], env: vec![], cwd: Bytes::from("/"), stdio: Stdio::Passed {} };
        assert!(Program::new(&good).is_ok());
        for bad in [
            Exec { argv: vec![], ..good.clone() },
            Exec { argv: vec![Bytes::from("")], ..good.clone() },
            Exec { argv: vec![Bytes::from("a\0b")], ..good.clone() },
            Exec { cwd: Bytes::from("tmp"), ..good.clone() },
            Exec { env: vec![(Bytes::from("A=B"), Bytes::from(""))], ..good.clone() },
            Exec { env: vec![(Bytes::from("A"), Bytes::from("\0"))], ..good.clone() },
        ] {
            assert!(Program::new(&bad).is_err(), "{bad:?}");
        }
    }
}
