//! After the power cut: compares the disk with the witness's record.
//!
//! 1. The expected contents come from the witness alone. Each place is checked for the newest recorded write
//!    to it; older ones have been overwritten on purpose.
//! 2. A place may instead hold the one write of its stream that was in flight (the one after the last
//!    recorded): completely or, in a file written in place, partly, next to the newest recorded write. A
//!    renamed file was synced first, so it is never there partly.
//! 3. A write has *overtaken* a lost one only if it was certainly issued after the lost one was acknowledged:
//!    the record of its predecessor in its stream is not earlier than that of the lost one.
//! 4. Verification writes nothing.
//!
//! A place is judged by its sectors; `good` is the newest recorded version, or the one in flight where (2)
//! permits it:
//!
//! | sectors | verdict |
//! |---|---|
//! | all good, one version | intact |
//! | all good or cut through (damaged, unreadable), while one is in flight to here | intact, torn in flight |
//! | some good, some not | torn |
//! | none good; all older versions, zeroes or missing | lost |
//! | none good; damage, unreadable or foreign among them | corrupted |

use super::client::Client;
use super::error::WitnessError;
use super::layout::{Description, Layout, StreamKind};
use super::protocol::{FLAG_ATTACHED, FLAG_ENDED, Report, Standing};
use super::record::is_end;
use super::sector::{Author, SECTOR_BYTES, Sector};
use super::verdict::{Cut, DamageKind, DamagedWrite, SectorRun, Tally, Verification, WriteId};
use super::{RunId, boot_id, whole};
use seawall_io::{Create, Disk, Handle, OpenHow};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the run's connection may remain at the witness after only the process has died.
const DETACH_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum number of findings kept with all details; all are counted.
const FINDINGS_MAX: usize = 1000;

/// Options of a verification.
///
/// ```
/// use seawall_tools::witness::{RunId, VerifyOptions};
/// let options = VerifyOptions { run: RunId(7), token: "tide".into(), ..VerifyOptions::default() };
/// assert!(options.verified.ends_with('Z'), "now, in UTC");
/// ```
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Host and port of the witness.
    pub witness: String,
    /// Shared secret; empty for none.
    pub token: String,
    /// The run.
    pub run: RunId,
    /// Boot id of this machine now; [`boot_id`] by default.
    pub boot_id: Option<String>,
    /// Time of the verification, RFC 3339; now by default.
    pub verified: String,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            witness: "127.0.0.1:7440".into(),
            token: String::new(),
            run: RunId(0),
            boot_id: boot_id(),
            verified: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }
}

/// The progress of a verification.
///
/// ```
/// use seawall_tools::witness::VerifyProgress;
/// let now = VerifyProgress { done: 500, total: 2000, fetching: false };
/// assert_eq!(100 * now.done / now.total, 25, "percent of the places read");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Records fetched, then places read.
    pub done: u64,
    /// The total of these.
    pub total: u64,
    /// True while fetching the record, false while reading the disk.
    pub fetching: bool,
}

/// The newest recorded write to one place.
#[derive(Debug, Clone, Copy, Default)]
struct Newest {
    sequence: u64,
    /// Number of its record, from 1.
    record: u64,
    /// Number of the record of the previous write of its stream: this write was issued after that record.
    issued_after: u64,
}

/// One stream in the witness's record.
#[derive(Debug, Clone)]
struct Seen {
    slots: Vec<Newest>,
    last: Newest,
}

/// The state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Newest,
    InFlight,
    TornInFlight,
    /// Versions unknown to the witness.
    Beyond,
    Wrong(DamageKind),
}

