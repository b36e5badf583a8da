//! Giving memory back while a process has nothing to do.
//!
//! A supervisor sleeps nearly always. What it needs then is what it has written; its code, and that of its libraries, is in files and comes
//! back page by page when it is touched. Nothing is lost and nothing is written anywhere: the pages stay in the page cache for as
//! long as the kernel likes, shared with every other process of the same program.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::event::{PollFd, Timespec};
use rustix::mm::Advice;

/// In a page's entry of `/proc/self/pagemap`: it is in memory, and it is its file's.
const IN_MEMORY_AS_IN_THE_FILE: u64 = (1 << 63) | (1 << 61);

/// The parts of this program and its libraries that nobody writes to, as they lie in memory.
#[derive(Debug, Default)]
pub struct Code {
    /// Those that nobody ever could write to.
    read_only: Vec<Span>,
    /// Those that were made read-only after the start, whose pages may have been written to before.
    sealed: Vec<Span>,
    /// Tells which of their pages were not.
    pages: Option<File>,
}

/// Whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    length: usize,
}

impl Code {
    /// Finds them. Libraries that are loaded later are not among them.
    pub fn find() -> Self {
        // Without it the sealed parts stay where they are.
        let mut code = Self { pages: File::open("/proc/self/pagemap").ok(), ..Self::default() };
        // SAFETY: the callback gets this very pointer, which stays valid and unshared until the call returns.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut code).cast::<c_void>()) };
        code
    }

    /// Returns free memory of the heap to the kernel, forgets the mapped pages, and waits. From the last forgotten page until something happens
    /// only this function runs, so that little of the code comes back meanwhile.
    #[inline(never)]
    pub fn sleep(&self, descriptors: &mut [PollFd<'_>], timeout: &Timespec) -> rustix::io::Result<usize> {
        trim();
        self.forget_sealed();
        for span in &self.read_only {
            // SAFETY: the span lies in a segment of a loaded object that nobody may write to, mapped privately from its file; dropped
            // pages are read from there again, with the same contents. A refusal changes nothing.
            let _ = unsafe { rustix::mm::madvise(span.pointer(), span.length, Advice::LinuxDontNeed) };
        }
        rustix::event::poll(descriptors, Some(timeout))
    }

    /// Forgets the pages of sealed parts that the kernel says are still the file's own.
    fn forget_sealed(&self) {
        for span in &self.sealed {
            for clean in self.pages.as_ref().and_then(|pages| clean_spans(pages, *span).ok()).unwrap_or_default() {
                // SAFETY: nobody may write to the span any more, and its pages were never written to, so they are read from the file again
                // with the same contents. A refusal changes nothing.
                let _ = unsafe { rustix::mm::madvise(clean.pointer(), clean.length, Advice::LinuxDontNeed) };
            }
        }
    }
}

impl Span {
    /// The whole pages between two addresses, if there are any.
    fn within(begin: usize, end: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let (start, end) = (begin.next_multiple_of(page), end & !(page - 1));
        (end > start).then(|| Self { start, length: end - start })
    }

    fn pointer(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.start)
    }
}

/// The pages of a span that are in memory as they are in their file.
fn clean_spans(pages: &File, span: Span) -> io::Result<Vec<Span>> {
    let page = rustix::param::page_size();
    let mut entries = vec![0; span.length / page * size_of::<u64>()];
    pages.read_exact_at(&mut entries, (span.start / page * size_of::<u64>()) as u64)?;
    let mut clean: Vec<Span> = Vec::new();
    for (number, entry) in entries.as_chunks().0.iter().enumerate() {
        if u64::from_ne_bytes(*entry) & IN_MEMORY_AS_IN_THE_FILE != IN_MEMORY_AS_IN_THE_FILE {
            continue;
        }
        let start = span.start + number * page;
        match clean.last_mut() {
            Some(last) if last.start + last.length == start => last.length += page,
            _ => clean.push(Span { start, length: page }),
        }
    }
    Ok(clean)
}

/// Notes the whole pages of each segment that is not writable, and of what was made so.
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
    for header in headers {
        let begin = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let spans = match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_W == 0 => &mut code.read_only,
            libc::PT_GNU_RELRO => &mut code.sealed,
            _ => continue,
        };
        spans.extend(Span::within(begin, begin.wrapping_add(header.p_filesz as usize)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_goes_on_after_sleeping() {
        let code = Code::find();
        assert!(!code.read_only.is_empty());
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap()
        };
        let before = resident();
        for _ in 0..3 {
            assert_eq!(code.sleep(&mut [], &Timespec { tv_sec: 0, tv_nsec: 1 }), Ok(0));
        }
        assert!(resident() < before, "less is mapped than before");
        let text = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(text.len(), 289);
    }

    #[test]
    fn sealed_pages_are_forgotten_only_as_the_file_has_them() {
        let page = rustix::param::page_size();
        let file = tempfile();
        file.write_all_at(&vec![b'f'; page * 3], 0).unwrap();
        let (flags, protection) = (rustix::mm::MapFlags::PRIVATE, rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE);
        // SAFETY: a mapping at an address that the kernel chooses, of a file that nobody shortens.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), page * 3, protection, flags, &file, 0) }.unwrap();
        // SAFETY: the mapping is as long, and nobody else knows of it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), page * 3) };
        let span = Span { start: start.addr(), length: page * 3 };
        assert_eq!((bytes[0], bytes[2 * page]), (b'f', b'f'));
        bytes[page] = b'w';
        let code = Code { sealed: vec![span], ..Code::find() };
        let clean = clean_spans(code.pages.as_ref().unwrap(), span).unwrap();
        assert_eq!(clean, [Span { start: span.start, length: page }, Span { start: span.start + 2 * page, length: page }]);
        code.forget_sealed();
        assert_eq!(clean_spans(code.pages.as_ref().unwrap(), span).unwrap(), []);
        assert_eq!((bytes[0], bytes[page], bytes[2 * page]), (b'f', b'w', b'f'));
    }

    fn tempfile() -> File {
        let name = c"stockade-test";
        rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
    }
}
