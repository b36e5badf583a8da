//! The known name nearest to one that is not known.

use super::table::KEYS;

/// How much of a name is compared, so that an absurd one costs little.
const MAX_COMPARED: usize = 96;
/// The shortest piece of a word that stands for the whole.
const MIN_HALF: usize = 4;

/// The nearest setting or group of settings.
pub(crate) fn nearest(unknown: &str) -> String {
    let unknown = plain(unknown);
    let mut best: Option<(usize, &str)> = None;
    for known in candidates() {
        let score = score(&unknown, &plain(known));
        if best.is_none_or(|(least, _)| score < least) {
            best = Some((score, known));
        }
    }
    best.map_or_else(String::new, |(_, known)| known.to_owned())
}

/// The nearest of a few words, where one is near at all.
pub(crate) fn closest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let unknown = plain(unknown);
    let scored = known.iter().map(|word| (word_distance(&unknown, &plain(word)), *word));
    scored.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= 2).map(|(_, word)| word)
}

/// Every key, then every group.
fn candidates() -> impl Iterator<Item = &'static str> {
    let groups = KEYS.iter().flat_map(|key| key.name.match_indices('.').filter_map(|(at, _)| key.name.get(..at)));
    KEYS.iter().map(|key| key.name).chain(groups)
}

/// Twice the edit distance, or that of the last words alone where the rest is forgotten or elsewhere.
fn score(unknown: &[char], known: &[char]) -> usize {
    let last = |name: &[char]| name.rsplit(|c| *c == '.').next().unwrap_or_default().to_vec();
    let whole = 2 * edit_distance(unknown, known);
    let last_word = 2 * word_distance(&last(unknown), &last(known)) + 1;
    whole.min(last_word)
}

/// The edit distance; half a word (`timeout`, `hosts`) counts as one slip.
fn word_distance(unknown: &[char], known: &[char]) -> usize {
    let half = unknown.len() >= MIN_HALF && known.windows(unknown.len()).any(|part| part == unknown);
    let distance = edit_distance(unknown, known);
    if half { distance.min(1) } else { distance }
}

/// Lower case without `_` and `-`: `allowed_hosts` is `allowedHosts`.
fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).take(MAX_COMPARED).collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one to the other.
fn edit_distance(one: &[char], two: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in two.iter().enumerate() {
            let mut least = (at(&row, j) + usize::from(a != b)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = i > 0 && j > 0 && one.get(i - 1) == Some(b) && two.get(j - 1) == Some(a);
            if swapped {
                least = least.min(at(&before, j - 1) + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    at(&row, two.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_slips_are_recognised() {
        for (unknown, known) in [
            ("sandbox.backnd", "sandbox.backend"),
            ("sandbox.limits.memroy", "sandbox.limits.memory"),
            ("sandbox.memory", "sandbox.limits.memory"),
            ("backend", "sandbox.backend"),
            ("sandbox.allowed_hosts", "sandbox.allowedHosts"),
            ("sandbox.shuru.allowed-hosts", "sandbox.shuru.allowedHosts"),
            ("sandbox.timeout", "sandbox.timeoutSeconds"),
            ("sandbox.hosts", "sandbox.allowedHosts"),
            ("sandbx", "sandbox"),
            ("sandbox.microVM", "sandbox.microvm"),
            ("demon.autostart", "daemon.autostart"),
            ("durability", "receipts.durability"),
        ] {
            assert_eq!(nearest(unknown), known, "{unknown}");
        }
        assert!(!nearest("").is_empty() && !nearest(&"x".repeat(1 << 20)).is_empty());
    }

    #[test]
    fn distances() {
        let distance = |a: &str, b: &str| edit_distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!([distance("", "abc"), distance("abc", "abc"), distance("ab", "ba"), distance("kitten", "sitting")], [3, 0, 1, 3]);
    }
}
