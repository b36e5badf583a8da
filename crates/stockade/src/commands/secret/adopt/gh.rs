//! `gh`: the token of one host, from `hosts.yml`, or from the keyring by asking `gh` itself.

use stockade_core::credential::Delivery;
use stockade_store::settings::{SecretSetting, SecretSource};
use zeroize::Zeroizing;

use super::STEP;
use super::around::{Around, base, brief, host, hosts, name, value};
use super::login::{Forbidden, Login, Request, Wish};
use crate::failure::Failure;

const GITHUB: &str = "github.com";

/// Finds the login.
pub(super) fn find(around: &Around<'_>, wish: &Wish<'_>) -> Result<Login, Failure> {
    // As `gh` itself finds it.
    let said = wish.host.map(str::to_owned).or_else(|| around.variable("GH_HOST"));
    let wanted = said.as_deref().unwrap_or(GITHUB);
    let server = host(wanted)?;
    let directory = around
        .absolute("GH_CONFIG_DIR")
        .or_else(|| around.absolute("XDG_CONFIG_HOME").map(|config| config.join("gh")))
        .unwrap_or_else(|| around.beneath_home(".config/gh"));
    let path = directory.join("hosts.yml");
    let shown = around.shown(&path);
    let login = |found: String| Failure::new(STEP, found).with_hint(format!("log in first: gh auth login --hostname {}", brief(wanted)));
    let text = around.text(&path)?.ok_or_else(|| login(format!("there is no `{shown}`: `gh` is not logged in")))?;
    let (token, from, spare) = match token(&text, wanted)
        .map_err(|line| Failure::new(STEP, format!("`{shown}` is not used: line {line} is not what `gh` writes")))?
    {
        Found::Token(token, line) => (token, format!("{shown} line {line}"), format!("line {line} of {shown} (`oauth_token`)")),
        Found::Elsewhere => {
            let mut printed = around.ask(&["gh", "auth", "token", "--hostname", wanted], b"")?;
            (Zeroizing::new(std::mem::take(&mut *printed)), "gh auth token".to_owned(), "what `gh` keeps in the keyring".to_owned())
        }
        Found::NoHost => return Err(login(format!("`{shown}` has no login for `{}`", brief(wanted)))),
    };
    let (hosts, page, usual) = match wanted {
        GITHUB => (hosts(&["api.github.com", GITHUB, "uploads.github.com"])?, "https://api.github.com/user".to_owned(), "GH_TOKEN"),
        tenant if tenant.ends_with(".ghe.com") => {
            let api = host(&format!("api.{tenant}"))?;
            (vec![api.clone(), server], format!("{}/user", base(&api)), "GH_TOKEN")
        }
        _ => (vec![server.clone()], format!("{}/api/v3/user", base(&server)), "GH_ENTERPRISE_TOKEN"),
    };
    let name = wish.name.clone().map_or_else(|| name(usual), Ok)?;
    let delivery = vec![Delivery::Variable, Delivery::Git];
    Ok(Login {
        from,
        values: vec![(name.clone(), value(token.as_bytes(), "the token of `gh`")?)],
        setting: SecretSetting { hosts, delivery, ..SecretSetting::new(name, SecretSource::Store) },
        authorities: None,
        request: Request::Bearer { url: page, forbidden: Forbidden::Refused },
        spare: vec![format!("{spare}: gh auth logout --hostname {}", brief(wanted))],
    })
}

enum Found {
    /// The token and its line, from 1.
    Token(Zeroizing<String>, usize),
    /// The host is there, its token is in the keyring.
    Elsewhere,
    /// The host is not there.
    NoHost,
}

/// Reads as much YAML as `gh` writes: hosts at the margin, their fields below, deeper ones (`users`) passed over. Gives the line that is something
/// else.
fn token(text: &str, host: &str) -> Result<Found, usize> {
    let mut here = false;
    let mut seen = false;
    let mut depth = None;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end())) {
        let content = line.trim_start_matches(' ');
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let indent = line.len() - content.len();
        // A colon within a word is a part of it, as in `host:8443:`.
        let (key, rest) = match content.split_once(": ") {
            Some(both) => both,
            None => (content.strip_suffix(':').ok_or(number)?, ""),
        };
        let key = scalar(key).ok_or(number)?;
        if indent == 0 {
            if !rest.trim().is_empty() {
                return Err(number);
            }
            here = key == host;
            seen |= here;
            depth = None;
            continue;
        }
        let depth = *depth.get_or_insert(indent);
        if here && indent == depth && key == "oauth_token" {
            let found = scalar(rest.trim()).ok_or(number)?;
            return Ok(if found.is_empty() { Found::Elsewhere } else { Found::Token(Zeroizing::new(found.to_owned()), number) });
        }
    }
    Ok(if seen { Found::Elsewhere } else { Found::NoHost })
}

/// A plain or quoted word without escapes.
fn scalar(text: &str) -> Option<&str> {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match quoted('"').or_else(|| quoted('\'')) {
        Some(inner) => (!inner.contains(['"', '\'', '\\'])).then_some(inner),
        None => (!text.contains(['"', '\'', '\\', '{', '[', '\t', '&', '*', '|', '>'])).then_some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, host: &str) -> String {
        match token(text, host) {
            Ok(Found::Token(token, line)) => format!("{} {line}", *token),
            Ok(Found::Elsewhere) => "elsewhere".to_owned(),
            Ok(Found::NoHost) => "no host".to_owned(),
            Err(line) => format!("bad {line}"),
        }
    }

    #[test]
    fn the_token_of_the_host_itself_is_read() {
        let new = "github.com:\n    users:\n        ann:\n            oauth_token: gho_other\n    git_protocol: https\n    oauth_token: gho_this\n    user: ann\nghe.example:\n    oauth_token: \"gho_that\"\n";
        for (text, host, found) in [
            (new, "github.com", "gho_this 6"),
            (new, "ghe.example", "gho_that 9"),
            (new, "other.example", "no host"),
            ("github.com:\n    user: ann\n    oauth_token:\n", "github.com", "elsewhere"),
            ("github.com:\n    users:\n        ann:\n    git_protocol: ssh\n", "github.com", "elsewhere"),
            ("", "github.com", "no host"),
            ("# mine\n\n\"github.com\":\n  oauth_token: 'x'\n", "github.com", "x 4"),
            ("github.com: {oauth_token: x}\n", "github.com", "bad 1"),
            ("h.example:8443:\n    oauth_token: gho_p\nh.example:\n    oauth_token: gho_h\n", "h.example:8443", "gho_p 2"),
            ("h.example:8443:\n    oauth_token: gho_p\nh.example:\n    oauth_token: gho_h\n", "h.example", "gho_h 4"),
            ("github.com:x\n", "github.com", "bad 1"),
            ("github.com:\n    oauth_token: !!str \"x\"\n", "github.com", "bad 2"),
            ("github.com:\n    - a\n", "github.com", "bad 2"),
            ("github.com:\n\toauth_token: x\n", "github.com", "bad 2"),
        ] {
            assert_eq!(read(text, host), found, "{text}");
        }
    }
}
