//! What a request names by its path and its query, read strictly: nothing twice, nothing that is not text, nothing that is almost it.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// Values of a query.
pub const MOST_VALUES: usize = 32;

/// Why a query says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    /// Bytes that are no text.
    #[error("the query is not UTF-8")]
    NotText,
    /// One name with two values; who shows it escapes it.
    #[error("a name is there twice")]
    Twice(String),
    /// More than anybody asks for.
    #[error("the query has more than {MOST_VALUES} values")]
    TooMany,
}

/// The values of a query, by name. One without `=` is empty.
pub fn query(text: &str) -> Result<BTreeMap<String, String>, BadQuery> {
    let mut values = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = decoded(name).zip(decoded(value)).ok_or(BadQuery::NotText)?;
        if values.contains_key(&name) {
            return Err(BadQuery::Twice(name));
        }
        values.insert(name, value);
        if values.len() > MOST_VALUES {
            return Err(BadQuery::TooMany);
        }
    }
    Ok(values)
}

/// What stands in the named places (`{name}`) of a path, where it fits a template; never nothing.
pub fn parts(template: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    let mut parts = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(parts),
            (Some(wanted), Some(given)) if wanted.starts_with('{') => {
                let text = percent_decode_str(given).decode_utf8().ok()?;
                parts.push(Some(text.into_owned()).filter(|text| !text.is_empty())?);
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

/// Text of a query as it was meant.
fn decoded(text: &str) -> Option<String> {
    percent_decode_str(&text.replace('+', " ")).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let pairs = |pairs: &[(&str, &str)]| Ok(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect());
        assert_eq!(query(""), pairs(&[]));
        assert_eq!(query("path=%2Fa+b%26c&x"), pairs(&[("path", "/a b&c"), ("x", "")]));
        assert_eq!(query("a=1&%61=2"), Err(BadQuery::Twice("a".to_owned())));
        assert_eq!(query("a=%ff"), Err(BadQuery::NotText));
        let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        assert_eq!(query(&many.join("&")), Err(BadQuery::TooMany));
    }

    #[test]
    fn a_path_fits_to_the_letter() {
        let text = |parts: &[&str]| Some(parts.iter().map(|part| (*part).to_owned()).collect());
        assert_eq!(parts("/v1/a/{id}/b", "/v1/a/x%2Fy/b"), text(&["x/y"]));
        assert_eq!(parts("/v1/a", "/v1/a"), text(&[]));
        for path in ["/v1/a//b", "/v1/a/x/b/", "/v1/a/%ff/b", "/v1/A/x/b", "/v1/a/x", "v1/a/x/b", "/v1/%61/x/b", ""] {
            assert_eq!(parts("/v1/a/{id}/b", path), None, "{path}");
        }
    }
}
