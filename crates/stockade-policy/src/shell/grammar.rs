//! The bash grammar of `brush-parser`, behind bounds. The one file that starts a parser.
//!
//! Tokens are counted before they are parsed: the parser recurses once for every compound command.

use brush_parser::ast::Program;
use brush_parser::word::{self, WordPieceWithSource};
use brush_parser::{ParserOptions, Token};

use super::Refusal;
use super::bounds::{MAX_COMPOUND, MAX_TOKENS};

/// Parses a script that [`super::bounds::check`] let pass.
pub(super) fn script(text: &str) -> Result<Program, Refusal> {
    let unparsable = |error: &dyn std::fmt::Display| Refusal::Unparsable(shown(&error.to_string()));
    let tokens = brush_parser::uncached_tokenize_str(text, &options().tokenizer_options()).map_err(|e| unparsable(&e))?;
    check_depth(&tokens)?;
    brush_parser::parse_tokens(&tokens, &options()).map_err(|e| unparsable(&e))
}

/// Parses one word into its pieces.
pub(super) fn pieces(text: &str) -> Result<Vec<WordPieceWithSource>, Refusal> {
    word::parse(text, &options()).map_err(|e| Refusal::Unparsable(shown(&e.to_string())))
}

/// Parses the text of a here-document, in which quotes are plain text.
pub(super) fn document_pieces(text: &str) -> Result<Vec<WordPieceWithSource>, Refusal> {
    word::parse_heredoc(text, &options()).map_err(|e| Refusal::Unparsable(shown(&e.to_string())))
}

/// As `bash -c` begins: extended globs are off until a script turns them on, and what it parses after that is refused.
fn options() -> ParserOptions {
    ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() }
}

fn check_depth(tokens: &[Token]) -> Result<(), Refusal> {
    if tokens.len() > MAX_TOKENS {
        return Err(Refusal::Limit("too many words"));
    }
    let mut depth = 0usize;
    for token in tokens {
        match token.to_str() {
            "if" | "while" | "until" | "for" | "case" | "select" | "{" | "(" | "((" | "!" | "time" | "coproc" | "function" | "[[" => {
                depth += 1;
            }
            "fi" | "done" | "esac" | "}" | ")" | "))" | "]]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_COMPOUND {
            return Err(Refusal::Limit("too deeply nested"));
        }
    }
    Ok(())
}

fn shown(message: &str) -> String {
    let short: String = message.chars().take(200).collect();
    stockade_core::escape::escape(&short)
}
