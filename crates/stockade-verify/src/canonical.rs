//! Canonical JSON (RFC 8785): one text for one value.
//!
//! Names are sorted by UTF-16 code units, strings escape only what they must, numbers are written as ECMAScript writes them. Whole numbers beyond
//! 2^53 − 1 have no exact meaning there and are refused; nothing here rounds them silently. Receipts hold no fractions.

use serde_json::{Map, Number, Value};

/// The largest whole number that every JSON reader understands alike.
const MAX_WHOLE: u64 = (1 << 53) - 1;

/// A value that has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// Beyond what a double holds exactly.
    #[error("a whole number beyond 9007199254740991")]
    BigNumber,
    /// Not a number at all.
    #[error("a number that is not finite")]
    NotFinite,
}

/// The canonical text of a value.
pub fn canonical(value: &Value) -> Result<String, NotCanonical> {
    let mut out = String::with_capacity(1024);
    write_value(&mut out, value)?;
    Ok(out)
}

/// The canonical text of an object without one of its members, which is how a signature is left out of what it signs.
pub fn canonical_without(object: &Map<String, Value>, left_out: &str) -> Result<String, NotCanonical> {
    let mut out = String::with_capacity(1024);
    write_object(&mut out, object.iter().filter(|(name, _)| *name != left_out))?;
    Ok(out)
}

/// Writes a string as canonical JSON.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    // Nearly all text has nothing to escape; what must be is one byte long, so the text can be cut beside it.
    let mut rest = text;
    while let Some(place) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        let (plain, marked) = rest.split_at_checked(place).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut characters = marked.chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\t') => out.push_str("\\t"),
            Some('\n') => out.push_str("\\n"),
            Some('\u{c}') => out.push_str("\\f"),
            Some('\r') => out.push_str("\\r"),
            Some(control) => {
                out.push_str("\\u00");
                out.push_str(&crate::text::to_hex(&[control as u8]));
            }
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Writes a value as canonical JSON.
pub fn write_value(out: &mut String, value: &Value) -> Result<(), NotCanonical> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number)?,
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item)?;
            }
            out.push(']');
        }
        // As a rule they lie in order already.
        Value::Object(object) if is_in_order(object) => write_members(out, object.iter())?,
        Value::Object(object) => write_object(out, object.iter())?,
    }
    Ok(())
}

/// Whether names are in canonical order as they are.
fn is_in_order(object: &Map<String, Value>) -> bool {
    object.keys().all(|name| name.is_ascii()) && object.keys().is_sorted()
}

fn write_object<'a>(out: &mut String, members: impl Iterator<Item = (&'a String, &'a Value)>) -> Result<(), NotCanonical> {
    let mut members: Vec<(&String, &Value)> = members.collect();
    members.sort_by(|(one, _), (other, _)| in_utf16_order(one, other));
    write_members(out, members.into_iter())
}

fn write_members<'a>(out: &mut String, members: impl Iterator<Item = (&'a String, &'a Value)>) -> Result<(), NotCanonical> {
    out.push('{');
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_value(out, value)?;
    }
    out.push('}');
    Ok(())
}

/// Bytes compare as code units do, but for characters beyond the basic plane, which are surrogates there.
fn in_utf16_order(one: &str, other: &str) -> std::cmp::Ordering {
    if one.is_ascii() && other.is_ascii() { one.cmp(other) } else { one.encode_utf16().cmp(other.encode_utf16()) }
}

fn write_number(out: &mut String, number: &Number) -> Result<(), NotCanonical> {
    if let Some(whole) = number.as_u64() {
        if whole > MAX_WHOLE {
            return Err(NotCanonical::BigNumber);
        }
        out.push_str(&whole.to_string());
    } else if let Some(whole) = number.as_i64() {
        if whole.unsigned_abs() > MAX_WHOLE {
            return Err(NotCanonical::BigNumber);
        }
        out.push_str(&whole.to_string());
    } else {
        let double = number.as_f64().filter(|double| double.is_finite()).ok_or(NotCanonical::NotFinite)?;
        write_double(out, double);
    }
    Ok(())
}

