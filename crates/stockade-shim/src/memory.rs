//! Giving memory back while nothing happens.
//!
//! Owns the list of our read-only segments. Their pages come back from the file when they are touched; an idle sandbox is charged only
//! for what the guest has written. The host does the same for its supervisors (`stockade-sys`), which this program does not link.

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;

use rustix::buffer::SpareCapacity;
use rustix::event::epoll;
use rustix::mm::Advice;

/// The read-only parts of this program, as they lie in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Code(Vec<(usize, usize)>);

impl Code {
    /// Finds them.
    pub(crate) fn find() -> Self {
        let mut code = Self::default();
        // SAFETY: the callback gets this very pointer, which stays valid and unshared until the call returns.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut code).cast::<c_void>()) };
        code
    }

    /// Returns free memory of the heap to the kernel, forgets the mapped pages of code, and waits. From the last forgotten page until
    /// something happens only this function runs, so that little of the code comes back meanwhile.
    #[inline(never)]
    pub(crate) fn sleep(&self, poller: &OwnedFd, events: SpareCapacity<'_, epoll::Event>) -> rustix::io::Result<usize> {
        trim();
        for (start, length) in &self.0 {
            let start = std::ptr::without_provenance_mut::<c_void>(*start);
            // SAFETY: the range lies in a segment of a loaded object that nobody may write to, mapped privately from its file;
            // dropped pages are read from there again, with the same contents. A refusal changes nothing.
            let _ = unsafe { rustix::mm::madvise(start, *length, Advice::LinuxDontNeed) };
        }
        epoll::wait(poller, events, None)
    }
}

/// Notes the whole pages of each segment that is not writable. Relocated data that is made read-only afterwards lies in writable ones.
unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, code: *mut c_void) -> c_int {
    // SAFETY: the C library gives a valid structure for the time of the call.
    let info = unsafe { &*info };
    // SAFETY: this is the pointer that `find` passed, and nobody else uses it meanwhile.
    let code = unsafe { &mut *code.cast::<Code>() };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the C library gives as many headers as it says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let page = rustix::param::page_size();
    for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0) {
        let begin = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let start = begin.next_multiple_of(page);
        let end = begin.wrapping_add(header.p_filesz as usize) & !(page - 1);
        if end > start {
            code.0.push((start, end - start));
        }
    }
    0
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: takes a plain integer; only free memory is returned.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
