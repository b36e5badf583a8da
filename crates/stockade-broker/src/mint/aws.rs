//! AWS: a role is assumed by STS for a while, narrowed by a session policy. There is nothing to give back; it ends by itself.
//!
//! The value is the JSON that programs of AWS read from a container's credentials endpoint. Session tags need a permission of their own
//! (`sts:TagSession`), so the purpose of a call is one of them only where the setting has others.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use stockade_sigv4::{Scope, Signable};
use stockade_store::settings::providers::Aws;

use super::http::{Answer, Request, below};
use super::xml::Texts;
use super::{Asking, MintError, Minted, told};
use crate::SecretValue;

/// The shortest and the longest that STS lends a role for.
const SECONDS: std::ops::RangeInclusive<u32> = 900..=43_200;
const MAX_POLICY: usize = 2048;
const MAX_SESSION_NAME: usize = 64;
const MAX_TAG: usize = 256;
const STEP: &str = "assuming the role";
const FORM: &str = "application/x-www-form-urlencoded";
const PURPOSE: &str = "stockade:purpose";

/// What a container's credentials endpoint answers.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials<'a> {
    access_key_id: &'a str,
    secret_access_key: &'a str,
    token: &'a str,
    expiration: String,
    role_arn: &'a str,
}

/// Assumes the role.
pub(crate) fn mint(aws: &Aws, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let region = aws.region.as_deref().unwrap_or("us-east-1");
    if !region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        return Err(failed("`region` is no region of AWS"));
    }
    let session = session_name(asking.sandbox.as_str());
    let fields = form(aws, &session, asking.purpose)?;
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    let url =
        aws.endpoint.as_deref().map_or_else(|| format!("https://sts.{region}.amazonaws.com{suffix}/"), |endpoint| below(endpoint, ""));
    // What it answers by default; JSON is a favour that not everyone who speaks for STS does.
    let request = Request::form(&url, &fields).header("accept", "application/xml");
    let request = signed(aws, request, region, asking)?;
    let answer = asking.exchange(STEP, &request, aws.ca_file.as_deref())?;
    read(aws, &session, &answer, asking)
}

/// What is asked of STS.
fn form(aws: &Aws, session: &str, purpose: &str) -> Result<Vec<(String, String)>, MintError> {
    let seconds = aws.seconds.unwrap_or(*SECONDS.start());
    if !SECONDS.contains(&seconds) {
        return Err(failed(format!("`seconds` is {seconds}; STS lends a role for {} to {}", SECONDS.start(), SECONDS.end())));
    }
    let mut fields = vec![("Action", "AssumeRole".to_owned()), ("Version", "2011-06-15".to_owned()), ("RoleArn", aws.role.clone())];
    fields.extend([("RoleSessionName", session.to_owned()), ("DurationSeconds", seconds.to_string())]);
    if let Some(policy) = &aws.policy {
        let text = policy.to_string();
        if !policy.is_object() || text.len() > MAX_POLICY {
            return Err(failed(format!("`policy` is no object, or longer than {MAX_POLICY} bytes")));
        }
        fields.push(("Policy", text));
    }
    let mut fields: Vec<(String, String)> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    fields.extend(aws.policy_arns.iter().zip(1..).map(|(arn, at)| (format!("PolicyArns.member.{at}.arn"), arn.clone())));
    let mut tags = aws.tags.clone();
    // STS does not tell names of tags apart by case.
    if !tags.is_empty() && !tags.keys().any(|name| name.eq_ignore_ascii_case(PURPOSE)) {
        let fits = |letter: char| if letter.is_ascii_alphanumeric() || " _.:/=+-@".contains(letter) { letter } else { '_' };
        tags.insert(PURPOSE.to_owned(), purpose.chars().take(MAX_TAG).map(fits).collect());
    }
    for ((name, value), at) in tags.into_iter().zip(1..) {
        fields.push((format!("Tags.member.{at}.Key"), name));
        fields.push((format!("Tags.member.{at}.Value"), value));
    }
    fields.extend(aws.source_identity.iter().map(|identity| ("SourceIdentity".to_owned(), identity.clone())));
    fields.extend(aws.external_id.iter().map(|id| ("ExternalId".to_owned(), id.clone())));
    Ok(fields)
}

fn session_name(sandbox: &str) -> String {
    let fits = |letter: char| if letter.is_ascii_alphanumeric() || "_+=,.@-".contains(letter) { letter } else { '-' };
    format!("stockade-{sandbox}").chars().map(fits).take(MAX_SESSION_NAME).collect()
}

