//! The key-value workloads, and their keys and values.
//!
//! 1. A key is its number in 16 decimal digits, so that every store that compares bytes orders keys by
//!    number.
//! 2. A value is half random bytes and half zeroes, within every 64 bytes: a store that compresses gains no
//!    more than with real data.
//! 3. A random order is a permutation that is computed, not stored: a billion keys need no memory.
//! 4. The same seed gives the same keys, values and order to each thread; the interleaving of the threads is
//!    not determined.

use rand::distr::{Distribution as _, Uniform};
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_distr::Zipf;
use rand_pcg::Pcg64Mcg;
use seawall_lab::words;
use std::fmt;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Zipf's exponent of the mixed workload: that of YCSB.
pub const ZIPF_EXPONENT: f64 = 0.99;
/// Rows of a short range.
pub const SHORT_RANGE: u64 = 10;

words! {
    /// The operation that each thread repeats.
    pub enum Workload {
        /// Loads keys in order, in batches; each thread has a range of its own.
        LoadSequential = "load-sequential",
        /// Loads keys in random order, in batches.
        LoadRandom = "load-random",
        /// Reads a key, uniformly at random.
        PointRead = "point-read",
        /// Like `PointRead`, but from the device: data of at least eight times the pool, with cold caches.
        PointReadCold = "point-read-cold",
        /// Sets a new value for an existing key, uniformly at random, in a transaction of its own.
        Update = "update",
        /// Reads a key under a lock and writes it back changed.
        ReadModifyWrite = "read-modify-write",
        /// One small durable transaction at a time.
        Commit = "commit",
        /// Like `Commit`, while backups are taken one after the other.
        CommitBesideBackup = "commit-beside-backup",
        /// Reads and updates, half each, of keys by Zipf's law.
        Mixed = "mixed",
        /// Reads [`SHORT_RANGE`] rows from a uniformly random key on.
        ShortRange = "short-range",
    }
}

impl Workload {
    /// Returns whether the workload measures loading.
    pub fn loads(self) -> bool {
        matches!(self, Self::LoadSequential | Self::LoadRandom)
    }

    /// Returns whether the workload changes rows.
    pub fn writes(self) -> bool {
        !matches!(self, Self::PointRead | Self::PointReadCold | Self::ShortRange)
    }

    /// Default bytes of a value: small for workloads about the transaction, not the data.
    pub fn default_value_size(self) -> u64 {
        if matches!(self, Self::Commit | Self::CommitBesideBackup) { 100 } else { 400 }
    }
}

/// Checks a number of keys.
///
/// # Errors
/// What to give instead.
pub(crate) fn check_keys(keys: u64) -> Result<(), String> {
    if (1..10_u64.pow(KEY_BYTES as u32)).contains(&keys) {
        return Ok(());
    }
    Err(format!("--keys {keys}: a key is {KEY_BYTES} digits; give at least 1 and less than 10^{KEY_BYTES}"))
}

/// The key of number `n`, below 10^16.
pub fn key(mut n: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    key
}

