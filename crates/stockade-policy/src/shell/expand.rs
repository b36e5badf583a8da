//! Words: their literal text, and every substitution in them, however deep.

use brush_parser::word::{Parameter, ParameterExpr, ParameterTransformOp, SpecialParameter, WordPiece, WordPieceWithSource};

use super::walk::Walk;
use super::word::{Builder, Word};
use super::{Refusal, assignment, grammar};

/// Characters that make a word more than its text.
const SPECIAL: &[char] = &['\'', '"', '\\', '$', '`', '*', '?', '[', '{', '~', '(', '\n'];

/// Where a piece stands.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// Within double quotes.
    Quoted,
    /// Outside quotes, with the characters that are expanded there.
    Bare(&'a [char]),
}

impl Walk<'_> {
    /// Reads a word and visits the substitutions in it.
    pub(super) fn word(&mut self, text: &str) -> Result<Word, Refusal> {
        if !text.contains(SPECIAL) {
            return Ok(Word::literal(text));
        }
        let pieces = grammar::pieces(text)?;
        let mut builder = Builder::default();
        self.pieces(&pieces, Place::Bare(&expanded(&pieces)), &mut builder)?;
        Ok(builder.finish())
    }

    /// Text that is expanded like double quotes although there are none: arithmetic, defaults, subscripts.
    pub(super) fn arithmetic(&mut self, text: &str) -> Result<(), Refusal> {
        if !text.contains(['$', '`']) {
            return Ok(());
        }
        // Single quotes mean nothing there, but would to the grammar.
        if text.contains('\'') {
            return Err(Refusal::HiddenText("an expression with quotes".to_owned()));
        }
        let pieces = grammar::pieces(text)?;
        self.pieces(&pieces, Place::Quoted, &mut Builder::default())
    }

    /// A here-document whose text is expanded: quotes are plain text in it.
    pub(super) fn document(&mut self, text: &str) -> Result<(), Refusal> {
        if !text.contains(['$', '`']) {
            return Ok(());
        }
        let pieces = grammar::document_pieces(text)?;
        self.pieces(&pieces, Place::Quoted, &mut Builder::default())
    }

    fn pieces(&mut self, pieces: &[WordPieceWithSource], place: Place<'_>, builder: &mut Builder) -> Result<(), Refusal> {
        pieces.iter().try_for_each(|piece| self.piece(&piece.piece, place, builder))
    }

    fn piece(&mut self, piece: &WordPiece, place: Place<'_>, builder: &mut Builder) -> Result<(), Refusal> {
        let unknown = |builder: &mut Builder| match place {
            Place::Quoted => builder.unknown(),
            Place::Bare(_) => builder.unknown_many(),
        };
        match piece {
            WordPiece::Text(text) => match place {
                // Outside quotes a word ends at these, so the grammar lost its place.
                Place::Bare(_) if text.contains([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')']) => {
                    return Err(Refusal::Unparsable("a word that does not end where it should".to_owned()));
                }
                // Bash joins the lines; the grammar keeps them.
                Place::Quoted if text.contains("\\\n") => builder.unknown(),
                Place::Bare(expanded) if text.contains(expanded) => {
                    builder.push(text.split(expanded).next().unwrap_or_default());
                    builder.unknown_many();
                }
                Place::Bare(_) | Place::Quoted => builder.push(text),
            },
            // Escapes could be worked out; nobody who means well writes a program's name like that.
            WordPiece::AnsiCQuotedText(text) if text.contains('\\') => builder.unknown(),
            WordPiece::SingleQuotedText(text) | WordPiece::AnsiCQuotedText(text) => builder.push(text),
            WordPiece::DoubleQuotedSequence(pieces) | WordPiece::GettextDoubleQuotedSequence(pieces) => {
                self.pieces(pieces, Place::Quoted, builder)?;
            }
            WordPiece::EscapeSequence(text) => match text.strip_prefix('\\') {
                Some("\n") => {}
                Some(text) => builder.push(text),
                None => builder.unknown(),
            },
            WordPiece::TildeExpansion(_) => builder.unknown(),
            WordPiece::ParameterExpansion(expression) => {
                if lists_words(expression) {
                    builder.unknown_many();
                } else {
                    unknown(builder);
                }
                self.parameter(expression)?;
            }
            WordPiece::CommandSubstitution(text) => {
                unknown(builder);
                refuse_comments(text)?;
                self.nested_script(text)?;
            }
            WordPiece::BackquotedCommandSubstitution(text) => {
                unknown(builder);
                self.nested_script(&without_backquote_escapes(text))?;
            }
            WordPiece::ArithmeticExpression(expression) => {
                unknown(builder);
                self.arithmetic(&expression.value)?;
            }
        }
        Ok(())
    }

    fn parameter(&mut self, expression: &ParameterExpr) -> Result<(), Refusal> {
        let parts = Parts::of(expression);
        if parts.is_indirect {
            return Err(Refusal::HiddenText("an indirect expansion".to_owned()));
        }
        if let Some(Parameter::NamedWithIndex { index, .. }) = parts.parameter {
            self.arithmetic(index)?;
        }
        if parts.assigns
            && let Some(Parameter::Named(name) | Parameter::NamedWithIndex { name, .. }) = parts.parameter
        {
            assignment::check(name)?;
        }
        for text in parts.texts {
            assignment::check_text(text)?;
            self.arithmetic(text)?;
        }
        Ok(())
    }
}

