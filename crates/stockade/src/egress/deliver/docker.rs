//! Docker, and whoever reads its configuration: a file that names the tool as the credential helper of a secret's hosts.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use stockade_sandbox::wayout::PLACE;

use super::{DeskKind, Given, Making, TOOLS, refused};
use crate::failure::Failure;

/// The tool's name for docker, and what docker calls it.
const TOOL: &str = "docker-credential-stockade";
const SHORT: &str = "stockade";
const DIRECTORY: &str = "docker";
/// Whose secret it is; the tool has no other way to know.
const SECRET: &str = "STOCKADE_DESK_DOCKER";
/// Docker Hub's hosts, and the one key that docker knows it by.
const HUB: [&str; 4] = ["docker.io", "index.docker.io", "registry-1.docker.io", "auth.docker.io"];
const HUB_KEY: &str = "https://index.docker.io/v1/";
/// Who a token belongs to where nobody says; registries that take tokens look at the token alone.
const USER: &str = "x-access-token";

impl Making<'_> {
    pub(super) fn docker(&mut self, at: usize, one: &Given) -> Result<(), Failure> {
        if self.delivered.desk.iter().any(|(_, kind)| matches!(kind, DeskKind::Docker { .. })) {
            return Err(refused(one, "a sandbox has one secret for docker, and another is it already"));
        }
        let named = one.hosts.iter().map(ToString::to_string).filter(|host| !host.starts_with("*."));
        let keys = named.map(|host| if HUB.contains(&host.as_str()) { HUB_KEY.to_owned() } else { host });
        let helpers: BTreeMap<String, &str> = keys.map(|key| (key, SHORT)).collect();
        if helpers.is_empty() {
            return Err(refused(one, "docker needs the names of registries, without `*`"));
        }
        let directory = Path::new(PLACE).join(DIRECTORY);
        self.set(one, "DOCKER_CONFIG", directory.as_os_str())?;
        self.set(one, SECRET, one.name.as_str())?;
        self.delivered.files.push((directory.join("config.json"), json!({ "credHelpers": helpers }).to_string().into_bytes()));
        self.tool(TOOL);
        self.delivered.path_prefix = Some(Path::new(PLACE).join(TOOLS));
        let user = one.user.as_deref().unwrap_or(USER).to_owned();
        self.delivered.desk.push((at, DeskKind::Docker { user }));
        Ok(())
    }
}