fn signed<'a>(aws: &Aws, request: Request<'a>, region: &str, asking: &Asking<'_>) -> Result<Request<'a>, MintError> {
    let access_key_id = asking.secret(&aws.access_key_id)?.value.to_text();
    let secret_access_key = asking.secret(&aws.secret_access_key)?.value.to_text();
    let session_token = aws.session_token.as_ref().map(|name| asking.secret(name)).transpose()?.map(|lease| lease.value.to_text());
    let url: ::http::Uri = request.url.parse().map_err(|_| failed("`endpoint` is no address"))?;
    let host = url.authority().ok_or_else(|| failed("`endpoint` is no address"))?.as_str();
    let now = jiff::Timestamp::try_from(asking.now).map_err(|_| failed("this machine's clock is far off"))?;
    let (date, time) = (now.strftime("%Y%m%d").to_string(), now.strftime("%Y%m%dT%H%M%SZ").to_string());
    let payload = stockade_sigv4::hash(request.body.as_ref().map_or(&[], |(_, body)| body.as_slice()));
    // By name, as they are signed.
    let mut headers = vec![("content-type", FORM.as_bytes()), ("host", host.as_bytes()), ("x-amz-date", time.as_bytes())];
    headers.extend(session_token.as_ref().map(|token| ("x-amz-security-token", token.as_bytes())));
    let (path, query) = (url.path(), url.query().unwrap_or_default());
    let signable = Signable { method: request.method, path, query, headers: &headers, payload: &payload, moment: &time };
    let scope = Scope { date, region: region.to_owned(), service: "sts".to_owned() };
    let authorization = signable.authorization(&scope, &access_key_id, &secret_access_key);
    let request = request.header("authorization", authorization.as_str()).header("x-amz-date", time.as_str());
    Ok(match &session_token {
        None => request,
        Some(token) => request.header("x-amz-security-token", token.as_str()),
    })
}

fn read(aws: &Aws, session: &str, answer: &Answer, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let texts = std::str::from_utf8(answer.bytes()).ok().and_then(Texts::read);
    if !(200..300).contains(&answer.status) {
        let said = |what: &str| texts.as_ref().and_then(|texts| texts.once(&format!("ErrorResponse/Error/{what}")));
        let words = [said("Code"), said("Message")].into_iter().flatten().collect::<Vec<_>>().join(": ");
        let words = if words.is_empty() { "no reason that can be read".to_owned() } else { asking.clean(&words) };
        return Err(MintError::answered(STEP, answer.status, &words));
    }
    let texts = texts.ok_or_else(|| failed("what it answers is not XML that can be read"))?;
    let text = |what: &str| {
        let found = texts.once(&format!("AssumeRoleResponse/AssumeRoleResult/{what}"));
        found.ok_or_else(|| failed(format!("what it answers has no {what}, or several")))
    };
    let (id, secret) = (text("Credentials/AccessKeyId")?, text("Credentials/SecretAccessKey")?);
    let (token, arn) = (text("Credentials/SessionToken")?, text("AssumedRoleUser/Arn")?);
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(failed("the id of the access key is none"));
    }
    let longest = Duration::from_secs(aws.seconds.unwrap_or(*SECONDS.start()).into());
    let end = told::until(STEP, asking.now, text("Credentials/Expiration")?, longest)?;
    let role = aws.role.rsplit('/').next().unwrap_or_default();
    if !arn.ends_with(&format!(":assumed-role/{role}/{session}")) {
        return Err(failed("it gives credentials of another role or session"));
    }
    let value = |text: &str| SecretValue::new(text.as_bytes().to_vec()).map_err(|bad| failed(bad.to_string()));
    let parts = vec![value(secret)?, value(token)?];
    let written = jiff::Timestamp::try_from(end).map_err(|_| failed("the end that it tells is no date"))?;
    let expiration = written.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let credentials = Credentials { access_key_id: id, secret_access_key: secret, token, expiration, role_arn: &aws.role };
    let mut json = Vec::with_capacity(answer.bytes().len() + aws.role.len() + 1024);
    serde_json::to_writer(&mut json, &credentials).map_err(|_| failed("what it answers cannot be kept"))?;
    let whole = SecretValue::new(json).map_err(|bad| failed(bad.to_string()))?;
    let face = Some(value(id)?);
    Ok(Minted { parts, face, ..Minted::new(whole, Some(end), scope(aws, &asking.clean(arn))) })
}

fn scope(aws: &Aws, arn: &str) -> String {
    let mut scope = arn.to_owned();
    if aws.policy.is_some() {
        scope.push_str(" with a session policy");
    }
    if !aws.policy_arns.is_empty() {
        let _ = write!(scope, " within {}", aws.policy_arns.join(", "));
    }
    if let Some(identity) = &aws.source_identity {
        let _ = write!(scope, " for {identity}");
    }
    told::scope(&scope)
}

fn failed(why: impl Into<String>) -> MintError {
    MintError::new(STEP, why)
}

#[cfg(test)]
#[path = "aws_tests.rs"]
mod tests;
