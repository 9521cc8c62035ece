//! The state of the page cleaner.

use super::dirty::Ordered;
use super::doublewrite::BATCH;
use super::role::Role;
use crate::counted::Mutex;
use crate::format::PageId;
use seawall_io::Arena;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The state of the page cleaner.
#[derive(Debug)]
pub(super) struct Cleaner {
    pub(super) role: Role,
    /// Memory for copies of pages; enough for a batch.
    pub(super) copies: Arc<Arena>,
    /// The hand of the eviction clock, in frames; it only grows.
    pub(super) hand: AtomicU64,
    /// The pages that the last scan for old pages found and that are still to be written.
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

/// Pages whose oldest change lies before some position, by rising page number.
#[derive(Debug, Default)]
pub(super) struct Old {
    pub(super) frames: Vec<u32>,
    pub(super) away: Vec<PageId>,
    /// There are others, in frames that have not published their page yet.
    pub(super) in_transit: bool,
}

impl Old {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.away.is_empty() && !self.in_transit
    }

    /// Takes at most `most` entries: frames, or pages away if no frames are left.
    pub(super) fn take_some(&mut self, most: usize) -> (Vec<u32>, Vec<PageId>) {
        let frames = self.frames.split_off(self.frames.len().saturating_sub(most));
        let kept = if frames.is_empty() { self.away.len().saturating_sub(most) } else { self.away.len() };
        (frames, self.away.split_off(kept))
    }
}
