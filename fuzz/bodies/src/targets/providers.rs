//! What providers of credentials answer, in each of the forms that are read: XML of AWS, JSON of the others. Programs (`op`, `secret-tool`) print one
//! line, which is a value or none.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stockade_broker::answers;
use stockade_broker::sources::Surroundings;
use stockade_broker::store::Store;
use stockade_core::secret::{SecretName, SecretValue};
use stockade_store::settings::{Provider, SecretSource, secrets};

use crate::input::Input;
use crate::shown::assert_honest;

/// What is asked with; none of it may be shown.
const ASKED_WITH: [(&str, &str); 2] = [("S", "asked-with-0123456789abcdef"), ("U", "also-asked-with-0123456789")];
/// Which of those each provider is asked with, in the order of the settings: others it cannot repeat but by chance.
const USED: [&[usize]; 10] = [&[0, 1], &[0, 1], &[0, 1], &[0], &[], &[0], &[0, 1], &[0], &[0], &[0]];
/// Longer than any credential may last: ten years, and what clocks may differ.
const MAX_TIME: Duration = Duration::from_hours(24 * 366 * 10 + 1);
/// No provider is asked more often for one credential.
const MAX_ANSWERS: usize = 5;
/// Nothing is ever there.
const NOWHERE: &str = "/nonexistent";
const STATUSES: [u16; 8] = [200, 201, 204, 400, 401, 403, 429, 500];

static PROVIDERS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let settings = settings();
    let read = secrets::from_json(settings.as_object().expect("an object")).expect("settings");
    read.into_iter()
        .map(|setting| match setting.source {
            SecretSource::Provider(provider) => *provider,
            _ => panic!("`{}` has no provider", setting.name),
        })
        .collect()
});

/// A key that signs; made anew, since none is kept in the repository.
static KEY: LazyLock<String> = LazyLock::new(|| {
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'_> = key.as_der().expect("its form");
    format!("-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY-----", STANDARD.encode(der.as_ref()))
});

fn settings() -> Value {
    let at = "https://provider.example";
    let oauth = |grant: Value| json!({"source": "oauth", "tokenEndpoint": at, "clientId": "c", "clientSecret": "S", "scope": "a b", "grant": grant});
    json!({
        "A": {"source": "aws", "role": "arn:aws:iam::123456789012:role/reader", "accessKeyId": "U", "secretAccessKey": "S"},
        "B": {"source": "gcp", "key": "USER"},
        "C": {"source": "gcp", "key": "USER", "impersonate": "ci@p.iam.gserviceaccount.com"},
        "D": {"source": "kubernetes", "server": at, "namespace": "build", "serviceAccount": "ci", "token": "S"},
        "E": {"source": "github", "app": "1", "installation": 2, "key": "KEY", "repositories": ["a"], "permissions": {"contents": "read"}},
        "F": oauth(json!({"type": "client-credentials"})),
        "G": oauth(json!({"type": "exchange", "subjectToken": "U"})),
        "H": {"source": "vault", "address": at, "path": "secret/data/x", "field": "f", "auth": {"method": "token", "token": "S"}},
        "I": {"source": "vault", "address": at, "path": "aws/creds/x", "field": "f", "auth": {"method": "approle", "roleId": "r", "secretId": "S"}},
        "J": {"source": "infisical", "clientId": "c", "clientSecret": "S", "project": "p", "environment": "e", "key": "K"},
    })
}

/// The first byte says which provider; then come its answers, each a status and a body with its length before it.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let which = usize::from(input.byte()) % PROVIDERS.len();
    let (provider, used) = (&PROVIDERS[which], USED[which]);
    let mut answers = Vec::new();
    while !input.is_empty() && answers.len() < MAX_ANSWERS {
        let status = STATUSES[usize::from(input.byte()) % STATUSES.len()];
        answers.push((status, input.counted().to_vec()));
    }
    let value = |text: &str| SecretValue::new(text.as_bytes().to_vec()).expect("a value");
    let name = |text: &str| text.parse::<SecretName>().expect("a name");
    let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": ASKED_WITH[0].1, "refresh_token": ASKED_WITH[1].1,
                      "token_uri": "https://provider.example/token"})
    .to_string();
    let mut secrets: Vec<(SecretName, SecretValue)> = ASKED_WITH.iter().map(|(known, text)| (name(known), value(text))).collect();
    secrets.extend([(name("USER"), value(&user)), (name("KEY"), value(&KEY))]);
    let around = Surroundings { store: Store::beneath(NOWHERE.as_ref()), path: "".into(), home: NOWHERE.into() };
    let now = SystemTime::now();
    match answers::read(provider, &secrets, answers, &around, now) {
        Ok(told) => {
            let end = told.expires.unwrap_or(now);
            assert!(end <= now + MAX_TIME, "{told:?}");
            assert!(!told.value.expose().is_empty());
            for shown in told.note.iter().chain([&told.scope]) {
                assert_shown(shown, used);
            }
            let shown = format!("{told:?}");
            assert!(!shown.contains(told.value.to_text().as_str()) || told.scope.contains(told.value.to_text().as_str()), "{shown}");
        }
        Err(error) => {
            assert_shown(&error.to_string(), used);
            assert_shown(&format!("{error:?}"), used);
        }
    }
}

