//! Packs that are part of this program. What vouches for them is what vouches for the program: there is no signature that could prove more.

use stockade_policy::pack::{BadFile, PackFiles, PackPath};

/// A file's path and its bytes.
type File = (&'static str, &'static [u8]);

/// Every built-in pack: its name, and its files by path.
const PACKS: &[(&str, &[File])] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// Tells the packs of one build from those of another.
pub(super) const NUMBER: &str = env!("STOCKADE_BUILTIN_PACKS");

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PACKS.iter().map(|(name, _)| *name)
}

/// One file of one pack.
pub(super) fn file(pack: &str, path: &str) -> Option<&'static [u8]> {
    let (_, files) = PACKS.iter().find(|(name, _)| *name == pack)?;
    files.iter().find(|(found, _)| *found == path).map(|(_, bytes)| *bytes)
}

/// All files of one pack.
pub(super) fn files(pack: &str) -> Result<PackFiles, BadFile> {
    let mut all = PackFiles::default();
    for (path, bytes) in PACKS.iter().filter(|(name, _)| *name == pack).flat_map(|(_, files)| *files) {
        all.add(PackPath::parse(path.as_bytes())?, bytes.to_vec())?;
    }
    Ok(all)
}
