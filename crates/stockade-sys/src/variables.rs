//! Forgetting what a variable of this process holds.
//!
//! The kernel puts the caller's environment into a process's memory, where it stays readable for as long as the process lives. A value that
//! was handed on and is not needed here any more is better not there.

use std::ffi::CString;

/// Whether it was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiped {
    /// It is empty now, and its bytes are gone.
    Yes,
    /// There is none of that name, or another thread might be reading it.
    No,
}

/// Overwrites what a variable holds; afterwards it is empty. Does nothing in a process with more than one thread.
pub fn wipe(name: &str) -> Wiped {
    let Ok(name) = CString::new(name) else { return Wiped::No };
    // The calling thread is one of them, so where there is one nobody else can look at the environment or make threads meanwhile.
    if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
        return Wiped::No;
    }
    // SAFETY: the name is a C string; no other thread changes the environment meanwhile.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return Wiped::No;
    }
    // SAFETY: `getenv` gives a C string that stays valid until the environment is changed, which nobody else does.
    let length = unsafe { libc::strlen(value) };
    for at in 0..length {
        // SAFETY: `at` lies within the string.
        let byte = unsafe { value.add(at) };
        // SAFETY: the environment lies in memory of this process that may be written: the kernel's own block, or the C library's.
        // Nobody holds a reference into it, for the standard library copies what it gives. Written so that it is not left out.
        unsafe { byte.write_volatile(0) };
    }
    Wiped::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_touched_while_others_might_look() {
        // The test's own harness has threads.
        assert_eq!(wipe("PATH"), Wiped::No);
        assert_eq!(wipe("a\0b"), Wiped::No);
    }
}
