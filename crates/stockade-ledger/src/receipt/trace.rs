//! The trace that a caller's call belongs to, as W3C's Trace Context says it.
//!
//! A call is one span. Its own id is taken from its receipt's id, so that nothing has to be remembered to find it again.

use serde::{Deserialize, Serialize};

use super::ReceiptId;

/// Bytes of a `traceparent` of the version that is known.
const LENGTH: usize = 55;

/// What a caller said it is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The trace: 32 hexadecimal digits.
    pub trace_id: String,
    /// The caller's span: 16 hexadecimal digits.
    pub parent_id: String,
}

impl Trace {
    /// From the value of `traceparent`; nothing where it is not one, as its specification wants it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id, parent_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // Later versions may say more after these parts; this one may not.
        let fits = if version == "00" { text.len() == LENGTH } else { version != "ff" && text.len() >= LENGTH };
        let are_ids = is_hex(version, 2) && is_hex(flags, 2) && is_id(trace_id, 32) && is_id(parent_id, 16);
        (fits && are_ids).then(|| Self { trace_id: trace_id.to_owned(), parent_id: parent_id.to_owned() })
    }
}

/// The id of a call's own span: 16 hexadecimal digits.
pub fn span_of(receipt: &ReceiptId) -> String {
    // The last eight bytes of the id: all but two of their bits are random.
    receipt.to_string().chars().filter(|c| *c != '-').skip(16).collect()
}

/// The id of a trace of its own, for a call whose caller named none.
pub fn trace_of(receipt: &ReceiptId) -> String {
    receipt.to_string().chars().filter(|c| *c != '-').collect()
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// All zeros is no id.
fn is_id(text: &str, length: usize) -> bool {
    is_hex(text, length) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_traceparent_is_read_strictly() {
        let expected = Some(Trace { trace_id: TRACE.to_owned(), parent_id: SPAN.to_owned() });
        assert_eq!(Trace::parse(&format!("00-{TRACE}-{SPAN}-01")), expected);
        assert_eq!(Trace::parse(&format!("cc-{TRACE}-{SPAN}-00-what-comes-later")), expected);
        for bad in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}\n-{SPAN}-01"),
            format!("00-{SPAN}-{TRACE}-01"),
            format!("é0-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(Trace::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_call_has_a_span_of_its_own() {
        let id: ReceiptId = "01900000-0000-7abc-8123-456789abcdef".parse().unwrap();
        assert_eq!((span_of(&id).as_str(), trace_of(&id).as_str()), ("8123456789abcdef", "0190000000007abc8123456789abcdef"));
    }
}
