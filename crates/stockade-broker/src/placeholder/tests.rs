//! Placeholders of real-looking tokens, and what must hold for any value.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use stockade_core::secret::MAX_VALUE;

use super::*;

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

fn drawn(text: &str) -> String {
    draw(&[&value(text)]).unwrap().remove(0).0
}

/// Whether a text shows nothing of a real value but its public prefix, each run compared with each.
fn is_apart(text: &[u8], real: &[u8]) -> bool {
    let private = real.get(prefixes::public_prefix(real).len()..).unwrap_or_default();
    !private.windows(RUN.min(private.len().max(1))).any(|run| text.windows(run.len()).any(|window| window == run))
}

/// Drawn many times: the same length, unlike the value, unlike each other, and as `good` says.
fn check(real: &str, good: impl Fn(&str) -> bool) {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 {
        let text = drawn(real);
        assert_eq!(text.len(), real.len(), "{text}");
        assert!(good(&text), "{real} became {text}");
        assert!(is_apart(text.as_bytes(), real.as_bytes()), "{real} is in {text}");
        assert!(seen.insert(text), "the same twice");
    }
}

fn is(text: &str, set: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| set.contains(c))
}

#[test]
fn tokens_keep_their_prefix_and_characters() {
    let rest = |text: &str, prefix: &str| text.strip_prefix(prefix).unwrap_or_default().to_owned();
    for prefix in ["ghp_", "gho_", "npm_", "hf_", "sk-", "sk-ant-api03-", "sk-proj-", "glpat-", "xai-"] {
        check(&format!("{prefix}aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"), |text| is(&rest(text, prefix), alphabet::ALPHANUMERIC));
    }
    check("AKIAIOSFODNN7EXAMPLE", |text| is(&rest(text, "AKIA"), alphabet::BASE_32));
    check("0123456789abcdef0123456789abcdef", |text| is(text, alphabet::HEX_LOWER));
    check("0123456789ABCDEF0123456789ABCDEF", |text| is(text, alphabet::HEX_UPPER));
    check("1234567890123456", |text| is(text, alphabet::DIGITS));
    check("correcthorsebatterystaple", |text| is(text, alphabet::LOWER));
}

#[test]
fn what_is_no_token_becomes_letters_and_digits() {
    check("-----BEGIN OPENSSH PRIVATE KEY-----b3BlbnNzaC1rZXktdjEAAAAA-----END OPENSSH PRIVATE KEY-----", |text| {
        is(text, alphabet::ALPHANUMERIC)
    });
    check("correct horse battery staple", |text| is(text, alphabet::ALPHANUMERIC));
}

#[test]
fn separators_stay_in_their_places() {
    check("xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx", |text| {
        let parts: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        lengths == [4, 12, 13, 24] && parts[0] == "xoxb" && is(parts[1], alphabet::DIGITS) && is(parts[3], alphabet::LETTERS)
    });
    check("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456", |text| {
        text.starts_with("github_pat_") && text.as_bytes()[33] == b'_'
    });
    check("f47ac10b-58cc-4372-a567-0e02b2c3d479", |text| {
        let at = |index: usize| char::from(text.as_bytes()[index]);
        text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && at(14) == '4' && "89ab".contains(at(19))
    });
    for bytes in [&b"\xfb\xef\xbe0123456789abcdefgh"[..], b"\xfb\xef\xbe0123456789abcdefg", b"0123456789abcdefgh\xff\xff"] {
        check(&STANDARD.encode(bytes), |text| STANDARD.decode(text).is_ok());
    }
}

