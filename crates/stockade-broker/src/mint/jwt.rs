//! JSON Web Tokens that are signed with an RSA key (RS256), which is what GitHub's and Google's keys are. Made, never read.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::pem;

/// Signs claims with a key in PEM (PKCS#1 or PKCS#8). `id` names the key to who checks. The error says why it cannot be done, not with what.
pub(super) fn rs256(key: &str, id: Option<&str>, claims: &Value) -> Result<Zeroizing<String>, &'static str> {
    let (label, der) = pem::decode(key).ok_or("it is no private key in PEM")?;
    let pair = match label.as_str() {
        "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der),
        "PRIVATE KEY" => RsaKeyPair::from_pkcs8(&der),
        "ENCRYPTED PRIVATE KEY" => return Err("it is encrypted, which a key that is used without a person cannot be"),
        _ => return Err("it is PEM, but no private key of RSA"),
    };
    let pair = pair.map_err(|_| "it is no private key of RSA of 2048 bits or more")?;
    let mut header = json!({"alg": "RS256", "typ": "JWT"});
    if let (Some(id), Some(members)) = (id, header.as_object_mut()) {
        members.insert("kid".to_owned(), id.into());
    }
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let mut token = Zeroizing::new(format!("{}.{}", encode(&header), encode(claims)));
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), token.as_bytes(), &mut signature).map_err(|_| "nothing can be signed with it")?;
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature));
    Ok(token)
}

/// Keys for tests, made when they are needed, and the check that a provider makes.
#[cfg(test)]
pub(super) mod keys {
    use std::sync::LazyLock;

    use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    static KEY: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());

    pub(in super::super) fn pkcs8() -> String {
        let der: Pkcs8V1Der<'_> = KEY.as_der().unwrap();
        pem("PRIVATE KEY", der.as_ref())
    }

    /// PKCS#8 is a head of 26 bytes for a key of this length, and then PKCS#1.
    pub(in super::super) fn pkcs1() -> String {
        let der: Pkcs8V1Der<'_> = KEY.as_der().unwrap();
        pem("RSA PRIVATE KEY", &der.as_ref()[26..])
    }

    pub(super) fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----{}-----END {label}-----", STANDARD.encode(der))
    }

    /// The header and the claims of a token whose signature is right.
    pub(in super::super) fn verified(token: &str) -> (Value, Value) {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, KEY.public_key().as_ref());
        public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let decode = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        (decode(header), decode(claims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_key_sign() {
        let claims = json!({"iss": "a", "exp": 1});
        for key in [keys::pkcs1(), keys::pkcs8()] {
            let token = rs256(&key, None, &claims).unwrap();
            assert_eq!(keys::verified(&token), (json!({"alg": "RS256", "typ": "JWT"}), claims.clone()));
        }
        let token = rs256(&keys::pkcs8(), Some("k1"), &claims).unwrap();
        assert_eq!(keys::verified(&token).0, json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    }

    #[test]
    fn other_keys_are_refused() {
        let other = |label: &str| keys::pkcs1().replace("RSA PRIVATE KEY", label);
        for (key, says) in [
            ("secret-0123456789".to_owned(), "no private key in PEM"),
            (other("CERTIFICATE"), "but no private key of RSA"),
            (other("EC PRIVATE KEY"), "but no private key of RSA"),
            (other("ENCRYPTED PRIVATE KEY"), "encrypted"),
            (other("PRIVATE KEY"), "2048"),
            (keys::pem("RSA PRIVATE KEY", b"no key"), "2048"),
        ] {
            let why = rs256(&key, None, &json!({})).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
