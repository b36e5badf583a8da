//! Memory of a process tree, for sandboxes that no control group counts.
//!
//! The tree is walked by `/proc/PID/task/TID/children`. The shim is PID 1 of the sandbox's pid namespace, so orphans become
//! its children and the tree is complete, but for what forks while we look: it is seen the next time.
//!
//! Two figures. The **ceiling** is the sum of `RssAnon` and `RssShmem`: cheap, and never too small for what is mapped, but
//! pages shared after a fork or through shared memory are counted once per process. Only when it is over the limit do we
//! pay for the **shares** (`Pss_Anon` and `Pss_Shmem` of `smaps_rollup`, where each page is divided among its users; the
//! ceiling of a process stands where that cannot be read). So sharing programs are not killed for memory they do not use,
//! and splitting work among processes hides nothing.
//!
//! Not counted: files in memory that nobody has mapped (tmpfs, memfd), so the sandbox's tmpfs mounts need a size of their
//! own; swap; and page tables. That, and the time between samples, is why such a limit is reported as `partial`.

use std::path::PathBuf;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::{LimitError, files};

/// More processes than this are not walked; the result says so.
pub const MOST_PROCESSES: usize = 16_384;

/// Whether everything was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complete {
    /// All of it.
    Yes,
    /// A bound was met, or something could not be read: the true figure may be larger.
    No,
}

/// Memory of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeMemory {
    /// Bytes: an upper estimate as long as that is within the limit, else the better one.
    pub bytes: u64,
    /// Processes seen, the root included.
    pub processes: usize,
    /// Whether all were seen.
    pub complete: Complete,
}

/// Estimates the memory of the process `root` and all below it. The better and dearer figure is taken only above `limit`.
pub fn memory_of_tree(root: u32, limit: u64) -> Result<TreeMemory, LimitError> {
    let (processes, mut complete) = tree(root)?;
    let mut ceilings = Vec::with_capacity(processes.len());
    for pid in &processes {
        match read(format!("/proc/{pid}/status")) {
            Ok(status) => ceilings.push((*pid, kibibytes(&status, "RssAnon:") + kibibytes(&status, "RssShmem:"))),
            Err(Errno::NOENT | Errno::SRCH) => {} // It ended meanwhile.
            Err(_) => complete = Complete::No,
        }
    }
    let ceiling: u64 = ceilings.iter().map(|(_, bytes)| bytes).sum();
    let bytes = if ceiling <= limit { ceiling } else { ceilings.iter().map(|(pid, bytes)| share(*pid).unwrap_or(*bytes)).sum() };
    Ok(TreeMemory { bytes, processes: processes.len(), complete })
}

/// Threads of all processes below `root`, itself not counted.
pub fn tasks_below(root: u32) -> Result<usize, LimitError> {
    let (processes, _) = tree(root)?;
    Ok(processes.iter().filter(|pid| **pid != root).map(|pid| threads(*pid).len()).sum())
}

/// The root and all its descendants.
fn tree(root: u32) -> Result<(Vec<u32>, Complete), LimitError> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for thread in threads(pid) {
            let path = format!("/proc/{pid}/task/{thread}/children");
            match read(path.clone()) {
                Ok(list) => found.extend(list.split_whitespace().filter_map(|word| word.parse::<u32>().ok())),
                // The thread is there but the file is not: the kernel has no such files.
                Err(Errno::NOENT) if pid == root && read(format!("/proc/{pid}/task/{thread}/stat")).is_ok() => {
                    return Err(LimitError::NoChildList { path: PathBuf::from(path) });
                }
                Err(_) => {}
            }
        }
        if found.len() > MOST_PROCESSES {
            found.truncate(MOST_PROCESSES);
            return Ok((found, Complete::No));
        }
        if pid == root && next == 1 && rustix::fs::access(format!("/proc/{pid}"), rustix::fs::Access::EXISTS).is_err() {
            return Err(LimitError::Gone(root));
        }
    }
    // A process that changes its parent while we look may be met twice.
    found.sort_unstable();
    found.dedup();
    Ok((found, Complete::Yes))
}

