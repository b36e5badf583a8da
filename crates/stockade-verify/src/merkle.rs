//! The Merkle tree over receipts, hashed as RFC 6962 says: growing it, and checking places in it.
//!
//! Leaf `i` is the receipt with `seq` `i`. Nothing here stores a tree; proofs are made from whoever can name the root of a range of leaves.

use sha2::{Digest, Sha256};

/// A node's hash.
pub type Hash = [u8; 32];
/// No tree has more levels than this.
pub const MAX_PROOF: usize = 64;

/// The hash of a leaf.
pub fn leaf(bytes: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(bytes).finalize().into()
}

/// The hash of an inner node.
pub fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of a tree without leaves.
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// A growing tree, of which only the roots of its complete parts are kept: one for each bit of its size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Largest part first.
    peaks: Vec<Hash>,
}

impl Frontier {
    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the complete parts, largest first.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// A tree of which the parts are known; `None` where their number does not fit the size.
    pub fn from_parts(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (u32::try_from(peaks.len()).ok()? == size.count_ones()).then_some(Self { size, peaks })
    }

    /// Adds a leaf. Two parts of equal size become one, as in counting.
    pub fn push(&mut self, leaf: Hash) {
        self.push_noting(leaf, u32::MAX);
    }

    /// Adds a leaf, and gives the root of the part with two to the power of `level` leaves that it completed.
    pub fn push_noting(&mut self, leaf: Hash, level: u32) -> Option<Hash> {
        let (mut merged, mut noted) = (leaf, None);
        for step in 1..=self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                merged = node(&left, &merged);
            }
            if step == level {
                noted = Some(merged);
            }
        }
        self.peaks.push(merged);
        self.size += 1;
        noted
    }

    /// The root of the whole.
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => empty_root(),
            Some(last) => peaks.fold(*last, |right, left| node(left, &right)),
        }
    }
}

/// The largest power of two below `size`, where a tree splits; 0 for trees of fewer than two leaves.
pub fn split(size: u64) -> u64 {
    if size < 2 { 0 } else { 1 << (size - 1).ilog2() }
}