/// Compares the disk with the witness's record of `options.run`.
///
/// ```no_run
/// use seawall_tools::witness::{RunId, VerifyOptions, verify};
/// use std::sync::atomic::AtomicBool;
/// # fn demo(disk: &dyn seawall_io::Disk, run: RunId) -> Result<(), seawall_tools::witness::WitnessError> {
/// let options = VerifyOptions { witness: "other-machine:7440".into(), run, ..Default::default() };
/// let found = verify(disk, "/srv/db/scratch".as_ref(), &options, &AtomicBool::new(false), &|_| ())?;
/// println!("{}", found.text());
/// # Ok(()) }
/// ```
///
/// # Errors
/// Any [`WitnessError`] that prevents an answer. Lost data is not an error: it is in the answer.
pub fn verify(
    disk: &dyn Disk,
    dir: &Path,
    options: &VerifyOptions,
    stop: &AtomicBool,
    progress: &(dyn Fn(&VerifyProgress) + Sync),
) -> Result<Verification, WitnessError> {
    let mut client = Client::connect(&options.witness, &options.token, options.run)?;
    let confused = |detail: &str| WitnessError::Confused { addr: options.witness.clone(), detail: detail.into() };
    let mut standing = fetch(&mut client, options)?;
    let what: Description = serde_json::from_slice(&standing.description)
        .map_err(|error| confused(&format!("a description of the run that cannot be read: {error}")))?;
    let cut = Cut::between(what.boot_id.as_deref(), options.boot_id.as_deref());
    let deadline = Instant::now() + DETACH_TIME_MAX;
    while cut != Cut::Rebooted && standing.flags & FLAG_ATTACHED != 0 {
        if Instant::now() >= deadline {
            return Err(WitnessError::StillRunning { run: options.run });
        }
        thread::sleep(Duration::from_millis(20));
        standing = fetch(&mut client, options)?;
    }
    let layout = Layout::new(options.run, what)?;
    if standing.last.len() != layout.streams() as usize {
        return Err(confused("a number of streams that does not fit the run's description"));
    }
    // An empty directory would look like the loss of everything; a missing or wrong one is a mistake of the
    // caller.
    disk.list(dir)?;

    let mut seen: Vec<Seen> = (0..layout.streams())
        .map(|s| Seen { slots: vec![Newest::default(); layout.slots(s) as usize], last: Newest::default() })
        .collect();
    let mut records = 0;
    while records < standing.records {
        if stop.load(Ordering::Relaxed) {
            return Err(WitnessError::Stopped);
        }
        progress(&VerifyProgress { done: records, total: standing.records, fetching: true });
        let page = client.page(records).map_err(|failure| Client::give_up(&options.witness, failure))?;
        if page.is_empty() {
            return Err(confused("a record that ends before it should"));
        }
        for report in page {
            records += 1;
            if !is_end(report) && !note(&layout, &mut seen, report, records) {
                return Err(confused("a record with gaps"));
            }
        }
    }
    drop(client);

    let mut reading = Reading { disk, dir, layout: &layout, files: HashMap::new(), last_file: String::new() };
    let mut judge = Judge::new(&layout, standing.flags & FLAG_ENDED != 0);
    let total = seen.iter().map(|s| s.slots.len() as u64).sum();
    let mut done = 0;
    for (stream, seen) in (0..).zip(&seen) {
        for slot in 0..seen.slots.len() as u64 {
            if stop.load(Ordering::Relaxed) {
                return Err(WitnessError::Stopped);
            }
            if done % 256 == 0 {
                progress(&VerifyProgress { done, total, fetching: false });
            }
            done += 1;
            judge.place(&mut reading, stream, slot, seen);
        }
    }
    Ok(judge.finish(options, cut))
}

fn fetch(client: &mut Client, options: &VerifyOptions) -> Result<Standing, WitnessError> {
    client.fetch().map_err(|failure| Client::give_up(&options.witness, failure))
}

/// Processes one record; returns false if it does not continue its stream.
fn note(layout: &Layout, seen: &mut [Seen], report: Report, record: u64) -> bool {
    let Some(stream) = seen.get_mut(report.stream as usize) else { return false };
    if report.sequence != stream.last.sequence + 1 {
        return false;
    }
    let newest = Newest { sequence: report.sequence, record, issued_after: stream.last.record };
    stream.slots[layout.slot(report.stream, report.sequence) as usize] = newest;
    stream.last = newest;
    true
}

