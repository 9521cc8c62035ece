//! What a power cut does to pending changes.
//!
//! 1. Only pending changes are decided: stable data stays, under every seed.
//! 2. Any subset may persist. Each cut has a mood, so that the extremes (all, nothing, a clean cut in time,
//!    only tears) occur often, besides the mixture that independent decisions give.

use crate::dice::Dice;
use std::collections::BTreeMap;

/// How one power cut tends to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    LoseAll,
    KeepAll,
    /// Everything before this change persisted, nothing after it; the change itself is torn.
    Until(u64),
    /// Writes persist whole or not at all, with this percentage.
    Whole(u64),
    /// Each unit of each write persists independently, with this percentage.
    Torn(u64),
    /// Each write gets its own random kind of outcome.
    Mixed,
}

/// What becomes of one write.
#[derive(Debug, Clone, Copy)]
enum Fate {
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
pub(crate) struct Fates<'a> {
    dice: &'a mut Dice,
    mood: Mood,
    fates: BTreeMap<u64, Fate>,
}

impl<'a> Fates<'a> {
    /// `oldest` and `newest` bound the sequence numbers of pending changes.
    pub(crate) fn new(dice: &'a mut Dice, oldest: u64, newest: u64) -> Self {
        let percent = [15, 50, 85][dice.below(3) as usize];
        let mood = match dice.below(12) {
            0 => Mood::LoseAll,
            1 => Mood::KeepAll,
            2..=4 => Mood::Until(oldest + dice.below(newest.saturating_sub(oldest) + 1)),
            5 | 6 => Mood::Whole(percent),
            7 | 8 => Mood::Torn(percent),
            _ => Mood::Mixed,
        };
        Self { dice, mood, fates: BTreeMap::new() }
    }

    /// Whether a change that cannot tear persists.
    pub(crate) fn whole(&mut self, seq: u64) -> bool {
        match self.mood {
            Mood::LoseAll => false,
            Mood::KeepAll => true,
            Mood::Until(end) if seq != end => seq < end,
            Mood::Whole(percent) | Mood::Torn(percent) => self.dice.percent(percent),
            Mood::Until(_) | Mood::Mixed => self.dice.percent(50),
        }
    }

    /// Whether the next unit of a write persists; called in the order of the units.
    pub(crate) fn part(&mut self, seq: u64) -> bool {
        let (mood, dice) = (self.mood, &mut *self.dice);
        let fate = self.fates.entry(seq).or_insert_with(|| match mood {
            Mood::LoseAll => Fate::Lose,
            Mood::KeepAll => Fate::Keep,
            Mood::Until(end) if seq < end => Fate::Keep,
            Mood::Until(end) if seq > end => Fate::Lose,
            Mood::Until(_) => Fate::Head { alive: true },
            Mood::Whole(percent) if dice.percent(percent) => Fate::Keep,
            Mood::Whole(_) => Fate::Lose,
            Mood::Torn(percent) => Fate::Torn(percent),
            Mood::Mixed => match dice.below(6) {
                0 | 1 => Fate::Keep,
                2 | 3 => Fate::Lose,
                4 => Fate::Torn(50),
                _ if dice.percent(50) => Fate::Head { alive: true },
                _ => Fate::Tail { alive: false },
            },
        });
        match fate {
            Fate::Keep => true,
            Fate::Lose => false,
            Fate::Torn(percent) => dice.percent(*percent),
            Fate::Head { alive } => {
                *alive &= dice.percent(70);
                *alive
            }
            Fate::Tail { alive } => {
                *alive |= dice.percent(30);
                *alive
            }
        }
    }
}
