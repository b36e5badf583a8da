//! The kernel's own counts of limits that were met, as open files: whoever has them sees that nothing happened without asking anybody.

use std::os::fd::OwnedFd;

/// More than such a file holds.
const MOST_BYTES: usize = 4096;

/// Counts, and what they said at first.
#[derive(Debug)]
pub(crate) struct Counters {
    files: Vec<(OwnedFd, Vec<u8>)>,
}

impl Counters {
    /// Reads what they say now; `None` where one cannot be read, or there are none.
    pub(crate) fn of(files: Vec<OwnedFd>) -> Option<Self> {
        let read = |file: OwnedFd| content(&file).map(|said| (file, said));
        let files = files.into_iter().map(read).collect::<Option<Vec<_>>>()?;
        (!files.is_empty()).then_some(Self { files })
    }

    /// Whether they still say the same. One that cannot be read any more does not.
    pub(crate) fn are_unchanged(&self) -> bool {
        self.files.iter().all(|(file, said)| content(file).is_some_and(|now| now == *said))
    }
}

fn content(file: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = vec![0; MOST_BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::io::pread(file, bytes.as_mut_slice(), 0)).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_count_that_changed_or_cannot_be_read_is_noticed() {
        let mut count = tempfile::tempfile().unwrap();
        count.write_all(b"max 0\n").unwrap();
        let counters = Counters::of(vec![count.try_clone().unwrap().into()]).unwrap();
        assert!(counters.are_unchanged());
        count.write_all(b"more 1\n").unwrap();
        assert!(!counters.are_unchanged());
        let (unreadable, _other) = rustix::pipe::pipe().unwrap();
        assert!(Counters::of(vec![unreadable]).is_none());
        assert!(Counters::of(Vec::new()).is_none());
    }
}
