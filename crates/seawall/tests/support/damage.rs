//! Disks that break their promise: their damage, and which outcomes it excuses.
//!
//! 1. The simulated disk records the effect of every lost, misdirected and rotted write, byte by byte
//!    ([`Damage`]); all judgements here follow from that.
//! 2. A wrong answer is excused by an old but valid page only if one was *read*: bytes at the place of a lost
//!    write whose checksum and page number are right and whose LSN is below that of the write. A read by an
//!    opening is an excuse only if the checkpoint is beyond its LSN: otherwise recovery has everything to
//!    bring the page up to date, and must do so.
//! 3. A shorter log is excused only if it ends at a damaged range of the log, and if the missing flushed
//!    events that lie wholly beyond the damage can be those of one flush: they were written together with the
//!    damaged part. The next flush's entries prove that the log before them was flushed; an opening that
//!    finds them must not accept the shorter log.
//! 4. Nothing excuses damage to the control file or to the doublewrite file. A value that was never written is excused
//!    only by an old page of a long value: nothing checks such a value as a whole, so one of its pages can be an older
//!    value's.

use crate::api::Error;
use crate::support::model::{Promise, State};
use crate::support::rig::{DIR, LOG_DIR, Live, Rig, Stop, Undetectable};
use seawall::PageId;
use seawall::internals::format::control::{ControlBlock, SLOT_BYTES, SLOT_STRIDE, SLOTS};
use seawall::internals::format::page::PageKind;
use seawall::internals::format::{Lsn, page};
use seawall_io::{Disk, Op};
use seawall_sim::{Damage, Fault, FaultKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;

/// The class of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Control,
    Data,
    Doublewrite,
    Log,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::Control, Self::Data, Self::Doublewrite, Self::Log];

    fn of(path: &Path) -> Option<Self> {
        match path.file_name()?.to_str()? {
            "control" => Some(Self::Control),
            "data" => Some(Self::Data),
            "doublewrite" => Some(Self::Doublewrite),
            name => (name.len() == Self::Log.pattern().len() && name.starts_with("redo.")).then_some(Self::Log),
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Data => "data",
            Self::Doublewrite => "doublewrite",
            Self::Log => "redo.????????????????",
        }
    }
}

/// The damage to the files of one class, and its outcomes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Damaged {
    pub(crate) lost: u64,
    pub(crate) misdirected: u64,
    pub(crate) rotted: u64,
    pub(crate) named: u64,
    pub(crate) harmless: u64,
    /// Undetectable: a page that was read is old and valid.
    pub(crate) old_page: u64,
    /// Undetectable: the log ends early, and nothing proves that it was longer.
    pub(crate) end_of_log: u64,
}

impl Damaged {
    #[allow(dead_code)] // the rig's own tests run one seed at a time
    pub(crate) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.misdirected += other.misdirected;
        self.rotted += other.rotted;
        self.named += other.named;
        self.harmless += other.harmless;
        self.old_page += other.old_page;
        self.end_of_log += other.end_of_log;
    }
}

impl Rig {
    /// Arms the loss or misdirection of one of the next writes of some file.
    pub(crate) fn lose_a_write(&mut self) {
        let dice = &mut self.beside;
        let class = dice.weighted(&[(1, Class::Control), (4, Class::Data), (1, Class::Doublewrite), (4, Class::Log)]);
        let nth = dice.log_uniform(match class {
            Class::Control => 3,
            Class::Data => 20,
            Class::Doublewrite => 6,
            Class::Log => 60,
        });
        let fault = if dice.percent(60) { Fault::lost_write() } else { Fault::misdirected_write() };
        let fault = fault.on(Op::Write).named(class.pattern()).nth(nth).once();
        self.say(|| format!("  the disk will break its promise: {fault:?}"));
        self.sim.inject(fault);
    }