/// The hashes beside the way from a leaf to the root, lowest first. `range` names the root of the leaves from one number up to another.
pub fn inclusion_proof<E>(index: u64, size: u64, range: &mut impl FnMut(u64, u64) -> Result<Hash, E>) -> Result<Vec<Hash>, E> {
    let mut proof = Vec::new();
    let (mut start, mut end) = (0, size);
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            proof.push(range(middle, end)?);
            end = middle;
        } else {
            proof.push(range(start, middle)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The root that a leaf and its proof lead to; `None` where the proof has the wrong length for this place.
pub fn root_of_inclusion(index: u64, size: u64, leaf: Hash, proof: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut place, mut last, mut hash) = (index, size - 1, leaf);
    for beside in proof {
        if last == 0 {
            return None;
        }
        if place & 1 == 1 || place == last {
            hash = node(beside, &hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(&hash, beside);
        }
        place >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

/// The hashes that show that a tree of `old` leaves is the beginning of one of `new` leaves.
pub fn consistency_proof<E>(old: u64, new: u64, range: &mut impl FnMut(u64, u64) -> Result<Hash, E>) -> Result<Vec<Hash>, E> {
    let mut proof = Vec::new();
    if old == 0 || old >= new {
        return Ok(proof);
    }
    let (mut start, mut end, mut is_whole) = (0, new, true);
    while old != end {
        let middle = start + split(end - start);
        if old <= middle {
            proof.push(range(middle, end)?);
            end = middle;
        } else {
            proof.push(range(start, middle)?);
            start = middle;
            is_whole = false;
        }
    }
    if !is_whole {
        proof.push(range(start, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Whether the proof shows that one tree is the beginning of the other.
pub fn is_consistent(old: (u64, Hash), new: (u64, Hash), proof: &[Hash]) -> bool {
    let ((old_size, old_root), (new_size, new_root)) = (old, new);
    if old_size > new_size {
        return false;
    }
    if old_size == new_size || old_size == 0 {
        let same = old_size != new_size || old_root == new_root;
        return proof.is_empty() && same && (old_size != 0 || old_root == empty_root());
    }
    let mut hashes = proof.iter();
    let first = if old_size.is_power_of_two() { Some(&old_root) } else { hashes.next() };
    let Some(first) = first else { return false };
    let (mut place, mut last) = (old_size - 1, new_size - 1);
    while place & 1 == 1 {
        place >>= 1;
        last >>= 1;
    }
    let (mut old_hash, mut new_hash) = (*first, *first);
    for beside in hashes {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            old_hash = node(beside, &old_hash);
            new_hash = node(beside, &new_hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = node(&new_hash, beside);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == old_root && new_hash == new_root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|index| leaf(&index.to_be_bytes())).collect()
    }

    /// The definition in RFC 6962, word for word.
    fn root_by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [one] => *one,
            more => {
                let (left, right) = more.split_at(split(more.len() as u64) as usize);
                node(&root_by_definition(left), &root_by_definition(right))
            }
        }
    }

    fn ranges(leaves: &[Hash]) -> impl FnMut(u64, u64) -> Result<Hash, ()> {
        |start, end| Ok(root_by_definition(&leaves[start as usize..end as usize]))
    }

    #[test]
    fn a_growing_tree_has_the_defined_root_at_every_size() {
        let leaves = leaves(70);
        let mut frontier = Frontier::default();
        assert_eq!(frontier.root(), root_by_definition(&[]));
        for (index, leaf) in leaves.iter().enumerate() {
            let noted = frontier.push_noting(*leaf, 3);
            let is_full = index % 8 == 7;
            assert_eq!(noted, is_full.then(|| root_by_definition(&leaves[index - index % 8..=index])));
            assert_eq!(frontier.root(), root_by_definition(&leaves[..=index]));
            let again = Frontier::from_parts(frontier.size(), frontier.peaks().to_vec());
            assert_eq!(again, Some(frontier.clone()));
        }
        assert_eq!(Frontier::from_parts(3, vec![[0; 32]]), None);
    }

    #[test]
    fn every_place_is_proved_and_no_other() {
        for size in 1..40_u64 {
            let leaves = leaves(size);
            let root = root_by_definition(&leaves);
            for index in 0..size {
                let proof = inclusion_proof(index, size, &mut ranges(&leaves)).unwrap();
                let leaf = leaves[index as usize];
                assert_eq!(root_of_inclusion(index, size, leaf, &proof), Some(root));
                for other in (0..size).filter(|other| *other != index) {
                    assert_ne!(root_of_inclusion(other, size, leaf, &proof), Some(root), "{index} as {other} of {size}");
                }
                assert_eq!(root_of_inclusion(index, size, leaf, &[proof.as_slice(), &[[0; 32]]].concat()), None);
                if let Some((_, shorter)) = proof.split_last() {
                    assert_eq!(root_of_inclusion(index, size, leaf, shorter), None);
                }
            }
            assert_eq!(root_of_inclusion(size, size, leaves[0], &[]), None);
        }
    }

    #[test]
    fn beginnings_are_proved_and_nothing_else() {
        let leaves = leaves(40);
        for new in 0..40_u64 {
            let new_root = root_by_definition(&leaves[..new as usize]);
            for old in 0..=new {
                let old_root = root_by_definition(&leaves[..old as usize]);
                let proof = consistency_proof(old, new, &mut ranges(&leaves)).unwrap();
                assert!(is_consistent((old, old_root), (new, new_root), &proof), "{old} {new}");
                assert!(!is_consistent((old, [9; 32]), (new, new_root), &proof), "{old} {new}");
                if old > 0 && old < new {
                    assert!(!is_consistent((old, old_root), (new, [9; 32]), &proof), "{old} {new}");
                    assert!(!is_consistent((old, old_root), (new, new_root), &[proof.as_slice(), &[[0; 32]]].concat()));
                }
                assert!(new == old || !is_consistent((new, new_root), (old, old_root), &proof));
            }
        }
    }
}