#[test]
fn tokens_of_three_parts_decode() {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    for (header, claims, signature) in [
        (r#"{"alg":"HS256","typ":"JWT"}"#, r#"{"sub":"1234567890","name":"John Doe","iat":1516239022}"#, 32),
        (r#"{"typ":"JWT","alg":"HS256"}"#, r#"{"iss":"https://a.example","exp":1}"#, 32),
        (r#"{"alg":"RS256","kid":"0123456789abcdef","typ":"JWT"}"#, r#"{"jti":"xxxxxxxxxxxxxx"}"#, 256),
        (r#"{"alg":"none"}"#, r#"{"sub":"someone or other"}"#, 1),
    ] {
        let real = format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode(vec![0xa5; signature]));
        check(&real, |text| {
            let parts: Vec<Vec<u8>> = text.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap()).collect();
            let json = |part: &[u8]| serde_json::from_slice::<serde_json::Value>(part).is_ok_and(|value| value.is_object());
            let long = header.len() > 14;
            text.starts_with("eyJ")
                && parts.len() == 3
                && json(&parts[0])
                && json(&parts[1])
                && (!long || String::from_utf8_lossy(&parts[0]).contains(r#""alg":"HS256""#))
        });
    }
    // Three parts that are no such token.
    check("www.example-host.com/path", |text| text.matches('.').count() == 2);
}

#[test]
fn values_with_little_to_draw_from_lose_their_shape_rather_than_show() {
    for odd in ["----------------", "a-----------------", "................abc", "!@#$%^&*()_+{}|:", "a b c d e f g h i j"] {
        check(odd, str::is_ascii);
    }
}

#[test]
fn placeholders_of_one_sandbox_are_apart_from_each_other_and_from_every_value() {
    let values =
        ["ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6", "ghp_zzzzE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6", "aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa"]
            .map(value);
    let values: Vec<&SecretValue> = values.iter().collect();
    for _ in 0..50 {
        let drawn = draw(&values).unwrap();
        for (index, one) in drawn.iter().enumerate() {
            assert!(values.iter().all(|value| is_apart(one.as_str().as_bytes(), value.expose())), "{one}");
            assert!(drawn.iter().skip(index + 1).all(|two| !one.as_str().contains(two.as_str()) && !two.as_str().contains(one.as_str())));
        }
    }
}

/// Any printable value at all, of many lengths and mixtures.
#[test]
fn whatever_the_value_nothing_of_it_shows() {
    let mut random = Random::new();
    let sets = [alphabet::ALPHANUMERIC, alphabet::HEX_LOWER, "ab", "-_.", "a-", "eyJ.", "0=", "~!@#$%^&*()_+ abc"];
    for round in 0..3000 {
        let set = sets[round % sets.len()];
        let length = 16 + random.below(64).unwrap();
        let mut text: String = (0..length).map(|_| random.of(set).unwrap()).collect();
        text.replace_range(..1, "x");
        text.replace_range(length - 1.., "y");
        if round % 3 == 0 {
            text.insert_str(0, ["ghp_", "sk-ant-", "eyJ", "AKIA"][round % 4]);
        }
        let placeholder = drawn(&text);
        assert_eq!(placeholder.len(), text.len());
        assert!(placeholder != text && is_apart(placeholder.as_bytes(), text.as_bytes()), "{text} became {placeholder}");
        assert!(SecretValue::new(placeholder.clone().into_bytes()).is_ok(), "{placeholder:?} could not stand in a header");
    }
}

/// As long as values may be. Digits alone meet by chance, so that their shape is given up; comparing each run with each would take hours.
#[test]
fn the_longest_values_have_placeholders_soon() {
    let mut random = Random::new();
    let digits: String = (0..MAX_VALUE).map(|_| random.of("0123456789").unwrap()).collect();
    let values = [digits, "a-".repeat(MAX_VALUE / 2), "x".repeat(MAX_VALUE), "token-of-usual-length".to_owned()].map(|text| value(&text));
    let values: Vec<&SecretValue> = values.iter().collect();
    let drawn = draw(&values).unwrap();
    for (one, real) in drawn.iter().zip(&values) {
        assert_eq!(one.as_str().len(), real.expose().len());
        assert!(values.iter().all(|value| !Runs::of(value.expose()).show_in(one.as_str().as_bytes())));
    }
    assert!(is_apart(drawn[0].as_str().as_bytes(), values[3].expose()));
}
