//! What a client carries between two messages without reading it: which request it is to answer. Sealed, for one principal, one call and one use.
//!
//! A server that keeps nothing between messages gives it away and gets it back. Whoever alters it, copies it, keeps it or hands it to another gains
//! nothing: it opens only with the store's key, for the principal it was made for, for a while, and once; what was opened is remembered on disk.
//! Opening it approves nothing: it names a request, and [`Store::settle`] uses that up for the very call that it was filed for.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::binding::hex;
use super::error::ApprovalError;
use super::request::{RequestId, State};
use super::store::{SLACK, Store, pass_time};

/// What the key is for, and the form of what is sealed.
const FORM: &[u8] = b"stockade request state 1";
/// Seconds that it lasts: as long as somebody may read a question.
pub(super) const LASTS: i64 = 600;
/// Seconds for which an opened one is remembered after it ended, whatever clocks do meanwhile.
const REMEMBERED: i64 = 86_400;
/// Longer than any that was sealed.
const MOST: usize = 2048;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Carried {
    id: String,
    digest: String,
    expires: i64,
    nonce: String,
}

impl Store {
    /// Seals a request that waits, for its principal to carry.
    pub fn seal(&mut self, id: &RequestId, now: i64) -> Result<String, ApprovalError> {
        let request = self.request(id, now)?;
        if request.state != State::Pending {
            return Err(ApprovalError::Decided { id: request.id, state: request.state });
        }
        let mut nonce = [0; 16];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| ApprovalError::NoRandom)?;
        let carried = Carried { id: request.id, digest: request.digest, expires: now + LASTS, nonce: hex(&nonce) };
        let mut sealed = serde_json::to_vec(&carried).unwrap_or_default();
        let once = self.cipher()?.seal_in_place_append_tag(associated(&request.principal), &mut sealed);
        let once = once.map_err(|_| ApprovalError::NoRandom)?;
        Ok(URL_SAFE_NO_PAD.encode([once.as_ref().as_slice(), &sealed].concat()))
    }

    /// Opens what a principal brings back, and remembers that: the same does not open again.
    pub fn unseal(&mut self, text: &str, principal: &str, now: i64) -> Result<RequestId, ApprovalError> {
        let foreign = || ApprovalError::Carried("its requestState was not made here for this agent, or was changed");
        if text.len() > MOST {
            return Err(foreign());
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| foreign())?;
        let (once, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(foreign)?;
        let once = Nonce::try_assume_unique_for_key(once).map_err(|_| foreign())?;
        let opened = self.cipher()?.open_in_place(once, associated(principal), sealed).map_err(|_| foreign())?;
        let carried: Carried = serde_json::from_slice(opened).map_err(|_| foreign())?;
        let id = RequestId::parse(&carried.id).ok_or_else(foreign)?;
        // Made later than now: the clock went back, and nobody knows how long it has been.
        if carried.expires <= now || carried.expires > now + LASTS + SLACK {
            return Err(ApprovalError::Carried("its requestState has expired"));
        }
        let is_first = self.within("remember", |transaction| {
            pass_time(transaction, now)?;
            transaction.execute("DELETE FROM carried WHERE expires < ?1", [now - REMEMBERED])?;
            let noted = "INSERT OR IGNORE INTO carried VALUES (?1, ?2)";
            Ok(transaction.execute(noted, params![carried.nonce, carried.expires])? == 1)
        })?;
        if !is_first {
            return Err(ApprovalError::Carried("its requestState was used before"));
        }
        let request = self.request(&id, now)?;
        if request.digest != carried.digest || request.principal != principal {
            return Err(foreign());
        }
        Ok(id)
    }

    /// A key of its own, made of the store's.
    fn cipher(&mut self) -> Result<RandomizedNonceKey, ApprovalError> {
        let key: Vec<u8> = self.within("read", |transaction| transaction.query_row("SELECT key FROM store", [], |row| row.get(0)))?;
        let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), FORM);
        RandomizedNonceKey::new(&AES_256_GCM, own.as_ref()).map_err(|_| ApprovalError::NoRandom)
    }
}

fn associated(principal: &str) -> Aad<Vec<u8>> {
    Aad::from([FORM, b"\n", principal.as_bytes()].concat())
}
