//! What a process does to itself before it touches a value: no core file, no look from outside.
//!
//! An undumpable process cannot be traced, and its memory and environment cannot be read, by other programs of the same user; root
//! still can.

use rustix::io::Errno;

/// Makes this process undumpable and forbids core files, for itself and for what it starts.
pub fn keep_to_ourselves() -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none)
}
