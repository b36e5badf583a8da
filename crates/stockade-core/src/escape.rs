//! Text from untrusted places, made safe to show.
//!
//! Control, bidirectional, zero-width and other invisible characters become visible escapes, so that a file name or an
//! argument cannot repaint a terminal or hide what a person is about to approve.

use std::fmt::Write as _;

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

/// As [`escape_bytes`], for what a person is asked to approve: nothing can look like something else. A backslash is doubled, so that no text
/// can pretend to be an escape; blanks that are no plain space are named; and more than [`MOST_BLANKS`] spaces in a row are counted, so that
/// nothing is pushed out of sight. Still one line: a line break is `\n`.
pub fn reveal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid().chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                ' ' => {
                    let mut count = 1_usize;
                    while rest.next_if_eq(&' ').is_some() {
                        count += 1;
                    }
                    if count <= MOST_BLANKS {
                        out.extend(std::iter::repeat_n(' ', count));
                    } else {
                        // Writing to a string cannot fail.
                        let _ = write!(out, "\\u{{20}}*{count} ");
                    }
                }
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                // Letters that are drawn on top of others, and blanks of any width but the usual.
                c if is_misleading(c) || c.is_whitespace() || matches!(c, '\u{300}'..='\u{36f}' | '\u{2800}') => {
                    out.extend(c.escape_unicode());
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.extend(['\\', 'x', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
    out
}

/// Spaces in a row that [`reveal`] leaves as they are.
pub const MOST_BLANKS: usize = 8;

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

    #[test]
    fn what_is_approved_cannot_look_like_something_else() {
        let check = |text: &str, expected: &str| assert_eq!(reveal(text.as_bytes()), expected);
        check("git push  origin ä 漢", "git push  origin ä 漢");
        check("a\\u{202e}b", "a\\\\u{202e}b");
        check("a\u{202e}b\u{200b}c\u{1b}[2J\r\n\t", "a\\u{202e}b\\u{200b}c\\u{1b}[2J\\r\\n\\t");
        check(&format!("ls{}; rm", " ".repeat(20_000)), "ls\\u{20}*20000 ; rm");
        check("a\u{a0}b\u{3000}c\u{2800}d\u{301}", "a\\u{a0}b\\u{3000}c\\u{2800}d\\u{301}");
        assert_eq!(reveal(b"ok\xff"), "ok\\xff");
    }

    /// Whatever comes in, what comes out is one line of characters that have a shape, and no two texts look alike.
    #[test]
    fn every_character_is_shown() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let shown = reveal(c.to_string().as_bytes());
            assert!(shown.chars().all(|c| c == ' ' || !(c.is_control() || c.is_whitespace() || is_misleading(c))), "{c:?}: {shown:?}");
            assert!(shown == c.to_string() || shown.starts_with('\\'), "{c:?}: {shown:?}");
        }
    }
}
