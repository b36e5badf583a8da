//! The command line of the soak.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::loops::{ALL, Loop};

/// What is said about the words.
pub const USAGE: &str = "\
usage: stockade-soak --binary STOCKADE [--short] [--rounds N] [--seed S] [--round N] [LOOP…]

  --short      the form that continuous integration runs: few kills, every fault once
  --rounds N   how many kills (1000; 30 with --short)
  --seed S     where randomness begins; printed at the start of every soak
  --round N    this round of the kill loops alone, to see it again";

/// How much of a loop is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every step of every fault.
    Long,
    /// Some steps of every fault.
    Short,
}

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The program under test; not known inside, where it is in its place.
    pub binary: Option<PathBuf>,
    /// Inside a cage: its directory and groups.
    pub inside: Option<(PathBuf, Vec<String>)>,
    /// How much.
    pub extent: Extent,
    /// How many kills.
    pub rounds: u64,
    /// Where randomness begins.
    pub seed: u64,
    /// One round alone.
    pub only: Option<u64>,
    /// Which loops; all where none is named.
    pub loops: Vec<Loop>,
}

impl Arguments {
    /// Reads the words after the program's name.
    pub fn parse(words: impl IntoIterator<Item = String>, fresh_seed: u64) -> Result<Self, Failure> {
        let mut words = words.into_iter();
        let (mut binary, mut base, mut groups) = (None, None, Vec::new());
        let (mut extent, mut rounds, mut seed, mut only, mut loops) = (Extent::Long, None, fresh_seed, None, Vec::new());
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Failure::Usage(format!("`{word}` needs a value\n\n{USAGE}")));
            match word.as_str() {
                "--binary" => binary = Some(PathBuf::from(value()?)),
                "--inside" => base = Some(PathBuf::from(value()?)),
                "--group" => groups.push(value()?),
                "--short" => extent = Extent::Short,
                "--rounds" => rounds = Some(number(&value()?)?),
                "--seed" => seed = number(&value()?)?,
                "--round" => only = Some(number(&value()?)?),
                name => loops.push(find(name)?),
            }
        }
        let usual = match extent {
            Extent::Long => 1000,
            Extent::Short => 30,
        };
        let inside = base.map(|base| (base, groups));
        Ok(Self { binary, inside, extent, rounds: rounds.unwrap_or(usual), seed, only, loops })
    }

    /// The loops to run.
    pub fn wanted(&self) -> Vec<Loop> {
        if self.loops.is_empty() { ALL.to_vec() } else { self.loops.clone() }
    }
}

fn number(word: &str) -> Result<u64, Failure> {
    word.parse().map_err(|_| Failure::Usage(format!("`{word}` is not a number\n\n{USAGE}")))
}

fn find(name: &str) -> Result<Loop, Failure> {
    let unknown = || {
        let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        Failure::Usage(format!("there is no loop `{name}`\nhint: {}\n\n{USAGE}", names.join(", ")))
    };
    ALL.iter().find(|known| known.name == name).copied().ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned), 7).map_err(|failure| failure.to_string())
    }

    #[test]
    fn words_are_read() {
        let told = parse("--short --seed 5 --round 3 kill-run").expect("good");
        assert_eq!((told.extent, told.rounds, told.seed, told.only), (Extent::Short, 30, 5, Some(3)));
        assert_eq!(told.wanted().iter().map(|l| l.name).collect::<Vec<_>>(), ["kill-run"]);
        let told = parse("").expect("good");
        assert_eq!((told.rounds, told.seed, told.wanted().len()), (1000, 7, ALL.len()));
        for (line, word) in [("--seed", "needs a value"), ("--rounds x", "is not a number"), ("nothing", "there is no loop")] {
            assert!(parse(line).is_err_and(|text| text.contains(word)), "{line}");
        }
    }
}
