//! `pack.toml`: what a pack is called, which version it is, and whose.

use serde::Deserialize;
use toml::Spanned;

use super::name::{PackName, PublisherName, Version};
use super::toml_fault;
use crate::fault::{Fault, FaultKind, Faults};

/// Characters of a description at most.
const MAX_DESCRIPTION: usize = 2000;

/// Where a pack's programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Linux.
    Linux,
    /// macOS.
    Macos,
}

impl Platform {
    /// The one that this was built for, if it is known.
    pub fn here() -> Option<Self> {
        if cfg!(target_os = "linux") {
            Some(Self::Linux)
        } else if cfg!(target_os = "macos") {
            Some(Self::Macos)
        } else {
            None
        }
    }

    /// The word in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Macos => "macos",
        }
    }
}

/// A pack's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What it is called.
    pub name: PackName,
    /// Which version.
    pub version: Version,
    /// What it is for.
    pub description: String,
    /// Whose key signs it.
    pub publisher: PublisherName,
    /// Where it works; empty: everywhere.
    pub platforms: Vec<Platform>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Spanned<String>,
    version: Spanned<String>,
    description: Spanned<String>,
    publisher: Spanned<String>,
    #[serde(default)]
    platforms: Vec<Platform>,
}

impl Manifest {
    /// Reads it; every fault is told at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, Faults> {
        let raw: Raw = toml::from_str(text).map_err(|error| Faults(vec![toml_fault(file, text, &error)]))?;
        let mut faults = Vec::new();
        let name = checked::<PackName>(file, text, &raw.name, &mut faults);
        let version = checked::<Version>(file, text, &raw.version, &mut faults);
        let publisher = checked::<PublisherName>(file, text, &raw.publisher, &mut faults);
        let description = raw.description.get_ref();
        if description.trim().is_empty() || description.chars().count() > MAX_DESCRIPTION {
            let message = format!("the description must have between 1 and {MAX_DESCRIPTION} characters");
            faults.push(at(file, text, &raw.description, message));
        }
        match (name, version, publisher) {
            (Some(name), Some(version), Some(publisher)) if faults.is_empty() => {
                Ok(Self { name, version, description: description.clone(), publisher, platforms: raw.platforms })
            }
            _ => Err(Faults(faults)),
        }
    }
}

fn checked<T: std::str::FromStr<Err: std::fmt::Display>>(
    file: &str,
    text: &str,
    value: &Spanned<String>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    match value.get_ref().parse() {
        Ok(value) => Some(value),
        Err(error) => {
            faults.push(at(file, text, value, format!("{error}")));
            None
        }
    }
}

fn at(file: &str, text: &str, value: &Spanned<String>, message: String) -> Fault {
    let span = value.span();
    Fault::at(FaultKind::Manifest, file, text, (span.start, span.end.saturating_sub(span.start)), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"git\"\nversion = \"1.2.3\"\ndescription = \"d\"\npublisher = \"acme\"\nplatforms = [\"linux\"]\n";

    #[test]
    fn faults_have_a_place() {
        let manifest = Manifest::parse("pack.toml", GOOD).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.version.to_string().as_str()), ("git", "1.2.3"));
        let check = |from: &str, to: &str, line: usize, words: &str| {
            let faults = Manifest::parse("pack.toml", &GOOD.replace(from, to)).unwrap_err();
            assert_eq!(faults.0[0].line, line, "{faults}");
            assert!(faults.to_string().contains(words), "{faults}");
        };
        check("\"git\"", "\"../git\"", 1, "name of a pack");
        check("1.2.3", "1.2", 2, "version");
        check("publisher", "publsher", 4, "publsher");
        check("linux", "windows", 5, "windows");
        check("\"d\"", "\"\"", 3, "description");
        check("description = \"d\"\n", "", 1, "description");
        check("= \"git\"", "= git", 1, "pack.toml:1");
    }
}
