//! Overlays: a directory of the host underneath, the sandbox's writes above, apart.
//!
//! The mount is made inside the user namespace (`userxattr`), which works for ordinary users too. Both layers are first
//! attached at fixed names on the scratch file system, so that no path of the host ever appears in a mount option.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::scratch::Scratch;
use super::{Doing, Trouble, mounts};

/// Makes an overlay of `lower` and the directories `upper` and `work` of `layer`; it is not attached yet.
pub(crate) fn make(scratch: &Scratch, name: &[u8], lower: BorrowedFd<'_>, layer: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
    let place = |part: &[u8]| [name, b"/", part].concat();
    let (lower_place, layer_place) = (place(b"lower"), place(b"layer"));
    for directory in [name, &lower_place, &layer_place] {
        scratch.make(directory, 0o755)?;
    }
    mounts::attach_named(lower, scratch.top(), &lower_place).doing(|| "attaching the lower layer".into())?;
    mounts::attach_named(layer, scratch.top(), &layer_place).doing(|| "attaching the upper layer".into())?;
    scratch.make(&place(b"layer/upper"), 0o755)?;
    scratch.make(&place(b"layer/work"), 0o755)?;
    // Relative names, so that the options hold nothing but what is written here.
    rustix::process::fchdir(scratch.top()).doing(|| "entering scratch".into())?;
    let option = |part: &str| [b"./".as_slice(), name, b"/", part.as_bytes()].concat();
    let (lower, upper, work) = (option("lower"), option("layer/upper"), option("layer/work"));
    let options: [(&std::ffi::CStr, &[u8]); 3] = [(c"lowerdir", &lower), (c"upperdir", &upper), (c"workdir", &work)];
    mounts::new_filesystem(c"overlay", &options, &[c"userxattr"], 0).doing(|| "making the overlay".into()).map_err(|mut trouble| {
        if trouble.errno == Errno::INVAL.raw_os_error() {
            trouble.detail.push_str(" (the file system of the upper layer cannot hold one)");
        }
        trouble
    })
}
