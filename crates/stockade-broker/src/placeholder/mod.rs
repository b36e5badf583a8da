//! What a sandbox holds instead of a secret: random text of the same length and shape, so that a program that checks its token's form goes on.
//!
//! A placeholder is no secret. It is never the real value, holds no run of eight bytes of any real value of its sandbox beyond a
//! prefix that is the same for everybody's tokens (`ghp_`, `AKIA`), and neither is nor contains another placeholder of its sandbox. It is
//! drawn anew for every sandbox, so that one sandbox's placeholder means nothing in another.

mod alphabet;
mod jwt;
mod prefixes;
mod random;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;

pub use prefixes::looks_like_a_token;

use crate::SecretValue;
use random::Random;

/// A run of the real value as long as this would be telling.
const RUN: usize = 8;
/// How often a drawn text may be refused before its shape is given up.
const MAX_DRAWS: usize = 64;

/// Text that stands for a secret inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placeholder(String);

/// Why no placeholder can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    /// No random numbers.
    #[error("this machine gives no random numbers")]
    NoRandom,
    /// Every draw was too like a real value; cannot happen by chance.
    #[error("no placeholder is unlike the value")]
    NotApart,
}

impl Placeholder {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A placeholder that the broker made, as it came over a connection.
    pub(crate) fn from_wire(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A placeholder for each of a sandbox's secrets, in their order.
pub fn draw(values: &[&SecretValue]) -> Result<Vec<Placeholder>, PlaceholderError> {
    let mut random = Random::new();
    let runs: Vec<Runs<'_>> = values.iter().map(|value| Runs::of(value.expose())).collect();
    let mut drawn: Vec<Placeholder> = Vec::with_capacity(values.len());
    for value in values {
        drawn.push(draw_one(value.expose(), &runs, &drawn, &mut random)?);
    }
    Ok(drawn)
}

fn draw_one(real: &[u8], values: &[Runs<'_>], earlier: &[Placeholder], random: &mut Random) -> Result<Placeholder, PlaceholderError> {
    for attempt in 0..2 * MAX_DRAWS {
        let shaped = if attempt < MAX_DRAWS { shape::like(real, random)? } else { None };
        let text = match shaped {
            Some(text) => text,
            None => shape::plain(real.len(), random)?,
        };
        let apart = values.iter().all(|runs| !runs.show_in(text.as_bytes()));
        if apart && earlier.iter().all(|other| !text.contains(other.as_str()) && !other.as_str().contains(&text)) {
            return Ok(Placeholder(text));
        }
    }
    Err(PlaceholderError::NotApart)
}

/// The telling runs of a real value: looked up, not compared one by one, because a value may be long.
struct Runs<'a> {
    length: usize,
    all: HashSet<&'a [u8]>,
}

impl<'a> Runs<'a> {
    /// Those of all but its public prefix.
    fn of(real: &'a [u8]) -> Self {
        let private = real.get(prefixes::public_prefix(real).len()..).unwrap_or_default();
        let length = RUN.min(private.len().max(1));
        Self { length, all: private.windows(length).collect() }
    }

    /// Whether a text shows one of them.
    fn show_in(&self, text: &[u8]) -> bool {
        text.windows(self.length).any(|run| self.all.contains(run))
    }
}
