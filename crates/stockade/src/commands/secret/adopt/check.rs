//! Whether a login works through Stockade: one cheap request from inside a sandbox, with nothing but the secret's placeholder there.
//!
//! This very program is started for it, as a person would start it; what it prints is JSON that holds no value.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use stockade_core::escape::escape;
use stockade_core::host::HostName;
use stockade_store::settings::SecretSetting;

use super::login::{Forbidden, Request};
use crate::Context;
use crate::failure::PROVIDER_REFUSES;

const ITSELF: &str = "/proc/self/exe";
/// How long all of it may take.
const TIME: &str = "40s";
/// The most that is read of what it prints.
const MAX_PRINTED: u64 = 1 << 20;
/// How much of somebody's words is repeated.
const MAX_SAID: usize = 200;
/// How many names for a directory are tried.
const MAX_NAMES: u32 = 64;
/// The header of answers that egress gives itself, and what it says where there was nobody.
const OWN_ANSWER: &str = "x-stockade-rule";
const UNREACHED: &str = "reach";
/// Ends when there is nothing inside to ask with.
const NOTHING_INSIDE: i64 = 3;
/// No configuration of anybody's, the head of the answer and nothing of its body.
const CURL: &str = "curl -q --silent --show-error --max-time 20 --output /dev/null --dump-header -";

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Check {
    /// It works.
    Works(String),
    /// It does not; what was said.
    Fails(String),
    /// Nobody knows; why.
    Unknown(String),
}

impl Check {
    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Works(said) => json!({ "works": true, "said": said }),
            Self::Fails(said) => json!({ "works": false, "said": said }),
            Self::Unknown(said) => json!({ "works": null, "said": said }),
        }
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Works(said) => format!("works: {said}"),
            Self::Fails(said) => format!("does not work: {said}"),
            Self::Unknown(said) => format!("not checked: {said}"),
        }
    }
}

/// Checks a login that is kept.
pub(super) fn check(setting: &SecretSetting, request: &Request, context: &Context) -> Check {
    let name = &setting.name;
    let ask = |script: &str, words: &[&str]| asked(setting, script, words, context);
    match request {
        Request::Nothing(why) => Check::Unknown((*why).to_owned()),
        Request::Bearer { url, forbidden } => {
            let script = format!("exec {CURL} --header \"Authorization: Bearer ${name}\" \"$1\"");
            judged(ask(&script, &[url]), *forbidden)
        }
        Request::Registry { url, user } => {
            let script = format!("exec {CURL} --user \"$2:${name}\" \"$1\"");
            let first = ask(&script, &[url, user]);
            match first.as_ref().ok().and_then(|answer| answer.realm.clone()) {
                Some(realm) if is_bound(&realm, setting) => judged(ask(&script, &[&realm, user]), Forbidden::Refused),
                Some(realm) => {
                    Check::Unknown(format!("the registry has tokens given at `{}`, where the secret may not go", escape(&realm)))
                }
                None => judged(first, Forbidden::Refused),
            }
        }
        Request::Google { url } => {
            let script = format!(
                "token=\"${{{name}:-$(cat \"$CLOUDSDK_AUTH_ACCESS_TOKEN_FILE\" 2>/dev/null)}}\"; test -n \"$token\" || exit {NOTHING_INSIDE}\n\
                 exec {CURL} --header \"Authorization: Bearer $token\" \"$1\""
            );
            judged(ask(&script, &[url]), Forbidden::Known)
        }
        Request::Sts { url, region } => {
            let script = format!(
                "test -n \"$AWS_ACCESS_KEY_ID\" || exit {NOTHING_INSIDE}\n\
                 exec {CURL} --aws-sigv4 \"aws:amz:$1:sts\" --user \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\" \
                 ${{AWS_SESSION_TOKEN:+--header \"x-amz-security-token: $AWS_SESSION_TOKEN\"}} \
                 --data 'Action=GetCallerIdentity&Version=2011-06-15' \"$2\""
            );
            judged(ask(&script, &[region, url]), Forbidden::Refused)
        }
    }
}

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Where a registry has tokens given.
    realm: Option<String>,
    /// Why it is no server's but egress's own.
    rule: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Missing {
    /// The provider refuses what it is asked with.
    Refused(String),
    /// Nobody was asked.
    Unasked(String),
}

fn judged(answer: Result<Answer, Missing>, forbidden: Forbidden) -> Check {
    match answer {
        Ok(Answer { rule: Some(rule), .. }) if rule == UNREACHED => Check::Unknown("the server cannot be reached".to_owned()),
        Ok(Answer { rule: Some(rule), status, .. }) => Check::Unknown(format!("Stockade itself answers {status} ({})", escape(&rule))),
        Ok(Answer { status, .. }) => match (status, forbidden) {
            (200..300, _) => Check::Works(format!("the server answers {status}")),
            (403, Forbidden::Known) => Check::Works("the server knows it (403 for this page)".to_owned()),
            (401 | 403, _) => Check::Fails(format!("the server answers {status}")),
            _ => Check::Unknown(format!("the server answers {status}")),
        },
        Err(Missing::Refused(said)) => Check::Fails(said),
        Err(Missing::Unasked(why)) => Check::Unknown(why),
    }
}

