//! Colour and aligned text. Colour only on a terminal without `NO_COLOR`, and never as the only sign.

use std::io::IsTerminal;

/// Whether standard error is a terminal that wants colour.
pub(crate) fn is_coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stderr().is_terminal()
}

/// Text in red.
pub(crate) fn red(text: &str) -> String {
    painted(text, "31;1")
}

/// Text in green.
pub(crate) fn green(text: &str) -> String {
    painted(text, "32;1")
}

/// Text in bold.
pub(crate) fn bold(text: &str) -> String {
    painted(text, "1")
}

fn painted(text: &str, code: &str) -> String {
    if is_coloured() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Rows as columns, each padded to its widest cell; the last column is left ragged.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_are_padded_to_the_widest_cell() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["long".to_owned(), "c".to_owned()]];
        assert_eq!(table(&rows), "a     b\nlong  c");
    }
}
