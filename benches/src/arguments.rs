//! The command line of the harness. What `cargo xtask bench` gives first (where things are) comes before what a person typed.

use std::path::PathBuf;

use crate::contest::Rounds;
use crate::failure::Failure;
use crate::measures::Measure;
use crate::results::Extent;

/// What a person may type.
pub(crate) const USAGE: &str = "\
usage: cargo xtask bench [--quick] [--runs N] [--no-install] [--out DIR] [MEASURE…]

  --quick        few runs and few peers, under a minute: does the harness work?
  --runs N       runs per contestant instead of 200 (those of 100 ms and more: a sixth of it)
  --no-install   take only peers that are there already
  --out DIR      where RESULTS.md, results.json and field.svg go; a full run of all measures writes to benches/,
                 anything less to target/bench/, so that it never replaces the published figures

measures: cold fresh exec throughput memory files build egress agents decisions receipts gateway credentials (all, where none is named)";

/// What to do.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The `stockade` to measure.
    pub(crate) stockade: PathBuf,
    /// The repository.
    pub(crate) repository: PathBuf,
    /// Where results go.
    pub(crate) out: PathBuf,
    /// How thorough.
    pub(crate) extent: Extent,
    /// Whether missing peers are installed.
    pub(crate) install: Install,
    /// What to measure.
    pub(crate) measures: Vec<Measure>,
    runs: Option<usize>,
}

/// Whether missing peers are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    /// From the registries.
    Missing,
    /// Not at all.
    Nothing,
}

impl Arguments {
    /// Reads `--stockade FILE --repository DIR --scratch DIR` and then what a person typed.
    pub(crate) fn read(words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut words = words;
        let (mut stockade, mut repository, mut scratch, mut out) = (None, None, None, None);
        let (mut extent, mut install, mut runs, mut measures) = (Extent::Full, Install::Missing, None, Vec::new());
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Failure::Arguments(format!("`{word}` needs a value")));
            match word.as_str() {
                "--stockade" => stockade = Some(PathBuf::from(value()?)),
                "--repository" => repository = Some(PathBuf::from(value()?)),
                "--scratch" => scratch = Some(PathBuf::from(value()?)),
                "--out" => out = Some(PathBuf::from(value()?)),
                "--runs" => {
                    let text = value()?;
                    let number = text.parse().ok().filter(|n| *n > 0);
                    runs = Some(number.ok_or_else(|| Failure::Arguments(format!("`{text}` is not a number of runs")))?);
                }
                "--quick" => extent = Extent::Quick,
                "--no-install" => install = Install::Nothing,
                name => {
                    let unknown = || Failure::Arguments(format!("unknown measure or flag `{name}`"));
                    measures.push(Measure::by_name(name).ok_or_else(unknown)?);
                }
            }
        }
        let is_whole = measures.is_empty() && extent == Extent::Full && runs.is_none();
        let place = |path: Option<PathBuf>, name: &str| path.ok_or_else(|| Failure::Arguments(format!("`{name}` is missing")));
        let repository = place(repository, "--repository")?;
        let scratch = place(scratch, "--scratch")?;
        Ok(Self {
            stockade: place(stockade, "--stockade")?,
            out: out.unwrap_or_else(|| if is_whole { repository.join("benches") } else { scratch }),
            repository,
            extent,
            install,
            measures: if measures.is_empty() { Measure::ALL.to_vec() } else { measures },
            runs,
        })
    }

    /// How often contestants of a few milliseconds run.
    pub(crate) fn rounds(&self) -> Rounds {
        let (fast, warm) = match self.extent {
            Extent::Full => (200, 10),
            Extent::Quick => (15, 2),
        };
        let fast = self.runs.unwrap_or(fast);
        Rounds { fast, slow: (fast / 6).max(2), warm }
    }

    /// How often contestants of a second run.
    pub(crate) fn few_rounds(&self) -> Rounds {
        let fast = match self.extent {
            Extent::Full => 11,
            Extent::Quick => 2,
        };
        let fast = self.runs.map_or(fast, |runs| runs.min(fast));
        Rounds { fast, slow: fast, warm: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Arguments, Failure> {
        let places = "--stockade /s --repository /r --scratch /t/bench";
        Arguments::read(format!("{places} {text}").split_whitespace().map(str::to_owned))
    }

    #[test]
    fn only_a_whole_run_replaces_the_published_figures() {
        for (text, out) in
            [("", "/r/benches"), ("--quick", "/t/bench"), ("cold", "/t/bench"), ("--runs 50", "/t/bench"), ("--quick --out /x cold", "/x")]
        {
            assert_eq!(read(text).unwrap().out, PathBuf::from(out), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["--runs", "--runs 0", "--runs x", "warm", "--fast"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
