//! `aws`: the keys of one profile, as one secret; or, where the profile is a role's, the keys that the role is assumed with.

use stockade_broker::{SecretName, SecretValue};
use stockade_core::credential::Delivery;
use stockade_core::host::HostPattern;
use stockade_store::settings::providers::Aws;
use stockade_store::settings::{Provider, SecretSetting, SecretSource};
use zeroize::Zeroizing;

use super::STEP;
use super::around::{Around, brief, host, hosts, name, value};
use super::ini::{self, Section};
use super::login::{Login, Request, Wish};
use crate::failure::Failure;

const REGION: &str = "us-east-1";
/// Ways to keys that are no keys, and what each is.
const OTHER_WAYS: [(&str, &str); 5] = [
    ("sso_session", "it logs in anew in a browser (SSO)"),
    ("sso_start_url", "it logs in anew in a browser (SSO)"),
    ("credential_process", "a program prints its keys"),
    ("web_identity_token_file", "it has a token of another service"),
    ("credential_source", "the machine that it runs on gives its keys"),
];

/// Long-lived or temporary keys of one profile.
#[derive(Debug, PartialEq, Eq)]
struct Keys<'a> {
    profile: &'a str,
    id: &'a str,
    secret: &'a str,
    session: Option<&'a str>,
}

/// Both files, read.
struct Profiles {
    credentials: Vec<Section>,
    config: Vec<Section>,
}

/// Finds the login.
pub(super) fn find(around: &Around<'_>, wish: &Wish<'_>) -> Result<Login, Failure> {
    let profile = wish.profile.map(str::to_owned).or_else(|| around.variable("AWS_PROFILE")).unwrap_or_else(|| "default".to_owned());
    let credentials = around.place("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    let config = around.place("AWS_CONFIG_FILE", ".aws/config");
    let read = |path| match around.text(path)? {
        Some(text) => ini::parse(&text)
            .map_err(|line| Failure::new(STEP, format!("`{}` is not used: line {line} is not what `aws` writes", around.shown(path)))),
        None => Ok(Vec::new()),
    };
    let profiles = Profiles { credentials: read(&credentials)?, config: read(&config)? };
    let (keys, role) = profiles
        .look_up(&profile)
        .map_err(|why| Failure::new(STEP, why).with_hint("name another with --profile, or make keys: aws configure"))?;
    let shown = around.shown(&credentials);
    let section = brief(keys.profile);
    let region = profiles.field(&profile, "region").unwrap_or(REGION).to_owned();
    if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(Failure::new(STEP, format!("`{}` is no region", brief(&region))));
    }
    let entry = wish.name.clone().map_or_else(|| name("AWS"), Ok)?;
    let endpoint = endpoint(around, &profiles, &profile)?;
    let (values, source, delivery) = match role {
        None => (vec![(entry.clone(), as_one(&keys)?)], SecretSource::Store, vec![Delivery::AwsKeys]),
        Some(role) => {
            let (values, mut provider) = as_role(&keys, &role, &profiles, &profile, &entry)?;
            provider.endpoint = endpoint.as_ref().map(|(url, _)| url.clone());
            (values, SecretSource::Provider(Box::new(Provider::Aws(provider))), Vec::new())
        }
    };
    let mut hosts = hosts(&["*.amazonaws.com"])?;
    let amazon = format!("https://sts.{region}.amazonaws.com/");
    let url = endpoint.map_or(amazon, |(url, host)| {
        hosts.push(host);
        url
    });
    Ok(Login {
        from: format!("{shown} [{section}]"),
        values,
        setting: SecretSetting { hosts, delivery, ..SecretSetting::new(entry, source) },
        authorities: None,
        request: Request::Sts { url, region },
        spare: vec![format!("the keys of [{section}] in {shown}")],
    })
}