fn threads(pid: u32) -> Vec<u32> {
    let path = PathBuf::from(format!("/proc/{pid}/task"));
    let Ok(entries) = files::open_directory(&path).and_then(Dir::new) else { return Vec::new() };
    entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).take(MOST_PROCESSES).collect()
}

/// This process's share of what it has mapped.
fn share(pid: u32) -> Option<u64> {
    let text = read(format!("/proc/{pid}/smaps_rollup")).ok()?;
    // Kernels before 5.3 do not tell the kinds apart.
    text.contains("Pss_Anon:").then(|| kibibytes(&text, "Pss_Anon:") + kibibytes(&text, "Pss_Shmem:"))
}

fn kibibytes(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    value.unwrap_or(0).saturating_mul(1024)
}

fn read(path: String) -> Result<String, Errno> {
    let bytes = files::read_whole(&PathBuf::from(path), files::MOST_BYTES * 16)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests start programs of their own choice")]

    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a program that writes a line when it is ready.
    fn ready(program: &str) -> Child {
        let mut child = Command::new("python3").args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        child
    }

    fn end(mut child: Child) {
        drop(child.stdin.take()); // Everybody in these programs waits for that.
        child.wait().unwrap();
    }

    #[test]
    fn grandchildren_of_dead_parents_and_of_threads_are_counted() {
        // A child of a second thread allocates 64 MiB; a grandchild, whose parent ends, 32 MiB. As a subreaper we keep orphans.
        let child = ready(
            "import os,sys,threading,ctypes\n\
             ctypes.CDLL(None).prctl(36,1,0,0,0)\n\
             r,w=os.pipe()\n\
             def work(size):\n b=bytearray(size); os.write(w,b'x'); sys.stdin.read(); os._exit(0)\n\
             def spawn():\n  pid=os.fork()\n  if pid==0: work(64<<20)\n  done.wait()\n\
             done=threading.Event()\n\
             threading.Thread(target=spawn,daemon=True).start()\n\
             p=os.fork()\n\
             if p==0:\n  if os.fork()==0: os.setsid(); work(32<<20)\n  os._exit(0)\n\
             os.waitpid(p,0)\n\
             os.read(r,1); os.read(r,1)\n\
             print('ready',flush=True)\n\
             sys.stdin.read()\n",
        );
        let memory = memory_of_tree(child.id(), u64::MAX).unwrap();
        end(child);
        assert_eq!((memory.processes, memory.complete), (3, Complete::Yes));
        assert!((96 << 20..160 << 20).contains(&memory.bytes), "{memory:?}");
    }

    #[test]
    fn shared_pages_are_divided_only_above_the_limit() {
        let child = ready(
            "import os,sys\n\
             b=bytearray(64<<20)\n\
             r,w=os.pipe()\n\
             for i in range(3):\n  if os.fork()==0: os.write(w,b'x'); sys.stdin.read(); os._exit(0)\n\
             for i in range(3): os.read(r,1)\n\
             print('ready',flush=True)\n\
             sys.stdin.read()\n",
        );
        let ceiling = memory_of_tree(child.id(), u64::MAX).unwrap();
        let shares = memory_of_tree(child.id(), 128 << 20).unwrap();
        end(child);
        assert!(ceiling.bytes > 256 << 20, "{ceiling:?}");
        assert!((64 << 20..128 << 20).contains(&shares.bytes), "{shares:?}");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(matches!(memory_of_tree(child.id(), 0), Err(LimitError::Gone(_))));
    }

    #[test]
    fn units() {
        assert_eq!(kibibytes("Name:\tx\nRssAnon:\t     12 kB\n", "RssAnon:"), 12 << 10);
        assert_eq!(kibibytes("RssAnon: many kB\n", "RssAnon:"), 0);
    }
}
