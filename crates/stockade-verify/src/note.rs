//! Signed notes and the checkpoints in them (C2SP `signed-note`, `tlog-checkpoint`, `tlog-cosignature`).
//!
//! ```text
//! origin                      ┐
//! size                        │ the text that is signed, with its last line break
//! base64 of the root          │
//! extension lines             ┘
//!
//! — name base64(key id, signature)
//! ```
//!
//! Lines of unknown keys are ignored, as the format demands: that is how a witness can sign later. A line of a known key that does not hold
//! spoils the note.

use sha2::{Digest, Sha256};

use crate::key::PublicKey;
use crate::merkle::Hash;
use crate::text::{from_base64, to_base64};

/// The longest note.
pub const MAX_NOTE: usize = 16 * 1024;
/// The most signature lines.
const MAX_SIGNATURES: usize = 16;
/// The kind of a plain Ed25519 signature in a key's id.
const PLAIN: u8 = 1;
/// The kind of a witness's signature, which has a time.
const COSIGNATURE: u8 = 4;

/// Why a note does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNote {
    /// Not in the form of a signed note.
    #[error("it is not a signed note")]
    Form,
    /// The text is no checkpoint.
    #[error("its text is no checkpoint")]
    Text,
    /// The key did not sign it.
    #[error("the key did not sign it")]
    Unsigned,
    /// The key's signature is there and wrong.
    #[error("its signature does not hold")]
    Signature,
}

/// What a checkpoint says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which ledger: also the name of its key.
    pub origin: String,
    /// How many receipts there are.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Hash,
    /// Further lines.
    pub extensions: Vec<String>,
}

impl Checkpoint {
    /// The text that is signed.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n{}\n{}\n", self.origin, self.size, to_base64(&self.root));
        for line in &self.extensions {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Reads a text; only the spelling that [`Self::to_text`] gives is taken.
    pub fn parse(text: &str) -> Result<Self, BadNote> {
        let mut lines = text.strip_suffix('\n').ok_or(BadNote::Text)?.split('\n');
        let mut line = || lines.next().ok_or(BadNote::Text);
        let origin = line()?.to_owned();
        let size = line()?.parse().map_err(|_| BadNote::Text)?;
        let root = from_base64(line()?).and_then(|bytes| Hash::try_from(bytes).ok()).ok_or(BadNote::Text)?;
        let checkpoint = Self { origin, size, root, extensions: lines.map(str::to_owned).collect() };
        let is_sound = is_name(&checkpoint.origin) && !checkpoint.extensions.iter().any(String::is_empty);
        if is_sound && checkpoint.to_text() == text { Ok(checkpoint) } else { Err(BadNote::Text) }
    }
}

/// A note taken apart.
#[derive(Debug)]
pub struct Note<'a> {
    /// What is signed.
    pub text: &'a str,
    signatures: Vec<SignatureLine<'a>>,
}

#[derive(Debug)]
struct SignatureLine<'a> {
    name: &'a str,
    bytes: Vec<u8>,
}

impl<'a> Note<'a> {
    /// Takes a note apart.
    pub fn parse(note: &'a str) -> Result<Self, BadNote> {
        if note.len() > MAX_NOTE || note.chars().any(|character| character < ' ' && character != '\n') {
            return Err(BadNote::Form);
        }
        let (text, lines) = note.rsplit_once("\n\n").ok_or(BadNote::Form)?;
        let text = note.get(..=text.len()).ok_or(BadNote::Form)?;
        let lines = lines.strip_suffix('\n').ok_or(BadNote::Form)?;
        let signatures: Vec<SignatureLine<'a>> = lines.split('\n').map(SignatureLine::parse).collect::<Option<_>>().ok_or(BadNote::Form)?;
        if signatures.len() > MAX_SIGNATURES { Err(BadNote::Form) } else { Ok(Self { text, signatures }) }
    }

    /// Whether this key, under this name, is among the signers; its signature need not hold.
    pub fn claims(&self, name: &str, key: &PublicKey) -> bool {
        self.of(name, key_id(name, PLAIN, key)).is_some()
    }

    /// Holds only if this key signed the text under this name.
    pub fn signed_by(&self, name: &str, key: &PublicKey) -> Result<(), BadNote> {
        let signature = self.of(name, key_id(name, PLAIN, key)).ok_or(BadNote::Unsigned)?;
        if key.verifies(self.text.as_bytes(), signature) { Ok(()) } else { Err(BadNote::Signature) }
    }

