//! Inputs without end from a few seeds, the same ones at every run: for tests, which have no coverage to follow.
//!
//! Not a fuzzer: it finds what a small change of a real value breaks, and keeps what a fuzzer once found from coming back.

/// Numbers at which code breaks.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// Makes inputs from seeds.
#[derive(Debug)]
pub struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutator<'a> {
    /// Begins with these seeds; the same seeds give the same inputs.
    pub fn new(seeds: &'a [Vec<u8>]) -> Self {
        Self { seeds, state: 0x9e37_79b9_7f4a_7c15 }
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut bytes = self.seed().to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes);
        }
        bytes.truncate(1 << 16);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let length = self.below(16).min(bytes.len() - at);
        match self.below(8) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = self.random() as u8;
                }
            }
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let fresh: Vec<u8> = (0..=self.below(8)).map(|_| self.random() as u8).collect();
                bytes.splice(at..at, fresh);
            }
            4 => {
                let again = bytes[at..at + length].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&edge[..width]);
            }
            6 => bytes.truncate(at),
            _ => {
                let other = self.seed();
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }

    fn seed(&mut self) -> &'a [u8] {
        let at = self.below(self.seeds.len());
        self.seeds.get(at).map_or(&[], Vec::as_slice)
    }

    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.random() % bound as u64) as usize }
    }

    /// The xorshift64* generator: small, and good enough to pick bytes with.
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seeds_give_the_same_inputs_and_not_always_the_seed() {
        let seeds = vec![b"hello, wire".to_vec(), vec![0; 20], Vec::new()];
        let inputs = |count: usize| {
            let mut mutator = Mutator::new(&seeds);
            (0..count).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        let first = inputs(500);
        assert_eq!(first, inputs(500));
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert!(distinct.len() > 300, "{}", distinct.len());
    }
}
