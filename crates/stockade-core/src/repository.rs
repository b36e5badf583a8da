//! Repositories of git as an SSH server is asked for them, and patterns that say which. Pure.
//!
//! A server knows one repository by several names: `org/site`, `/org/site`, `~/org/site` and `org/site.git` are one here, as forges have it. Whatever
//! could be read in two ways (`..`, an empty part, a backslash, a part `.git`) is no name at all. Letters are compared as they are: a forge that
//! does not tell them apart is asked for less than it would give.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::escape::escape;

/// The longest name, and the longest pattern.
pub const MAX_REPOSITORY: usize = 1024;
/// The most parts of either.
const MAX_PARTS: usize = 32;
/// One part, whatever it is.
const ONE: &str = "*";
/// One part or more; only at the end.
const REST: &str = "**";

/// A repository, by its name without what does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository(String);

/// Which repositories: parts between slashes, where `*` stands for any one and `**` at the end for one or more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepositoryPattern(String);

/// Why something is no repository, or no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRepository {
    /// Nothing, or too much.
    #[error("it is empty, longer than {MAX_REPOSITORY} bytes or has more than {MAX_PARTS} parts")]
    Length,
    /// Something that is not what it looks like, or is read differently elsewhere.
    #[error("it has a control or invisible character, a backslash, `%` or `*` in it")]
    Character,
    /// A part that leads elsewhere.
    #[error("one of its parts is empty, `.`, `..` or `.git`")]
    Part,
    /// What a server would take for an option.
    #[error("it begins with `-`, which a server would take for an option")]
    Option,
    /// A star among letters.
    #[error("`*` stands for a whole part, and `**` for the last ones: `org/*`, `org/**`")]
    Star,
}

impl Repository {
    /// From a name as a client says it.
    pub fn parse(text: &str) -> Result<Self, BadRepository> {
        let parts = parts(text)?;
        if text.contains('*') {
            return Err(BadRepository::Character);
        }
        Ok(Self(parts.join("/")))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RepositoryPattern {
    /// Whether it means this one.
    pub fn matches(&self, repository: &Repository) -> bool {
        let mut parts = repository.0.split('/');
        for wanted in self.0.split('/') {
            match (wanted, parts.next()) {
                (REST, Some(_)) => return true,
                (ONE, Some(_)) => {}
                (wanted, Some(part)) if wanted == part => {}
                (_, _) => return false,
            }
        }
        parts.next().is_none()
    }

    /// As it was written, without what does not matter.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepositoryPattern {
    type Err = BadRepository;

    fn from_str(text: &str) -> Result<Self, BadRepository> {
        let parts = parts(text)?;
        let last = parts.len().saturating_sub(1);
        let stray = |(at, part): (usize, &&str)| part.contains('*') && *part != ONE && !(*part == REST && at == last);
        if parts.iter().enumerate().any(stray) {
            return Err(BadRepository::Star);
        }
        Ok(Self(parts.join("/")))
    }
}

impl TryFrom<String> for RepositoryPattern {
    type Error = BadRepository;

    fn try_from(text: String) -> Result<Self, BadRepository> {
        text.parse()
    }
}

impl From<RepositoryPattern> for String {
    fn from(pattern: RepositoryPattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The parts that matter.
fn parts(text: &str) -> Result<Vec<&str>, BadRepository> {
    if text.len() > MAX_REPOSITORY {
        return Err(BadRepository::Length);
    }
    if text.contains(['\\', '%']) || escape(text) != text {
        return Err(BadRepository::Character);
    }
    if text.starts_with('-') {
        return Err(BadRepository::Option);
    }
    let name = text.strip_prefix("/~/").or_else(|| text.strip_prefix("~/")).or_else(|| text.strip_prefix('/')).unwrap_or(text);
    let name = name.strip_suffix('/').unwrap_or(name);
    let mut parts: Vec<&str> = name.split('/').collect();
    if name.is_empty() || parts.len() > MAX_PARTS {
        return Err(BadRepository::Length);
    }
    if parts.iter().any(|part| matches!(*part, "" | "." | ".." | ".git")) {
        return Err(BadRepository::Part);
    }
    if let Some(last) = parts.last_mut()
        && let Some(short) = last.strip_suffix(".git")
    {
        *last = short;
    }
    // `..git` without its end.
    if parts.last().is_some_and(|last| matches!(*last, "." | "..")) {
        return Err(BadRepository::Part);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_several_names() {
        for name in ["org/site", "/org/site", "~/org/site", "/~/org/site", "org/site.git", "/org/site.git/", "org/site/"] {
            assert_eq!(Repository::parse(name).unwrap().as_str(), "org/site", "{name}");
        }
        for (name, known) in [
            ("~ann/site", "~ann/site"),
            ("/~ann/site", "~ann/site"),
            ("a b/c'd!", "a b/c'd!"),
            ("x.git.git", "x.git"),
            ("a/.gitx", "a/.gitx"),
        ] {
            assert_eq!(Repository::parse(name).unwrap().as_str(), known, "{name}");
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_no_name() {
        let (long, deep) = ("a".repeat(MAX_REPOSITORY + 1), "a/".repeat(MAX_PARTS + 1));
        for (name, why) in [
            ("", BadRepository::Length),
            ("/", BadRepository::Length),
            (&long, BadRepository::Length),
            (&deep, BadRepository::Length),
            ("org/../other", BadRepository::Part),
            ("..", BadRepository::Part),
            ("org/..git", BadRepository::Part),
            ("org/...git", BadRepository::Part),
            ("./org", BadRepository::Part),
            ("org//site", BadRepository::Part),
            ("//org/site", BadRepository::Part),
            ("org/site/.git", BadRepository::Part),
            (".git", BadRepository::Part),
            ("org/site//", BadRepository::Part),
            ("-oProxyCommand=x", BadRepository::Option),
            ("org\\..\\other", BadRepository::Character),
            ("org/%2e%2e/other", BadRepository::Character),
            ("org/si\nte", BadRepository::Character),
            ("org/\u{202e}site", BadRepository::Character),
            ("org/*", BadRepository::Character),
        ] {
            assert_eq!(Repository::parse(name), Err(why), "{name}");
        }
    }

    #[test]
    fn patterns_mean_whole_parts() {
        for (pattern, name, fits) in [
            ("org/site", "/org/site.git", true),
            ("/org/site.git", "org/site", true),
            ("org/site", "org/sites", false),
            ("org/site", "org/Site", false),
            ("org/site", "org", false),
            ("org/site", "org/site/more", false),
            ("org/*", "org/site", true),
            ("org/*", "org", false),
            ("org/*", "org/a/b", false),
            ("org/*", "other/site", false),
            ("*/site", "org/site", true),
            ("*", "org/site", false),
            ("org/**", "org/a/b", true),
            ("org/**", "org/a", true),
            ("org/**", "org", false),
            ("**", "a/b/c", true),
            ("~ann/*", "~ann/site", true),
            ("ann/*", "~ann/site", false),
        ] {
            let read: RepositoryPattern = pattern.parse().unwrap();
            assert_eq!(read.matches(&Repository::parse(name).unwrap()), fits, "{pattern} {name}");
            assert_eq!(serde_json::from_value::<RepositoryPattern>(serde_json::to_value(&read).unwrap()).unwrap(), read);
        }
        for bad in ["org/si*", "org/***", "org/**/site", "**/site"] {
            assert_eq!(bad.parse::<RepositoryPattern>(), Err(BadRepository::Star), "{bad}");
        }
        assert_eq!("org/..".parse::<RepositoryPattern>(), Err(BadRepository::Part));
    }
}
