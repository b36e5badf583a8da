//! Just enough XML to read what AWS's older services answer: elements and text. Everything that is not needed for that (documents' own types and
//! entities, elements that are not closed, text between elements) is refused, not guessed. Pure.

use zeroize::Zeroizing;

/// Elements in elements.
const MAX_DEPTH: usize = 16;
/// Elements in all.
const MAX_ELEMENTS: usize = 1000;

/// The texts of a document, each with the names of the elements around it: `A/B/C`.
pub(crate) struct Texts(Vec<(String, Zeroizing<String>)>);

impl Texts {
    /// Reads a whole document.
    pub(crate) fn read(document: &str) -> Option<Self> {
        let mut texts = Vec::new();
        let mut open: Vec<&str> = Vec::new();
        let mut text = Zeroizing::new(String::with_capacity(document.len()));
        // Whether the element that is open has nothing but text in it so far.
        let mut leaf = false;
        let mut seen = 0;
        let mut rest = document.trim_start_matches('\u{feff}').trim();
        if let Some(declared) = rest.strip_prefix("<?xml") {
            rest = declared.split_once("?>")?.1.trim_start();
        }
        while !rest.is_empty() {
            if let Some(comment) = rest.strip_prefix("<!--") {
                rest = comment.split_once("-->")?.1;
            } else if let Some(raw) = rest.strip_prefix("<![CDATA[") {
                let (inner, after) = raw.split_once("]]>")?;
                text.push_str(inner);
                rest = after;
            } else if let Some(closing) = rest.strip_prefix("</") {
                let (name, after) = closing.split_once('>')?;
                let path = open.join("/");
                if open.pop()? != name.trim_end() {
                    return None;
                }
                if leaf {
                    texts.push((path, Zeroizing::new(text.as_str().to_owned())));
                } else if !text.trim().is_empty() {
                    return None;
                }
                (leaf, rest) = (false, after);
                text.clear();
            } else if let Some(opening) = rest.strip_prefix('<') {
                let (tag, after) = tag(opening)?;
                let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
                let name = tag.split(char::is_whitespace).next()?;
                seen += 1;
                let starts = name.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
                let first = !open.is_empty() || seen == 1;
                if !starts || !first || !text.trim().is_empty() || open.len() == MAX_DEPTH || seen > MAX_ELEMENTS {
                    return None;
                }
                text.clear();
                open.push(name);
                if empty {
                    texts.push((open.join("/"), Zeroizing::default()));
                    open.pop();
                }
                (leaf, rest) = (!empty, after);
            } else {
                let (written, after) = rest.split_at_checked(rest.find('<').unwrap_or(rest.len()))?;
                decode(&mut text, written)?;
                rest = after;
                if open.is_empty() && !text.trim().is_empty() {
                    return None;
                }
            }
        }
        (open.is_empty() && seen > 0 && text.trim().is_empty()).then_some(Self(texts))
    }

    /// The text of an element that is there exactly once.
    pub(crate) fn once(&self, path: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(known, _)| known == path);
        let (_, text) = found.next()?;
        found.next().is_none().then_some(text.as_str())
    }
}

/// What is between `<` and `>`, and what is after it; a `>` in an attribute ends nothing.
fn tag(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '>') => return Some((text.get(..at)?, text.get(at + 1..)?)),
            (None, '<') => return None,
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None | Some(_), _) => {}
        }
    }
    None
}

/// Adds text with its entities resolved.
fn decode(out: &mut String, text: &str) -> Option<()> {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let (name, after) = after.split_once(';')?;
        let letter = match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#')?;
                let (digits, radix) = number.strip_prefix('x').map_or((number, 10), |digits| (digits, 16));
                if digits.is_empty() || digits.len() > 6 || !digits.chars().all(|digit| digit.is_digit(radix)) {
                    return None;
                }
                char::from_u32(u32::from_str_radix(digits, radix).ok()?)?
            }
        };
        out.push_str(before);
        out.push(letter);
        rest = after;
    }
    out.push_str(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_where_they_are() {
        let document = "\u{feff}<?xml version=\"1.0\"?>\n<A xmlns='http://x/>'>\n  <!-- <B>no</B> --><B k=\"1>2\">a&amp;b&lt;&#65;&#x42;</B>\n  \
                        <C><B> c </B><D/><E></E><F><![CDATA[<&]]>x</F></C>\n</A >\n";
        let texts = Texts::read(document).unwrap();
        let at = |path: &str| texts.once(path);
        assert_eq!((at("A/B"), at("A/C/B"), at("A/C/D"), at("A/C/E")), (Some("a&b<AB"), Some(" c "), Some(""), Some("")));
        assert_eq!((at("A/C/F"), at("A"), at("B"), at("A/C")), (Some("<&x"), None, None, None));
        assert_eq!(Texts::read("<A><B>1</B><B>2</B></A>").unwrap().once("A/B"), None, "twice is as good as not at all");
    }

    #[test]
    fn what_is_not_needed_is_refused() {
        let deep = "<a>".repeat(17) + &"</a>".repeat(17);
        let many = format!("<a>{}</a>", "<b/>".repeat(1000));
        for bad in [
            "",
            "text",
            "<A>",
            "<A></B>",
            "</A>",
            "<A><B></A></B>",
            "<A/><B/>",
            "<A/>text",
            "<A/><![CDATA[text]]>",
            "<A>text<B/></A>",
            "<A><B/>text</A>",
            "<A>&x;</A>",
            "<A>&#xD800;</A>",
            "<A>&#+65;</A>",
            "<A>&amp</A>",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><A>&x;</A>",
            "<A><?php ?></A>",
            "< A></ A>",
            "<A b=\"></A>",
            "{\"a\": 1}",
            &deep,
            &many,
        ] {
            assert!(Texts::read(bad).is_none(), "{bad}");
        }
    }
}
