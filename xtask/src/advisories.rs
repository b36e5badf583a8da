//! The committed advisory snapshot, and the directory cargo-deny reads it from.
//!
//! cargo-deny wants a clone of the RustSec database under a name derived from its address, and takes the time of the last
//! fetch from `.git/FETCH_HEAD`. A directory with that one file and generated pages is enough; no git is involved.

use std::collections::BTreeSet;
use std::path::Path;

use crate::failure::Failure;

/// What cargo-deny 0.20 calls the clone of `https://github.com/rustsec/advisory-db` (name and hash of the address).
const DATABASE_NAME: &str = "advisory-db-3157b0e258782691";

/// One advisory, as facts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Advisory {
    id: String,
    package: String,
    date: String,
    kind: Kind,
    patched: Option<String>,
    unaffected: Option<String>,
    title: String,
}

/// What an advisory is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Vulnerability,
    Unsound,
    Unmaintained,
    Notice,
}

impl Kind {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "vulnerability" => Some(Self::Vulnerability),
            "unsound" => Some(Self::Unsound),
            "unmaintained" => Some(Self::Unmaintained),
            "notice" => Some(Self::Notice),
            _ => None,
        }
    }

    /// The database marks everything that is not a plain vulnerability as informational.
    fn informational(self) -> Option<&'static str> {
        match self {
            Self::Vulnerability => None,
            Self::Unsound => Some("unsound"),
            Self::Unmaintained => Some("unmaintained"),
            Self::Notice => Some("notice"),
        }
    }
}

/// The whole snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The day the facts are from.
    pub(crate) date: String,
    /// The advisories.
    pub(crate) advisories: Vec<Advisory>,
    /// Crates that were looked up.
    pub(crate) checked: BTreeSet<String>,
}

impl Snapshot {
    /// Reads the committed file. Anything that is not understood is an error: a dropped line would be a missed advisory.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut date = None;
        let mut advisories = Vec::new();
        let mut checked = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let bad = |what: &str| Failure::new(format!("advisories line {}: {what}: `{line}`", index + 1));
            match line.trim().split_once(' ') {
                None if line.trim().is_empty() || line.trim() == "#" => {}
                Some(("#", _)) => {}
                Some(("snapshot", value)) => date = Some(value.trim().to_owned()),
                Some(("checked", names)) => checked.extend(names.split_whitespace().map(str::to_owned)),
                Some(("advisory", rest)) => advisories.push(parse_advisory(rest).ok_or_else(|| bad("not an advisory"))?),
                Some(_) | None => return Err(bad("not understood")),
            }
        }
        let date = date.ok_or_else(|| Failure::new("advisories: no `snapshot` line"))?;
        Ok(Self { date, advisories, checked })
    }

    /// Crates of the lock file that nobody looked up.
    pub(crate) fn unchecked(&self, lock_file: &str) -> Vec<String> {
        let external = lock_file.split("[[package]]").filter(|package| package.contains("\nsource = "));
        let names = external.filter_map(|package| package.split_once("name = \"")?.1.split_once('"').map(|(name, _)| name));
        let names: BTreeSet<&str> = names.filter(|name| !self.checked.contains(*name)).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Writes the directory that cargo-deny reads, anew.
    pub(crate) fn write_database(&self, root: &Path) -> Result<(), Failure> {
        if root.exists() {
            std::fs::remove_dir_all(root).map_err(Failure::io("clear", root))?;
        }
        let database = root.join(DATABASE_NAME);
        write(&database.join(".git").join("FETCH_HEAD"), "")?;
        for advisory in &self.advisories {
            let page = database.join("crates").join(&advisory.package).join(format!("{}.md", advisory.id));
            write(&page, &advisory.page())?;
        }
        Ok(())
    }
}

impl Advisory {
    /// The advisory in the database's own form: TOML in a fence, then a title.
    fn page(&self) -> String {
        let list = |range: &Option<String>| range.as_ref().map(|range| format!("\"{range}\"")).unwrap_or_default();
        let informational = self.kind.informational().map(|kind| format!("informational = \"{kind}\"\n")).unwrap_or_default();
        format!(
            "```toml\n[advisory]\nid = \"{id}\"\npackage = \"{package}\"\ndate = \"{date}\"\n\
             url = \"https://rustsec.org/advisories/{id}\"\n{informational}\n\
             [versions]\npatched = [{patched}]\nunaffected = [{unaffected}]\n```\n\n# {title}\n\nSee https://rustsec.org/advisories/{id}.\n",
            id = self.id,
            package = self.package,
            date = self.date,
            patched = list(&self.patched),
            unaffected = list(&self.unaffected),
            title = self.title,
        )
    }
}

fn parse_advisory(text: &str) -> Option<Advisory> {
    let fields: Vec<&str> = text.split('|').map(str::trim).collect();
    let [id, package, date, kind, patched, unaffected, title] = fields.as_slice() else { return None };
    let is_plain = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let range = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    if !is_plain(id) || !is_plain(package) || !is_plain(date) || title.is_empty() || text.contains('"') {
        return None;
    }
    Some(Advisory {
        id: (*id).to_owned(),
        package: (*package).to_owned(),
        date: (*date).to_owned(),
        kind: Kind::parse(kind)?,
        patched: range(patched),
        unaffected: range(unaffected),
        title: (*title).to_owned(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(Failure::io("create", directory))?;
    }
    std::fs::write(path, text).map_err(Failure::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# a comment\nsnapshot 2026-01-02\nadvisory RUSTSEC-2020-0001 | alpha | 2020-01-01 | unsound | >= 1.2.0 | < 1.0.0 | it breaks\nchecked alpha beta\n";

    #[test]
    fn a_snapshot_is_read_whole() {
        let snapshot = Snapshot::parse(SAMPLE).unwrap();
        assert_eq!(snapshot.date, "2026-01-02");
        assert_eq!(snapshot.advisories.len(), 1);
        assert_eq!(snapshot.checked.len(), 2);
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for line in ["advisry X", "advisory RUSTSEC-1 | too | few", "advisory A | ../up | d | unsound | | | t", "word"] {
            let text = format!("{SAMPLE}{line}\n");
            assert!(Snapshot::parse(&text).unwrap_err().to_string().contains("line 5"), "{line}");
        }
        assert!(Snapshot::parse("checked a\n").is_err());
    }

    #[test]
    fn crates_nobody_looked_up_are_named() {
        let lock =
            "[[package]]\nname = \"alpha\"\nsource = \"x\"\n[[package]]\nname = \"gamma\"\nsource = \"x\"\n[[package]]\nname = \"own\"\n";
        assert_eq!(Snapshot::parse(SAMPLE).unwrap().unchecked(lock), ["gamma"]);
    }

    #[test]
    fn a_page_carries_the_ranges() {
        let snapshot = Snapshot::parse(SAMPLE).unwrap();
        let page = snapshot.advisories[0].page();
        for part in ["informational = \"unsound\"", "patched = [\">= 1.2.0\"]", "unaffected = [\"< 1.0.0\"]", "# it breaks\n"] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn the_committed_snapshot_is_well_formed() {
        let text = include_str!("../../.ci/advisories.txt");
        assert!(Snapshot::parse(text).unwrap().advisories.len() >= 14);
    }
}
