//! What a power cut does to pending changes.
//!
//! 1. A power cut decides only about pending changes: stable data stays, under every seed.
//! 2. Any subset may persist. Each cut has a pattern, so that the extremes (all, nothing, a clean cut in
//!    time, only tears) occur often, besides the mixture that independent decisions give.

use crate::rng::SeededRng;
use std::collections::BTreeMap;

/// The pattern by which one power cut decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashPattern {
    LoseAll,
    KeepAll,
    /// Everything before this change persisted, nothing after it; the change itself is torn.
    Until(u64),
    /// Each write persists whole or not at all, with this probability, percent.
    Whole(u64),
    /// Each unit of each write persists independently, with this probability, percent.
    Torn(u64),
    /// Each write gets its own random kind of outcome.
    Mixed,
}

/// The outcome of one write.
#[derive(Debug, Clone, Copy)]
enum WriteOutcome {
    Keep,
    Lose,
    Torn(u64),
    /// The first units persist, the rest do not.
    Head {
        alive: bool,
    },
    /// The last units persist, those before do not.
    Tail {
        alive: bool,
    },
}

/// The decisions of one power cut.
#[derive(Debug)]
pub(crate) struct CrashOutcomes<'a> {
    rng: &'a mut SeededRng,
    pattern: CrashPattern,
    outcomes: BTreeMap<u64, WriteOutcome>,
}

impl<'a> CrashOutcomes<'a> {
    /// Draws a pattern. `oldest` and `newest` bound the sequence numbers of pending changes.
    pub(crate) fn new(rng: &'a mut SeededRng, oldest: u64, newest: u64) -> Self {
        let percent = [15, 50, 85][rng.below(3) as usize];
        let pattern = match rng.below(12) {
            0 => CrashPattern::LoseAll,
            1 => CrashPattern::KeepAll,
            2..=4 => CrashPattern::Until(oldest + rng.below(newest.saturating_sub(oldest) + 1)),
            5 | 6 => CrashPattern::Whole(percent),
            7 | 8 => CrashPattern::Torn(percent),
            _ => CrashPattern::Mixed,
        };
        Self { rng, pattern, outcomes: BTreeMap::new() }
    }

    /// Decides whether a change that cannot tear persists.
    pub(crate) fn whole(&mut self, seq: u64) -> bool {
        match self.pattern {
            CrashPattern::LoseAll => false,
            CrashPattern::KeepAll => true,
            CrashPattern::Until(end) if seq != end => seq < end,
            CrashPattern::Whole(percent) | CrashPattern::Torn(percent) => self.rng.percent(percent),
            CrashPattern::Until(_) | CrashPattern::Mixed => self.rng.percent(50),
        }
    }

    /// Decides whether the next unit of a write persists; called in the order of the units. Of an `atomic` write, all
    /// units persist or none.
    pub(crate) fn part(&mut self, seq: u64, atomic: bool) -> bool {
        if atomic && !self.outcomes.contains_key(&seq) {
            let outcome = if self.whole(seq) { WriteOutcome::Keep } else { WriteOutcome::Lose };
            self.outcomes.insert(seq, outcome);
        }
        let (pattern, rng) = (self.pattern, &mut *self.rng);
        let outcome = self.outcomes.entry(seq).or_insert_with(|| match pattern {
            CrashPattern::LoseAll => WriteOutcome::Lose,
            CrashPattern::KeepAll => WriteOutcome::Keep,
            CrashPattern::Until(end) if seq < end => WriteOutcome::Keep,
            CrashPattern::Until(end) if seq > end => WriteOutcome::Lose,
            CrashPattern::Until(_) => WriteOutcome::Head { alive: true },
            CrashPattern::Whole(percent) if rng.percent(percent) => WriteOutcome::Keep,
            CrashPattern::Whole(_) => WriteOutcome::Lose,
            CrashPattern::Torn(percent) => WriteOutcome::Torn(percent),
            CrashPattern::Mixed => match rng.below(6) {
                0 | 1 => WriteOutcome::Keep,
                2 | 3 => WriteOutcome::Lose,
                4 => WriteOutcome::Torn(50),
                _ if rng.percent(50) => WriteOutcome::Head { alive: true },
                _ => WriteOutcome::Tail { alive: false },
            },
        });
        match outcome {
            WriteOutcome::Keep => true,
            WriteOutcome::Lose => false,
            WriteOutcome::Torn(percent) => rng.percent(*percent),
            WriteOutcome::Head { alive } => {
                *alive &= rng.percent(70);
                *alive
            }
            WriteOutcome::Tail { alive } => {
                *alive |= rng.percent(30);
                *alive
            }
        }
    }
}
