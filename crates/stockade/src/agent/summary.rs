//! What came of an agent, for people and as JSON: how long, how it ended, what it changed, whom it reached, what it used.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stockade_store::settings::Price;

use crate::egress::record::{Row, Usage};

/// The most hosts that are named in one line, or listed.
const MAX_NAMED: usize = 8;
const MAX_LISTED: usize = 200;

/// What answers of models came to, by model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    by_model: BTreeMap<String, Usage>,
}

/// Different models that are counted apart; the rest is counted together.
const MAX_MODELS: usize = 64;
/// Where an answer names no model.
const UNNAMED: &str = "";

impl Totals {
    /// Adds what one answer came to.
    pub(crate) fn add(&mut self, row: &Row) {
        if let Some(usage) = &row.usage {
            self.add_usage(usage);
        }
    }

    pub(crate) fn add_usage(&mut self, usage: &Usage) {
        let name = usage.model.as_deref().unwrap_or(UNNAMED);
        let name = if self.by_model.len() < MAX_MODELS || self.by_model.contains_key(name) { name } else { UNNAMED };
        let total = self.by_model.entry(name.to_owned()).or_default();
        total.input = total.input.saturating_add(usage.input);
        total.output = total.output.saturating_add(usage.output);
        total.cache_read = total.cache_read.saturating_add(usage.cache_read);
        total.cache_write = total.cache_write.saturating_add(usage.cache_write);
    }

    /// All of it, in one.
    pub(crate) fn all(&self) -> Usage {
        self.by_model.values().fold(Usage::default(), |all, one| Usage {
            model: None,
            input: all.input.saturating_add(one.input),
            output: all.output.saturating_add(one.output),
            cache_read: all.cache_read.saturating_add(one.cache_read),
            cache_write: all.cache_write.saturating_add(one.cache_write),
        })
    }

    /// All tokens.
    pub(crate) fn tokens(&self) -> u64 {
        let Usage { input, output, cache_read, cache_write, .. } = self.all();
        [input, output, cache_read, cache_write].into_iter().fold(0, u64::saturating_add)
    }

    /// What they cost, where prices are known.
    pub(crate) fn dollars(&self, prices: &[Price]) -> f64 {
        let cost = |(model, usage): (&String, &Usage)| {
            let fitting = prices.iter().filter(|price| model.starts_with(&price.model));
            let Some(price) = fitting.max_by_key(|price| price.model.len()) else { return 0.0 };
            let parts = [
                (usage.input, price.input),
                (usage.output, price.output),
                (usage.cache_read, price.cache_read),
                (usage.cache_write, price.cache_write),
            ];
            parts.into_iter().map(|(tokens, price)| tokens as f64 * price / 1e6).sum()
        };
        self.by_model.iter().map(cost).sum()
    }

    /// Models that no price fits.
    pub(crate) fn unpriced(&self, prices: &[Price]) -> Vec<&str> {
        let fits = |model: &str| prices.iter().any(|price| model.starts_with(&price.model));
        self.by_model.keys().map(String::as_str).filter(|model| !fits(model)).collect()
    }
}

/// What an agent reached, what was refused, and what it used.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    reached: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    /// What models came to.
    pub(crate) totals: Totals,
}

impl Traffic {
    /// Goes through what passed egress.
    pub(crate) fn of(rows: &[Row]) -> Self {
        let mut traffic = Self::default();
        for row in rows {
            traffic.totals.add(row);
            if row.host.is_empty() {
                continue;
            }
            let place = if row.port == 0 || row.port == 443 { row.host.clone() } else { format!("{}:{}", row.host, row.port) };
            let list = if row.verdict == "deny" { &mut traffic.refused } else { &mut traffic.reached };
            // Asking for the name of an allowed host is not reaching it.
            if row.verdict == "deny" || row.subject != "name" {
                *list.entry(place).or_default() += 1;
            }
        }
        traffic
    }