/// A finite double as ECMAScript's `Number::toString` writes it.
fn write_double(out: &mut String, double: f64) {
    if double == 0.0 {
        out.push('0'); // the sign of zero is not written
        return;
    }
    // Rust's exponent form has the shortest digits that read back as the same double: `d.ddde±x`. Where two such texts are equally near, the
    // even one is meant, which is how Rust rounds to a given number of digits.
    let shortest = format!("{:e}", double.abs());
    let count = shortest.split_once('e').map_or(0, |(mantissa, _)| mantissa.bytes().filter(u8::is_ascii_digit).count());
    let nearest = format!("{:.*e}", count.saturating_sub(1), double.abs());
    let is_same = nearest.parse::<f64>().is_ok_and(|read| read.to_bits() == double.abs().to_bits());
    let shortest = if is_same { nearest } else { shortest };
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    // The value is 0.DIGITS times ten to the power of `point`.
    let point = exponent.parse::<i64>().unwrap_or(0) + 1;
    if double < 0.0 {
        out.push('-');
    }
    let zeros = |many: i64| "0".repeat(usize::try_from(many).unwrap_or(0));
    if count <= point && point <= 21 {
        out.push_str(&digits);
        out.push_str(&zeros(point - count));
    } else if 0 < point && point <= 21 {
        let (before, after) = digits.split_at_checked(usize::try_from(point).unwrap_or(0)).unwrap_or((&digits, ""));
        out.extend([before, ".", after]);
    } else if -6 < point && point <= 0 {
        out.push_str("0.");
        out.push_str(&zeros(-point));
        out.push_str(&digits);
    } else {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        out.push_str(if point > 0 { "e+" } else { "e-" });
        out.push_str(&(point - 1).abs().to_string());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> String {
        canonical(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn names_are_sorted_by_code_units() {
        // The example of RFC 8785, section 3.2.3.
        let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let sorted = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
        assert_eq!(of(text), sorted);
    }

    #[test]
    fn strings_escape_only_what_they_must() {
        // The example of RFC 8785, section 3.2.2. Its numbers are given as doubles: our reader of JSON rounds some fractions its own way, which is
        // one more reason why receipts hold none.
        let numbers =
            ["333333333.33333329", "1E30", "4.50", "2e-3", "0.000000000000000000000000001"].map(|text| text.parse::<f64>().unwrap());
        let value = serde_json::json!({
            "numbers": numbers,
            "string": "\u{20ac}$\u{f}\u{a}A'\u{42}\u{22}\u{5c}\\\"/",
            "literals": [null, true, false],
        });
        let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical(&value).unwrap(), expected);
        assert_eq!(of("\"\u{7f}\u{2028}\""), "\"\u{7f}\u{2028}\"");
    }

    #[test]
    fn doubles_are_written_as_ecmascript_does() {
        // RFC 8785, appendix B: bits and text.
        let cases: &[(u64, &str)] = &[
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ];
        for (bits, text) in cases {
            let mut out = String::new();
            write_double(&mut out, f64::from_bits(*bits));
            assert_eq!(out, *text, "{bits:016x}");
        }
    }

    #[test]
    fn whole_numbers_beyond_a_double_are_refused() {
        assert_eq!(of("[9007199254740991,-9007199254740991,1.0,-0]"), "[9007199254740991,-9007199254740991,1,0]");
        for text in ["9007199254740992", "-9007199254740992", "18446744073709551615"] {
            assert_eq!(canonical(&serde_json::from_str(text).unwrap()), Err(NotCanonical::BigNumber), "{text}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
            ".{0,12}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((".{0,6}", inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_means_the_same_and_is_its_own_canonical_form(value in any_value()) {
            let text = canonical(&value).unwrap();
            let back: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&back, &value);
            prop_assert_eq!(canonical(&back).unwrap(), text);
        }

        #[test]
        fn doubles_read_back_as_themselves(bits in any::<u64>()) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite());
            let mut out = String::new();
            write_double(&mut out, double);
            // Zero has one spelling, whatever its sign.
            let same = if double == 0.0 { 0 } else { double.to_bits() };
            prop_assert_eq!(out.parse::<f64>().unwrap().to_bits(), same);
        }

        #[test]
        fn names_are_in_the_order_of_their_code_units(names in prop::collection::hash_set(".{0,4}", 0..8)) {
            let object: Map<String, Value> = names.into_iter().map(|name| (name, Value::Null)).collect();
            let mut expected: Vec<&String> = object.keys().collect();
            expected.sort_by_key(|name| name.encode_utf16().collect::<Vec<u16>>());
            let mut text = String::from("{");
            for (index, name) in expected.iter().enumerate() {
                if index > 0 { text.push(','); }
                write_string(&mut text, name);
                text.push_str(":null");
            }
            text.push('}');
            prop_assert_eq!(canonical(&Value::Object(object)).unwrap(), text);
        }
    }
}
