//! Latency histograms: a fixed number of buckets for any number of values.
//!
//! 1. Values below 2^(`GROUPING_POWER` + 1) have a bucket each; above, each power of two is divided into
//!    2^`GROUPING_POWER` buckets of equal width. So a bucket is at most 1.6% wide.
//! 2. Buckets are numbered in the order of their values, without a gap. Files contain these numbers:
//!    they change only together with the version of those files.
//! 3. Counts read from a file are accepted only if their buckets exist and are in ascending order.

use std::sync::atomic::{AtomicU64, Ordering};

/// Each power of two has 2^6 buckets, each at most 1.6% wide.
pub const GROUPING_POWER: u8 = 6;
/// Latencies up to 2^40 ns (18 minutes) are distinguished; longer ones count in the last bucket.
pub const MAX_VALUE_POWER: u8 = 40;

/// Values below this have a bucket each.
const EXACT: u64 = 2 << GROUPING_POWER;
const BUCKETS: usize =
    EXACT as usize + (MAX_VALUE_POWER as usize - GROUPING_POWER as usize - 1) * (1 << GROUPING_POWER);

fn bucket_of(ns: u64) -> usize {
    let ns = ns.min((1 << MAX_VALUE_POWER) - 1);
    if ns < EXACT {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    let group = usize::from(GROUPING_POWER);
    EXACT as usize + ((power - group - 1) << group) + ((ns as usize - (1 << power)) >> (power - group))
}

/// Returns the first and last value of a bucket.
fn bounds(bucket: u32) -> (u64, u64) {
    let bucket = u64::from(bucket);
    if bucket < EXACT {
        return (bucket, bucket);
    }
    // The bucket's width, as a power of two.
    let width = ((bucket - EXACT) >> GROUPING_POWER) + 1;
    let within = (bucket - EXACT) & ((1 << GROUPING_POWER) - 1);
    let start = (1 << (width + u64::from(GROUPING_POWER))) + (within << width);
    (start, start + (1 << width) - 1)
}

/// The live counters of a histogram.
#[derive(Debug)]
pub(crate) struct Counters(Box<[AtomicU64]>);

impl Counters {
    pub(crate) fn new() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn record(&self, ns: u64) {
        self.0[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> Latencies {
        let mut out = Latencies::default();
        for (bucket, count) in (0..).zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                out.index.push(bucket);
                out.count.push(count);
            }
        }
        out
    }
}

/// How many operations took how long: the buckets in use, in ascending order.
///
/// ```
/// use seawall_io::{Cause, FileClass, IoStats, Op};
/// # use std::time::Duration;
/// let stats = IoStats::new();
/// stats.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::from_nanos(1000), 0);
/// let latency = stats.snapshot().cells.remove(0).latency;
/// let bucket = latency.iter().next().unwrap();
/// assert_eq!((bucket.start(), bucket.end(), bucket.count()), (1000, 1007, 1));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Parts"))]
pub struct Latencies {
    index: Vec<u32>,
    count: Vec<u64>,
}

/// Latencies as a file stores them, not yet checked.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
struct Parts {
    index: Vec<u32>,
    count: Vec<u64>,
}

#[cfg(feature = "serde")]
impl TryFrom<Parts> for Latencies {
    type Error = &'static str;

    fn try_from(Parts { index, count }: Parts) -> Result<Self, Self::Error> {
        let known = index.last().is_none_or(|last| (*last as usize) < BUCKETS);
        if known && index.len() == count.len() && index.is_sorted_by(|a, b| a < b) {
            Ok(Self { index, count })
        } else {
            Err("buckets of latencies that are unknown, out of order, or without a count each")
        }
    }
}

impl Latencies {
    /// Returns the numbers of the buckets in use, ascending.
    #[must_use]
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    /// Returns the count of each bucket in use.
    #[must_use]
    pub fn count(&self) -> &[u64] {
        &self.count
    }

    /// Iterates over the buckets in use, ascending.
    #[must_use]
    pub fn iter(&self) -> Latency<'_> {
        Latency { of: self, at: 0 }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn added(&self, other: &Self) -> Self {
        let mut out = self.clone();
        for (index, count) in other.index.iter().zip(&other.count) {
            match out.index.binary_search(index) {
                Ok(at) => out.count[at] = out.count[at].saturating_add(*count),
                Err(at) => {
                    out.index.insert(at, *index);
                    out.count.insert(at, *count);
                }
            }
        }
        out
    }

    /// Returns the operations since `earlier`, or `None` if `earlier` is not an earlier state of these
    /// counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let mut left = self.clone();
        for (index, count) in earlier.index.iter().zip(&earlier.count) {
            let at = left.index.binary_search(index).ok()?;
            left.count[at] = left.count[at].checked_sub(*count)?;
        }
        let (index, count) = left.index.into_iter().zip(left.count).filter(|(_, count)| *count > 0).unzip();
        Some(Self { index, count })
    }
}

