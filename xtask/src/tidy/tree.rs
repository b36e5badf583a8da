//! The repository as a value: the text files that the rules look at.

use std::path::{Component, Path};

use super::source::Source;
use crate::failure::Failure;

/// Directories that hold nothing of ours.
const LEFT_OUT: &[&str] = &[".git", "target", "node_modules"];
/// Extensions of the files that rules read.
const READ: &[&str] = &["rs", "toml", "md"];
/// Nothing we write by hand is larger; a larger file is refused rather than read.
const LARGEST: u64 = 4 << 20;

/// Crates that are not called as their directory is.
const RENAMED: &[(&str, &str)] = &[("conformance", "stockade-conformance"), ("conformance/probe", "stockade-probe")];

/// One crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crate<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Where it is, relative to the repository.
    pub(super) directory: &'a str,
    /// The text of its manifest.
    pub(super) manifest: &'a str,
}

/// Text files by path relative to the root, with `/` between parts.
pub(super) struct Tree {
    files: Vec<(String, Source)>,
    /// Paths that exist, so that links can be checked without the disk.
    paths: Vec<String>,
}

impl Tree {
    /// Reads the repository below `root`.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self { files: Vec::new(), paths: Vec::new() };
        tree.read_directory(root, "")?;
        tree.files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(tree)
    }

    /// A tree made by hand.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self { files: Vec::new(), paths: Vec::new() };
        for (path, text) in files {
            let ancestors = Path::new(path).ancestors().filter(|ancestor| *ancestor != Path::new(""));
            tree.paths.extend(ancestors.map(|ancestor| ancestor.to_string_lossy().into_owned()));
            tree.files.push(((*path).to_owned(), Source::new((*text).to_owned())));
        }
        tree
    }

    /// How many files were read.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Files with this extension, by path.
    pub(super) fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = (&'a str, &'a Source)> {
        let has = move |path: &str| Path::new(path).extension().is_some_and(|found| found == extension);
        self.files.iter().filter(move |(path, _)| has(path)).map(|(path, source)| (path.as_str(), source))
    }

    /// One file's text.
    pub(super) fn text(&self, wanted: &str) -> Option<&str> {
        self.files.iter().find(|(path, _)| path == wanted).map(|(_, source)| source.text())
    }

    /// The crates of the workspace.
    pub(super) fn crates(&self) -> impl Iterator<Item = Crate<'_>> {
        self.with_extension("toml").filter_map(|(path, source)| {
            let directory = path.strip_suffix("/Cargo.toml")?;
            let name = directory.strip_prefix("crates/").unwrap_or(directory);
            let name = RENAMED.iter().find(|(place, _)| *place == directory).map_or(name, |(_, name)| name);
            (!name.contains('/')).then_some(Crate { name, directory, manifest: source.text() })
        })
    }

    /// Whether a file or directory is there. `from` is the file that names it; `..` is resolved.
    pub(super) fn leads_somewhere(&self, from: &str, link: &str) -> bool {
        let mut parts: Vec<String> = Path::new(from).parent().map(parts_of).unwrap_or_default();
        for component in Path::new(link).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir if parts.pop().is_some() => {}
                Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
            }
        }
        parts.is_empty() || self.paths.contains(&parts.join("/"))
    }

    fn read_directory(&mut self, directory: &Path, prefix: &str) -> Result<(), Failure> {
        for entry in std::fs::read_dir(directory).map_err(Failure::io("list", directory))? {
            let entry = entry.map_err(Failure::io("list", directory))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let relative = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            let kind = entry.file_type().map_err(Failure::io("look at", &path))?;
            if LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            self.paths.push(relative.clone());
            if kind.is_dir() {
                self.read_directory(&path, &relative)?;
            } else if kind.is_file() && path.extension().and_then(|e| e.to_str()).is_some_and(|e| READ.contains(&e)) {
                let size = entry.metadata().map_err(Failure::io("look at", &path))?.len();
                if size > LARGEST {
                    return Err(Failure::new(format!("`{relative}` is {size} bytes; nothing written by hand is")));
                }
                let text = std::fs::read_to_string(&path).map_err(Failure::io("read", &path))?;
                self.files.push((relative, Source::new(text)));
            }
        }
        Ok(())
    }
}

fn parts_of(path: &Path) -> Vec<String> {
    path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn links_are_resolved_from_the_file_that_names_them() {
        let tree = Tree::of(&[("docs/guides/a.md", ""), ("README.md", "")]);
        for (from, link, expected) in [
            ("README.md", "docs/guides/a.md", true),
            ("README.md", "docs/", true),
            ("docs/guides/a.md", "../../README.md", true),
            ("docs/guides/a.md", "../README.md", false),
            ("README.md", "../README.md", false),
            ("README.md", "/etc/passwd", false),
        ] {
            assert_eq!(tree.leads_somewhere(from, link), expected, "{from} → {link}");
        }
    }

    #[test]
    fn crates_are_found_by_their_manifests() {
        let manifests = ["Cargo.toml", "crates/one/Cargo.toml", "xtask/Cargo.toml", "a/b/Cargo.toml", "conformance/probe/Cargo.toml"];
        let tree = Tree::of(&manifests.map(|path| (path, "")));
        let found: Vec<(&str, &str)> = tree.crates().map(|one| (one.name, one.directory)).collect();
        assert_eq!(found, [("one", "crates/one"), ("xtask", "xtask"), ("stockade-probe", "conformance/probe")]);
    }
}
