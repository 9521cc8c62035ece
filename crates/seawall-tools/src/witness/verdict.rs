//! The result of a verification, and its meaning in plain words.
//!
//! 1. Only a real power cut proves anything: [`Verdict::Kept`] needs evidence of one (another boot id, or a
//!    control that lost data) and a control, if there was one, that did lose data.
//! 2. Lost data is reported regardless of other doubts.
//! 3. The control's losses never count against the disk.

use super::RunId;
use super::layout::{Description, StreamKind};
use super::sector::Sector;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

/// The counts of a verification that a report shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Writes acknowledged before the cut.
    pub acknowledged: u64,
    /// Acknowledged writes that are missing or damaged.
    pub lost: u64,
    /// Acknowledged writes that are only partly there.
    pub torn: u64,
    /// Writes that survived although an earlier acknowledged one did not.
    pub reordered: u64,
    /// RFC 3339 time of the verification.
    pub verified: String,
}

/// Whether the machine went down between run and verification.
///
/// ```
/// use seawall_tools::witness::Cut;
/// assert_eq!(serde_json::to_string(&Cut::SameBoot)?, r#""same-boot""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The boot id differs: the machine was restarted (by a power cut, or in good order).
    Rebooted,
    /// The boot id is the same: only the process ended, and the page cache survived.
    SameBoot,
    /// One of the boot ids could not be read.
    Unknown,
}

impl Cut {
    pub(super) fn between(then: Option<&str>, now: Option<&str>) -> Self {
        match (then, now) {
            (Some(then), Some(now)) if then == now => Self::SameBoot,
            (Some(_), Some(_)) => Self::Rebooted,
            _ => Self::Unknown,
        }
    }
}

/// One write of a run.
///
/// ```
/// let id = seawall_tools::witness::WriteId { stream: 3, sequence: 41 };
/// assert_eq!(id.to_string(), "write 41 of stream 3");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteId {
    /// Its stream.
    pub stream: u32,
    /// Its number in the stream, from 1; 0 is the preparation of the file.
    pub sequence: u64,
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {} of stream {}", self.sequence, self.stream)
    }
}

/// The kind of damage to an acknowledged write.
///
/// ```
/// use seawall_tools::witness::{DamageKind, Tally};
/// let count = |kinds: &[DamageKind], kind| kinds.iter().filter(|k| **k == kind).count() as u64;
/// let kinds = [DamageKind::Lost, DamageKind::Torn, DamageKind::Lost];
/// let lost = count(&kinds, DamageKind::Lost);
/// assert_eq!(Tally { lost, torn: count(&kinds, DamageKind::Torn), ..Tally::default() }.broken(), 3);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageKind {
    /// Missing: an older version, zeroes or nothing is there.
    Lost,
    /// Only partly there.
    Torn,
    /// Neither the write nor an older version is there: damaged, unreadable, or data that belongs elsewhere.
    Corrupted,
}

/// Neighbouring sectors of the same kind.
///
/// ```
/// use seawall_tools::witness::{Sector, SectorRun};
/// // A block of 16 KiB whose last 4 KiB never reached the medium.
/// let found = [
///     SectorRun { first: 0, count: 24, held: Sector::Version(9) },
///     SectorRun { first: 24, count: 8, held: Sector::Version(5) },
/// ];
/// assert_eq!(found.iter().map(|run| run.count).sum::<u32>() * 512, 16384);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectorRun {
    /// First sector of the block, from 0.
    pub first: u32,
    /// Number of sectors.
    pub count: u32,
    /// The kind of the sectors.
    pub held: Sector,
}

impl SectorRun {
    pub(super) fn of(sectors: &[Sector]) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for (i, &held) in (0..).zip(sectors) {
            match runs.last_mut() {
                Some(run) if run.held == held => run.count += 1,
                _ => runs.push(Self { first: i, count: 1, held }),
            }
        }
        runs
    }
}

