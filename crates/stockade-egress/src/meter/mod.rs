//! How much of a model was used: the numbers that its answers state, taken from them as they pass.
//!
//! Reads the `usage` fields of the Messages, Responses, Chat Completions and Gemini interfaces, streamed or not. An answer is looked at byte by
//! byte and never kept: what is remembered of one is a handful of numbers and a short name, however long it is. It is not changed, held
//! up or refused because of what stands in it. What a model *writes* is inside strings, and strings are not looked into.

mod scan;

use ::http::HeaderMap;
use ::http::header;

use scan::Scanner;

/// What answers of a model came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The model as the answer names it, where it does and the name is plain.
    pub model: Option<String>,
    /// Tokens that were read anew.
    pub input: u64,
    /// Tokens that were written, thoughts included.
    pub output: u64,
    /// Tokens that were read from a cache.
    pub cache_read: u64,
    /// Tokens that were put into a cache.
    pub cache_write: u64,
}

impl Usage {
    /// All tokens, whatever each costs.
    pub fn tokens(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, u64::saturating_add)
    }
}

/// Reads one answer.
#[derive(Debug)]
pub struct Meter {
    form: Form,
    scanner: Scanner,
}

/// How an answer is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One JSON text.
    Whole,
    /// Server-sent events, a JSON text in each; this much of `data:` was seen in the line.
    Events(Line),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many bytes of the field's name.
    Name(usize),
    /// The rest is data.
    Data,
    /// The rest is something else.
    Other,
}

/// The field of an event that holds data.
const DATA: &[u8] = b"data:";

impl Meter {
    /// A meter for an answer with this head; `None` where it is nothing that states usage, or cannot be read.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(header::CONTENT_ENCODING) {
            return None;
        }
        Self::of_kind(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)
    }

    /// A meter for a body of this kind (`Content-Type`).
    pub fn of_kind(kind: &str) -> Option<Self> {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let form = if kind.eq_ignore_ascii_case("text/event-stream") {
            Form::Events(Line::Name(0))
        } else if kind.eq_ignore_ascii_case("application/json") {
            Form::Whole
        } else {
            return None;
        };
        Some(Self { form, scanner: Scanner::default() })
    }

    /// Looks at the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        let Form::Events(mut line) = self.form else {
            for byte in piece {
                self.scanner.push(*byte);
            }
            return;
        };
        for byte in piece {
            line = match (line, byte) {
                (_, b'\n' | b'\r') => {
                    self.scanner.begin_again();
                    Line::Name(0)
                }
                (Line::Name(seen), byte) if DATA.get(seen) == Some(byte) => {
                    if seen + 1 == DATA.len() {
                        Line::Data
                    } else {
                        Line::Name(seen + 1)
                    }
                }
                (Line::Data, byte) => {
                    self.scanner.push(*byte);
                    Line::Data
                }
                (Line::Name(_) | Line::Other, _) => Line::Other,
            };
        }
        self.form = Form::Events(line);
    }

    /// What the answer stated; `None` where it stated nothing.
    pub fn usage(&self) -> Option<Usage> {
        self.scanner.usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a body, in pieces of every size.
    fn check(kind: &'static str, body: &str, expected: Option<&Usage>) {
        for size in [1, 2, 3, 7, 64, body.len().max(1)] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static(kind))]);
            let mut meter = Meter::of(&headers).unwrap();
            body.as_bytes().chunks(size).for_each(|piece| meter.push(piece));
            assert_eq!(meter.usage().as_ref(), expected, "{size}: {body}");
        }
    }

    fn usage(model: &str, input: u64, output: u64, cache_read: u64, cache_write: u64) -> Usage {
        Usage { model: (!model.is_empty()).then(|| model.to_owned()), input, output, cache_read, cache_write }
    }

    #[test]
    fn streams_of_messages_are_counted_once() {
        let body = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-x\",\"content\":[],\
                    \"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":4,\
                    \"cache_creation\":{\"input_tokens\":999},\"output_tokens\":1}}}\r\n\r\n: ping\r\n\
                    data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":9999}\"}}\n\n\
                    data: {\"type\":\"message_delta\",\"delta\":{\"usage\":{\"output_tokens\":777}},\"usage\":{\"output_tokens\":25}}\n\n";
        check("text/event-stream", body, Some(&usage("claude-x", 10, 25, 4, 3)));
    }

    #[test]
    fn whole_answers_are_read() {
        let body = r#"{"model":"m","content":[{"usage":{"input_tokens":5}}],"usage":{"input_tokens":7,"output_tokens":2}}"#;
        check("application/json; charset=utf-8", body, Some(&usage("m", 7, 2, 0, 0)));
        check("application/json", r#"{"input_tokens":12}"#, None);
        check("application/json", "[1,2,{\"a\":[]}]", None);
    }

    #[test]
    fn cached_tokens_of_responses_are_a_part_of_what_was_read() {
        let body = "data: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt\",\"output\":[{\"usage\":{\"input_tokens\":1}}],\
                    \"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":40},\"output_tokens\":9,\
                    \"output_tokens_details\":{\"reasoning_tokens\":5},\"total_tokens\":109}}}\n\n";
        check("text/event-stream", body, Some(&usage("gpt", 60, 9, 40, 0)));
        let chat = r#"{"model":"g","usage":{"prompt_tokens":8,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}"#;
        check("application/json", chat, Some(&usage("g", 6, 3, 2, 0)));
    }

    #[test]
    fn gemini_states_thoughts_apart() {
        let one = r#"{"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":20,"candidatesTokenCount":6,"thoughtsTokenCount":4},"modelVersion":"gemini-y"}"#;
        check("application/json", one, Some(&usage("gemini-y", 30, 10, 20, 0)));
        check("application/json", &format!("[{one},\n{one}]"), Some(&usage("gemini-y", 30, 10, 20, 0)));
    }

    #[test]
    fn nonsense_is_passed_over() {
        for body in
            ["", "}}}{{{", "{\"usage\":", "{\"usage\":{\"input_tokens\":-5,\"output_tokens\":1e9}}", "\"usage\"", "{\"usage\":null}"]
        {
            check("application/json", body, None);
        }
        let huge = format!("{{\"usage\":{{\"input_tokens\":{}}}}}", "9".repeat(400));
        check("application/json", &huge, None);
        let deep = format!("{}{}", "[".repeat(100_000), "{\"usage\":{\"input_tokens\":1}}");
        check("application/json", &deep, None);
        let long_name = format!("{{\"model\":\"{}\",\"usage\":{{\"input_tokens\":1}}}}", "m".repeat(5000));
        check("application/json", &long_name, Some(&usage("", 1, 0, 0, 0)));
        let odd_name = "{\"model\":\"a\\u001b[2Jb\",\"usage\":{\"input_tokens\":1}}";
        check("application/json", odd_name, Some(&usage("", 1, 0, 0, 0)));
    }

    #[test]
    fn other_bodies_are_not_looked_at() {
        let of = |pairs: &[(header::HeaderName, &'static str)]| {
            Meter::of(&pairs.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect())
        };
        assert!(of(&[]).is_none() && of(&[(header::CONTENT_TYPE, "text/html")]).is_none());
        assert!(of(&[(header::CONTENT_TYPE, "application/json"), (header::CONTENT_ENCODING, "gzip")]).is_none());
    }
}
