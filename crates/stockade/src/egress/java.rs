//! Authorities as Java reads them: a key store in its old format (`JKS`), which every version opens.
//!
//! ```text
//! magic, version, count { kind, alias, time, "X.509", length, certificate }… SHA-1(password, "Mighty Aphrodite", all of it)
//! ```
//!
//! Java trusts nothing but this file: no variable names another without a line on every program's stderr. The checksum is no protection, and
//! is there because some programs open the file with the password that everybody uses.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// An entry that is a trusted certificate.
const TRUSTED: u32 = 2;
/// The kind of a certificate.
const KIND: &[u8] = b"X.509";
/// The password of the file that comes with Java.
const PASSWORD: &str = "changeit";
const SALT: &[u8] = b"Mighty Aphrodite";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates of a PEM file as a key store. What is no certificate is left out, as everybody else who reads the file does.
pub(crate) fn store(pem: &str) -> Vec<u8> {
    let certificates: Vec<Vec<u8>> = certificates(pem).collect();
    let mut bytes = Vec::with_capacity(pem.len());
    for word in [MAGIC, VERSION, certificates.len() as u32] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for (number, certificate) in certificates.iter().enumerate() {
        bytes.extend_from_slice(&TRUSTED.to_be_bytes());
        short(&mut bytes, format!("authority-{number}").as_bytes());
        // When it was added, which nobody asks.
        bytes.extend_from_slice(&0_u64.to_be_bytes());
        short(&mut bytes, KIND);
        bytes.extend_from_slice(&(certificate.len() as u32).to_be_bytes());
        bytes.extend_from_slice(certificate);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        digest.update(&unit.to_be_bytes());
    }
    digest.update(SALT);
    digest.update(&bytes);
    bytes.extend_from_slice(digest.finish().as_ref());
    bytes
}

/// Text after its length; ours is short.
fn short(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text);
}

fn certificates(pem: &str) -> impl Iterator<Item = Vec<u8>> + '_ {
    let blocks = pem.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    blocks.filter_map(|(block, _)| STANDARD.decode(block.split_whitespace().collect::<String>()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_holds_every_certificate_and_a_checksum() {
        let pem = format!("# one\n{BEGIN}\nQUJD\n{END}\n{BEGIN}\nnot base64!\n{END}\n{BEGIN}\nREVG\nR0g=\n{END}\n");
        let bytes = store(&pem);
        let head = [MAGIC.to_be_bytes(), VERSION.to_be_bytes(), 2_u32.to_be_bytes()].concat();
        assert!(bytes.starts_with(&head));
        let first = [&2_u32.to_be_bytes()[..], b"\0\x0bauthority-0", &[0; 8], b"\0\x05X.509", &3_u32.to_be_bytes(), b"ABC"].concat();
        let second = [&2_u32.to_be_bytes()[..], b"\0\x0bauthority-1", &[0; 8], b"\0\x05X.509", &5_u32.to_be_bytes(), b"DEFGH"].concat();
        assert_eq!(&bytes[head.len()..bytes.len() - 20], [first, second].concat());
    }
}