/// One acknowledged write that is not there as acknowledged.
///
/// ```
/// use seawall_tools::witness::{DamagedWrite, DamageKind, Sector, SectorRun, StreamKind, WriteId};
/// let finding = DamagedWrite {
///     kind: DamageKind::Lost,
///     stream: StreamKind::Overwrite,
///     write: WriteId { stream: 0, sequence: 9 },
///     record: 31,
///     file: "witness-0000000000000007-scratch".into(),
///     offset: 8192,
///     found: vec![SectorRun { first: 0, count: 8, held: Sector::Version(5) }],
///     overtaken_by: None,
/// };
/// assert!(finding.to_string().starts_with("lost: write 9 of stream 0 at offset 8192 of witness-"));
/// assert!(finding.to_string().ends_with("there is the older write 5"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedWrite {
    /// The kind of damage.
    pub kind: DamageKind,
    /// The kind of its stream; findings of the control are expected.
    pub stream: StreamKind,
    /// The write that should be there.
    pub write: WriteId,
    /// Number of its report at the witness, from 1.
    pub record: u64,
    /// The file, in the run's directory.
    pub file: String,
    /// Offset of the block in the file, bytes.
    pub offset: u64,
    /// What is there instead.
    pub found: Vec<SectorRun>,
    /// A write that was issued after this one was acknowledged, and that was found: the two were reordered.
    pub overtaken_by: Option<WriteId>,
}

impl fmt::Display for DamagedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DamageKind::Lost => "lost",
            DamageKind::Torn => "torn",
            DamageKind::Corrupted => "corrupted",
        };
        write!(f, "{kind}: {} at offset {} of {}; there is ", self.write, self.offset, self.file)?;
        for (i, run) in self.found.iter().enumerate() {
            if i == 4 {
                f.write_str(", and so on")?;
                break;
            }
            if i > 0 {
                f.write_str(", ")?;
            }
            match run.held {
                Sector::Version(0) => f.write_str("what was prepared before the run")?,
                Sector::Version(v) if v < self.write.sequence => write!(f, "the older write {v}")?,
                Sector::Version(v) => write!(f, "write {v}")?,
                Sector::Zeroes => f.write_str("zeroes")?,
                Sector::Missing => f.write_str("nothing (the file is shorter, or missing)")?,
                Sector::Unreadable => f.write_str("a read error")?,
                Sector::Foreign => f.write_str("a sector that belongs elsewhere")?,
                Sector::Damaged => f.write_str("damage")?,
            }
            if self.found.len() > 1 {
                write!(f, " (sectors {} to {})", run.first, run.first + run.count - 1)?;
            }
        }
        match self.overtaken_by {
            Some(by) => write!(f, "; {by}, issued later, is there"),
            None => Ok(()),
        }
    }
}

/// Counts for one kind of stream.
///
/// ```
/// use seawall_tools::witness::Tally;
/// let tally = Tally { checked: 100, intact: 96, lost: 3, corrupted: 1, in_flight_torn: 2, ..Tally::default() };
/// assert_eq!(tally.broken(), 4, "what was in flight at the cut may be torn");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Writes on record.
    pub acknowledged: u64,
    /// Places compared with the record: the newest write to each.
    pub checked: u64,
    /// Places that hold that write, or the write in flight at the cut.
    pub intact: u64,
    /// Missing.
    pub lost: u64,
    /// Only partly there.
    pub torn: u64,
    /// Replaced by bytes that no write put there.
    pub corrupted: u64,
    /// Writes found although an earlier acknowledged one is lost or torn.
    pub overtaking: u64,
    /// Writes in flight at the cut that are there; expected.
    pub in_flight_whole: u64,
    /// Writes in flight at the cut that are partly there; expected.
    pub in_flight_torn: u64,
    /// Writes in flight at the cut that are missing; expected.
    pub in_flight_absent: u64,
}

impl Tally {
    /// Acknowledged writes that are not there as acknowledged.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.lost + self.torn + self.corrupted
    }
}

/// Why a cut proves nothing.
///
/// ```
/// use seawall_tools::witness::{Cut, NoProof, Tally, Verdict, Verification};
/// # use seawall_tools::witness::{Description, RunId, WriteMethod};
/// # let description = Description {
/// #     seed: 1, boot_id: None, method: WriteMethod::default(), block_bytes: 16384, threads: 4, slots: 256,
/// #     append_blocks: 4096, control: true, dir: "/srv/db/scratch".into(),
/// # };
/// # let mut found = Verification {
/// #     run: RunId(7), description, cut: Cut::SameBoot, ended: false, main: Tally::default(), control: None,
/// #     findings: vec![], findings_total: 0, beyond_record: 0, verified: "2026-11-20T12:00:00Z".into(),
/// # };
/// # let written = Tally { acknowledged: 1000, checked: 400, intact: 400, ..Tally::default() };
/// assert_eq!(found.verdict(), Verdict::ProvesNothing(NoProof::NothingWritten));
/// found.main = written;
/// assert_eq!(found.verdict(), Verdict::ProvesNothing(NoProof::SameBoot), "only the process ended");
/// found.cut = Cut::Rebooted;
/// found.control = Some(written);
/// assert_eq!(found.verdict(), Verdict::ProvesNothing(NoProof::ControlKept), "the caches had time to empty");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoProof {
    /// Nothing was acknowledged.
    NothingWritten,
    /// The machine was not restarted.
    SameBoot,
    /// It is unknown whether the machine was restarted, and no control lost data.
    UnknownBoot,
    /// The control, never synced, lost nothing: the caches had time to empty.
    ControlKept,
}