/// What people and receipts see: nothing that misleads, nothing that was asked with, and no more than a page.
fn assert_shown(text: &str, used: &[usize]) {
    assert_honest(text, &[]);
    assert!(text.len() <= 16 << 10, "{} bytes are shown", text.len());
    for asked_with in used {
        assert!(!text.contains(ASKED_WITH[*asked_with].1), "{text}");
    }
}

/// A good answer of each, one that repeats what it was asked with, and refusals.
pub fn seeds() -> Vec<Vec<u8>> {
    let token = "given-0123456789abcdef";
    let later = "2999-01-01T00:00:00Z";
    let [echo, other] = ASKED_WITH.map(|(_, text)| text);
    let xml = format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser><Arn>\
         arn:aws:sts::123456789012:assumed-role/reader/stockade-0123456789abcdef</Arn></AssumedRoleUser><Credentials><AccessKeyId>ASIA0123456789ABCDEF\
         </AccessKeyId><SecretAccessKey>{token}</SecretAccessKey><SessionToken>{token}&amp;x</SessionToken><Expiration>2020-01-01T00:00:00Z</Expiration>\
         </Credentials></AssumeRoleResult></AssumeRoleResponse>"
    );
    let fault =
        format!("<ErrorResponse><Error><Code>AccessDenied</Code><Message>{echo} &lt; {other}\u{202e}</Message></Error></ErrorResponse>");
    let bearer = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": "a"}).to_string();
    let echoing = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": echo}).to_string();
    let refused = json!({"error": echo, "error_description": format!("{other}\u{7}"), "message": "no", "errors": [echo]}).to_string();
    let kubernetes =
        json!({"spec": {"audiences": ["x"]}, "status": {"token": token, "expirationTimestamp": "2020-01-01T00:00:00Z"}}).to_string();
    let github = json!({"token": token, "expires_at": "2020-01-01T00:00:00Z", "permissions": {"contents": "read"}, "repository_selection": "selected",
                        "repositories": [{"name": "a"}]})
    .to_string();
    let kept = json!({"data": {"data": {"f": token}, "metadata": {"version": 1}}, "lease_id": "", "lease_duration": 0}).to_string();
    let lease = json!({"data": {"f": token}, "lease_id": "aws/creds/x/1", "lease_duration": 60}).to_string();
    let login = json!({"auth": {"client_token": token, "lease_duration": 60, "token_type": "service"}}).to_string();
    let infisical = json!({"accessToken": token}).to_string();
    let secret = json!({"secret": {"secretKey": "K", "secretValue": other}}).to_string();
    let impersonated = json!({"accessToken": token, "expireTime": later}).to_string();
    let mut seeds = Vec::new();
    let mut seed = |provider: u8, answers: &[(u8, &str)]| {
        let mut bytes = vec![provider];
        for (status, body) in answers {
            bytes.push(*status);
            bytes.extend(u16::try_from(body.len()).expect("short").to_le_bytes());
            bytes.extend_from_slice(body.as_bytes());
        }
        seeds.push(bytes);
    };
    seed(0, &[(0, &xml)]);
    seed(0, &[(5, &fault)]);
    seed(1, &[(0, &bearer)]);
    seed(2, &[(0, &bearer), (0, &impersonated)]);
    seed(3, &[(1, &kubernetes)]);
    seed(3, &[(1, &kubernetes.replace("\"x\"", &format!("\"{echo}\"")))]);
    seed(4, &[(1, &github)]);
    for oauth in [5, 6] {
        seed(oauth, &[(0, &bearer)]);
        seed(oauth, &[(0, &echoing)]);
    }
    seed(7, &[(0, &kept)]);
    seed(8, &[(0, &login), (0, &lease)]);
    seed(8, &[(0, &login), (0, "{}"), (7, &refused)]);
    seed(9, &[(0, &infisical), (0, &secret), (7, &refused)]);
    for provider in 0..10 {
        seed(provider, &[(3, &refused)]);
    }
    seeds
}