/// A bracket in a comment ends a substitution for the grammar, but not for bash: then the last line is that comment. Where they differ
/// otherwise, the text ends within a quote, a here-document or a case, and does not parse.
fn refuse_comments(text: &str) -> Result<(), Refusal> {
    let mut before = ' ';
    for c in text.rsplit('\n').next().unwrap_or_default().chars() {
        if c == '#' && matches!(before, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')') {
            return Err(Refusal::HiddenText("a substitution with a comment".to_owned()));
        }
        before = c;
    }
    Ok(())
}

/// Characters that make a pattern or a list of this word's text outside quotes. `{}`, `[` alone and `HEAD~1` are what they are.
fn expanded(pieces: &[WordPieceWithSource]) -> Vec<char> {
    let bare: String =
        pieces.iter().filter_map(|piece| if let WordPiece::Text(text) = &piece.piece { Some(text.as_str()) } else { None }).collect();
    let mut expanded = vec!['*', '?'];
    if bare.split_once('[').is_some_and(|(_, after)| after.contains(']')) {
        expanded.push('[');
    }
    if bare.split_once('{').is_some_and(|(_, after)| after.contains('}') && (after.contains(',') || after.contains(".."))) {
        expanded.push('{');
    }
    expanded
}

/// What matters about a parameter expansion, whatever its form.
#[derive(Default)]
struct Parts<'a> {
    parameter: Option<&'a Parameter>,
    is_indirect: bool,
    assigns: bool,
    texts: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(expression: &'a ParameterExpr) -> Self {
        use ParameterExpr as E;
        let parts = |parameter, indirect: &bool, texts: &[Option<&'a String>]| Self {
            parameter: Some(parameter),
            is_indirect: *indirect,
            assigns: false,
            texts: texts.iter().flatten().map(|text| text.as_str()).collect(),
        };
        match expression {
            E::Parameter { parameter, indirect } | E::ParameterLength { parameter, indirect } => parts(parameter, indirect, &[]),
            E::UseDefaultValues { parameter, indirect, default_value: text, .. }
            | E::IndicateErrorIfNullOrUnset { parameter, indirect, error_message: text, .. }
            | E::UseAlternativeValue { parameter, indirect, alternative_value: text, .. }
            | E::RemoveSmallestSuffixPattern { parameter, indirect, pattern: text }
            | E::RemoveLargestSuffixPattern { parameter, indirect, pattern: text }
            | E::RemoveSmallestPrefixPattern { parameter, indirect, pattern: text }
            | E::RemoveLargestPrefixPattern { parameter, indirect, pattern: text }
            | E::UppercaseFirstChar { parameter, indirect, pattern: text }
            | E::UppercasePattern { parameter, indirect, pattern: text }
            | E::LowercaseFirstChar { parameter, indirect, pattern: text }
            | E::LowercasePattern { parameter, indirect, pattern: text } => parts(parameter, indirect, &[text.as_ref()]),
            E::AssignDefaultValues { parameter, indirect, default_value: text, .. } => {
                Self { assigns: true, ..parts(parameter, indirect, &[text.as_ref()]) }
            }
            E::Substring { parameter, indirect, offset, length } => {
                parts(parameter, indirect, &[Some(&offset.value), length.as_ref().map(|length| &length.value)])
            }
            E::ReplaceSubstring { parameter, indirect, pattern, replacement, .. } => {
                parts(parameter, indirect, &[Some(pattern), replacement.as_ref()])
            }
            // A prompt is expanded, substitutions in the variable's value included.
            E::Transform { parameter, indirect, op } => {
                Self { is_indirect: *indirect || matches!(op, ParameterTransformOp::PromptExpand), ..parts(parameter, indirect, &[]) }
            }
            E::VariableNames { .. } | E::MemberKeys { .. } => Self::default(),
        }
    }
}

/// Whether an expansion becomes several words even within double quotes.
fn lists_words(expression: &ParameterExpr) -> bool {
    let all = |parameter: &Parameter| {
        matches!(
            parameter,
            Parameter::Special(SpecialParameter::AllPositionalParameters { concatenate: false })
                | Parameter::NamedWithAllIndices { concatenate: false, .. }
        )
    };
    match expression {
        ParameterExpr::VariableNames { concatenate, .. } | ParameterExpr::MemberKeys { concatenate, .. } => !concatenate,
        other => Parts::of(other).parameter.is_some_and(all),
    }
}

/// Within backquotes a backslash protects only itself, a dollar and a backquote.
fn without_backquote_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(next @ ('\\' | '$' | '`')) if c == '\\' => {
                plain.push(*next);
                chars.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}
