//! Medians and the intervals that state their uncertainty.
//!
//! - An [`Estimate`] is never a bare number: it has the interval that contains the true median with at least
//!   the stated confidence, by order statistics (no assumption about the distribution).
//! - A comparison is made pair by pair over interleaved rounds, so that drift of the machine cancels.
//! - A ratio inside the noise is no difference ([`Estimate::is_difference`]).

use serde::{Deserialize, Serialize};

/// The middle value, or the mean of the two in the middle. `None` for no values.
///
/// ```
/// use seawall_lab::stats::median;
/// assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])), (Some(2.0), Some(2.5), None));
/// ```
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The distinct values, in the order in which they first occur.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for value in values {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

/// A median with its distribution-free confidence interval.
///
/// ```
/// use seawall_lab::stats::Estimate;
/// let rounds = Estimate::of(&[98.0, 100.0, 100.0, 101.0, 102.0, 96.0]).unwrap();
/// assert_eq!((rounds.median, rounds.spread()), (100.0, 0.03));
/// // Three samples give a range, and a low confidence.
/// assert!(Estimate::of(&[1.0, 2.0, 3.0]).unwrap().confidence < 0.95);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The sample median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of samples.
    pub samples: usize,
    /// Probability that the interval holds the true median (below 0.95 when there are fewer than six
    /// samples).
    pub confidence: f64,
}

impl Estimate {
    /// The median of `samples` and the narrowest symmetric order-statistic interval with at least 95%
    /// confidence, or the whole range when there are too few samples for that. `None` for no samples.
    ///
    /// Source: the sign test's interval, e.g. Conover, Practical Nonparametric Statistics, 3.2.
    ///
    /// ```
    /// use seawall_lab::stats::Estimate;
    /// let e = Estimate::of(&[5.0, 1.0, 4.0, 2.0, 3.0, 6.0]).unwrap();
    /// assert_eq!((e.median, e.low, e.high), (3.5, 1.0, 6.0));
    /// assert!((e.confidence - 0.96875).abs() < 1e-9);
    /// ```
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let median = median(&sorted)?;
        let enough = |drop: &usize| 2 * drop < n && coverage(n, *drop) >= 0.95;
        let drop = (1..n).take_while(enough).last().unwrap_or(0);
        let (low, high) = (sorted[drop], sorted[n - 1 - drop]);
        Some(Self { median, low, high, samples: n, confidence: coverage(n, drop) })
    }

    /// The ratio of `a` to `b`, pair by pair (round i of one against round i of the other, which ran next to each
    /// other). `None` for no pairs.
    ///
    /// ```
    /// use seawall_lab::stats::Estimate;
    /// // The machine slows down meanwhile: that affects both, and the ratio stays.
    /// let a = [220.0, 200.0, 180.0, 160.0, 140.0, 120.0];
    /// let b = a.map(|rate| rate / 2.0);
    /// let ratio = Estimate::of_ratio(&a, &b).unwrap();
    /// assert_eq!((ratio.low, ratio.high, ratio.is_difference()), (2.0, 2.0, true));
    /// assert_eq!(Estimate::of_ratio(&a, &[]), None);
    /// ```
    pub fn of_ratio(a: &[f64], b: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = a.iter().zip(b).filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }

    /// Whether this ratio is a difference: the interval lies on one side of 1, the median is more than 3% away from 1,
    /// and there are at least [`ROUNDS_MIN`] pairs. Any other ratio is inside the noise.
    ///
    /// ```
    /// use seawall_lab::stats::Estimate;
    /// let a = [100.0, 110.0, 90.0, 105.0, 95.0, 100.0];
    /// let b = [104.0, 99.0, 101.0, 98.0, 100.0, 102.0];
    /// assert!(!Estimate::of_ratio(&a, &b).unwrap().is_difference());
    /// ```
    pub fn is_difference(&self) -> bool {
        let apart = (self.low > 1.0 && self.median > 1.03) || (self.high < 1.0 && self.median < 0.97);
        self.samples >= ROUNDS_MIN && apart
    }

    /// Half the interval's width relative to the median, as the table's "spread" (0.04 is shown as ±4%).
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median.abs() }
    }
}

/// Probability that the interval between the `drop`-th smallest and largest of `n` samples holds the median.
fn coverage(n: usize, drop: usize) -> f64 {
    // 1 - 2 * P(Binomial(n, 1/2) <= drop), in logarithms so that large n does not underflow.
    let mut log_choose = 0.0_f64;
    let mut tail = 0.0_f64;
    for k in 0..=drop {
        if k > 0 {
            log_choose += ((n - k + 1) as f64).ln() - (k as f64).ln();
        }
        tail += (log_choose - n as f64 * std::f64::consts::LN_2).exp();
    }
    (1.0 - 2.0 * tail).max(0.0)
}

/// A difference is claimed from at least this many pairs of rounds: five that all point one way do so by
/// chance once in sixteen times, three once in four.
pub const ROUNDS_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_narrows_with_samples_and_never_claims_more_than_it_has() {
        let few = Estimate::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!(few.confidence < 0.95 && few.low == 1.0 && few.high == 3.0);
        let many: Vec<f64> = (0..101).map(f64::from).collect();
        let e = Estimate::of(&many).unwrap();
        assert!(e.confidence >= 0.95);
        assert_eq!(e.median, 50.0);
        assert!(e.low > 38.0 && e.high < 62.0, "{e:?}");
        assert!(Estimate::of(&[]).is_none());
    }

    #[test]
    fn noise_is_called_noise() {
        let a = [100.0, 140.0, 90.0, 120.0, 105.0, 95.0];
        let b = [110.0, 100.0, 100.0, 115.0, 100.0, 101.0];
        let differ = |a: &[f64], b: &[f64]| Estimate::of_ratio(a, b).unwrap().is_difference();
        assert!(!differ(&a, &b));
        let fast = a.map(|x| x * 3.0);
        assert!(differ(&fast, &b) && differ(&b, &fast));
        assert_eq!(Estimate::of_ratio(&[], &b), None);
        // Three pairs that agree are no evidence yet, five are.
        assert!(!differ(&fast[..3], &b) && differ(&fast[..5], &b));
        // A difference of 1% is not worth reporting, even with certainty.
        assert!(!differ(&b.map(|x| x * 1.01), &b));
    }
}
