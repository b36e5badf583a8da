//! An STS on loopback, honest and otherwise.

use serde_json::{Value, json};

use super::*;
use crate::mint::stand_in::{StandIn, ask};

const KEY: &str = "AKIDEXAMPLEEXAMPLE00";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SESSION: &str = "a-session-token-that-is-kept==";
const NEW_KEY: &str = "ASIAEXAMPLEEXAMPLE01";
const NEW_SECRET: &str = "a+new/secret&access<key\"of-forty-letters";
const NEW_TOKEN: &str = "FwoGZXIvYXdzEXAMPLE/a-new-session-token==";
const ARN: &str = "arn:aws:sts::123456789012:assumed-role/reader/stockade-0123456789abcdef";
const SECRETS: &[(&str, &str)] = &[("ID", KEY), ("KEY", SECRET), ("SESSION", SESSION)];

fn setting(address: &str, more: Value) -> Value {
    let mut setting = json!({"source": "aws", "role": "arn:aws:iam::123456789012:role/team/reader", "accessKeyId": "ID",
                             "secretAccessKey": "KEY", "endpoint": address});
    let Value::Object(more) = more else { panic!("no object") };
    setting.as_object_mut().unwrap().extend(more);
    setting
}

fn in_seconds(seconds: i64) -> String {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn xml(arn: &str, id: &str, secret: &str, expiration: &str) -> String {
    let secret = secret.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <AssumeRoleResult>\n    <AssumedRoleUser>\n      \
         <AssumedRoleId>AROA:x</AssumedRoleId>\n      <Arn>{arn}</Arn>\n    </AssumedRoleUser>\n    <Credentials>\n      \
         <AccessKeyId>{id}</AccessKeyId>\n      <SecretAccessKey>{secret}</SecretAccessKey>\n      <SessionToken>{NEW_TOKEN}</SessionToken>\n      \
         <Expiration>{expiration}</Expiration>\n    </Credentials>\n    <PackedPolicySize>6</PackedPolicySize>\n  </AssumeRoleResult>\n  \
         <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>\n</AssumeRoleResponse>\n"
    )
}

fn good() -> String {
    xml(ARN, NEW_KEY, NEW_SECRET, &in_seconds(900))
}

fn says(status: u16, text: String) -> StandIn {
    StandIn::new(move |_| (status, Value::String(text.clone())))
}

fn refused(asked: Result<Minted, MintError>) -> String {
    let error = asked.err().unwrap();
    let told = format!("{error} {error:?}");
    assert!([SECRET, SESSION, NEW_SECRET, NEW_TOKEN, KEY].iter().all(|value| !told.contains(value)), "{told}");
    told
}

#[test]
fn a_role_is_assumed_for_as_little_as_possible() {
    let sts = says(200, good());
    let minted = ask(&setting(&sts.address, json!({})), SECRETS).unwrap();
    let end = minted.expires.unwrap();
    let written = jiff::Timestamp::try_from(end).unwrap().to_string();
    let secret = NEW_SECRET.replace('"', "\\\"");
    let expected = format!(
        "{{\"AccessKeyId\":\"{NEW_KEY}\",\"SecretAccessKey\":\"{secret}\",\"Token\":\"{NEW_TOKEN}\",\"Expiration\":\"{written}\",\
         \"RoleArn\":\"arn:aws:iam::123456789012:role/team/reader\"}}"
    );
    assert_eq!(minted.value.to_text().as_str(), expected);
    let parts: Vec<String> = minted.parts.iter().map(|part| part.to_text().to_string()).collect();
    assert_eq!(parts, [NEW_SECRET, NEW_TOKEN]);
    assert_eq!((minted.face.unwrap().to_text().as_str(), minted.scope.as_str()), (NEW_KEY, ARN));
    assert!(minted.revoke.is_none());

    let asked = sts.asked().remove(0);
    assert_eq!((asked.method.as_str(), asked.target.as_str(), asked.header("accept")), ("POST", "/", "application/xml"));
    let body = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fteam%2Freader\
                &RoleSessionName=stockade-0123456789abcdef&DurationSeconds=900";
    assert_eq!(asked.body, body);
    assert_eq!(asked.header("x-amz-security-token"), "");
    let time = asked.header("x-amz-date").to_owned();
    let headers = [("content-type", FORM.as_bytes()), ("host", asked.header("host").as_bytes()), ("x-amz-date", time.as_bytes())];
    let payload = stockade_sigv4::hash(asked.body.as_bytes());
    let signable = Signable { method: "POST", path: "/", query: "", headers: &headers, payload: &payload, moment: &time };
    let scope = Scope { date: time.chars().take(8).collect(), region: "us-east-1".to_owned(), service: "sts".to_owned() };
    assert_eq!(asked.header("authorization"), signable.authorization(&scope, KEY, SECRET).as_str());
}

