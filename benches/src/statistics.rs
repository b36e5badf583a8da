//! From samples to the few numbers that are told.

use serde::Serialize;

/// Samples in the unit of their table, summed up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// How many samples.
    pub(crate) runs: usize,
    /// The smallest.
    pub(crate) min: f64,
    /// The median.
    pub(crate) p50: f64,
    /// 95 of 100 are not larger.
    pub(crate) p95: f64,
    /// 99 of 100 are not larger.
    pub(crate) p99: f64,
}

impl Summary {
    /// Sums up; `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { runs: sorted.len(), min: *sorted.first()?, p50: rank(50)?, p95: rank(95)?, p99: rank(99)? })
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn ranks_are_samples_that_were_seen() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(Summary::of(&samples), Some(Summary { runs: 200, min: 1.0, p50: 100.0, p95: 190.0, p99: 198.0 }));
        assert_eq!(Summary::of(&[7.0]), Some(Summary { runs: 1, min: 7.0, p50: 7.0, p95: 7.0, p99: 7.0 }));
        assert_eq!(Summary::of(&[]), None);
    }
}
