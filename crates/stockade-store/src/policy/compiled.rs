//! Rules as they were compiled last, for a process that asks again and again. Files are read and packs looked at each time; only when nothing of
//! them changed is what came of them used once more.

use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use stockade_policy::Policies;

use super::{PolicyError, PolicyLayers};
use crate::packs::Packs;
use crate::places::Places;

/// The last rules.
#[derive(Debug, Default)]
pub struct Compiled {
    last: Mutex<Option<(Key, Arc<Policies>)>>,
}

type Key = [u8; 32];

impl Compiled {
    /// The rules of these files and packs.
    pub fn of(&self, layers: &PolicyLayers, places: &Places, packs: &Packs) -> Result<Arc<Policies>, PolicyError> {
        let key = key(layers, packs);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, policies)) = last.filter(|(known, _)| *known == key) {
            return Ok(policies);
        }
        let policies = Arc::new(layers.compile_with_packs(places, packs)?);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((key, Arc::clone(&policies)));
        Ok(policies)
    }
}

/// Everything that compiling looks at.
fn key(layers: &PolicyLayers, packs: &Packs) -> Key {
    let mut digest = Sha256::new();
    // Lengths keep what follows from being taken for a part of it.
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    };
    for file in &layers.files {
        add(format!("{:?} {:?}", file.layer, file.trust).as_bytes());
        add(file.name.as_bytes());
        add(file.text.as_bytes());
    }
    add(&packs.digest());
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use stockade_policy::{Floor, Layer, PolicyFile, Trust};

    use super::*;
    use crate::policy::ProjectTrust;

    fn layers(texts: &[&str], trust: Trust) -> PolicyLayers {
        let file = |text: &&str| PolicyFile { layer: Layer::User, trust, name: "a.cedar".into(), text: (*text).to_owned() };
        PolicyLayers { files: texts.iter().map(file).collect(), floor: Floor::Deny, project: ProjectTrust::Nothing }
    }

    #[test]
    fn the_same_is_compiled_once_and_anything_else_anew() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| home.path().join(name);
        let places = Places {
            home: place("home"),
            config: place("config"),
            state: place("state"),
            runtime: place("run"),
            machine: place("machine"),
        };
        let packs = Packs::load(&places).unwrap();
        let permit = "permit (principal, action, resource);";
        let compiled = Compiled::default();
        let rules = |layers: &PolicyLayers| compiled.of(layers, &places, &packs).unwrap();
        let first = rules(&layers(&[permit], Trust::Trusted));
        assert!(Arc::ptr_eq(&first, &rules(&layers(&[permit], Trust::Trusted))));
        for other in [layers(&[permit], Trust::Untrusted), layers(&[permit, permit], Trust::Trusted), layers(&[], Trust::Trusted)] {
            let other = rules(&other);
            assert!(!Arc::ptr_eq(&first, &other));
        }
        assert!(compiled.of(&layers(&["permit"], Trust::Trusted), &places, &packs).is_err());
    }
}
