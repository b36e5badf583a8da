//! Script attempts: one sandbox each, around a workspace of its own with a secret beside it.

use std::path::Path;

use crate::case::{Effect, Ground, Script};
use crate::error::SuiteError;
use crate::lab::{self, Lab, MARK, SECRET, TOKEN};
use crate::stage::Seen;
use crate::target::Target;
use crate::wall::{Ran, Wall};

/// Runs one and looks for its effect.
pub(crate) fn attempt(target: Target, lab: &Lab, id: &str, ground: Ground, script: &Script) -> Result<(Seen, String), SuiteError> {
    let place = lab.for_case(id)?;
    let work = place.join("ws");
    if let Some(setup) = &script.setup {
        lab::outside(&fill(setup, &place), &work)?;
    }
    let text = fill(&script.script, &place);
    let text = if ground == Ground::Reach { lab.recorder()?.fill(&text, id) } else { text };
    let mut wall = Wall::start(target, lab, &work, ground)?;
    let ran = wall.run(&["bash".into(), "-c".into(), text.into()])?;
    drop(wall);
    let said = said(&ran);
    let happened = match script.effect {
        Effect::Sent => lab.recorder()?.got(id, target)?,
        Effect::Exec => said.contains(MARK) || work.join("evil-marker").exists(),
        Effect::Read => said.replace(TOKEN, "").contains(SECRET),
        Effect::Env => said.contains(TOKEN),
        Effect::Write => place.join("out/w").exists(),
    };
    let detail: String = format!("{:?} {said}", ran.ending).chars().take(200).collect();
    Ok((if happened { Seen::Open } else { Seen::Held }, detail))
}

fn said(ran: &Ran) -> String {
    format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr))
}

/// Puts the case's places into its text, as the exam does.
fn fill(text: &str, place: &Path) -> String {
    let kept = text.replace("$SECRET_TOKEN", "\0");
    let named = [("$WS", "ws"), ("$SECRET", "secret"), ("$OUT", "out")];
    let filled = named.iter().fold(kept, |text, (name, inner)| text.replace(name, &place.join(inner).display().to_string()));
    filled.replace('\0', "$SECRET_TOKEN")
}