/// A random order of the numbers below `len`: a Feistel network over the smallest even number of bits that
/// holds them, repeated while the result lies outside (cycle walking; Black and Rogaway 2002).
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// The order of `seed`; `len` at least 1.
    pub fn new(len: u64, seed: u64) -> Self {
        let len = len.max(1);
        let bits = (u64::BITS - (len - 1).leading_zeros()).max(2);
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5ea_3a11);
        Self { len, half_bits: bits.div_ceil(2), keys: [0; 4].map(|_: u64| rng.next_u64()) }
    }

    /// The position of number `n`; `n` below `len`.
    pub fn at(&self, n: u64) -> u64 {
        let mut n = n;
        loop {
            n = self.round_trip(n);
            if n < self.len {
                return n;
            }
        }
    }

    fn round_trip(&self, n: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (n >> self.half_bits, n & mask);
        for key in self.keys {
            // A multiplication and its high bits: enough for a shuffle.
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ ((mixed >> 32) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// Generates values.
#[derive(Debug)]
pub struct Values {
    noise: Vec<u8>,
    size: usize,
}

impl Values {
    /// Creates a generator of values of `size` bytes.
    pub fn new(size: usize, seed: u64) -> Self {
        let mut noise = vec![0; size + (1 << 16)];
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x7a1_0e55);
        rng.fill_bytes(&mut noise);
        for block in noise.chunks_mut(64) {
            let half = block.len() / 2;
            block[half..].fill(0);
        }
        Self { noise, size }
    }

    /// Bytes of a value.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes a new value into `value`.
    pub fn fill(&self, value: &mut Vec<u8>, rng: &mut Pcg64Mcg) {
        let at = rng.random_range(0..=self.noise.len() - self.size);
        value.clear();
        value.extend_from_slice(&self.noise[at..at + self.size]);
        // No two values are equal, even with few different positions in the random bytes.
        let stamp = rng.next_u64().to_le_bytes();
        let len = stamp.len().min(value.len());
        value[..len].copy_from_slice(&stamp[..len]);
    }
}

/// Draws keys.
#[derive(Debug)]
pub enum Keys {
    /// Uniform.
    Uniform(Uniform<u64>),
    /// By Zipf's law, with the frequent keys scattered over the key space.
    Zipf(Zipf<f64>, Permutation),
}

impl Keys {
    /// Creates the distribution of `workload` over `len` keys.
    ///
    /// # Errors
    /// When `len` is 0.
    pub fn new(workload: Workload, len: u64, seed: u64) -> Result<Self, String> {
        let refused =
            |why: &dyn fmt::Display| format!("cannot draw from {len} keys ({why}): give --keys a number above 0");
        if workload == Workload::Mixed {
            let zipf = Zipf::new(len as f64, ZIPF_EXPONENT).map_err(|e| refused(&e))?;
            return Ok(Self::Zipf(zipf, Permutation::new(len, seed)));
        }
        Ok(Self::Uniform(Uniform::new(0, len).map_err(|e| refused(&e))?))
    }

    /// The next key's number.
    pub fn draw(&self, rng: &mut Pcg64Mcg) -> u64 {
        match self {
            Self::Uniform(keys) => keys.sample(rng),
            // Ranks begin at 1.
            Self::Zipf(ranks, order) => order.at((ranks.sample(rng) as u64).clamp(1, order.len) - 1),
        }
    }
}

/// The random numbers of one thread.
pub fn thread_rng(seed: u64, thread: usize) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn keys_sort_as_their_numbers() {
        assert_eq!(&key(42), b"0000000000000042");
        assert!(key(9) < key(10) && key(999_999) < key(1_000_000));
    }

    #[test]
    fn a_permutation_visits_each_once_and_not_in_order() {
        for len in [1, 2, 3, 10, 1000, 4096, 5000] {
            let order = Permutation::new(len, 7);
            let seen: BTreeSet<u64> = (0..len).map(|n| order.at(n)).collect();
            assert_eq!((seen.len() as u64, seen.last().copied()), (len, Some(len - 1)));
        }
        let order = Permutation::new(5000, 7);
        let rising = (1..5000).filter(|&n| order.at(n) > order.at(n - 1)).count();
        assert!((2000..3000).contains(&rising), "{rising}");
        assert!((0..5000).any(|n| Permutation::new(5000, 8).at(n) != order.at(n)), "the seed counts");
    }

    #[test]
    fn values_are_half_random_and_differ() {
        let mut rng = thread_rng(1, 0);
        let values = Values::new(1000, 1);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        values.fill(&mut a, &mut rng);
        values.fill(&mut b, &mut rng);
        let zeroes = a.iter().filter(|b| **b == 0).count();
        assert!(a != b && a.len() == 1000 && (400..600).contains(&zeroes), "{zeroes}");
        Values::new(3, 1).fill(&mut a, &mut rng);
        assert_eq!(a.len(), 3);
    }

    #[test]
    fn mixed_prefers_few_keys_that_lie_apart() {
        let keys = Keys::new(Workload::Mixed, 10_000, 3).unwrap();
        let mut rng = thread_rng(3, 0);
        let mut counts = BTreeMap::new();
        for _ in 0..20_000 {
            *counts.entry(keys.draw(&mut rng)).or_insert(0) += 1;
        }
        let mut most: Vec<(u64, u64)> = counts.into_iter().map(|(key, count)| (count, key)).collect();
        most.sort_unstable();
        // The first rank's share is 1 / sum of i^-0.99 for 10,000 ranks: about a tenth.
        let (first, second) = (most[most.len() - 1], most[most.len() - 2]);
        assert!((1600..2600).contains(&first.0), "{first:?}");
        assert!(first.1.abs_diff(second.1) > 1 && first.1 < 10_000);
        assert!(Keys::new(Workload::Update, 0, 3).is_err() && Keys::new(Workload::Mixed, 0, 3).is_err());
    }

    #[test]
    fn names_are_read_back() {
        for workload in Workload::ALL {
            assert_eq!(workload.word().parse(), Ok(workload));
        }
        assert!("scan".parse::<Workload>().unwrap_err().contains("point-read-cold"));
    }
}
