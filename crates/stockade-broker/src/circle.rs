//! Secrets that providers are asked with may come from providers in turn. One that is needed for itself would be waited for without end, by two threads
//! each for the other where two are asked for at once, so it is looked for before anybody is asked.

use stockade_store::settings::{SecretSetting, SecretSource};

use crate::SecretName;

/// The way from a secret back to one on it; `None` where every way ends.
pub(crate) fn of<'a>(settings: &'a [SecretSetting], name: &'a SecretName) -> Option<Vec<&'a SecretName>> {
    let mut walk = Walk { settings, way: Vec::new(), ended: Vec::new() };
    walk.returns(name).then_some(walk.way)
}

struct Walk<'a> {
    settings: &'a [SecretSetting],
    /// From the first to where the walk is.
    way: Vec<&'a SecretName>,
    /// From here every way ends.
    ended: Vec<&'a SecretName>,
}

impl<'a> Walk<'a> {
    fn returns(&mut self, name: &'a SecretName) -> bool {
        if self.ended.contains(&name) {
            return false;
        }
        let was_here = self.way.contains(&name);
        self.way.push(name);
        if was_here {
            return true;
        }
        let source = self.settings.iter().find(|setting| setting.name == *name).map(|setting| &setting.source);
        if let Some(SecretSource::Provider(provider)) = source
            && provider.needs().into_iter().any(|needed| self.returns(needed))
        {
            return true;
        }
        self.way.pop();
        self.ended.push(name);
        false
    }
}
