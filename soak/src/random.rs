//! Random numbers that can be had again: SplitMix64 from a seed, a loop's name and a round's number.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of one round of one loop.
    pub fn of_round(seed: u64, name: &str, round: u64) -> Self {
        let mut random = Self { state: seed };
        for byte in name.bytes() {
            random.state = random.next() ^ u64::from(byte);
        }
        random.state = random.next() ^ round;
        random
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "an endless stream, never matched against None")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound; 0 where the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let at = self.below(others.len() as u64 + 1) as usize;
        at.checked_sub(1).and_then(|at| others.get(at)).copied().unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_round_can_be_had_again_and_differs_from_its_neighbours() {
        let stream = |seed, name, round| {
            let mut random = Random::of_round(seed, name, round);
            [random.next(), random.next(), random.below(1000)]
        };
        assert_eq!(stream(1, "kill-run", 7), stream(1, "kill-run", 7));
        for other in [stream(2, "kill-run", 7), stream(1, "kill-created", 7), stream(1, "kill-run", 8)] {
            assert_ne!(stream(1, "kill-run", 7), other);
        }
    }

    #[test]
    fn every_choice_is_made() {
        let mut random = Random::of_round(1, "", 0);
        let picked: std::collections::BTreeSet<char> = (0..100).map(|_| random.pick('a', &['b', 'c'])).collect();
        assert_eq!(picked.into_iter().collect::<String>(), "abc");
    }
}