/// Whether the secret may go there.
fn is_bound(url: &str, setting: &SecretSetting) -> bool {
    let authority = url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    let parsed = authority.and_then(|authority| HostName::parse_authority(authority, 443).ok());
    parsed.is_some_and(|(host, port)| setting.hosts.iter().any(|pattern| pattern.matches(&host, port)))
}

/// Runs a script inside, with the secret and an empty workspace.
fn asked(setting: &SecretSetting, script: &str, words: &[&str], context: &Context) -> Result<Answer, Missing> {
    let unasked = |why: String| Missing::Unasked(why);
    let workspace = Empty::make(context).map_err(|error| unasked(format!("no empty directory can be made: {error}")))?;
    let hosts: Vec<String> = setting.hosts.iter().map(ToString::to_string).collect();
    let binding = format!("{}@{}", setting.name, hosts.join(","));
    let mut command = itself();
    command.args(["run", "--json", "--timeout", TIME, "--workspace-mode", "ro", "--workspace"]).arg(&workspace.0);
    command.args(["--secret", &binding, "--", "sh", "-c", script, "sh"]).args(words);
    let printed = printed(&mut command).map_err(|error| unasked(format!("Stockade cannot be started: {error}")))?;
    read(&printed)
}

#[expect(clippy::disallowed_methods, reason = "starts this very program, to see whether a login works through it")]
fn itself() -> Command {
    Command::new(ITSELF)
}

fn printed(command: &mut Command) -> std::io::Result<Vec<u8>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut printed = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |stdout| stdout.take(MAX_PRINTED).read_to_end(&mut printed));
    // It ends by itself: its time is limited, and nobody reads on.
    child.wait()?;
    read.map(|_| printed)
}

/// What a run says.
fn read(printed: &[u8]) -> Result<Answer, Missing> {
    let unasked = |why: String| Err(Missing::Unasked(why));
    let Ok(told) = serde_json::from_slice::<Value>(printed) else { return unasked("Stockade ended without a word".to_owned()) };
    let text = |pointer: &str| told.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let brief = |text: &str| escape(text.trim().chars().take(MAX_SAID).collect::<String>().as_str());
    if told.get("error").is_some() {
        let said = brief(text("/error/message"));
        // A provider that refuses to give a token has looked at the login.
        return Err(if text("/error/step") == PROVIDER_REFUSES { Missing::Refused(said) } else { Missing::Unasked(said) });
    }
    let code = told.get("exit_code").and_then(Value::as_i64);
    let refused = told
        .get("network")
        .and_then(Value::as_array)
        .and_then(|rows| rows.iter().find(|row| row.get("verdict").is_some_and(|verdict| verdict != "allow")));
    if let Some(row) = refused {
        let word = |field: &str| brief(row.get(field).and_then(Value::as_str).unwrap_or("?"));
        return unasked(format!("the way to {} is closed ({})", word("host"), word("rule")));
    }
    match code {
        Some(0) => {}
        Some(127) => return unasked("there is no `curl`".to_owned()),
        Some(NOTHING_INSIDE) => return unasked("nothing of it appears inside".to_owned()),
        Some(code) => return unasked(format!("curl ended with {code}: {}", brief(text("/stderr")))),
        None if told.get("decision").and_then(|decision| decision.get("verdict")).is_some_and(|verdict| verdict != "allow") => {
            return unasked(format!("a rule does not let it run: {}", brief(text("/decision/rule"))));
        }
        None => return unasked("the sandbox was ended".to_owned()),
    }
    answer(text("/stdout")).map_or_else(|| unasked("the server's answer is not HTTP".to_owned()), Ok)
}

/// The last answer of those that curl prints the heads of.
fn answer(heads: &str) -> Option<Answer> {
    let mut found = None;
    for line in heads.lines() {
        if let Some(status) = line.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1)) {
            found = Some(Answer { status: status.trim().parse().ok()?, realm: None, rule: None });
        } else if let (Some(answer), Some((header, value))) = (&mut found, line.split_once(':')) {
            if header.eq_ignore_ascii_case("www-authenticate") && answer.status == 401 {
                answer.realm = answer.realm.take().or_else(|| realm(value.trim()));
            }
            if header.eq_ignore_ascii_case(OWN_ANSWER) {
                answer.rule = Some(value.trim().chars().take(MAX_SAID).collect());
            }
        }
    }
    found
}

