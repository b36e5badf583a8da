//! What REST reads of a request by hand: its path and its query.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use stockade_http::target::{BadQuery, MOST_VALUES, parts, query};

use crate::input::Input;

/// As the table of paths has them.
const TEMPLATES: [&str; 5] =
    ["/v1/health", "/v1/receipts/{id}", "/v1/sandboxes/{id}/files", "/v1/sandboxes/{id}/files/list", "/v1/a/{one}/b/{two}"];

/// The first byte says whether the rest is a query or a path.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.byte();
    let text = String::from_utf8_lossy(input.0);
    if kind % 2 == 0 { of_query(&text) } else { of_path(&text) }
}

fn of_query(text: &str) {
    let written = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let count = text.split('&').filter(|pair| !pair.is_empty()).count();
    match query(text) {
        Ok(values) => {
            assert!(values.len() == count && count <= MOST_VALUES, "{text:?}");
            // A value never comes to be another name.
            let again: Vec<String> = values.iter().map(|(name, value)| format!("{}={}", written(name), written(value))).collect();
            if values.keys().all(|name| !name.is_empty()) {
                assert_eq!(query(&again.join("&")).as_ref(), Ok(&values), "{text:?}");
            }
        }
        Err(BadQuery::TooMany) => assert!(count > MOST_VALUES, "{text:?}"),
        Err(BadQuery::NotText) => assert!(text.contains('%'), "{text:?}"),
        Err(BadQuery::Twice(name)) => {
            let named = |pair: &&str| query(pair).is_ok_and(|one| one.contains_key(&name));
            assert!(text.split('&').filter(named).count() >= 2, "{text:?}");
        }
    }
}

fn of_path(path: &str) {
    for template in TEMPLATES {
        let Some(found) = parts(template, path) else { continue };
        let places = template.matches('{').count();
        assert!(found.len() == places && found.iter().all(|part| !part.is_empty()), "{path:?}");
        assert_eq!(template.split('/').count(), path.split('/').count(), "{path:?}");
        let mut rest = found.iter();
        let again: Vec<String> = template
            .split('/')
            .map(|word| {
                if word.starts_with('{') {
                    utf8_percent_encode(rest.next().expect("a part"), NON_ALPHANUMERIC).to_string()
                } else {
                    word.to_owned()
                }
            })
            .collect();
        assert_eq!(parts(template, &again.join("/")).as_ref(), Some(&found), "{path:?}");
        let letters = |(wanted, given): &(&str, &str)| wanted.starts_with('{') || wanted == given;
        assert!(template.split('/').zip(path.split('/')).collect::<Vec<_>>().iter().all(letters), "{path:?}");
    }
}

/// Queries and paths of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let queries = ["", "all=true", "path=%2Fa+b%26c&x", "a=1&%61=2", "a=%ff", "since=2h&kind=denied&limit=5&before=9", "=&=", "a=b=c&&"];
    let paths = [
        "/v1/health",
        "/v1/receipts/x%2fy",
        "/v1/sandboxes/a/files",
        "/v1/sandboxes/%2e%2e/files/list",
        "/v1/a/%00/b/%",
        "//v1",
        "/v1/receipts/",
    ];
    let seed = |kind: u8, text: &&str| [&[kind], text.as_bytes()].concat();
    queries.iter().map(|text| seed(0, text)).chain(paths.iter().map(|text| seed(1, text))).collect()
}
