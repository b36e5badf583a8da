//! Text from untrusted places, made safe to show.
//!
//! Control, bidirectional, zero-width and other invisible characters become visible escapes, so that a file name or an
//! argument cannot repaint a terminal or hide what a person is about to approve.

/// Returns `text` with every character that could mislead a reader written as `\u{…}` (or `\n`, `\t`, `\x..`).
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_misleading(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// As [`escape`], for bytes: what is not UTF-8 becomes `\x..`.
pub fn escape_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&escape(chunk.valid()));
        for byte in chunk.invalid() {
            out.extend(['\\', 'x', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
    out
}

fn hex_digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('?')
}

fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misleading_characters_are_shown() {
        assert_eq!(escape("plain ä 漢"), "plain ä 漢");
        assert_eq!(escape("a\u{202e}b\u{200b}c\u{1b}[2J\n"), "a\\u{202e}b\\u{200b}c\\u{1b}[2J\\n");
        assert_eq!(escape_bytes(b"ok\xff\x07"), "ok\\xff\\u{7}");
        // Format characters of shorthand and of musical notation, which no font draws.
        assert_eq!(escape("\u{1bca0}\u{1d173}"), "\\u{1bca0}\\u{1d173}");
    }
}