    /// Flips a bit in a file, preferably in a used part.
    pub(crate) fn flip_a_bit(&mut self) {
        let mut files: Vec<(Class, PathBuf)> = Vec::new();
        for dir in [DIR, LOG_DIR] {
            let all = self.sim.list(dir.as_ref()).unwrap_or_default();
            files.extend(all.into_iter().filter_map(|path| Some((Class::of(&path)?, path))));
        }
        let wanted =
            self.beside.weighted(&[(1, Class::Control), (4, Class::Data), (1, Class::Doublewrite), (4, Class::Log)]);
        files.retain(|(class, _)| *class == wanted);
        if files.is_empty() {
            return;
        }
        let mut file = self.beside.pick(&files).1;
        let mut at = None;
        if wanted == Class::Log && self.beside.percent(70) {
            // The last part of the log: the rest is no longer needed, or is proven by what follows it.
            let lsn = self.head.saturating_sub(self.beside.log_uniform(64 << 10));
            let name = format!("redo.{:016x}", lsn / self.segment_bytes);
            if let Some((_, there)) = files.iter().find(|(_, path)| path.ends_with(&name)) {
                (file, at) = (there.clone(), Some(lsn % self.segment_bytes));
            }
        }
        let bytes = self.sim.stable(&file).unwrap_or_default();
        let offset = at.filter(|at| *at < bytes.len() as u64).unwrap_or_else(|| {
            let mut offset = 0;
            for _ in 0..32 {
                offset = self.beside.index(bytes.len());
                let sector = offset / SECTOR * SECTOR;
                if bytes[sector..bytes.len().min(sector + SECTOR)].iter().any(|byte| *byte != 0) {
                    break;
                }
            }
            offset as u64
        });
        if bytes.is_empty() {
            return;
        }
        let bit = self.beside.below(8) as u8;
        let flipped = self.sim.flip_bit(&file, offset, bit);
        self.say(|| format!("  bit {bit} at {offset} of {} flips: {flipped:?}", file.display()));
    }

    pub(crate) fn operations(&self) -> u64 {
        if self.mode.is_illegal() { self.sim.trace().len() } else { 0 }
    }

    /// Records the end of the log after the last event.
    pub(crate) fn note_head(&mut self, live: &Live) {
        if self.mode.is_illegal() {
            self.head = crate::api::head(&live.db);
            let head = self.head;
            if let Some(last) = self.model.log.last_mut() {
                last.end = head;
            }
        }
    }

    // --- the judgement -------------------------------------------------------------------------------------

    pub(crate) fn is_damaged(&self) -> bool {
        self.mode.is_illegal() && self.sim.damages() > 0
    }

    /// Whether an error reports damage, and there is damage.
    pub(crate) fn names_damage(&self, error: &Error) -> bool {
        self.is_damaged() && is_of_damage(error)
    }

    /// The failure, unless an old and valid page explains it.
    pub(crate) fn excused(&mut self, stop: Option<Stop>) -> Option<Stop> {
        match stop {
            Some(Stop::Failed(why)) if self.an_old_page_was_read(why.contains("never written")) => {
                self.say(|| format!("  excused by an old page: {why}"));
                Some(Stop::Undetectable(Undetectable::OldPage))
            }
            stop => stop,
        }
    }

    /// Whether an old but valid page was read; `long`: one of a long value.
    fn an_old_page_was_read(&self, long: bool) -> bool {
        if !self.is_damaged() {
            return false;
        }
        let checkpoint = self.checkpoint();
        let page_bytes = self.page_bytes;
        self.sim.damage().iter().filter(|damage| Class::of(&damage.path) == Some(Class::Data)).any(|damage| {
            let path = &damage.path;
            let lost = damage.kind != FaultKind::BitRot && !damage.elsewhere;
            lost && damage.reads.iter().any(|read| {
                let by_opening = (self.opening.0 + 1..=self.opening.1).contains(&read.number);
                let from = read.offset.next_multiple_of(page_bytes);
                (from..read.offset + read.bytes.len() as u64).step_by(page_bytes as usize).any(|at| {
                    let found = part(&read.bytes, at - read.offset, page_bytes);
                    let wanted = part(&damage.wanted, at - damage.offset, page_bytes);
                    let (Some(found), Some(wanted)) = (found, wanted) else { return false };
                    let number = PageId((at / page_bytes) as u32);
                    page::verify(found, number, path).is_ok()
                        && (!long || page::kind(found) == Some(PageKind::Overflow))
                        && page::lsn(found) < page::lsn(wanted)
                        && (!by_opening || page::lsn(found) < checkpoint)
                })
            })
        })
    }

    /// The checkpoint of the control file.
    fn checkpoint(&self) -> Lsn {
        let bytes = self.sim.seen(Path::new(DIR).join("control")).unwrap_or_default();
        let slots = (0..SLOTS).filter_map(|slot| part(&bytes, slot * SLOT_STRIDE, SLOT_BYTES as u64));
        let newest = slots.filter_map(|slot| ControlBlock::decode(slot).ok()).max_by_key(|(epoch, _)| *epoch);
        newest.map_or(Lsn::ZERO, |(_, block)| block.checkpoint)
    }