/// The files of the run, opened when needed.
struct Reading<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    layout: &'a Layout,
    files: HashMap<String, Option<Handle>>,
    last_file: String,
}

impl Reading<'_> {
    /// Reads one block; returns the kinds of its sectors.
    fn sectors(&mut self, author: &Author, file: &str, offset: u64) -> Vec<Sector> {
        if self.last_file != file {
            // Only one file is open at a time: streams are read place by place.
            self.files.clear();
            self.last_file = file.into();
        }
        let (disk, path) = (self.disk, self.dir.join(file));
        let handle = self
            .files
            .entry(file.into())
            .or_insert_with(|| disk.open(&path, OpenHow { create: Create::No, ..OpenHow::default() }).ok());
        let bytes = self.layout.what.block_bytes as usize;
        let Some(handle) = handle else { return vec![Sector::Missing; bytes / SECTOR_BYTES] };
        let mut block = vec![0; bytes];
        if let Ok(got) = whole::read(disk, handle, offset, &mut block) {
            return judge_sectors(author, offset, &block, got);
        }
        // A drive may refuse a whole block for one bad sector: read each sector separately.
        (0..bytes / SECTOR_BYTES)
            .map(|i| {
                let at = offset + (i * SECTOR_BYTES) as u64;
                let mut sector = [0; SECTOR_BYTES];
                match whole::read(disk, handle, at, &mut sector) {
                    Ok(got) => judge_sectors(author, at, &sector, got)[0],
                    Err(_) => Sector::Unreadable,
                }
            })
            .collect()
    }
}

/// Returns the kinds of the sectors of a block of which `got` bytes were read; a sector cut off by the end of
/// the file is missing.
fn judge_sectors(author: &Author, offset: u64, block: &[u8], got: usize) -> Vec<Sector> {
    block
        .chunks_exact(SECTOR_BYTES)
        .enumerate()
        .map(|(i, sector)| {
            let at = i * SECTOR_BYTES;
            if at + SECTOR_BYTES > got { Sector::Missing } else { author.read(offset + at as u64, sector) }
        })
        .collect()
}

/// Implements the table in the module documentation. `in_flight` is the sequence in flight to exactly this
/// place, `in_place` whether it may be torn.
fn judge(sectors: &[Sector], newest: u64, in_flight: Option<u64>, last: u64, in_place: bool) -> SlotState {
    let all = |version: u64| sectors.iter().all(|s| *s == Sector::Version(version));
    let good = |s: &Sector| matches!(s, Sector::Version(v) if *v == newest || Some(*v) == in_flight);
    let beyond = |s: &Sector| matches!(s, Sector::Version(v) if *v > last + 1);
    if all(newest) {
        return SlotState::Newest;
    }
    if in_flight.is_some_and(all) {
        return SlotState::InFlight;
    }
    if sectors.iter().any(beyond) && sectors.iter().all(|s| good(s) || beyond(s)) {
        return SlotState::Beyond;
    }
    let old = |s: &Sector| matches!(s, Sector::Version(v) if *v < newest);
    let gone = |s: &Sector| old(s) || matches!(s, Sector::Zeroes | Sector::Missing);
    // While a write is in flight to this place, a sector may be of either version or cut through, but never
    // older than both.
    let cut_through = |s: &Sector| matches!(s, Sector::Damaged | Sector::Unreadable);
    if in_flight.is_some() && in_place && sectors.iter().all(|s| good(s) || cut_through(s)) {
        return SlotState::TornInFlight;
    }
    SlotState::Wrong(if sectors.iter().any(good) {
        DamageKind::Torn
    } else if sectors.iter().all(gone) {
        DamageKind::Lost
    } else {
        DamageKind::Corrupted
    })
}

/// Collects the findings.
struct Judge<'a> {
    layout: &'a Layout,
    ended: bool,
    main: Tally,
    control: Tally,
    findings: Vec<DamagedWrite>,
    findings_total: u64,
    beyond: u64,
    /// Surviving writes of the main streams, and the record after which each was issued.
    survivors: Vec<(WriteId, u64)>,
    /// The earliest record among the main streams' lost and torn writes.
    earliest_gone: Option<u64>,
}

