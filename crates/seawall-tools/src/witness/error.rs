//! The errors of runs, witnesses and verifications, each with what to do about it.
//!
//! 1. A loss of data is never an error: it is a finding of [`super::Verification`]. An error means that
//!    there is no answer.
//! 2. An error of the disk under test keeps its own evidence ([`IoError`]): file, offset, errno.

use super::RunId;
use seawall_io::IoError;
use std::io;

/// Why serving, running or verifying stopped without an answer.
///
/// ```
/// use seawall_tools::witness::{RunId, WitnessError};
/// let error = WitnessError::StillRunning { run: RunId(7) };
/// assert!(error.to_string().ends_with("cut the power first, then verify"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// Another program listens on the address.
    #[error(
        "cannot listen on {addr}: the address is in use; stop the other program (`ss -ltnp` names it) or give \
         another port"
    )]
    AddressInUse {
        /// The requested address.
        addr: String,
    },
    /// Listening failed for another reason.
    #[error("cannot listen on {addr}: {source}; give an address of this machine, such as 0.0.0.0:7440 for all of them")]
    CannotListen {
        /// The requested address.
        addr: String,
        /// The reason.
        source: io::Error,
    },
    /// No connection to the witness.
    #[error(
        "cannot reach the witness at {addr}: {source}; check that `seawall witness serve` runs there, that it listens \
         on an \
         address other than loopback, and that no firewall is between"
    )]
    CannotReach {
        /// The address given.
        addr: String,
        /// The reason.
        source: io::Error,
    },
    /// The address does not belong to a witness.
    #[error("what listens at {addr} is not a seawall witness ({detail}); check host and port")]
    NotAWitness {
        /// The address given.
        addr: String,
        /// What was received.
        detail: String,
    },
    /// The two programs speak different protocol versions.
    #[error(
        "this program speaks witness protocol {ours} and the other side {theirs}: use the same version of \
         seawall on both machines"
    )]
    ProtocolMismatch {
        /// The version of this program.
        ours: u16,
        /// The version of the other side.
        theirs: u16,
    },
    /// The shared secret differs.
    #[error("the witness refused the token: give --token the same value on both machines")]
    WrongToken,
    /// The witness has no such run.
    #[error("the witness knows no run {run}; {known}")]
    UnknownRun {
        /// The requested id.
        run: RunId,
        /// The runs it knows, in words.
        known: String,
    },
    /// The run id exists already.
    #[error("the witness already has a run {run}, and a record is never overwritten: start the run under another id")]
    RunExists {
        /// The id.
        run: RunId,
    },
    /// The run is still in progress.
    #[error("run {run} is still connected to the witness: cut the power first, then verify")]
    StillRunning {
        /// The id.
        run: RunId,
    },
    /// The connection to the witness was lost.
    #[error(
        "the connection to the witness at {addr} was lost and did not come back ({reason}); the run ends here, \
         because a write \
         that no witness knows of proves nothing. What was confirmed stays on record and can be verified"
    )]
    ConnectionLost {
        /// The address.
        addr: String,
        /// The last thing that failed.
        reason: String,
    },
    /// The witness came back with fewer reports than it had confirmed.
    #[error(
        "the witness had confirmed write {confirmed} of stream {stream} and, after a reconnect, records only \
         {recorded}: the \
         witness's own storage loses what it syncs; run it on another machine"
    )]
    WitnessForgot {
        /// The stream.
        stream: u32,
        /// The last sequence it had confirmed.
        confirmed: u64,
        /// The last sequence it now has.
        recorded: u64,
    },
    /// The witness refused for another reason.
    #[error("the witness refused: {text}")]
    Refused {
        /// Its message.
        text: String,
    },
    /// The witness sent an unexpected answer.
    #[error("the witness at {addr} sent something out of place ({detail}): is it the same version of seawall?")]
    Confused {
        /// The address.
        addr: String,
        /// What was received.
        detail: String,
    },
    /// An option has an invalid value.
    #[error("{option} {reason}")]
    BadOption {
        /// The option's name.
        option: &'static str,
        /// What it must be.
        reason: String,
    },
    /// Stopped on request before there was an answer.
    #[error("stopped before the end, so there is no answer; run it again")]
    Stopped,
    /// An error of the disk.
    #[error(transparent)]
    Io(#[from] IoError),
}