    /// When this witness signed the text, in seconds since 1970.
    pub fn cosigned_by(&self, name: &str, key: &PublicKey) -> Result<u64, BadNote> {
        let bytes = self.of(name, key_id(name, COSIGNATURE, key)).ok_or(BadNote::Unsigned)?;
        let (time, signature) = bytes.split_first_chunk::<8>().ok_or(BadNote::Signature)?;
        let time = u64::from_be_bytes(*time);
        if key.verifies(&cosigned_message(time, self.text), signature) { Ok(time) } else { Err(BadNote::Signature) }
    }

    fn of(&self, name: &str, id: [u8; 4]) -> Option<&[u8]> {
        self.signatures.iter().filter(|line| line.name == name).find_map(|line| line.bytes.strip_prefix(&id))
    }
}

impl<'a> SignatureLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, base64) = line.strip_prefix("— ")?.split_once(' ')?;
        let bytes = from_base64(base64).filter(|bytes| bytes.len() > 4)?;
        is_name(name).then_some(Self { name, bytes })
    }
}

/// The signature line of a ledger's own key.
pub fn signature_line(name: &str, key: &PublicKey, signature: &[u8; 64]) -> String {
    format!("— {name} {}\n", to_base64(&[key_id(name, PLAIN, key).as_slice(), signature].concat()))
}

/// The signature line of a witness.
pub fn cosignature_line(name: &str, key: &PublicKey, time: u64, signature: &[u8; 64]) -> String {
    let bytes = [key_id(name, COSIGNATURE, key).as_slice(), &time.to_be_bytes(), signature].concat();
    format!("— {name} {}\n", to_base64(&bytes))
}

/// What a witness signs.
pub fn cosigned_message(time: u64, text: &str) -> Vec<u8> {
    format!("cosignature/v1\ntime {time}\n{text}").into_bytes()
}

/// Whether this can be a key's name: no blanks, no plus signs, no control characters.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|character| character.is_whitespace() || character.is_control() || character == '+')
}

fn key_id(name: &str, kind: u8, key: &PublicKey) -> [u8; 4] {
    let digest = Sha256::new().chain_update(name).chain_update([b'\n', kind]).chain_update(key.as_bytes()).finalize();
    digest.first_chunk::<4>().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    fn keys() -> (SigningKey, PublicKey) {
        let key = SigningKey::from_bytes(&[3; 32]);
        (key.clone(), PublicKey::from_bytes(key.verifying_key().to_bytes()).unwrap())
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint { origin: "example.org/log".into(), size: 7, root: [5; 32], extensions: vec!["more".into()] }
    }

    #[test]
    fn a_note_holds_for_its_signers_only() {
        let (signing, public) = keys();
        let text = checkpoint().to_text();
        let own = signature_line("example.org/log", &public, &signing.sign(text.as_bytes()).to_bytes());
        let witness = cosignature_line("witness", &public, 99, &signing.sign(&cosigned_message(99, &text)).to_bytes());
        let note = format!("{text}\n{own}{witness}");
        let parsed = Note::parse(&note).unwrap();
        assert_eq!(Checkpoint::parse(parsed.text), Ok(checkpoint()));
        assert_eq!(parsed.signed_by("example.org/log", &public), Ok(()));
        assert_eq!(parsed.signed_by("example.org/other", &public), Err(BadNote::Unsigned));
        assert_eq!(parsed.cosigned_by("witness", &public), Ok(99));
        assert_eq!(parsed.cosigned_by("example.org/log", &public), Err(BadNote::Unsigned));
        let other = note.replace("\n7\n", "\n8\n");
        assert_eq!(Note::parse(&other).unwrap().signed_by("example.org/log", &public), Err(BadNote::Signature));
        assert_eq!(Note::parse(&other).unwrap().cosigned_by("witness", &public), Err(BadNote::Signature));
    }

    #[test]
    fn other_forms_are_refused() {
        for bad in
            ["", "text\n", "text\n\n", "text\n\n— name\n", "text\n\n- name AAAAAAAA\n", "text\n\n— name AAAAAAAA", "t\r\n\n— n AAAAAAAA\n"]
        {
            assert!(Note::parse(bad).is_err(), "{bad:?}");
        }
        let good = checkpoint().to_text();
        for bad in
            [good.replace('7', "07"), good.replace('7', "+7"), good.replace("more", ""), good.replace("org", "o g"), good.replace('=', "")]
        {
            assert_eq!(Checkpoint::parse(&bad), Err(BadNote::Text), "{bad:?}");
        }
    }
}