    /// Lines for people.
    pub(crate) fn lines(&self, prices: &[Price]) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.reached.is_empty() {
            lines.push(format!("reached {}", named(&self.reached)));
        }
        if !self.refused.is_empty() {
            lines.push(format!("refused {}", named(&self.refused)));
        }
        let all = self.totals.all();
        if self.totals.tokens() > 0 {
            let cached = match (all.cache_read, all.cache_write) {
                (0, 0) => String::new(),
                (read, write) => format!(", {} from cache, {} into it", grouped(read), grouped(write)),
            };
            let money = if prices.is_empty() { String::new() } else { format!(", ${:.4}", self.totals.dollars(prices)) };
            lines.push(format!("tokens: {} read, {} written{cached}{money}", grouped(all.input), grouped(all.output)));
            if !prices.is_empty() && !self.totals.unpriced(prices).is_empty() {
                lines.push(format!("`agent.prices` has no price for {}", self.totals.unpriced(prices).join(", ")));
            }
        }
        lines
    }

    /// The same as JSON.
    pub(crate) fn json(&self, prices: &[Price]) -> Value {
        let all = self.totals.all();
        let list = |hosts: &BTreeMap<String, u64>| -> Vec<Value> {
            hosts.iter().take(MAX_LISTED).map(|(host, times)| json!({ "host": host, "times": times })).collect()
        };
        json!({
            "hosts": { "reached": list(&self.reached), "refused": list(&self.refused) },
            "tokens": { "input": all.input, "output": all.output, "cache_read": all.cache_read, "cache_write": all.cache_write, "total": self.totals.tokens() },
            "cost_usd": (!prices.is_empty()).then(|| self.totals.dollars(prices)),
        })
    }
}

fn named(hosts: &BTreeMap<String, u64>) -> String {
    let mut words: Vec<String> = hosts
        .iter()
        .take(MAX_NAMED)
        .map(|(host, times)| match times {
            1 => stockade_core::escape::escape(host),
            times => format!("{} ({times}×)", stockade_core::escape::escape(host)),
        })
        .collect();
    if hosts.len() > MAX_NAMED {
        words.push(format!("{} more", hosts.len() - MAX_NAMED));
    }
    words.join(", ")
}

/// A number that people can read.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, port: u16, verdict: &str, usage: Option<Usage>) -> Row {
        Row {
            time: String::new(),
            subject: "request".into(),
            host: host.into(),
            port,
            method: None,
            path: None,
            verdict: verdict.into(),
            rule: String::new(),
            secret: None,
            status: None,
            sent: 0,
            received: 0,
            duration_ms: 0,
            reason: None,
            change: None,
            usage,
        }
    }

    fn usage(model: &str, input: u64, output: u64) -> Usage {
        Usage { model: Some(model.into()), input, output, cache_read: 0, cache_write: 0 }
    }

    #[test]
    fn traffic_is_summed_up() {
        let rows = [
            row("api.example", 443, "allow", Some(usage("big-1", 1_000_000, 2000))),
            row("api.example", 443, "allow", Some(usage("big-mini-2", 10, 20))),
            row("127.0.0.1", 8080, "allow", None),
            row("evil.example", 443, "deny", None),
            row("evil.example", 80, "deny", None),
        ];
        let traffic = Traffic::of(&rows);
        assert_eq!(
            traffic.lines(&[]),
            ["reached 127.0.0.1:8080, api.example (2×)", "refused evil.example, evil.example:80", "tokens: 1,000,010 read, 2,020 written"]
        );
        let price = |model: &str, input: f64| Price { model: model.into(), input, output: 0.0, cache_read: 0.0, cache_write: 0.0 };
        // The longest name that fits counts.
        let prices = [price("big", 2.0), price("big-mini", 100_000.0)];
        assert!((traffic.totals.dollars(&prices) - 3.0).abs() < 1e-9, "{}", traffic.totals.dollars(&prices));
        assert_eq!(traffic.totals.unpriced(&[price("big-1", 1.0)]), ["big-mini-2"]);
        assert_eq!(traffic.json(&[]).pointer("/tokens/total"), Some(&json!(1_002_030)));
    }

    #[test]
    fn models_without_end_are_counted_together() {
        let mut totals = Totals::default();
        for index in 0..1000 {
            totals.add_usage(&usage(&format!("m{index}"), 1, 0));
        }
        assert_eq!((totals.tokens(), totals.by_model.len()), (1000, MAX_MODELS + 1));
    }
}
