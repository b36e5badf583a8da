//! Git: settings in the environment that make the tool its credential helper at the hosts of a secret, and nobody else.

use std::ffi::OsString;

use stockade_core::host::HostPattern;

use super::{CREDENTIAL, DeskKind, Given, Making, refused};
use crate::failure::Failure;

const COUNT: &str = "GIT_CONFIG_COUNT";
/// Who a token belongs to where nobody says: what GitHub and GitLab take for every kind of token.
const USER: &str = "x-access-token";

/// Settings of git, each place once. Several secrets may be for one host: git asks for each in turn until one answers.
#[derive(Default)]
pub(super) struct Settings(Vec<Place>);

struct Place {
    url: String,
    helpers: Vec<String>,
    user: String,
}

impl Making<'_> {
    pub(super) fn git(&mut self, at: usize, one: &Given) -> Result<(), Failure> {
        if one.hosts.is_empty() {
            return Err(refused(one, "for git it must be bound to a host"));
        }
        let helper = format!("{} git {}", self.tool(CREDENTIAL).display(), one.name);
        let user = one.user.as_deref().unwrap_or(USER);
        for url in one.hosts.iter().flat_map(urls) {
            self.git.add(url, &helper, user);
        }
        self.delivered.desk.push((at, DeskKind::Git { user: user.to_owned() }));
        Ok(())
    }
}

impl Settings {
    fn add(&mut self, url: String, helper: &str, user: &str) {
        match self.0.iter_mut().find(|place| place.url == url) {
            Some(place) if place.helpers.iter().any(|known| known == helper) => {}
            Some(place) => place.helpers.push(helper.to_owned()),
            None => self.0.push(Place { url, helpers: vec![helper.to_owned()], user: user.to_owned() }),
        }
    }

    /// As variables.
    pub(super) fn variables(&self) -> Vec<(String, OsString)> {
        let mut settings: Vec<(String, &str)> = Vec::new();
        for Place { url, helpers, user } in &self.0 {
            let key = |last: &str| format!("credential.{url}.{last}");
            // An empty one forgets all that other files name.
            settings.push((key("helper"), ""));
            settings.extend(helpers.iter().map(|helper| (key("helper"), helper.as_str())));
            settings.push((key("useHttpPath"), "true"));
            settings.push((key("username"), user.as_str()));
        }
        if settings.is_empty() {
            return Vec::new();
        }
        let mut variables = vec![(COUNT.to_owned(), settings.len().to_string().into())];
        for (number, (key, value)) in settings.into_iter().enumerate() {
            variables.push((format!("GIT_CONFIG_KEY_{number}"), key.into()));
            variables.push((format!("GIT_CONFIG_VALUE_{number}"), value.into()));
        }
        variables
    }
}

/// As git writes the hosts of a pattern. Only what is on this very machine is spoken to in the clear. A star is one label to git.
fn urls(host: &HostPattern) -> impl Iterator<Item = String> {
    let local = host.granted_address().is_some_and(|address| address.is_loopback());
    let clear = local.then(|| format!("http://{host}"));
    [format!("https://{host}")].into_iter().chain(clear)
}
