//! Names of packs and capabilities, and versions: checked when they are read, so that none can be a path or Cedar text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stockade_core::escape::escape;

/// The longest name of a pack or a part of a capability's.
const MAX_PART: usize = 40;
/// The most parts of a capability's name.
const MAX_PARTS: usize = 4;
/// The longest name of a tool, as MCP has it.
const MAX_TOOL: usize = 128;
/// What the names of MCP servers' tools begin with; no pack can claim one.
const MCP: &str = "mcp";

/// Text that is no name or version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Not a pack's.
    #[error("`{0}` is not the name of a pack: begin with a lower-case letter, then letters, digits and `-`, at most {MAX_PART}")]
    Pack(String),
    /// Not a capability's.
    #[error(
        "`{0}` is not the name of a capability: two to {MAX_PARTS} words joined by dots, each of lower-case letters, digits, `_` and `-`, the first not `{MCP}`"
    )]
    Capability(String),
    /// Not an MCP server's.
    #[error(
        "`{0}` is not the name of an MCP server: begin with a lower-case letter, then letters, digits, `_` and `-`, at most {MAX_PART}"
    )]
    Server(String),
    /// Not that of a tool of one.
    #[error("`{0}` is not the name of a tool: letters, digits, `_`, `-` and `.`, at most {MAX_TOOL}")]
    Tool(String),
    /// Not a publisher's.
    #[error("`{0}` is not the name of a publisher: letters, digits and `.`, `_`, `-`, at most {MAX_PART}")]
    Publisher(String),
    /// Not a version.
    #[error("`{0}` is not a version: three numbers joined by dots")]
    Version(String),
}

fn shown(text: &str) -> String {
    escape(&text.chars().take(80).collect::<String>())
}

/// What a pack is called: `git`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackName(String);

/// What a capability is called: `git.log`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapabilityName(String);

/// What a person calls an MCP server: `github`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerName(String);

/// What an MCP server calls one of its tools: `create_issue`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(String);

/// What a publisher is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublisherName(String);

/// A version: newer ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version([u32; 3]);

fn is_part(text: &str, more: &[u8]) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte));
    first && rest && text.len() <= MAX_PART
}

impl FromStr for PackName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        if is_part(text, b"-") { Ok(Self(text.to_owned())) } else { Err(BadName::Pack(shown(text))) }
    }
}

impl FromStr for CapabilityName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let count = text.split('.').count();
        let fits = (2..=MAX_PARTS).contains(&count) && text.split('.').all(|part| is_part(part, b"_-"));
        let is_free = text.split('.').next() != Some(MCP);
        if fits && is_free { Ok(Self(text.to_owned())) } else { Err(BadName::Capability(shown(text))) }
    }
}

impl CapabilityName {
    /// That of a tool of an MCP server. A server has no dot in its name, so that no two tools have one name.
    pub fn of_tool(server: &ServerName, tool: &ToolName) -> Self {
        Self(format!("{MCP}.{server}.{tool}"))
    }
}

impl PackName {
    /// What all tools of an MCP server are in. With a dot: no pack has that name.
    pub fn of_server(server: &ServerName) -> Self {
        Self(format!("{MCP}.{server}"))
    }
}

impl FromStr for ServerName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        if is_part(text, b"_-") { Ok(Self(text.to_owned())) } else { Err(BadName::Server(shown(text))) }
    }
}

impl FromStr for ToolName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if plain && (1..=MAX_TOOL).contains(&text.len()) { Ok(Self(text.to_owned())) } else { Err(BadName::Tool(shown(text))) }
    }
}

impl FromStr for PublisherName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let rest = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if first && rest && text.len() <= MAX_PART { Ok(Self(text.to_owned())) } else { Err(BadName::Publisher(shown(text))) }
    }
}

impl FromStr for Version {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
            plain.then(|| part.parse::<u32>().ok()).flatten()
        };
        let parts: Option<Vec<u32>> = text.split('.').map(number).collect();
        let three = parts.and_then(|parts| <[u32; 3]>::try_from(parts).ok());
        three.map(Self).ok_or_else(|| BadName::Version(shown(text)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl TryFrom<String> for Version {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl $name {
            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}

text!(PackName, CapabilityName, ServerName, ToolName, PublisherName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_be_paths() {
        for good in ["git", "a", "git-write", "k8s"] {
            assert!(good.parse::<PackName>().is_ok(), "{good}");
        }
        for bad in ["", "Git", "../x", "a/b", "a.b", "-a", "1a", "a b", "a\"b", "ü", &"a".repeat(41)] {
            assert!(bad.parse::<PackName>().is_err(), "{bad}");
        }
        for good in ["git.log", "gh.pr.list", "a.b-c_d"] {
            assert!(good.parse::<CapabilityName>().is_ok(), "{good}");
        }
        for bad in ["git", "exec", "git.", ".git", "git..log", "git.Log", "a.b.c.d.e", "a.\"", "a./b", "../a.b", "mcp.x", "mcp.x.y"] {
            assert!(bad.parse::<CapabilityName>().is_err(), "{bad}");
        }
        assert!("acme.org".parse::<PublisherName>().is_ok() && "../x".parse::<PublisherName>().is_err());
    }

    #[test]
    fn tools_of_servers_have_names_that_no_pack_can_have() {
        let server = "github".parse::<ServerName>().unwrap();
        let name = |tool: &str| CapabilityName::of_tool(&server, &tool.parse().unwrap()).to_string();
        assert_eq!((name("createIssue"), name("a.b")), ("mcp.github.createIssue".to_owned(), "mcp.github.a.b".to_owned()));
        assert_eq!(PackName::of_server(&server).as_str(), "mcp.github");
        assert!("mcp.github".parse::<PackName>().is_err());
        for bad in ["", "a b", "a\"b", "a/b", "ä", "a\u{200b}", &"a".repeat(129)] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad}");
        }
        for bad in ["", "a.b", "A", "1", "a b", &"a".repeat(41)] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("0.9.0") < version("0.10.0") && version("1.0.0") > version("0.99.99"));
        assert_eq!(version("1.2.3").to_string(), "1.2.3");
        for bad in ["", "1", "1.2", "1.2.3.4", "1.2.x", "01.2.3", "1.2.3-rc1", "-1.2.3", "1.2.4294967296"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }
}
