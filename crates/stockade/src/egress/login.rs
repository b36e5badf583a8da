//! Logins outside: the file that an agent's own login wrote. Tokens are read from it when a sandbox starts; new ones that a server hands out
//! are written back to it, by egress, over a descriptor that it was given.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_broker::{SecretName, SecretValue};
use stockade_core::reach::Login;
use stockade_egress::secrets::Renewed;

use crate::failure::Failure;

/// What failures of this file are about.
const STEP: &str = "login";
/// A login's file is short.
const MAX_BYTES: u64 = 256 << 10;

/// What egress needs to know to write a login back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Places {
    /// Secrets, and where they stand.
    pub(crate) tokens: Vec<(String, String)>,
    /// Where the end of the first stands.
    pub(crate) expiry: Option<String>,
}

impl From<&Login> for Places {
    fn from(login: &Login) -> Self {
        let tokens = login.tokens.iter().map(|token| (token.secret.to_string(), token.pointer.clone())).collect();
        Self { tokens, expiry: login.expiry.clone() }
    }
}

/// Opens a login's file, to be read and written; never through a link.
pub(crate) fn open(login: &Login) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits();
    File::options().read(true).write(true).custom_flags(flags.cast_signed()).open(&login.file)
}

/// The tokens that stand in a login's file; those that are not there, or empty, are left out.
pub(crate) fn tokens(login: &Login) -> Result<Vec<(SecretName, SecretValue)>, Failure> {
    let file = open(login).map_err(|error| Failure::new(STEP, format!("it cannot be opened to be read and written: {error}")))?;
    let value = read(&file)?;
    let mut found = Vec::new();
    for token in &login.tokens {
        let Some(text) = value.pointer(&token.pointer).and_then(Value::as_str).filter(|text| !text.is_empty()) else { continue };
        let unfit = |error| Failure::new(STEP, format!("what stands at `{}` cannot be a token: {error}", token.pointer));
        found.push((token.secret.clone(), SecretValue::new(text.as_bytes().to_vec()).map_err(unfit)?));
    }
    Ok(found)
}

/// Writes new tokens where the old ones stand; what else is in the file stays.
pub(crate) fn write_back(file: &File, places: &Places, renewed: &Renewed, now: SystemTime) -> std::io::Result<()> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut value = read(file).map_err(|_| invalid())?;
    for (name, token) in &renewed.tokens {
        let pointer = places.tokens.iter().find(|(known, _)| known == name).map(|(_, pointer)| pointer.as_str()).ok_or_else(invalid)?;
        let place = value.pointer_mut(pointer).ok_or_else(invalid)?;
        *place = Value::String(String::from_utf8_lossy(token.expose()).into_owned());
    }
    let end = renewed.lasts.and_then(|seconds| now.checked_add(Duration::from_secs(seconds)));
    let end = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()).and_then(|since| u64::try_from(since.as_millis()).ok());
    if let (Some(end), Some(place)) = (end, places.expiry.as_ref().and_then(|pointer| value.pointer_mut(pointer))) {
        *place = end.into();
    }
    let mut text = serde_json::to_vec_pretty(&value)?;
    let length = text.len();
    // Over the whole of what was there, so that a kill before it is cut to length leaves nothing of the old text behind the new. It is not
    // replaced by renaming, for egress has no way to its directory: a kill within the write itself can leave half of each.
    text.resize(length.max(usize::try_from(file.metadata()?.len()).unwrap_or(length)), b'\n');
    file.write_all_at(&text, 0)?;
    file.set_len(length as u64)?;
    file.sync_all()
}

fn read(file: &File) -> Result<Value, Failure> {
    let failed = |error: std::io::Error| Failure::new(STEP, format!("it cannot be read: {error}"));
    if file.metadata().map_err(failed)?.len() > MAX_BYTES {
        return Err(Failure::new(STEP, format!("it is longer than {MAX_BYTES} bytes")));
    }
    let mut bytes = Vec::new();
    let mut at = AtStart { file, place: 0 };
    at.by_ref().take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::new(STEP, format!("it is not JSON: {error}")))
}

/// Reads a file from its beginning, wherever its own place is.
struct AtStart<'a> {
    file: &'a File,
    place: u64,
}

impl std::io::Read for AtStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.place)?;
        self.place += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::reach::LoginToken;

    use super::*;

    #[test]
    fn new_tokens_are_written_where_the_old_ones_stand() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("login.json");
        std::fs::write(
            &path,
            r#"{"a":{"access":"old-access-token-1234","refresh":"old-refresh-token-123456789","until":1,"other":[1,2]}}"#,
        )
        .unwrap();
        let token =
            |secret: &str, pointer: &str| LoginToken { secret: secret.parse().unwrap(), pointer: pointer.into(), member: String::new() };
        let login = Login {
            file: path.clone(),
            tokens: vec![token("ACCESS", "/a/access"), token("REFRESH", "/a/refresh"), token("GONE", "/a/gone")],
            hosts: Vec::new(),
            path: String::new(),
            expiry: Some("/a/until".into()),
        };
        let names: Vec<String> = tokens(&login).unwrap().into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["ACCESS", "REFRESH"]);
        let value = stockade_egress::SecretValue::new(b"new-access".repeat(2)).unwrap();
        let renewed = Renewed { tokens: vec![("ACCESS".into(), value)], lasts: Some(10) };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        write_back(&open(&login).unwrap(), &Places::from(&login), &renewed, now).unwrap();
        let after: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let expected = serde_json::json!({"a": {"access": "new-accessnew-access", "refresh": "old-refresh-token-123456789", "until": 110_000, "other": [1, 2]}});
        assert_eq!(after, expected);
        // What cannot be read is told, and why.
        for (text, why) in [("{", "not JSON"), (r#"{"a": {"access": "x"}}"#, "/a/access"), (&" ".repeat(300_000), "longer than")] {
            std::fs::write(&path, text).unwrap();
            let error = tokens(&login).unwrap_err().message;
            assert!(error.contains(why), "{error}");
        }
        std::fs::write(&path, r#"{"a": {"access": ""}}"#).unwrap();
        assert_eq!(tokens(&login).unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(tokens(&login).unwrap_err().message.contains("cannot be opened"));
    }
}