/// The verdict of a verification.
///
/// ```
/// use seawall_tools::witness::{Cut, Tally, Verdict, Verification};
/// # use seawall_tools::witness::{Description, RunId, WriteMethod};
/// # let description = Description {
/// #     seed: 1, boot_id: None, method: WriteMethod::default(), block_bytes: 16384, threads: 4, slots: 256,
/// #     append_blocks: 4096, control: true, dir: "/srv/db/scratch".into(),
/// # };
/// # let mut found = Verification {
/// #     run: RunId(7), description, cut: Cut::Rebooted, ended: false, main: Tally::default(), control: None,
/// #     findings: vec![], findings_total: 0, beyond_record: 0, verified: "2026-11-20T12:00:00Z".into(),
/// # };
/// found.main = Tally { acknowledged: 1000, checked: 400, intact: 400, ..Tally::default() };
/// found.control = Some(Tally { acknowledged: 900, checked: 200, intact: 150, lost: 50, ..Tally::default() });
/// assert_eq!(found.verdict(), Verdict::Kept, "only what was never synced is gone");
/// found.main = Tally { intact: 399, torn: 1, ..found.main };
/// assert_eq!(found.verdict(), Verdict::Broken);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Acknowledged writes are missing.
    Broken,
    /// All acknowledged writes survived a cut.
    Kept,
    /// Nothing is missing, but that proves nothing.
    ProvesNothing(NoProof),
    /// The run itself was a control (`nosync`, `direct-nosync`): it says something about the cut, not about
    /// the disk.
    Control {
        /// Whether it lost data, as expected.
        lost_data: bool,
    },
}

/// The result of a verification.
///
/// ```
/// use seawall_tools::witness::{Cut, Tally, Verification};
/// # use seawall_tools::witness::{Description, RunId, WriteMethod};
/// # let description = Description {
/// #     seed: 1, boot_id: None, method: WriteMethod::default(), block_bytes: 16384, threads: 4, slots: 256,
/// #     append_blocks: 4096, control: true, dir: "/srv/db/scratch".into(),
/// # };
/// # let mut found = Verification {
/// #     run: RunId(7), description, cut: Cut::SameBoot, ended: false, main: Tally::default(), control: None,
/// #     findings: vec![], findings_total: 0, beyond_record: 0, verified: "2026-11-20T12:00:00Z".into(),
/// # };
/// found.main = Tally { acknowledged: 1000, checked: 400, intact: 400, ..Tally::default() };
/// assert!(found.text().contains("None lost, none torn, none reordered."));
/// assert_eq!(found.proof(), None, "yet nothing is proven: the machine never went down");
/// assert_eq!(Verification::from_json(&found.to_json())?, found);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// The run.
    pub run: RunId,
    /// The parameters of the run.
    pub description: Description,
    /// Whether the machine was restarted.
    pub cut: Cut,
    /// Whether the run ended by itself before the cut.
    pub ended: bool,
    /// The durable streams.
    pub main: Tally,
    /// The control stream; `None` when the run had none.
    pub control: Option<Tally>,
    /// The findings, at most a thousand.
    pub findings: Vec<DamagedWrite>,
    /// The number of all findings.
    pub findings_total: u64,
    /// Places with versions unknown to the witness: its record is shorter than it was, and counts are lower
    /// bounds.
    pub beyond_record: u64,
    /// RFC 3339 time of the verification.
    pub verified: String,
}

