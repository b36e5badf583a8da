//! The setting `agent.prices`: what a million tokens of a model cost, in dollars. Without it nothing is known of money.
//!
//! ```json
//! "agent": { "prices": { "claude-sonnet": { "input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75 } } }
//! ```
//!
//! A name stands for every model whose own name begins with it; the longest that fits counts.

use serde_json::{Map, Value as Json};

use super::nearest::closest;
use super::value::{BadValue, describe, shorten};

/// The most models.
const MAX_MODELS: usize = 256;
/// The longest name of one.
const MAX_NAME: usize = 128;
/// The most that a million tokens may cost.
const MAX_PRICE: f64 = 1_000_000.0;
const FIELDS: [&str; 4] = ["input", "output", "cacheRead", "cacheWrite"];

/// What a million tokens of a model cost, in dollars.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// The beginning of the model's name.
    pub model: String,
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from a cache; left out: as if read anew.
    pub cache_read: f64,
    /// Put into a cache; left out: as if read anew.
    pub cache_write: f64,
}

/// Checks the whole setting.
pub(super) fn from_json(entries: &Map<String, Json>) -> Result<Vec<Price>, BadValue> {
    if entries.len() > MAX_MODELS {
        return Err(problem(format!("it has {} models; {MAX_MODELS} is the most", entries.len())));
    }
    entries.iter().map(|(name, entry)| one(name, entry)).collect()
}

/// The setting as it is written.
pub(super) fn to_json(prices: &[Price]) -> Json {
    let entry = |price: &Price| {
        let fields = FIELDS.into_iter().zip([price.input, price.output, price.cache_read, price.cache_write]);
        Json::Object(fields.map(|(field, value)| (field.to_owned(), value.into())).collect())
    };
    Json::Object(prices.iter().map(|price| (price.model.clone(), entry(price))).collect())
}

fn one(name: &str, entry: &Json) -> Result<Price, BadValue> {
    let shown = shorten(name);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(problem(format!("`{shown}` is no name of a model")));
    }
    let Json::Object(fields) = entry else {
        return Err(problem(format!("`{shown}` is {}; write an object with `input` and `output` in it", describe(entry))));
    };
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        let meant = closest(unknown, &FIELDS).map(|field| format!("; did you mean `{field}`?")).unwrap_or_default();
        return Err(problem(format!("`{shown}` has an unknown field `{}`{meant}", shorten(unknown))));
    }
    let price = |field: &str| match fields.get(field) {
        None => Ok(None),
        Some(Json::Number(number)) if number.as_f64().is_some_and(|price| (0.0..=MAX_PRICE).contains(&price)) => Ok(number.as_f64()),
        Some(other) => Err(problem(format!("`{shown}.{field}` is {}; write the price of a million tokens in dollars", describe(other)))),
    };
    let needed = |field: &str| price(field)?.ok_or_else(|| problem(format!("`{shown}` does not say `{field}`")));
    let (input, output) = (needed("input")?, needed("output")?);
    let cache = |field: &str| Ok(price(field)?.unwrap_or(input));
    Ok(Price { model: name.to_owned(), input, output, cache_read: cache("cacheRead")?, cache_write: cache("cacheWrite")? })
}

fn problem(problem: String) -> BadValue {
    BadValue::Content { problem }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: &Json) -> Result<Vec<Price>, BadValue> {
        from_json(json.as_object().unwrap())
    }

    #[test]
    fn prices_are_read_and_written() {
        let prices = read(&json!({"m": {"input": 3, "output": 15.5, "cacheRead": 0.3}})).unwrap();
        assert_eq!(prices, [Price { model: "m".into(), input: 3.0, output: 15.5, cache_read: 0.3, cache_write: 3.0 }]);
        assert_eq!(read(&to_json(&prices)).unwrap(), prices);
        assert_eq!(read(&json!({})).unwrap(), []);
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for bad in [
            json!({"m": 3}),
            json!({"m": {"input": 1}}),
            json!({"m": {"input": -1, "output": 1}}),
            json!({"m": {"input": "1", "output": 1}}),
            json!({"m": {"input": 1, "output": 1, "cacheread": 1}}),
            json!({"": {"input": 1, "output": 1}}),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