impl<'a> IntoIterator for &'a Latencies {
    type Item = LatencyBucket;
    type IntoIter = Latency<'a>;

    fn into_iter(self) -> Latency<'a> {
        self.iter()
    }
}

/// An iterator over the buckets of [`Latencies`].
#[derive(Debug, Clone)]
pub struct Latency<'a> {
    of: &'a Latencies,
    at: usize,
}

impl Iterator for Latency<'_> {
    type Item = LatencyBucket;

    fn next(&mut self) -> Option<LatencyBucket> {
        let (start, end) = bounds(*self.of.index.get(self.at)?);
        let count = self.of.count[self.at];
        self.at += 1;
        Some(LatencyBucket { start, end, count })
    }
}

/// One bucket of [`Latencies`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyBucket {
    start: u64,
    end: u64,
    count: u64,
}

impl LatencyBucket {
    /// Returns the shortest latency of the bucket, ns.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the longest latency of the bucket, ns.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of operations in the bucket.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use histogram::{Histogram, SparseHistogram};
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Latencies {
        let counters = Counters::new();
        values.iter().for_each(|ns| counters.record(*ns));
        counters.load()
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut next = 0;
        for bucket in 0..u32::try_from(BUCKETS).unwrap() {
            let (start, end) = bounds(bucket);
            assert_eq!(start, next);
            assert_eq!((bucket_of(start), bucket_of(end)), (bucket as usize, bucket as usize));
            assert!(end - start <= start >> GROUPING_POWER, "bucket {bucket} from {start} to {end} is wide");
            next = end + 1;
        }
        assert_eq!(next, 1 << MAX_VALUE_POWER);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1, "what is longer counts as the longest");
    }

    #[test]
    fn what_is_no_earlier_state_is_not_subtracted() {
        assert_eq!(of(&[1, 2]).since(&of(&[2])), Some(of(&[1])));
        assert_eq!(of(&[1]).since(&of(&[2])), None);
        assert_eq!(of(&[1]).since(&of(&[1, 1])), None);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn counts_of_a_file_are_believed_only_when_they_can_be() {
        let read = |text: &str| serde_json::from_str::<Latencies>(text);
        assert_eq!(read("{\"index\": [1, 3], \"count\": [1, 1]}").unwrap(), of(&[1, 3]));
        for wrong in
            ["[3, 1], \"count\": [1, 1]", "[1], \"count\": []", "[99999], \"count\": [1]", "[1, 1], \"count\": [1, 1]"]
        {
            assert!(read(&format!("{{\"index\": {wrong}}}")).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// The lab and the bench count with the crate `histogram`, at the same resolution.
        #[test]
        fn counts_are_those_of_the_crate_histogram(
            first in prop::collection::vec(0..40u32, 0..60), second in prop::collection::vec((0..40u32, any::<u32>()), 0..60),
        ) {
            let first: Vec<u64> = first.iter().map(|power| 1 << power).collect();
            let second: Vec<u64> = second.iter().map(|(power, low)| (1 << power) | (u64::from(*low) & ((1 << power) - 1))).collect();
            let theirs = |values: &[u64]| {
                let mut all = Histogram::new(GROUPING_POWER, MAX_VALUE_POWER).unwrap();
                values.iter().for_each(|ns| all.increment(*ns).unwrap());
                SparseHistogram::from(&all)
            };
            let (a, b) = (of(&first), of(&second));
            let sum = a.added(&b);
            prop_assert_eq!(&sum, &of(&[first.clone(), second.clone()].concat()));
            prop_assert_eq!(sum.since(&a).unwrap(), b.clone());
            let expected = theirs(&second);
            prop_assert_eq!(b.index(), expected.index());
            prop_assert_eq!(b.count(), expected.count());
            let buckets: Vec<_> = b.iter().map(|bucket| (bucket.start(), bucket.end(), bucket.count())).collect();
            let wanted: Vec<_> = expected.iter().map(|bucket| (bucket.start(), bucket.end(), bucket.count())).collect();
            prop_assert_eq!(buckets, wanted);
        }
    }
}
