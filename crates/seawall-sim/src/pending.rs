//! The changes of one file since it was last stable, and their possible outcomes.
//!
//! 1. A change is pending until a sync, a durable write of exactly its bytes, or a power cut decides it.
//! 2. Data is pending by tear unit (a sector): of all pending versions of a unit, any one or none may
//!    persist. The units of an atomic write persist together or not at all.
//! 3. Growth of the length and conversions of extents persist independently: data may be intact while its
//!    extent is still marked unwritten, and then reads as zeroes.
//! 4. A shrink that does not persist takes all later changes with it: later data lives in blocks that the
//!    shrink would have freed.

use crate::crash::CrashOutcomes;
use crate::image::Image;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Maximum number of versions kept of one unit; more would only repeat the same outcomes.
const VERSIONS_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meta {
    /// Growth; `data` if written bytes lie beyond the old end.
    Extend {
        to: u64,
        data: bool,
    },
    Shrink {
        to: u64,
    },
    Allocate {
        blocks: RangeInclusive<u64>,
    },
    Convert {
        blocks: RangeInclusive<u64>,
    },
}

/// One version of one unit: the bytes of `source` from `at`, or zeroes.
#[derive(Debug, Clone)]
struct Version {
    seq: u64,
    source: Option<Arc<[u8]>>,
    at: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    data: BTreeMap<u64, Vec<Version>>,
    meta: Vec<(u64, Meta)>,
    /// Writes that persist whole or not at all.
    atomic: BTreeSet<u64>,
}

enum Event<'a> {
    Meta(&'a Meta),
    Data(u64, &'a Version),
}

impl Pending {
    pub(crate) fn push_meta(&mut self, seq: u64, meta: Meta) {
        self.meta.push((seq, meta));
    }

    /// Adds versions of whole units; `source` None means zeroes.
    pub(crate) fn push_data(&mut self, seq: u64, units: std::ops::Range<u64>, unit: u64, source: Option<&Arc<[u8]>>) {
        for (index, number) in units.enumerate() {
            let versions = self.data.entry(number).or_default();
            if versions.len() == VERSIONS_MAX {
                versions.remove(VERSIONS_MAX / 2);
            }
            versions.push(Version { seq, source: source.cloned(), at: index * unit as usize });
        }
    }

    pub(crate) fn note_atomic(&mut self, seq: u64) {
        self.atomic.insert(seq);
    }

    /// Returns the last write to a unit, if it is atomic.
    pub(crate) fn atomic_write_of(&self, unit: u64) -> Option<u64> {
        let newest = self.data.get(&unit)?.last()?.seq;
        self.atomic.contains(&newest).then_some(newest)
    }

    pub(crate) fn has_shrink(&self) -> bool {
        self.meta.iter().any(|(_, meta)| matches!(meta, Meta::Shrink { .. }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.meta.is_empty()
    }

    /// Units with pending data.
    pub(crate) fn units(&self) -> impl Iterator<Item = u64> + '_ {
        self.data.keys().copied()
    }

    pub(crate) fn forget_unit(&mut self, unit: u64) {
        self.data.remove(&unit);
    }

    pub(crate) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        self.data.values().flatten().map(|version| version.seq).chain(self.meta.iter().map(|(seq, _)| *seq))
    }

    /// Copies the newest bytes of a unit to `out`: the pending ones, or else those of `base`.
    pub(crate) fn newest(&self, number: u64, unit: u64, base: &Image, out: &mut [u8]) {
        match self.data.get(&number).and_then(|versions| versions.last()) {
            Some(Version { source: Some(source), at, .. }) => out.copy_from_slice(&source[*at..at + unit as usize]),
            Some(Version { source: None, .. }) => out.fill(0),
            None => {
                let start = number * unit;
                let freed = self.meta.iter().any(|(_, m)| matches!(m, Meta::Shrink { to } if *to <= start));
                if freed { out.fill(0) } else { base.read(start, out) }
            }
        }
    }

    /// Makes everything stable.
    pub(crate) fn settle_all(&mut self, unit: u64, stable: &mut Image) {
        std::mem::take(self).replay(unit, stable, |_, _| true);
    }

    /// Makes everything stable except growth that no written byte needs.
    pub(crate) fn settle_needed(&mut self, unit: u64, stable: &mut Image) {
        let all = std::mem::take(self);
        all.replay(unit, stable, |_, event| !is_bare_growth(event));
        self.meta = all.meta.into_iter().filter(|(_, meta)| is_bare_growth(&Event::Meta(meta))).collect();
    }

    /// Decides which changes persist, as a power cut does.
    pub(crate) fn cut(&mut self, unit: u64, stable: &mut Image, outcomes: &mut CrashOutcomes<'_>) {
        let all = std::mem::take(self);
        all.replay(unit, stable, |seq, event| match event {
            Event::Meta(_) => outcomes.whole(seq),
            Event::Data(..) => outcomes.part(seq, all.atomic.contains(&seq)),
        });
        stable.settle();
    }

    fn replay(&self, unit: u64, stable: &mut Image, mut keep: impl FnMut(u64, &Event<'_>) -> bool) {
        let mut events: Vec<(u64, u64, Event<'_>)> =
            self.meta.iter().map(|(seq, meta)| (*seq, 0, Event::Meta(meta))).collect();
        for (number, versions) in &self.data {
            events.extend(versions.iter().map(|v| (v.seq, number + 1, Event::Data(*number, v))));
        }
        events.sort_by_key(|(seq, place, _)| (*seq, *place));
        for (seq, _, event) in events {
            let kept = keep(seq, &event);
            match event {
                Event::Meta(Meta::Shrink { .. }) if !kept => return,
                _ if !kept => {}
                Event::Meta(Meta::Shrink { to }) => stable.shrink(*to),
                Event::Meta(Meta::Extend { to, .. }) => stable.len = stable.len.max(*to),
                Event::Meta(Meta::Allocate { blocks }) => stable.allocate(blocks.clone()),
                Event::Meta(Meta::Convert { blocks }) => stable.convert(blocks.clone()),
                Event::Data(number, version) => {
                    let bytes = version.source.as_ref().map(|source| &source[version.at..version.at + unit as usize]);
                    stable.put(number * unit, unit as usize, bytes);
                }
            }
        }
    }
}

fn is_bare_growth(event: &Event<'_>) -> bool {
    matches!(event, Event::Meta(Meta::Extend { data: false, .. } | Meta::Allocate { .. }))
}
