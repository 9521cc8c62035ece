//! Proof of durability by cutting the power.
//!
//! A disk's promise ("this write is durable") can be tested in one way only: another machine records each
//! promise, the power is cut, and the disk is compared with the record. [`run`] writes and reports, [`serve`]
//! on the other machine records, [`verify`] compares after the cut.
//! `docs/lab.md` is the user's guide.
//!
//! 1. The witness's record is a subset of the acknowledged writes: a report follows its acknowledgement,
//!    never precedes it.
//! 2. Confirmed reports are on the witness's disk, and a stream does not write again before its last write is
//!    confirmed. So at the cut each stream has at most one acknowledged or partial write that the record
//!    lacks. That one may be found, found in part, or missing; every recorded write that was not overwritten
//!    must be found whole.
//! 3. Every 512-byte sector on the disk under test identifies its write (`sector`), and the place of each
//!    write follows from its number (`layout`): nothing about the run is read back from the disk under test.
//! 4. The time for the report, randomness and the boot id come in through the options; the disk through
//!    [`seawall_io::Disk`].
//!
//! ```text
//!   machine under test                                the other machine
//!   ─────────────────────────────────                 ────────────────────────────
//!   writer ─write, sync─> disk
//!          <─acknowledged─
//!          ─(stream, sequence)─> reporter ═protocol═> witness ─append, sync─> record
//!          <──────confirmed───────────── ═══════════ <────────────────────────
//!   writer ─next write─> ...        ✂ power
//!   verify <─────────────────────────── ═══════════ <─────────────────────── record
//! ```
//!
//! When the witness is restarted or unreachable, the writers wait and the frame is sent again to the witness
//! that comes back; after [`RunOptions::reconnect_time_max`] the run ends with
//! [`WitnessError::ConnectionLost`].

mod client;
mod error;
mod layout;
mod method;
mod protocol;
mod record;
mod reporter;
mod run;
mod sector;
mod serve;
mod verdict;
mod verify;
mod whole;

pub use error::WitnessError;
pub use layout::{Description, StreamKind};
pub use method::{UnknownWriteMethod, WriteMethod};
pub use protocol::PROTOCOL_VERSION;
pub use reporter::Progress;
pub use run::{RunOptions, RunSummary, cleanup, run};
pub use sector::{SECTOR_BYTES, Sector};
pub use serve::{ServeEvent, ServeOptions, Witness, serve};
pub use verdict::{Cut, DamageKind, DamagedWrite, NoProof, Outcome, SectorRun, Tally, Verdict, Verification, WriteId};
pub use verify::{VerifyOptions, VerifyProgress, verify};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a run at the witness: 16 hexadecimal digits.
///
/// ```
/// use seawall_tools::witness::RunId;
/// let run: RunId = "00000000000004d2".parse().unwrap();
/// assert_eq!(run, RunId(1234));
/// assert_eq!(run.to_string(), "00000000000004d2");
/// assert!("run one".parse::<RunId>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(pub u64);

impl RunId {
    /// Creates a random run id.
    ///
    /// ```
    /// use seawall_tools::witness::RunId;
    /// let run = RunId::random();
    /// assert_eq!(run.to_string().parse(), Ok(run));
    /// ```
    #[must_use]
    pub fn random() -> Self {
        // The keys of the standard hasher come from the operating system's randomness; the process id and
        // time separate the ids of processes even if a machine's randomness is poor right after its start.
        use std::hash::{BuildHasher as _, RandomState};
        Self(RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now())))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The error for text that is not a run id.
///
/// ```
/// use seawall_tools::witness::{InvalidRunId, RunId};
/// assert_eq!("4d2".parse::<RunId>(), Err(InvalidRunId("4d2".into())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a run id: give the 16 hexadecimal digits that `seawall witness run` printed")]
pub struct InvalidRunId(pub String);

impl FromStr for RunId {
    type Err = InvalidRunId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let id = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| InvalidRunId(text.into()))
    }
}

impl TryFrom<String> for RunId {
    type Error = InvalidRunId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.to_string()
    }
}

/// Returns the id of this boot of the machine; `None` where Linux does not report it.
///
/// ```
/// assert_eq!(seawall_tools::witness::boot_id(), seawall_tools::witness::boot_id());
/// ```
#[must_use]
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}
