//! The cleaner's own memory.

use super::dirty::Ordered;
use super::doublewrite::BATCH;
use super::role::Role;
use crate::counted::Mutex;
use crate::format::PageId;
use seawall_io::Arena;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The cleaner's own memory.
#[derive(Debug)]
pub(super) struct Cleaner {
    pub(super) role: Role,
    /// Where copies are made; enough for a batch.
    pub(super) copies: Arc<Arena>,
    /// The eviction clock's hand, frames; it only grows.
    pub(super) hand: AtomicU64,
    /// Those of the last scan for old pages that are still to be written.
    pub(super) round: Mutex<Old>,
    pub(super) ordered: Mutex<Ordered>,
}

impl Cleaner {
    pub(super) fn new(page_bytes: usize, frames_max: u32) -> Self {
        let slots = frames_max.min(BATCH as u32);
        Self {
            role: Role::default(),
            copies: Arena::new(page_bytes, slots),
            hand: AtomicU64::new(0),
            round: Mutex::default(),
            ordered: Mutex::default(),
        }
    }
}

/// Pages whose oldest change lies before some position, by rising number.
#[derive(Debug, Default)]
pub(super) struct Old {
    pub(super) frames: Vec<u32>,
    pub(super) away: Vec<PageId>,
    /// Others are in frames that do not show their page yet.
    pub(super) in_transit: bool,
}

impl Old {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.away.is_empty() && !self.in_transit
    }

    /// Takes at most so many: frames, and when there are none left pages away.
    pub(super) fn take_some(&mut self, most: usize) -> (Vec<u32>, Vec<PageId>) {
        let frames = self.frames.split_off(self.frames.len().saturating_sub(most));
        let kept = if frames.is_empty() { self.away.len().saturating_sub(most) } else { self.away.len() };
        (frames, self.away.split_off(kept))
    }
}
