//! A call as a stream of events: output as it comes, then the result.
//!
//! What waits for a slow reader is bounded by the limit on a call's output. Whoever goes away withdraws the call.

use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stockade_http::Source;
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{Problem, Reply};
use crate::mcp::act::Stream;
use crate::mcp::calls::Stop;

/// Bytes of one character at most, less one: so many may wait for the rest of it.
const MOST_HELD: usize = 3;

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Server-sent events.
    Sse,
    /// A JSON object per line.
    Lines,
}

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A piece of output.
    Output(Stream, Vec<u8>),
    /// The end.
    End(Result<Reply, Problem>),
}

/// A call that nobody waits for any more is killed.
#[derive(Debug)]
pub(super) struct Withdrawn(pub(super) Arc<Stop>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        // One that has ended does not mind.
        self.0.stop();
    }
}

/// The events of one call, as they are sent.
#[derive(Debug)]
pub(super) struct Events {
    form: Form,
    coming: UnboundedReceiver<Event>,
    /// The beginning of a character, of either stream.
    held: [Vec<u8>; 2],
    _withdrawn: Withdrawn,
}

impl Form {
    /// The one that a client asks for by name.
    pub(super) fn accepted(accept: &str) -> Option<Self> {
        let kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
        kinds.into_iter().find_map(|kind| [Self::Sse, Self::Lines].into_iter().find(|form| form.kind() == kind))
    }

    /// Its media type.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        }
    }

    fn write(self, name: &str, value: &Value) -> String {
        match self {
            Self::Sse => format!("event: {name}\ndata: {value}\n\n"),
            Self::Lines => {
                let mut line = Map::from_iter([("event".to_owned(), Value::from(name))]);
                match value.as_object() {
                    // A result is whole beneath its name; everything else beside it.
                    Some(fields) if name != "result" => line.extend(fields.clone()),
                    _ => drop(line.insert(name.to_owned(), value.clone())),
                }
                format!("{}\n", Value::Object(line))
            }
        }
    }
}

impl Events {
    /// Of a call.
    pub(super) fn new(form: Form, coming: UnboundedReceiver<Event>, withdrawn: Withdrawn) -> Self {
        Self { form, coming, held: [Vec::new(), Vec::new()], _withdrawn: withdrawn }
    }

    fn write(&mut self, event: Event) -> String {
        match event {
            Event::Output(stream, bytes) => self.output(stream, bytes),
            Event::End(end) => {
                let mut text = String::new();
                for (stream, held) in [Stream::Stdout, Stream::Stderr].into_iter().zip(std::mem::take(&mut self.held)) {
                    if !held.is_empty() {
                        text.push_str(&self.piece(stream, &held));
                    }
                }
                text + &match end {
                    Ok(reply) => self.form.write("result", reply.value()),
                    Err(problem) => self.form.write("error", &problem.value()),
                }
            }
        }
    }

    fn output(&mut self, stream: Stream, bytes: Vec<u8>) -> String {
        let Some(held) = self.held.get_mut(stream as usize) else { return String::new() };
        let mut whole = std::mem::take(held);
        whole.extend(bytes);
        // A character that was cut in two waits for its rest.
        if let Err(error) = std::str::from_utf8(&whole)
            && error.error_len().is_none()
            && whole.len() - error.valid_up_to() <= MOST_HELD
        {
            *held = whole.split_off(error.valid_up_to());
        }
        if whole.is_empty() { String::new() } else { self.piece(stream, &whole) }
    }

    fn piece(&self, stream: Stream, bytes: &[u8]) -> String {
        let value = match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "text": text }),
            Err(_) => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
        };
        self.form.write(stream.name(), &value)
    }
}

impl Source for Events {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.coming.poll_recv(context).map(|event| event.map(|event| Bytes::from(self.write(event))))
    }
}

#[cfg(test)]
mod tests {
    use stockade_sandbox::signals::Signals;

    use super::*;
    use crate::mcp::calls::Calls;

    fn events(form: Form) -> Events {
        let entered = Calls::default().enter().unwrap();
        let _: &Signals = &entered.signals;
        Events::new(form, tokio::sync::mpsc::unbounded_channel().1, Withdrawn(Arc::clone(&entered.stop)))
    }

    #[test]
    fn characters_stay_whole() {
        let mut events = events(Form::Lines);
        let mut say = |bytes: &[u8]| events.write(Event::Output(Stream::Stdout, bytes.to_vec()));
        assert_eq!(say("é".as_bytes()), "{\"event\":\"stdout\",\"text\":\"é\"}\n");
        assert_eq!(say(b"a\xc3"), "{\"event\":\"stdout\",\"text\":\"a\"}\n");
        assert_eq!(say(b"\xa9"), "{\"event\":\"stdout\",\"text\":\"é\"}\n");
        assert_eq!(say(b"\xff"), "{\"event\":\"stdout\",\"base64\":\"/w==\"}\n");
        assert_eq!(say(b"\xc3"), "");
        let end = events.write(Event::End(Ok(Reply::saying(json!({"exit_code": 0})))));
        assert_eq!(end, "{\"event\":\"stdout\",\"base64\":\"ww==\"}\n{\"event\":\"result\",\"result\":{\"exit_code\":0}}\n");
    }

    #[test]
    fn a_line_break_cannot_make_an_event() {
        let mut events = events(Form::Sse);
        let said = events.write(Event::Output(Stream::Stderr, b"x\n\nevent: result\ndata: {}\n\n".to_vec()));
        assert_eq!(said, "event: stderr\ndata: {\"text\":\"x\\n\\nevent: result\\ndata: {}\\n\\n\"}\n\n");
    }

    #[test]
    fn a_stream_is_asked_for_by_name() {
        assert_eq!(Form::accepted("application/json, text/event-stream;q=0.5"), Some(Form::Sse));
        assert_eq!(Form::accepted("application/x-ndjson"), Some(Form::Lines));
        assert_eq!(Form::accepted("*/*"), None);
    }
}
