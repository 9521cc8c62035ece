//! The random decisions of one seed.
//!
//! 1. Every random decision of a disk is drawn here, so a seed determines the run.
//! 2. Only the generator's raw output is used, never a library function for ranges: an old seed still replays
//!    after an update of `rand`.

use rand::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

#[derive(Debug, Clone)]
pub(crate) struct SeededRng(Pcg64Mcg);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns true with this probability, in parts per million.
    pub(crate) fn ppm(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}