/// Where `Bearer realm="…",service="…"` sends one.
fn realm(challenge: &str) -> Option<String> {
    let (scheme, parameters) = challenge.split_once(' ')?;
    let field = |name: &str| {
        let (_, rest) = parameters.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'&');
    let (realm, service) = (field("realm")?, field("service").unwrap_or(""));
    let mark = if realm.contains('?') { '&' } else { '?' };
    (scheme.eq_ignore_ascii_case("bearer") && realm.starts_with("https://") && plain(realm) && plain(service))
        .then(|| if service.is_empty() { realm.to_owned() } else { format!("{realm}{mark}service={service}") })
}

/// An empty directory that nobody else enters; gone with the value.
struct Empty(PathBuf);

impl Empty {
    fn make(context: &Context) -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let given = context.environment.variable("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let above = std::fs::canonicalize(given.as_deref().unwrap_or(Path::new("/tmp")))?;
        let mut last = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        for attempt in 0..MAX_NAMES {
            let path = above.join(format!("stockade-check-{}-{attempt}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        // Only ever empty: nothing inside may write to it.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_core::host::HostPattern;
    use stockade_store::settings::SecretSource;

    fn judge(told: &Value) -> Check {
        judged(read(told.to_string().as_bytes()), Forbidden::Refused)
    }

    fn heads(text: &str) -> Value {
        json!({"exit_code": 0, "stdout": text, "network": [{"host": "h", "verdict": "allow", "rule": "r"}]})
    }

    #[test]
    fn only_an_answer_says_whether_a_login_works() {
        let works = |told: &Value| judge(told).to_json()["works"].clone();
        assert_eq!(works(&heads("HTTP/1.1 200 Connection established\r\n\r\nHTTP/2 200 \r\nx: y\r\n\r\n")), true);
        assert_eq!(works(&heads("HTTP/1.1 200 Connection established\r\n\r\nHTTP/2 401 \r\n\r\n")), false);
        assert_eq!(works(&heads("HTTP/1.1 403 Forbidden\r\n\r\n")), false);
        for (unknown, says) in [
            (heads("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "502"),
            (heads("HTTP/1.1 502 Bad Gateway\r\nx-stockade-rule: reach\r\n\r\n"), "the server cannot be reached"),
            (heads("HTTP/1.1 502 Bad Gateway\r\nx-stockade-rule: secret-value\r\n\r\n"), "Stockade itself answers 502 (secret-value)"),
            (heads("HTTP/1.1 302 Found\r\n\r\n"), "302"),
            (heads("nonsense"), "not HTTP"),
            (
                json!({"exit_code": 0, "stdout": "HTTP/1.1 403 Forbidden", "network": [{"host": "h", "verdict": "deny", "rule": "r"}]}),
                "h is closed (r)",
            ),
            (json!({"exit_code": 6, "stderr": "no such host\u{1b}"}), "curl ended with 6: no such host\\u{1b}"),
            (json!({"exit_code": 127}), "no `curl`"),
            (json!({"exit_code": 3}), "nothing of it"),
            (json!({"exit_code": null, "decision": {"verdict": "deny", "rule": "no-sh"}}), "no-sh"),
            (json!({"error": {"step": "secret", "message": "cannot connect"}}), "cannot connect"),
        ] {
            assert_eq!(works(&unknown), Value::Null, "{unknown}");
            assert!(judge(&unknown).words().contains(says), "{unknown}: {}", judge(&unknown).words());
        }
        assert_eq!(works(&json!({"error": {"step": "provider", "message": "token: it answers 400: invalid_grant"}})), false);
        assert_eq!(works(&json!({"error": {"step": "secret", "message": "token: it answers 429: later"}})), Value::Null);
        assert!(matches!(judged(read(b"not JSON"), Forbidden::Known), Check::Unknown(_)));
        assert!(matches!(judged(Ok(Answer { status: 403, realm: None, rule: None }), Forbidden::Known), Check::Works(_)));
    }

    #[test]
    fn a_registry_may_send_one_on_but_not_away() {
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"https://r.example/token\",service=\"r.example\",scope=\"x\"\r\n\r\n";
        let found = answer(head).unwrap();
        assert_eq!(found, Answer { status: 401, realm: Some("https://r.example/token?service=r.example".into()), rule: None });
        let hosts = vec![HostPattern::parse("r.example").unwrap()];
        let setting = SecretSetting { hosts, ..SecretSetting::new("T".parse().unwrap(), SecretSource::Store) };
        assert!(is_bound("https://r.example/token?service=r.example", &setting));
        for away in [
            "https://r.example.evil/token",
            "https://r.example@evil.example/",
            "http://r.example/",
            "https://r.example:8443/",
            "//r.example",
        ] {
            assert!(!is_bound(away, &setting), "{away}");
        }
        for other in ["Basic realm=\"x\"", "Bearer realm=\"http://r.example\"", "Bearer realm=\"https://r.example/a b\"", "Bearer"] {
            assert_eq!(realm(other), None, "{other}");
        }
    }
}
