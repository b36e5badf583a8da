//! From Cedar's diagnostics to a place and words. The one file that knows how Cedar reports errors.

use miette::Diagnostic;

/// What Cedar says is wrong: where in the text it was given (offset and length in bytes), what, and its advice.
pub(super) struct Told {
    pub(super) place: Option<(usize, usize)>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Reads one diagnostic.
pub(super) fn told(diagnostic: &dyn Diagnostic) -> Told {
    let label = diagnostic.labels().and_then(|mut labels| labels.next());
    let place = label.as_ref().map(|label| (label.offset(), label.len()));
    let mut message = diagnostic.to_string();
    if let Some(text) = label.as_ref().and_then(|label| label.label()) {
        message = format!("{message} ({text})");
    }
    Told { place, message, hint: diagnostic.help().map(|help| help.to_string()) }
}