impl Tally {
    /// Counts the write `next` of an append stream, in flight at the cut: its place holds no other write.
    fn count_append_in_flight(&mut self, sectors: &[Sector], next: u64) {
        match judge(sectors, next, None, next, true) {
            SlotState::Newest => self.in_flight_whole += 1,
            _ if sectors.iter().all(|s| matches!(s, Sector::Missing | Sector::Zeroes)) => self.in_flight_absent += 1,
            _ => self.in_flight_torn += 1,
        }
    }

    fn count_wrong(&mut self, kind: DamageKind) {
        match kind {
            DamageKind::Lost => self.lost += 1,
            DamageKind::Torn => self.torn += 1,
            DamageKind::Corrupted => self.corrupted += 1,
        }
    }
}

impl<'a> Judge<'a> {
    fn new(layout: &'a Layout, ended: bool) -> Self {
        Self {
            layout,
            ended,
            main: Tally::default(),
            control: Tally::default(),
            findings: Vec::new(),
            findings_total: 0,
            beyond: 0,
            survivors: Vec::new(),
            earliest_gone: None,
        }
    }

    fn place(&mut self, reading: &mut Reading<'_>, stream: u32, slot: u64, seen: &Seen) {
        let kind = self.layout.kind(stream);
        let next = seen.last.sequence + 1;
        let newest = seen.slots[slot as usize];
        let tally = if kind == StreamKind::Control { &mut self.control } else { &mut self.main };
        if slot == 0 {
            tally.acknowledged += seen.last.sequence;
        }
        // A place of an append file gets one write only: the write in flight goes to a new place, and says
        // nothing about the old one.
        let shared_place = kind != StreamKind::Append;
        // A run that reported its end had everything confirmed.
        let is_next = !self.ended && self.layout.slot(stream, next) == slot;
        let in_flight = (shared_place && is_next).then_some(next);
        let prepared = matches!(kind, StreamKind::Overwrite | StreamKind::Control);
        let superseded = kind == StreamKind::Append
            && newest.sequence > 0
            && self.layout.generation(newest.sequence) + 1 < self.layout.generation(seen.last.sequence);
        if !shared_place && is_next {
            let place = self.layout.place(stream, slot, next);
            let sectors = reading.sectors(&self.layout.author(stream), &place.file, place.offset);
            tally.count_append_in_flight(&sectors, next);
        }
        if (newest.sequence == 0 && !prepared) || superseded {
            // There is no recorded write to compare the place with.
            if let (Some(next), false) = (in_flight, prepared) {
                let place = self.layout.place(stream, slot, next);
                let sectors = reading.sectors(&self.layout.author(stream), &place.file, place.offset);
                if sectors.iter().all(|s| *s == Sector::Missing) {
                    tally.in_flight_absent += 1;
                } else {
                    tally.in_flight_whole += 1;
                }
            }
            return;
        }
        let place = self.layout.place(stream, slot, newest.sequence);
        let sectors = reading.sectors(&self.layout.author(stream), &place.file, place.offset);
        tally.checked += 1;
        let in_place = kind != StreamKind::Names;
        let held = judge(&sectors, newest.sequence, in_flight, seen.last.sequence, in_place);
        if in_flight.is_some() {
            match held {
                SlotState::InFlight => tally.in_flight_whole += 1,
                SlotState::TornInFlight => tally.in_flight_torn += 1,
                _ => tally.in_flight_absent += 1,
            }
        }
        let write = |sequence| WriteId { stream, sequence };
        self.beyond += u64::from(matches!(held, SlotState::Beyond));
        let survivor = match held {
            SlotState::Newest => Some((write(newest.sequence), newest.issued_after)),
            SlotState::InFlight => Some((write(next), seen.last.record)),
            SlotState::Beyond | SlotState::TornInFlight => None,
            SlotState::Wrong(wrong) => {
                tally.count_wrong(wrong);
                if kind != StreamKind::Control && wrong != DamageKind::Corrupted {
                    self.earliest_gone = Some(self.earliest_gone.map_or(newest.record, |r| r.min(newest.record)));
                }
                self.note_finding(DamagedWrite {
                    kind: wrong,
                    stream: kind,
                    write: write(newest.sequence),
                    record: newest.record,
                    file: place.file,
                    offset: place.offset,
                    found: SectorRun::of(&sectors),
                    overtaken_by: None,
                });
                return;
            }
        };
        tally.intact += 1;
        if kind != StreamKind::Control {
            // Version 0 was there before the run: it does not count as a survivor.
            self.survivors.extend(survivor.filter(|(write, _)| write.sequence > 0));
        }
    }

