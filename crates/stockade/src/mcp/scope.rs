//! What a server's sandboxes may show and which walls they have, fixed before the server is confined: as far as settings and packs want it then.

use std::path::{Path, PathBuf};

use stockade_core::path::SafePath;
use stockade_core::spec::BackendKind;
use stockade_sandbox::workspace::locate::Located;
use stockade_store::settings::Settings;

use crate::Context;
use crate::assemble::backend_of;
use crate::daemon::launcher::Scope;
use crate::failure::Failure;

/// What helps where settings or packs were changed since.
pub(crate) const START_AGAIN: &str = "start the server again: what it may show was fixed when it started";

/// That of a server about this workspace.
pub(super) fn of(workspace: &Located, context: &Context) -> Result<Scope, Failure> {
    let places = context.places()?;
    let git = workspace.git_common.as_ref().map(SafePath::as_path);
    let named = [places.home.as_path(), workspace.path.as_path()].into_iter().chain(git).map(Path::to_owned);
    let mut roots = Vec::new();
    for root in named.chain(mounts(context)) {
        // What is not there cannot be shown; sandboxes name places without links.
        let Ok(real) = std::fs::canonicalize(root) else { continue };
        if !roots.iter().any(|known| real.starts_with(known)) {
            roots.push(real);
        }
    }
    // Settings that cannot be read are told at each call.
    let chosen = Settings::load(places, Some(workspace.path.as_path())).ok().and_then(|settings| backend_of(settings.backend().value).ok());
    let mut walls = vec![BackendKind::Jail];
    walls.extend(chosen.map(|wall| wall.kind()).filter(|kind| *kind != BackendKind::Jail));
    Ok(Scope { roots, walls, hint: START_AGAIN })
}

/// Places of the host that capabilities of installed packs show.
fn mounts(context: &Context) -> Vec<PathBuf> {
    // Packs that cannot be read have no capability that could be called.
    let Ok(packs) = context.packs() else { return Vec::new() };
    let names = packs.packs.iter().flat_map(|pack| &pack.capabilities).map(|summary| summary.facts.name.as_str());
    let capabilities = names.filter_map(|name| packs.capability(name).ok());
    let mounts = capabilities.flat_map(|(_, capability)| capability.sandbox.mounts.clone());
    // Those beneath home are there already.
    mounts.map(|mount| PathBuf::from(mount.host)).filter(|host| host.is_absolute()).collect()
}
