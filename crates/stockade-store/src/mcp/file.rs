//! The files: two for each server, private, whole or as they were before.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stockade_policy::pack::{ServerName, ToolName};

use super::{MOST_BYTES, MOST_TOOLS, McpError};
use crate::packs::file;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The directory beneath the state.
const DIRECTORY: &str = "mcp";
/// What was accepted.
pub(super) const ACCEPTED: &str = "accepted.json";
/// What was seen last.
pub(super) const SEEN: &str = "seen.json";
/// The form of the files.
const VERSION: u32 = 1;
/// Longer than any: escapes of JSON double what is in them at most.
const MAX_BYTES: usize = 2 * MOST_TOOLS * MOST_BYTES;
/// Servers that are looked at.
const MAX_SERVERS: usize = 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept<T> {
    version: u32,
    tools: T,
}

/// What a file holds; nothing where there is none.
pub(super) fn read<T: DeserializeOwned>(places: &Places, server: &ServerName, which: &str) -> Result<BTreeMap<ToolName, T>, McpError> {
    let path = path(places, server, which);
    let Some(bytes) = file::read(&path, MAX_BYTES).map_err(|error| McpError::Read(path.clone(), error))? else {
        return Ok(BTreeMap::new());
    };
    let kept: Kept<BTreeMap<ToolName, T>> =
        serde_json::from_slice(&bytes).map_err(|error| McpError::Damaged(path.clone(), error.to_string()))?;
    if kept.version == VERSION { Ok(kept.tools) } else { Err(McpError::Damaged(path, format!("its version is {}", kept.version))) }
}

/// Replaces a file.
pub(super) fn write<T: Serialize>(
    places: &Places,
    server: &ServerName,
    which: &str,
    tools: &BTreeMap<ToolName, T>,
) -> Result<(), McpError> {
    let path = path(places, server, which);
    let failed = |error: io::Error| McpError::Write(path.clone(), error);
    let directory = places.state.join(DIRECTORY);
    for private in [&places.state, &directory] {
        ensure_private_dir(private).map_err(|error| failed(io::Error::other(error)))?;
    }
    let text = serde_json::to_vec(&Kept { version: VERSION, tools }).map_err(|error| failed(error.into()))?;
    file::write(&path, &text).map_err(failed)
}

/// The servers that have one.
pub(super) fn servers(places: &Places) -> Result<Vec<ServerName>, McpError> {
    let directory = places.state.join(DIRECTORY);
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(McpError::Read(directory, error)),
    };
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.map_err(|error| McpError::Read(directory.clone(), error))?;
        let name = entry.file_name();
        let server = name.to_str().and_then(|name| name.strip_suffix(ACCEPTED).or_else(|| name.strip_suffix(SEEN))?.strip_suffix('.'));
        Ok(server.and_then(|server| server.parse::<ServerName>().ok()))
    };
    let mut found: Vec<ServerName> = entries.filter_map(|entry| name(entry).transpose()).take(2 * MAX_SERVERS).collect::<Result<_, _>>()?;
    found.sort();
    found.dedup();
    Ok(found)
}

fn path(places: &Places, server: &ServerName, which: &str) -> PathBuf {
    places.state.join(DIRECTORY).join(format!("{server}.{which}"))
}
