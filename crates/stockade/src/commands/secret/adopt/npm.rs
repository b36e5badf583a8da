//! `npm`: the token of one registry, from the person's `.npmrc`.

use stockade_core::credential::Delivery;
use stockade_store::settings::{SecretSetting, SecretSource};
use zeroize::Zeroizing;

use super::STEP;
use super::around::{Around, base, brief, choose, host, name, value};
use super::login::{Forbidden, Login, Request, Wish};
use crate::failure::Failure;

const KEY: &str = ":_authToken";

/// A registry's token.
struct Token {
    /// Host and path, without slashes around.
    registry: String,
    value: Zeroizing<String>,
    /// From 1.
    line: usize,
}

impl Token {
    fn host(&self) -> &str {
        self.registry.split('/').next().unwrap_or("")
    }
}

/// Finds the login.
pub(super) fn find(around: &Around<'_>, wish: &Wish<'_>) -> Result<Login, Failure> {
    let path = around.absolute("NPM_CONFIG_USERCONFIG").unwrap_or_else(|| around.place("npm_config_userconfig", ".npmrc"));
    let shown = around.shown(&path);
    let none = |found: String| Failure::new(STEP, found).with_hint("log in first: npm login");
    let text = around.text(&path)?.ok_or_else(|| none(format!("there is no `{shown}`: `npm` is not logged in")))?;
    let tokens = tokens(&text);
    if tokens.is_empty() {
        return Err(none(format!("`{shown}` has no line `//HOST/{KEY}=…`: `npm` is not logged in with a token")));
    }
    let token =
        choose(&tokens, wish.host, |token| token.registry.clone(), |token, wanted| token.registry == wanted || token.host() == wanted)?;
    if token.value.contains("${") {
        return Err(Failure::new(STEP, format!("line {} of `{shown}` names a variable in the place of a value", token.line))
            .with_hint("the value is elsewhere already; keep it from there: stockade secret set NPM_TOKEN"));
    }
    let server = host(token.host())?;
    let path = token.registry.split_once('/').map(|(_, path)| format!("{path}/")).unwrap_or_default();
    let name = wish.name.clone().map_or_else(|| name("NPM_TOKEN"), Ok)?;
    let delivery = vec![Delivery::Variable, Delivery::Npm];
    let registry = brief(&token.registry);
    Ok(Login {
        from: format!("{shown} line {}", token.line),
        values: vec![(name.clone(), value(token.value.as_bytes(), &format!("the token of `{registry}`"))?)],
        request: Request::Bearer { url: format!("{}/{path}-/whoami", base(&server)), forbidden: Forbidden::Refused },
        setting: SecretSetting { hosts: vec![server], delivery, ..SecretSetting::new(name, SecretSource::Store) },
        authorities: None,
        spare: vec![format!("line {} of {shown} (`//{registry}/{KEY}`); not with `npm logout`, which revokes the token", token.line)],
    })
}

/// The lines that hold tokens. Nothing is expanded.
fn tokens(text: &str) -> Vec<Token> {
    let read = |(index, line): (usize, &str)| {
        let (key, value) = line.trim().split_once('=')?;
        let registry = key.trim().strip_prefix("//")?.strip_suffix(KEY)?.trim_matches('/');
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
        let usable =
            !registry.is_empty() && !value.is_empty() && registry.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"\\".contains(&byte));
        usable.then(|| Token { registry: registry.to_owned(), value: Zeroizing::new(value.to_owned()), line: index + 1 })
    };
    text.lines().enumerate().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_with_their_registry_and_line() {
        let text = "; a comment\nregistry=https://r.example/\n//registry.npmjs.org/:_authToken=npm_abc\n//r.example:8443/npm/x/:_authToken = \"quoted\"\n\
                    //h.example/:_authToken=${TOKEN}\n#//c.example/:_authToken=no\n//p.example/:_password=no\n_authToken=no\n//:_authToken=no\n";
        let found: Vec<_> = tokens(text).iter().map(|token| (token.registry.clone(), token.value.to_string(), token.line)).collect();
        let expected = [("registry.npmjs.org", "npm_abc", 3), ("r.example:8443/npm/x", "quoted", 4), ("h.example", "${TOKEN}", 5)];
        assert_eq!(found, expected.map(|(registry, value, line)| (registry.to_owned(), value.to_owned(), line)));
    }
}