#[test]
fn everything_that_narrows_is_sent() {
    let sts = says(200, xml(ARN, NEW_KEY, NEW_SECRET, &in_seconds(3600)));
    let more = json!({"sessionToken": "SESSION", "region": "eu-west-1", "seconds": 3600, "policy": {"Version": "2012-10-17", "Statement": []},
                      "policyArns": ["arn:aws:iam::aws:policy/A", "arn:aws:iam::aws:policy/B"], "tags": {"team": "a&b"},
                      "sourceIdentity": "me@example.com", "externalId": "e-1"});
    let minted = ask(&setting(&sts.address, more), SECRETS).unwrap();
    let scope = " with a session policy within arn:aws:iam::aws:policy/A, arn:aws:iam::aws:policy/B for me@example.com";
    assert_eq!(minted.scope, format!("{ARN}{scope}"));
    let asked = sts.asked().remove(0);
    let (_, body) = asked.body.split_once("&DurationSeconds=").unwrap();
    let policy = crate::mint::http::encode(&json!({"Version": "2012-10-17", "Statement": []}).to_string());
    let expected = format!(
        "3600&Policy={policy}&PolicyArns.member.1.arn=arn%3Aaws%3Aiam%3A%3Aaws%3Apolicy%2FA\
         &PolicyArns.member.2.arn=arn%3Aaws%3Aiam%3A%3Aaws%3Apolicy%2FB&Tags.member.1.Key=stockade%3Apurpose&Tags.member.1.Value=test.call\
         &Tags.member.2.Key=team&Tags.member.2.Value=a%26b&SourceIdentity=me%40example.com&ExternalId=e-1"
    );
    assert_eq!(body, expected);
    assert_eq!(asked.header("x-amz-security-token"), SESSION);
    let authorization = asked.header("authorization");
    assert!(authorization.contains("/eu-west-1/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "));
}

#[test]
fn what_sts_says_is_told_without_values() {
    let error = |message: &str| {
        format!(
            "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>AccessDenied</Code>\
             <Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
        )
    };
    let echo = format!("User: a is not &lt;authorized&gt; with {SECRET} and\n{SESSION}");
    for (status, text, expected) in [
        (403, error(&echo), "it answers 403: AccessDenied: User: a is not <authorized> with [redacted] and\\n[redacted]"),
        (404, String::new(), "it answers 404: no reason that can be read"),
        (500, format!("<html>{SECRET}"), "it answers 500: no reason that can be read"),
        (307, String::new(), "redirect"),
    ] {
        let sts = says(status, text);
        let told = refused(ask(&setting(&sts.address, json!({"sessionToken": "SESSION"})), SECRETS));
        assert!(told.contains(expected) && told.contains("assuming the role"), "{told}");
    }
}

#[test]
fn answers_that_are_not_what_was_asked_for_are_refused() {
    let twice =
        good().replace("</Credentials>", &format!("<SecretAccessKey>{NEW_SECRET}</SecretAccessKey></Credentials>").replace('&', "&amp;"));
    for (text, expected) in [
        (String::new(), "not XML"),
        (json!({"AssumeRoleResponse": {"SessionToken": NEW_TOKEN}}).to_string(), "not XML"),
        (good().replace("AssumeRoleR", "AssumeRoleWithSAMLR"), "no Credentials/AccessKeyId"),
        (twice.replace("access<key", "access-key"), "SecretAccessKey, or several"),
        (good().replace(NEW_TOKEN, ""), "empty"),
        (xml(ARN, NEW_KEY, "a new secret &#10; with a line break", &in_seconds(900)).replace("&amp;#10;", "&#10;"), "line break"),
        (xml(ARN, "ASIA/EXAMPLE/EXAMPLE", NEW_SECRET, &in_seconds(900)), "id of the access key"),
        (xml(ARN, "ASIA", NEW_SECRET, &in_seconds(900)), "shorter"),
        (xml(ARN, NEW_KEY, NEW_SECRET, "soon"), "no date"),
        (xml(ARN, NEW_KEY, NEW_SECRET, &in_seconds(86_400)), "longer than the 900 seconds"),
        (xml(&ARN.replace("reader", "admin"), NEW_KEY, NEW_SECRET, &in_seconds(900)), "another role"),
        (xml(&format!("{ARN}x"), NEW_KEY, NEW_SECRET, &in_seconds(900)), "another role or session"),
    ] {
        let sts = says(200, text);
        let told = refused(ask(&setting(&sts.address, json!({})), SECRETS));
        assert!(told.contains(expected) && told.contains("assuming the role"), "{expected}: {told}");
    }
}

#[test]
fn nobody_is_asked_where_the_setting_is_wrong() {
    let sts = says(200, good());
    for (more, expected) in [
        (json!({"seconds": 899}), "900 to 43200"),
        (json!({"seconds": 43_201}), "900 to 43200"),
        (json!({"policy": {"Statement": "x".repeat(2048)}}), "longer than 2048"),
        (json!({"policy": []}), "no object"),
        (json!({"region": "us-east-1.example.com/"}), "no region"),
        (json!({"sessionToken": "NONE"}), "no `NONE`"),
    ] {
        let told = refused(ask(&setting(&sts.address, more), SECRETS));
        assert!(told.contains(expected), "{told}");
    }
    assert!(refused(ask(&setting(&sts.address, json!({})), &[("ID", KEY)])).contains("no `KEY`"));
    assert!(refused(ask(&setting("http://sts.example", json!({})), SECRETS)).contains("is no address"));
    assert!(sts.asked().is_empty());
}

#[test]
fn names_and_tags_have_only_what_sts_takes() {
    assert_eq!(session_name("a b/ü"), "stockade-a-b--");
    assert_eq!(session_name(&"x".repeat(100)).len(), MAX_SESSION_NAME);
    let aws: Aws = serde_json::from_value(json!({"role": "r", "accessKeyId": "A", "secretAccessKey": "B", "tags": {"a": "b"}})).unwrap();
    let fields = form(&aws, "s", &format!("git push <x>\n{}", "y".repeat(300))).unwrap();
    let purpose = &fields.iter().find(|(name, _)| name == "Tags.member.2.Value").unwrap().1;
    assert!(purpose.starts_with("git push _x__yyy") && purpose.len() == MAX_TAG, "{purpose}");
    let aws = Aws { tags: [("Stockade:Purpose".to_owned(), "mine".to_owned())].into(), ..aws };
    assert_eq!(form(&aws, "s", "p").unwrap().iter().filter(|(name, _)| name.starts_with("Tags")).count(), 2);
}
