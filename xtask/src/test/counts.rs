//! How many tests passed and failed, read from the lines in which the runners sum up.

use std::fmt;

/// Tests that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Passed.
    pub(crate) passed: usize,
    /// Failed, or killed for taking too long.
    pub(crate) failed: usize,
}

impl Counts {
    /// Reads a closing line of nextest (`Summary [ 1.2s] 3 tests run: 2 passed, 1 failed`) or of libtest
    /// (`test result: ok. 3 passed; 0 failed; …`); nothing from any other line.
    pub(crate) fn in_line(line: &str) -> Self {
        let line = without_colour(line);
        if line.contains("tests run:") || line.contains("test run:") || line.starts_with("test result:") {
            Self::in_text(&line)
        } else {
            Self::default()
        }
    }

    /// Adds up every `N passed`, `N failed` and `N timed out` in a text.
    pub(crate) fn in_text(text: &str) -> Self {
        let words: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':')).filter(|word| !word.is_empty()).collect();
        let mut counts = Self::default();
        for pair in words.windows(2) {
            let [number, word] = pair else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match *word {
                "passed" => counts.passed += number,
                "failed" | "timed" | "exec" => counts.failed += number,
                _ => {}
            }
        }
        counts
    }

    /// Adds another count.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

fn without_colour(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            rest.by_ref().take_while(|c| !c.is_ascii_alphabetic()).for_each(drop);
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn closing_lines_of_both_runners_are_read() {
        let check = |line: &str, passed, failed| assert_eq!(Counts::in_line(line), Counts { passed, failed }, "{line}");
        check("     Summary [   1.203s] 42 tests run: 40 passed, 2 failed, 0 skipped", 40, 2);
        check("\x1b[32;1m     Summary\x1b[0m [ 0.1s] \x1b[1m1\x1b[0m test run: \x1b[1m1\x1b[0m \x1b[32;1mpassed\x1b[0m, 0 skipped", 1, 0);
        check("Summary [ 9s] 5 tests run: 2 passed (1 slow), 1 failed, 2 timed out, 0 skipped", 2, 3);
        check("test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured", 7, 0);
        check("it said 9 passed", 0, 0);
    }
}
