//! Variables: which may be set, and how a word names one.

use super::word::Word;
use super::{Refusal, variable_refusal};

/// Refuses a variable that changes how programs run.
pub(super) fn check(name: &str) -> Result<(), Refusal> {
    // A subscript is no part of the name.
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    match variable_refusal(name) {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// The variable of `NAME=…` or `NAME+=…`, also where only the value is unknown.
pub(super) fn assigned(word: &Word) -> Option<&str> {
    let (name, _) = word.beginning().split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name.split_once('[').map_or(name, |(name, _)| name)).then_some(name)
}

/// Whether bash takes a word as the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Refuses text that holds a substitution within a subscript: bash runs it wherever the text is evaluated as arithmetic or as a name.
pub(super) fn check_text(text: &str) -> Result<(), Refusal> {
    let after = text.split_once('[').map(|(_, after)| after);
    if after.is_some_and(|after| after.contains("$(") || after.contains('`') || after.contains("${")) {
        return Err(Refusal::HiddenText(Word::literal(text).shown()));
    }
    Ok(())
}

/// A word of `declare`, `export` and the like.
pub(super) fn check_declaration(word: &Word) -> Result<(), Refusal> {
    if let Some(name) = assigned(word) {
        check(name)?;
    } else if let Some(text) = word.as_literal() {
        check(text)?;
    } else {
        return Err(Refusal::Variable { name: "an expansion".to_owned(), reason: "it hides which variable is set".to_owned() });
    }
    word.as_literal().map_or(Ok(()), check_text)
}