    /// Whether the contents found are a prefix of the log that ends at damage (3). At least `least` events
    /// should be there.
    pub(crate) fn log_ends_at_damage(&mut self, found: &State, least: usize) -> bool {
        self.note_log_damage();
        let damage = self.log_damage.clone();
        let Ok(seq) = self.model.find(found, 0) else { return false };
        if seq >= least || !self.is_damaged() {
            return false;
        }
        let gone = &self.model.log[seq..];
        // The end of an event whose end is not known lies before that of the next event.
        let end = gone.iter().map(|event| event.end).find(|end| *end > 0).unwrap_or(self.head);
        let Some(first) = damage.iter().map(|range| range.start).filter(|start| *start < end).min() else {
            return false;
        };
        let mut start = if seq == 0 { 0 } else { self.model.log[seq - 1].end };
        let mut flushes = BTreeSet::new();
        for event in gone {
            let whole = !damage.iter().any(|range| range.start < event.end && start < range.end);
            if whole && start >= first && event.promise == Promise::Flushed {
                flushes.insert(event.flush);
            }
            start = event.end;
        }
        let (events, beyond) = (gone.len(), flushes.len());
        self.say(|| format!("  {events} events are gone, of {beyond} flushes beyond the damage at {damage:?}"));
        beyond <= 1
    }

    /// Records the currently damaged ranges of the log: an opening overwrites the part beyond the end that it
    /// finds.
    pub(crate) fn note_log_damage(&mut self) {
        if !self.is_damaged() {
            return;
        }
        for damage in self.sim.damage() {
            let name = damage.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let number = name.strip_prefix("redo.").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            // The visible bytes may come from a cache that differs from the medium.
            let now = self.sim.stable(&damage.path).or_else(|| self.sim.seen(&damage.path));
            let (Some(number), Some(now)) = (number, now) else { continue };
            for (index, wanted) in damage.wanted.chunks(SECTOR).enumerate() {
                let offset = damage.offset + (index * SECTOR) as u64;
                if part(&now, offset, wanted.len() as u64) != Some(wanted) {
                    let from = number * self.segment_bytes + offset;
                    self.log_damage.push(from..from + wanted.len() as u64);
                }
            }
        }
    }

    // --- the tally -----------------------------------------------------------------------------------------

    /// The class of the last damaged file.
    fn last_damaged(&self) -> Option<Class> {
        self.sim.damage().iter().rev().find_map(|damage| Class::of(&damage.path))
    }

    pub(crate) fn named(&mut self) {
        self.tally.named += 1;
        if let Some(class) = self.last_damaged() {
            self.tally.of(class).named += 1;
        }
    }

    pub(crate) fn undetectable(&mut self, why: Undetectable) {
        let of = self.sim.damage();
        let class = match why {
            Undetectable::OldPage => Class::Data,
            Undetectable::EndOfLog => Class::Log,
        };
        debug_assert!(of.iter().any(|damage| Class::of(&damage.path) == Some(class)), "it was found in one of these");
        match why {
            Undetectable::OldPage => self.tally.of(class).old_page += 1,
            Undetectable::EndOfLog => self.tally.of(class).end_of_log += 1,
        }
    }

    /// At the end of a seed: counts the damage, and that the rest of it did no harm.
    pub(crate) fn count_damage(&mut self) {
        if !self.mode.is_illegal() {
            return;
        }
        let all: Vec<Damage> = self.sim.damage().into_iter().filter(|damage| !damage.elsewhere).collect();
        self.tally.illegal += 1;
        self.tally.illegal_idle += u64::from(all.is_empty());
        for damage in &all {
            let Some(class) = Class::of(&damage.path) else { continue };
            let of = self.tally.of(class);
            match damage.kind {
                FaultKind::LostWrite => of.lost += 1,
                FaultKind::MisdirectedWrite => of.misdirected += 1,
                _ => of.rotted += 1,
            }
        }
        for class in Class::ALL {
            let of = self.tally.of(class);
            let ended = of.named + of.old_page + of.end_of_log;
            of.harmless += (of.lost + of.misdirected + of.rotted).saturating_sub(ended);
        }
    }
}

fn is_of_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt(_) => true,
        Error::Poisoned { first_error } => is_of_damage(first_error),
        Error::OutcomeUnknown { cause } => is_of_damage(cause),
        _ => false,
    }
}

fn part(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    bytes.get(at as usize..(at + len) as usize)
}
