//! Puts what programs inside are to find into the sandbox's own directory: files that hold placeholders, and the tool.

use std::path::Path;

use stockade_sandbox::state;
use stockade_sandbox::wayout::{Shown, Use, helper};

use super::Delivered;
use crate::egress::authorities;
use crate::failure::Failure;

/// The directory of such files.
const DIRECTORY: &str = "shown";

/// Writes the files, and says what is shown where.
pub(crate) fn lay_out(delivered: &Delivered, state: &Path, directory: &Path) -> Result<Vec<Shown>, Failure> {
    if delivered.files.is_empty() && delivered.programs.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |error: std::io::Error| Failure::new("secret", format!("writing what tools inside read: {error}"));
    let here = directory.join(DIRECTORY);
    std::fs::create_dir(&here).map_err(failed)?;
    let mut shown = Vec::new();
    for (number, (place, content)) in delivered.files.iter().enumerate() {
        let file = authorities::file(here.join(number.to_string()), content)?;
        shown.push(Shown { file, place: place.clone(), use_: Use::Read });
    }
    if !delivered.programs.is_empty() {
        let tool = helper(&state::programs(state), directory).map_err(failed)?;
        shown.extend(delivered.programs.iter().map(|place| Shown { file: tool.clone(), place: place.clone(), use_: Use::Execute }));
    }
    Ok(shown)
}
