//! What a process does to itself before it touches a value: no core file, no look from outside.
//!
//! An undumpable process cannot be traced, and its memory and environment cannot be read, by other programs of the same user; root
//! still can.

use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::mm::MlockAllFlags;

/// Makes this process undumpable and forbids core files, for itself and for what it starts.
pub fn keep_to_ourselves() -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none)
}

/// Keeps this process's memory from swap: all of it and all to come, where the limit on that is none; else what is there now, where it fits, which
/// with the usual 8 MiB it does not: the program itself is longer. A machine that lets it do neither has its values in ordinary memory, as its
/// person's other programs have.
pub fn keep_in_memory() {
    #[cfg(target_os = "linux")]
    {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let all = MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT;
        // With a limit every later mapping would count, and threads could not be started any more.
        let flags = if limit.is_none() { all | MlockAllFlags::FUTURE } else { all };
        let _ = rustix::mm::mlockall(flags);
    }
}
