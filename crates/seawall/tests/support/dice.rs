//! Randomness of one seed.
//!
//! 1. One seed is one run, under every version of every library: the generator (SplitMix64, Steele, Lea and Flood 2014)
//!    is written out here.
//! 2. Split-off streams are independent: an added draw in one part of a test leaves the others unchanged.

#![allow(dead_code)] // each test binary uses some of it

/// From this seed on [`Choice::of`] draws; earlier seeds stay unchanged.
const CHOICES_FROM: u64 = 183_000_000_000;
/// Later seeds that were kept before.
const KEPT: [u64; 4] = [2_026_112_203_698, 2_026_112_220_102, 2_026_112_239_729, 7_711_882_218_217];

/// What is chosen for a whole seed by the remainder of a number. By the remainder of the seed itself, some choices
/// would never meet: a seed that is odd is not divisible by ten.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice {
    AtomicWrites,
    EarlyCleaning,
    DeferredShare,
    Ring,
    Temporaries,
    Compactions,
    Bursts,
    /// What the file system refuses.
    Refusals,
}

impl Choice {
    /// The number for this choice, independent of those for the others.
    pub(crate) fn of(self, seed: u64) -> u64 {
        if draws(seed) { self.later(seed) } else { seed }
    }

    /// Like [`Choice::of`], for a choice that earlier seeds do not have: 0 for them.
    pub(crate) fn later(self, seed: u64) -> u64 {
        if draws(seed) { Dice::new(seed ^ ((self as u64 + 1) << 56)).next() } else { 0 }
    }
}

fn draws(seed: u64) -> bool {
    seed >= CHOICES_FROM && !KEPT.contains(&seed)
}

#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x5ea7_a11d_1ce5_eed5)
    }

    /// Splits off an independent stream.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform below `end`; 0 when `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }

    /// From 1 to about `end`, each order of magnitude equally likely.
    pub(crate) fn log_uniform(&mut self, end: u64) -> u64 {
        let bits = self.below(u64::from(end.max(1).ilog2()) + 1);
        (1 << bits) + self.below(1 << bits)
    }

    /// One of the choices, with probability proportional to its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut left = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in of {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}