impl Verification {
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let control_lost = self.control.is_some_and(|c| c.broken() > 0);
        let control_kept = self.control.is_some_and(|c| c.acknowledged > 0 && c.broken() == 0);
        if self.description.method.is_control() {
            Verdict::Control { lost_data: self.main.broken() > 0 }
        } else if self.main.broken() > 0 {
            Verdict::Broken
        } else if self.main.acknowledged == 0 {
            Verdict::ProvesNothing(NoProof::NothingWritten)
        } else if self.cut == Cut::SameBoot {
            Verdict::ProvesNothing(NoProof::SameBoot)
        } else if control_kept {
            Verdict::ProvesNothing(NoProof::ControlKept)
        } else if self.cut == Cut::Unknown && !control_lost {
            Verdict::ProvesNothing(NoProof::UnknownBoot)
        } else {
            Verdict::Kept
        }
    }

    /// Returns the counts, regardless of what they prove; corrupted writes count as lost.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            acknowledged: self.main.acknowledged,
            lost: self.main.lost + self.main.corrupted,
            torn: self.main.torn,
            reordered: self.main.overtaking,
            verified: self.verified.clone(),
        }
    }

    /// Returns the counts, if they say something about the disk: a report of the lab may show these as tested.
    #[must_use]
    pub fn proof(&self) -> Option<Outcome> {
        matches!(self.verdict(), Verdict::Broken | Verdict::Kept).then(|| self.outcome())
    }

    /// Returns the whole result as JSON.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field of Verification has a JSON form")
    }

    /// Parses the output of [`Verification::to_json`].
    ///
    /// # Errors
    /// Where parsing stopped.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the whole report in plain words.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).expect("writing to a String cannot fail");
        text
    }

    fn write_text(&self, text: &mut String) -> fmt::Result {
        let (what, main) = (&self.description, &self.main);
        writeln!(
            text,
            "Run {}: {} by {} threads, {} KiB a write, in {}.",
            self.run,
            what.method.words(),
            what.threads,
            f64::from(what.block_bytes) / 1024.0,
            what.dir.display()
        )?;
        writeln!(
            text,
            "{} writes were acknowledged before the {}; the newest to each of {} places was looked for.",
            grouped(main.acknowledged),
            if self.cut == Cut::SameBoot || self.ended { "end" } else { "cut" },
            grouped(main.checked)
        )?;
        if main.broken() == 0 {
            writeln!(text, "None lost, none torn, none reordered.")?;
        } else {
            writeln!(
                text,
                "{} of them are gone, {} are there in part, {} are replaced by something that was never written there; \
                 {} later writes survived although an earlier one did not.",
                grouped(main.lost),
                grouped(main.torn),
                grouped(main.corrupted),
                grouped(main.overtaking)
            )?;
        }
        writeln!(
            text,
            "In flight at the end: {} there, {} there in part, {} not there; all three are fine.",
            main.in_flight_whole, main.in_flight_torn, main.in_flight_absent
        )?;
        match self.control {
            Some(control) if control.broken() > 0 => writeln!(
                text,
                "The control, {} writes without any sync, lost {} of {} places: the cut took what was not \
                 synced, as a real one does.",
                grouped(control.acknowledged),
                grouped(control.broken()),
                grouped(control.checked)
            )?,
            Some(control) => {
                writeln!(
                    text,
                    "The control, {} writes without any sync, lost nothing.",
                    grouped(control.acknowledged)
                )?;
            }
            None => writeln!(text, "There was no control stream, so how hard the cut was cannot be told.")?,
        }
        if self.ended {
            writeln!(text, "The run had ended by itself before the cut: cut the power while it writes to test more.")?;
        }
        if self.beyond_record > 0 {
            writeln!(
                text,
                "{} places hold writes that the witness never confirmed: its record is shorter than it was, so its \
                 own storage \
                 lost something. The counts are lower bounds.",
                self.beyond_record
            )?;
        }
        writeln!(text)?;
        self.write_verdict(text)?;
        const SHOWN: usize = 10;
        let findings: Vec<_> = self.findings.iter().filter(|f| f.stream != StreamKind::Control).collect();
        if !findings.is_empty() {
            writeln!(text)?;
        }
        for finding in findings.iter().take(SHOWN) {
            writeln!(text, "- {finding}")?;
        }
        if findings.len() > SHOWN {
            writeln!(text, "- and {} more; --json has them", grouped(main.broken() - SHOWN as u64))?;
        }
        Ok(())
    }

    fn write_verdict(&self, text: &mut String) -> fmt::Result {
        let method = self.description.method.words();
        match self.verdict() {
            Verdict::Broken => {
                if self.cut == Cut::SameBoot {
                    writeln!(
                        text,
                        "The machine did not even go down (same boot id), and acknowledged writes are gone: the \
                         files were changed by something else, or the disk or its driver fails. Look at the kernel \
                         log (dmesg)."
                    )
                } else {
                    writeln!(
                        text,
                        "This path does not keep its promise. Do not run a database on it with {method}. What lies \
                         between: \
                         the file system and its mount options, the hypervisor's cache mode, the controller's cache \
                         without a \
                         battery, and the drive's own cache without power-loss protection (`seawall probe` shows what \
                         it can \
                         see of these). Turning the drive's write cache off, and running this test again, tells \
                         whether it was \
                         the drive."
                    )
                }
            }
            Verdict::Kept => writeln!(
                text,
                "This path kept its promise through this cut, with {method}. One cut proves little: repeat it some \
                 ten times, \
                 and pull the plug rather than press reset, which leaves the drive its power."
            ),
            Verdict::ProvesNothing(NoProof::NothingWritten) => {
                writeln!(
                    text,
                    "Nothing was acknowledged, so there was nothing to lose. Let the run go on for a minute \
                     before the cut."
                )
            }
            Verdict::ProvesNothing(NoProof::SameBoot) => writeln!(
                text,
                "This proves nothing about power loss: the machine was not restarted (same boot id). Only the process \
                 ended, \
                 and the page cache outlived it. Start a run, cut the power, and verify after the restart."
            ),
            Verdict::ProvesNothing(NoProof::UnknownBoot) => writeln!(
                text,
                "This proves nothing: it cannot be told whether the machine went down (no boot id), and no \
                 control lost data."
            ),
            Verdict::ProvesNothing(NoProof::ControlKept) => writeln!(
                text,
                "This proves little: even the control, which is never synced, kept everything. Either the machine was \
                 shut down \
                 in good order, or the caches had time to empty. Cut the power while the run writes."
            ),
            Verdict::Control { lost_data: true } => writeln!(
                text,
                "This run was a control ({method}) and lost data, as it should: the same cut under a real \
                 method is a real test."
            ),
            Verdict::Control { lost_data: false } => writeln!(
                text,
                "This run was a control ({method}) and lost nothing: {}",
                if self.cut == Cut::SameBoot {
                    "the machine was not restarted (same boot id), so there was no cut."
                } else if self.description.method == super::WriteMethod::DirectNoSync {
                    "the drive's cache was empty, protected or absent at the cut, or the drive kept its power (a \
                     reset does \
                     not take it)."
                } else {
                    "the shutdown was too gentle to test anything."
                }
            ),
        }
    }
}