/// Where STS is, where AWS's own tools would go elsewhere than to Amazon: what the environment says, else the profile. Keys are only ever shown over HTTPS,
/// or to a server on this machine's own loopback.
fn endpoint(around: &Around<'_>, profiles: &Profiles, profile: &str) -> Result<Option<(String, HostPattern)>, Failure> {
    let is_true = |text: &str| text.eq_ignore_ascii_case("true");
    let ignored = around
        .variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
        .map_or_else(|| profiles.field(profile, "ignore_configured_endpoint_urls").is_some_and(is_true), |text| is_true(&text));
    if ignored {
        return Ok(None);
    }
    let variable = |name: &'static str| around.variable(name).map(|url| (name, url));
    let said = variable("AWS_ENDPOINT_URL_STS")
        .or_else(|| variable("AWS_ENDPOINT_URL"))
        .or_else(|| profiles.field(profile, "endpoint_url").map(|url| ("endpoint_url", url.to_owned())));
    let Some((whose, url)) = said else { return Ok(None) };
    let host = usable(&url).ok_or_else(|| {
        Failure::new(STEP, format!("`{whose}` is `{}`, and keys are not shown there", brief(&url)))
            .with_hint("it must be https://HOST, or http://127.0.0.1:PORT on this machine")
    })?;
    Ok(Some((url, host)))
}

/// The host of an address that keys may be shown at, without a path.
fn usable(url: &str) -> Option<HostPattern> {
    let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, rest) => (false, rest?),
    };
    let server = host(rest.strip_suffix('/').unwrap_or(rest)).ok()?;
    (tls || server.granted_address().is_some_and(|address| address.is_loopback())).then_some(server)
}

/// Keys as egress signs with them, on one line.
fn as_one(keys: &Keys<'_>) -> Result<SecretValue, Failure> {
    let quoted = |text: &str| Zeroizing::new(serde_json::Value::from(text).to_string());
    let mut json = Zeroizing::new(format!("{{\"AccessKeyId\":{},\"SecretAccessKey\":{}", *quoted(keys.id), *quoted(keys.secret)));
    if let Some(session) = keys.session {
        json.push_str(",\"Token\":");
        json.push_str(&quoted(session));
    }
    json.push('}');
    value(json.as_bytes(), "the access key")
}

/// What is kept for a role, and the role.
fn as_role(
    keys: &Keys<'_>,
    role: &str,
    profiles: &Profiles,
    profile: &str,
    entry: &SecretName,
) -> Result<(Vec<(SecretName, SecretValue)>, Aws), Failure> {
    if profiles.field(profile, "mfa_serial").is_some() {
        return Err(Failure::new(STEP, format!("the role of `{}` asks for a code of a device each time", brief(profile)))
            .with_hint("adopt a profile whose role needs none (no `mfa_serial`)"));
    }
    let id = name(&format!("{entry}_ACCESS_KEY_ID_KEPT"))?;
    let secret = name(&format!("{entry}_SECRET_ACCESS_KEY_KEPT"))?;
    let mut values = vec![(id.clone(), value(keys.id, "the access key's id")?), (secret.clone(), value(keys.secret, "the access key")?)];
    let session = match keys.session {
        Some(text) => {
            let session = name(&format!("{entry}_SESSION_TOKEN_KEPT"))?;
            values.push((session.clone(), value(text, "the session token")?));
            Some(session)
        }
        None => None,
    };
    let text = |field: &str| profiles.field(profile, field).map(str::to_owned);
    let provider = Aws {
        role: role.to_owned(),
        access_key_id: id,
        secret_access_key: secret,
        session_token: session,
        region: text("region"),
        endpoint: None,
        policy: None,
        policy_arns: Vec::new(),
        source_identity: None,
        tags: std::collections::BTreeMap::new(),
        external_id: text("external_id"),
        seconds: text("duration_seconds").and_then(|seconds| seconds.parse().ok()),
        ca_file: None,
    };
    Ok((values, provider))
}

