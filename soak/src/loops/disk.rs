//! A full disk: the state directory is a small file system with room for so many blocks, or so many files, and no more.

use std::ffi::CString;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::{Bench, Stand, until_enough};
use crate::bounded;
use crate::failure::Failure;
use crate::ground::Who;
use crate::report::Tally;

const NAME: &str = "disk";
/// What a file system gives out at a time.
const BLOCK: u64 = 4096;
/// Room for everything.
const PLENTY: u64 = 1 << 26;

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let state = bench.cage.base.join(format!("{NAME}-{}", who.name())).join("state");
        let small = Small::new(&state, who)?;
        let stand = Stand::new(bench, NAME, who)?;
        for what in ["size", "nr_inodes"] {
            until_enough(0..200, bench.arguments.extent, |round, amount| {
                let scene = format!("as {}, {what} {amount}", who.name());
                small.leave(what, amount)?;
                // The last steps fill what is left themselves: the program hits the wall, then keeping its changes does.
                let script = stand.script("head -c 40000 /dev/zero >new && echo x >changed && exit 0; exit 3");
                let outcome = bounded::run(&mut stand.ground.stockade(["--json", "run", "--", "bash", "-c", &script]))?;
                // Room is made before anything is looked at or removed: without any nothing can be written down, so nothing is done.
                small.leave(what, PLENTY / BLOCK)?;
                let fate = stand.starved(&mut tally, round, &scene, &outcome)?;
                (bench.progress)(&format!("{NAME}: {scene}"));
                Ok(fate)
            })?;
            small.leave(what, PLENTY / BLOCK)?;
        }
        create(bench, &mut tally, &stand, &small)?;
    }
    Ok(tally)
}

/// The same for a sandbox that lives on: made or refused, and gone afterwards.
fn create(bench: &Bench<'_>, tally: &mut Tally, stand: &Stand<'_>, small: &Small) -> Result<(), Failure> {
    for what in ["size", "nr_inodes"] {
        until_enough(0..100, bench.arguments.extent, |round, amount| {
            let scene = format!("as {}, create with {what} {amount}", stand.ground.who.name());
            small.leave(what, amount)?;
            let outcome = bounded::run(&mut stand.ground.stockade(["sandbox", "create"]))?;
            small.leave(what, PLENTY / BLOCK)?;
            stand.created(tally, round, &scene, &outcome)
        })?;
        small.leave(what, PLENTY / BLOCK)?;
    }
    Ok(())
}

/// A file system in memory in place of a directory, gone with the value.
struct Small<'a> {
    at: &'a Path,
}

impl<'a> Small<'a> {
    fn new(at: &'a Path, who: Who) -> Result<Self, Failure> {
        std::fs::create_dir_all(at).map_err(Failure::at("making", at))?;
        for directory in at.ancestors().take(2) {
            std::os::unix::fs::chown(directory, Some(who.uid()), Some(who.uid())).map_err(Failure::at("giving away", directory))?;
        }
        let options = CString::new(format!("mode=755,uid={0},gid={0},size={PLENTY},nr_inodes={PLENTY}", who.uid())).unwrap_or_default();
        mount("small", at, "tmpfs", MountFlags::empty(), Some(options.as_c_str())).map_err(|e| Failure::at("mounting", at)(e.into()))?;
        Ok(Self { at })
    }

    /// Leaves room for so many blocks (`size`) or files (`nr_inodes`) more.
    fn leave(&self, what: &str, amount: u64) -> Result<(), Failure> {
        let now = rustix::fs::statvfs(self.at).map_err(|e| Failure::at("looking at", self.at)(e.into()))?;
        let options = match what {
            "size" => format!("size={}", (now.f_blocks - now.f_bfree + amount).max(1) * BLOCK),
            _ => format!("nr_inodes={}", now.f_files - now.f_ffree + amount),
        };
        let options = CString::new(options).unwrap_or_default();
        mount_remount(self.at, MountFlags::empty(), options.as_c_str()).map_err(|e| Failure::at("resizing", self.at)(e.into()))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // What stays is seen by the next census.
        let _ = unmount(self.at, UnmountFlags::DETACH);
    }
}