/// Formats 12345 as `12,345`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::witness::WriteMethod;

    fn verification() -> Verification {
        Verification {
            run: RunId(1),
            description: Description {
                seed: 1,
                boot_id: Some("a".into()),
                method: WriteMethod::DirectFdatasync,
                block_bytes: 16384,
                threads: 4,
                slots: 256,
                append_blocks: 4096,
                control: true,
                dir: "/srv/db".into(),
            },
            cut: Cut::Rebooted,
            ended: false,
            main: Tally { acknowledged: 12_345, checked: 2000, intact: 2000, ..Tally::default() },
            control: Some(Tally { acknowledged: 900, checked: 200, intact: 150, lost: 50, ..Tally::default() }),
            findings: Vec::new(),
            findings_total: 50,
            beyond_record: 0,
            verified: "2026-11-20T12:00:00Z".into(),
        }
    }

    #[test]
    fn a_cut_is_believed_only_with_evidence() {
        let kept = verification();
        assert_eq!(kept.verdict(), Verdict::Kept);
        assert_eq!(kept.proof().unwrap().lost, 0);
        assert!(kept.text().contains("12,345 writes") && kept.text().contains("some ten times"));
        let no_proof = |v: &Verification| match v.verdict() {
            Verdict::ProvesNothing(why) => why,
            other => panic!("{other:?}"),
        };
        let same = Verification { cut: Cut::SameBoot, ..verification() };
        assert_eq!(no_proof(&same), NoProof::SameBoot);
        assert!(same.proof().is_none() && same.text().contains("proves nothing"));
        let gentle = Verification { control: Some(Tally { acknowledged: 9, ..Tally::default() }), ..verification() };
        assert_eq!(no_proof(&gentle), NoProof::ControlKept);
        let unknown = Verification { cut: Cut::Unknown, ..verification() };
        assert_eq!(unknown.verdict(), Verdict::Kept, "the control lost data, so there was a cut");
        assert_eq!(no_proof(&Verification { control: None, ..unknown }), NoProof::UnknownBoot);
        let broken = Verification { main: Tally { lost: 3, ..kept.main }, cut: Cut::SameBoot, ..verification() };
        assert_eq!(broken.verdict(), Verdict::Broken);
        assert_eq!(Verification::from_json(&kept.to_json()).unwrap(), kept);
    }
}