impl Profiles {
    /// The keys of a profile, and its role where it has one.
    fn look_up<'a>(&'a self, profile: &'a str) -> Result<(Keys<'a>, Option<String>), String> {
        if let Some(role) = self.field(profile, "role_arn") {
            let source = self.field(profile, "source_profile").ok_or_else(|| {
                let how = self.other_way(profile).unwrap_or("it does not say whose keys it is assumed with");
                format!("the profile `{}` is not used: {how}", brief(profile))
            })?;
            let keys = self
                .keys(source)
                .ok_or_else(|| format!("the profile `{}`, whose keys the role is assumed with, has none", brief(source)))?;
            return Ok((keys, Some(role.to_owned())));
        }
        let none = || {
            let why = self.other_way(profile).unwrap_or("there are no keys of it");
            format!("the profile `{}` is not used: {why}", brief(profile))
        };
        Ok((self.keys(profile).ok_or_else(none)?, None))
    }

    fn keys<'a>(&'a self, profile: &'a str) -> Option<Keys<'a>> {
        let field = |key| self.field(profile, key);
        Some(Keys {
            profile,
            id: field("aws_access_key_id")?,
            secret: field("aws_secret_access_key")?,
            session: field("aws_session_token"),
        })
    }

    fn other_way(&self, profile: &str) -> Option<&'static str> {
        OTHER_WAYS.into_iter().find(|(field, _)| self.field(profile, field).is_some()).map(|(_, why)| why)
    }

    /// A field of a profile, wherever it is; the credentials file is asked first.
    fn field<'a>(&'a self, profile: &str, key: &str) -> Option<&'a str> {
        let in_config = if profile == "default" { profile.to_owned() } else { format!("profile {profile}") };
        let last = |sections: &'a [Section], named: &str| {
            sections.iter().filter(|section| section.name == named).filter_map(|section| section.field(key)).next_back()
        };
        last(&self.credentials, profile).or_else(|| last(&self.config, &in_config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles(credentials: &str, config: &str) -> Profiles {
        Profiles { credentials: ini::parse(credentials).unwrap(), config: ini::parse(config).unwrap() }
    }

    const KEYS: &str = "[default]\naws_access_key_id=AKIAIOSFODNN7EXAMPLE\naws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n\
                        [temp]\naws_access_key_id=ASIA\naws_secret_access_key=s\naws_session_token=t\n";
    const CONFIG: &str = "[default]\nregion=eu-central-1\n[profile ops]\nrole_arn=arn:aws:iam::1:role/ops\nsource_profile=default\nexternal_id=x\n\
                          [profile sso]\nsso_session=a\n[profile node]\nrole_arn=arn:aws:iam::1:role/n\ncredential_source=Ec2InstanceMetadata\n\
                          [profile lost]\nrole_arn=arn:aws:iam::1:role/l\nsource_profile=nobody\n";

    #[test]
    fn keys_and_roles_are_told_apart() {
        let all = profiles(KEYS, CONFIG);
        let keys = |profile| all.look_up(profile).map(|(keys, role)| (keys.profile.to_owned(), keys.session.map(str::to_owned), role));
        assert_eq!(keys("default"), Ok(("default".into(), None, None)));
        assert_eq!(keys("temp"), Ok(("temp".into(), Some("t".into()), None)));
        assert_eq!(keys("ops"), Ok(("default".into(), None, Some("arn:aws:iam::1:role/ops".into()))));
        for (profile, says) in [("sso", "SSO"), ("node", "the machine"), ("lost", "`nobody`"), ("other", "there are no keys")] {
            assert!(keys(profile).unwrap_err().contains(says), "{profile}: {:?}", keys(profile));
        }
        assert_eq!((all.field("default", "region"), all.field("ops", "external_id")), (Some("eu-central-1"), Some("x")));
    }

    #[test]
    fn keys_are_shown_over_https_or_on_loopback_only() {
        for (url, host) in [
            ("https://vpce-1.sts.us-east-1.vpce.amazonaws.com", "vpce-1.sts.us-east-1.vpce.amazonaws.com"),
            ("https://sts.example:8443/", "sts.example:8443"),
            ("http://127.0.0.1:4566", "127.0.0.1:4566"),
            ("http://[::1]:4566/", "[::1]:4566"),
        ] {
            assert_eq!(usable(url).map(|found| found.to_string()).as_deref(), Some(host), "{url}");
        }
        for url in [
            "http://sts.example",
            "http://localhost:4566",
            "http://10.0.0.1:80",
            "https://a@evil.example",
            "https://sts.example/path",
            "https://sts.example?x",
            "https://*.example",
            "sts.example",
            "ftp://127.0.0.1",
            "https://",
        ] {
            assert_eq!(usable(url), None, "{url}");
        }
    }

    #[test]
    fn keys_are_kept_as_one_line_of_json() {
        let text = |id, secret, session| as_one(&Keys { profile: "p", id, secret, session }).unwrap().to_text().to_string();
        assert_eq!(text("AKIA", "a\"b\\c", None), r#"{"AccessKeyId":"AKIA","SecretAccessKey":"a\"b\\c"}"#);
        assert_eq!(text("ASIA", "s", Some("t")), r#"{"AccessKeyId":"ASIA","SecretAccessKey":"s","Token":"t"}"#);
    }
}