    fn note_finding(&mut self, finding: DamagedWrite) {
        self.findings_total += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    fn finish(mut self, options: &VerifyOptions, cut: Cut) -> Verification {
        if let Some(gone) = self.earliest_gone {
            self.main.overtaking =
                self.survivors.iter().filter(|(_, issued_after)| *issued_after >= gone).count() as u64;
        }
        let youngest = self.survivors.iter().max_by_key(|(_, issued_after)| *issued_after);
        for finding in self.findings.iter_mut().filter(|f| f.kind != DamageKind::Corrupted) {
            if finding.stream != StreamKind::Control {
                finding.overtaken_by = youngest.filter(|(_, after)| *after >= finding.record).map(|(write, _)| *write);
            }
        }
        Verification {
            run: options.run,
            description: self.layout.what.clone(),
            cut,
            ended: self.ended,
            main: self.main,
            control: self.layout.what.control.then_some(self.control),
            findings: self.findings,
            findings_total: self.findings_total,
            beyond_record: self.beyond,
            verified: options.verified.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_verdicts() {
        use Sector::{Damaged, Foreign, Missing, Unreadable, Version, Zeroes};
        let with = |sectors: &[Sector], in_flight| judge(sectors, 5, in_flight, 9, true);
        assert_eq!(with(&[Version(5); 4], None), SlotState::Newest);
        assert_eq!(with(&[Version(10); 4], Some(10)), SlotState::InFlight);
        assert_eq!(with(&[Version(10), Version(5)], Some(10)), SlotState::TornInFlight);
        assert_eq!(with(&[Version(10), Damaged], Some(10)), SlotState::TornInFlight);
        assert_eq!(with(&[Version(5), Unreadable], Some(10)), SlotState::TornInFlight);
        assert_eq!(with(&[Damaged], Some(10)), SlotState::TornInFlight, "a block of one sector");
        // The newest recorded write is still gone: the write in flight cannot have brought back version 4.
        assert_eq!(with(&[Version(10), Version(4)], Some(10)), SlotState::Wrong(DamageKind::Torn));
        assert_eq!(with(&[Version(5), Version(4)], None), SlotState::Wrong(DamageKind::Torn));
        assert_eq!(with(&[Version(5), Damaged], None), SlotState::Wrong(DamageKind::Torn));
        assert_eq!(with(&[Version(5), Zeroes], None), SlotState::Wrong(DamageKind::Torn));
        assert_eq!(with(&[Version(4); 2], Some(10)), SlotState::Wrong(DamageKind::Lost));
        assert_eq!(with(&[Version(4), Version(3), Zeroes, Missing], None), SlotState::Wrong(DamageKind::Lost));
        assert_eq!(with(&[Version(4), Damaged], None), SlotState::Wrong(DamageKind::Corrupted));
        assert_eq!(with(&[Foreign; 2], Some(10)), SlotState::Wrong(DamageKind::Corrupted));
        assert_eq!(with(&[Version(12); 2], None), SlotState::Beyond);
        // A renamed file was synced before the rename: it may never be there in part.
        assert_eq!(judge(&[Version(10), Damaged], 5, Some(10), 9, false), SlotState::Wrong(DamageKind::Torn));
    }
}
