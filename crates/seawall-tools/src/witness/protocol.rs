//! The messages between a run or a verification (the client) and the witness, and the only code that knows
//! their encoding.
//!
//! 1. The client speaks first; every client message gets exactly one answer; the server sends nothing else.
//! 2. The preamble keeps its place and size in every future version, so that two versions can always name
//!    each other.
//! 3. No frame exceeds [`FRAME_BYTES_MAX`]; a length is checked before memory is taken for it.
//! 4. The token keeps strangers out and catches typing errors. It is not encrypted: anyone who can read the
//!    network can read it.
//!
//! All integers are little-endian; sizes in bytes.
//!
//! ```text
//! preamble (each side once, 12)   magic 8 "SEAWITNS" | version 2 | zero 2
//! frame (8 + len)                 len 4 | crc32c 4 over what follows | kind 1 | body len - 1
//!
//! kind                from     body                                                       answered by
//!  1 Auth             client   token 0..=256                                              Done
//!  2 Begin            client   run 8 | streams 4 | description 0..=4096                   Done
//!  3 Resume           client   run 8                                                      Standing
//!  4 Fetch            client   run 8                                                      Standing
//!  5 Page             client   run 8 | from 8 (index of a record)                         Records
//!  6 Report           client   (stream 4 | sequence 8) x 0..=1024                         Done
//!  7 End              client   nothing                                                    Done
//!  8 Ping             client   nothing                                                    Done
//! 16 Done             witness  nothing
//! 17 Standing         witness  records 8 | flags 4 | streams 4 | last 8 x streams | description
//! 18 Records          witness  (stream 4 | sequence 8) x 0..=1024
//! 19 Refused          witness  code 2 | text 0..=1024, UTF-8
//! ```
//!
//! `Done` in answer to `Report` means: every one of these reports is on the witness's disk, synced. Repeated
//! reports are confirmed again without effect, so that a client may repeat its last frame after a reconnect.

use super::RunId;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Version of the protocol; both sides must have the same.
///
/// ```
/// use seawall_tools::witness::{PROTOCOL_VERSION, WitnessError};
/// let error = WitnessError::ProtocolMismatch { ours: PROTOCOL_VERSION, theirs: PROTOCOL_VERSION + 1 };
/// assert!(error.to_string().contains("use the same version of seawall on both machines"));
/// ```
pub const PROTOCOL_VERSION: u16 = 1;
pub(crate) const MAGIC: [u8; 8] = *b"SEAWITNS";
pub(crate) const PREAMBLE_BYTES: usize = 12;
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 10;
pub(crate) const REPORTS_MAX: usize = 1024;
pub(crate) const STREAMS_MAX: u32 = 1024;
pub(crate) const TOKEN_BYTES_MAX: usize = 256;
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 1024;
const REPORT_BYTES: usize = 12;
const _: () = assert!(REPORTS_MAX * REPORT_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(1 + 16 + 8 * STREAMS_MAX as usize + DESCRIPTION_BYTES_MAX < FRAME_BYTES_MAX);

/// Maximum time for the rest of a frame once it has begun.
const FRAME_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a waiting side checks its stop flag.
const POLL: Duration = Duration::from_millis(50);

/// `Standing.flags`: the run reported its end.
pub(crate) const FLAG_ENDED: u32 = 1;
/// `Standing.flags`: a client is connected for this run.
pub(crate) const FLAG_ATTACHED: u32 = 2;

/// One acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) stream: u32,
    pub(crate) sequence: u64,
}

/// What the witness has recorded of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) records: u64,
    pub(crate) flags: u32,
    pub(crate) last: Vec<u64>,
    pub(crate) description: Vec<u8>,
}

/// Why the witness refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Refusal {
    WrongToken = 1,
    UnknownRun = 2,
    RunExists = 3,
    /// A report skips a sequence: the client lost count, and nothing of the frame is recorded.
    Gap = 4,
    /// Another connection resumed this run.
    TakenOver = 5,
    BadRequest = 6,
    Full = 7,
    Storage = 8,
}

impl Refusal {
    const ALL: [Self; 8] = [
        Self::WrongToken,
        Self::UnknownRun,
        Self::RunExists,
        Self::Gap,
        Self::TakenOver,
        Self::BadRequest,
        Self::Full,
        Self::Storage,
    ];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Auth { token: Vec<u8> },
    Begin { run: RunId, streams: u32, description: Vec<u8> },
    Resume { run: RunId },
    Fetch { run: RunId },
    Page { run: RunId, from: u64 },
    Report(Vec<Report>),
    End,
    Ping,
    Done,
    Standing(Standing),
    Records(Vec<Report>),
    Refused { code: Refusal, text: String },
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Auth { .. } => 1,
            Self::Begin { .. } => 2,
            Self::Resume { .. } => 3,
            Self::Fetch { .. } => 4,
            Self::Page { .. } => 5,
            Self::Report(_) => 6,
            Self::End => 7,
            Self::Ping => 8,
            Self::Done => 16,
            Self::Standing(_) => 17,
            Self::Records(_) => 18,
            Self::Refused { .. } => 19,
        }
    }

    /// Encodes the whole frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut frame = vec![0; 8];
        frame.push(self.kind());
        match self {
            Self::Auth { token } => frame.extend_from_slice(token),
            Self::Begin { run, streams, description } => {
                frame.extend_from_slice(&run.0.to_le_bytes());
                frame.extend_from_slice(&streams.to_le_bytes());
                frame.extend_from_slice(description);
            }
            Self::Resume { run } | Self::Fetch { run } => frame.extend_from_slice(&run.0.to_le_bytes()),
            Self::Page { run, from } => {
                frame.extend_from_slice(&run.0.to_le_bytes());
                frame.extend_from_slice(&from.to_le_bytes());
            }
            Self::Report(reports) | Self::Records(reports) => {
                for report in reports {
                    frame.extend_from_slice(&report.stream.to_le_bytes());
                    frame.extend_from_slice(&report.sequence.to_le_bytes());
                }
            }
            Self::Standing(standing) => {
                frame.extend_from_slice(&standing.records.to_le_bytes());
                frame.extend_from_slice(&standing.flags.to_le_bytes());
                frame.extend_from_slice(&(standing.last.len() as u32).to_le_bytes());
                for last in &standing.last {
                    frame.extend_from_slice(&last.to_le_bytes());
                }
                frame.extend_from_slice(&standing.description);
            }
            Self::Refused { code, text } => {
                frame.extend_from_slice(&(*code as u16).to_le_bytes());
                frame.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary_at(TEXT_BYTES_MAX)]);
            }
            Self::End | Self::Ping | Self::Done => {}
        }
        assert!(frame.len() - 8 <= FRAME_BYTES_MAX, "our own frames are bounded where they are built");
        let len = (frame.len() - 8) as u32;
        let crc = crc32c::crc32c(&frame[8..]);
        frame[0..4].copy_from_slice(&len.to_le_bytes());
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
        frame
    }

    /// Decodes a message from its kind and body; `Err` says what is wrong.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, &'static str> {
        let (&kind, body) = payload.split_first().ok_or("an empty frame")?;
        let mut body = Body(body);
        let message = match kind {
            1 => Self::Auth { token: body.rest(TOKEN_BYTES_MAX)? },
            2 => {
                let (run, streams) = (RunId(body.u64()?), body.u32()?);
                if streams == 0 || streams > STREAMS_MAX {
                    return Err("a number of streams out of range");
                }
                Self::Begin { run, streams, description: body.rest(DESCRIPTION_BYTES_MAX)? }
            }
            3 => Self::Resume { run: RunId(body.u64()?) },
            4 => Self::Fetch { run: RunId(body.u64()?) },
            5 => Self::Page { run: RunId(body.u64()?), from: body.u64()? },
            6 => Self::Report(body.reports()?),
            7 => Self::End,
            8 => Self::Ping,
            16 => Self::Done,
            17 => {
                let (records, flags, streams) = (body.u64()?, body.u32()?, body.u32()?);
                if streams > STREAMS_MAX {
                    return Err("a number of streams out of range");
                }
                let last = (0..streams).map(|_| body.u64()).collect::<Result<_, _>>()?;
                Self::Standing(Standing { records, flags, last, description: body.rest(DESCRIPTION_BYTES_MAX)? })
            }
            18 => Self::Records(body.reports()?),
            19 => {
                let code = body.u16()?;
                let code = Refusal::ALL.into_iter().find(|r| *r as u16 == code).ok_or("an unknown refusal")?;
                Self::Refused { code, text: String::from_utf8_lossy(&body.rest(TEXT_BYTES_MAX)?).into_owned() }
            }
            _ => return Err("a message of unknown kind"),
        };
        if body.0.is_empty() { Ok(message) } else { Err("a message longer than its kind allows") }
    }
}

trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        (0..=at.min(self.len())).rev().find(|&i| self.is_char_boundary(i)).unwrap_or(0)
    }
}

/// The rest of a body.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or("a message shorter than its kind needs")?;
        self.0 = tail;
        Ok(*head)
    }
    fn u16(&mut self) -> Result<u16, &'static str> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }
    fn rest(&mut self, max: usize) -> Result<Vec<u8>, &'static str> {
        if self.0.len() > max {
            return Err("a message longer than its kind allows");
        }
        Ok(std::mem::take(&mut self.0).to_vec())
    }
    fn reports(&mut self) -> Result<Vec<Report>, &'static str> {
        if self.0.len() % REPORT_BYTES != 0 || self.0.len() > REPORTS_MAX * REPORT_BYTES {
            return Err("a list of reports of a wrong length");
        }
        let mut reports = Vec::with_capacity(self.0.len() / REPORT_BYTES);
        while !self.0.is_empty() {
            reports.push(Report { stream: self.u32()?, sequence: self.u64()? });
        }
        Ok(reports)
    }
}

/// Why no message was received.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The other side closed the connection.
    Closed,
    /// Nothing was received in time.
    TimedOut,
    /// This side's stop flag was set.
    Stopped,
    /// The bytes do not belong to this protocol.
    Malformed(&'static str),
    /// The network failed.
    Io(io::Error),
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the other side closed the connection"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Stopped => f.write_str("asked to stop"),
            Self::Malformed(what) => write!(f, "received {what}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

/// A connection that carries frames.
#[derive(Debug)]
pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(POLL))?;
        socket.set_write_timeout(Some(FRAME_TIME_MAX))?;
        Ok(Self(socket))
    }

    pub(crate) fn send_preamble(&mut self) -> Result<(), WireError> {
        let mut preamble = [0; PREAMBLE_BYTES];
        preamble[..8].copy_from_slice(&MAGIC);
        preamble[8..10].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        self.0.write_all(&preamble).map_err(WireError::Io)
    }

    /// Receives the preamble; returns the protocol version of the other side.
    pub(crate) fn receive_preamble(&mut self, patience: Duration, stop: &AtomicBool) -> Result<u16, WireError> {
        let mut preamble = [0; PREAMBLE_BYTES];
        self.fill(&mut preamble, patience, stop)?;
        if preamble[..8] != MAGIC {
            return Err(WireError::Malformed("something that is not a witness preamble"));
        }
        Ok(u16::from_le_bytes([preamble[8], preamble[9]]))
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<(), WireError> {
        self.0.write_all(&message.encode()).map_err(WireError::Io)
    }

    /// Receives the next message, if its first byte arrives within `patience`.
    pub(crate) fn receive(&mut self, patience: Duration, stop: &AtomicBool) -> Result<Message, WireError> {
        let mut head = [0; 8];
        self.fill(&mut head[..1], patience, stop)?;
        self.fill(&mut head[1..], FRAME_TIME_MAX, stop)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if len == 0 || len > FRAME_BYTES_MAX {
            return Err(WireError::Malformed("a frame of impossible length"));
        }
        let mut payload = vec![0; len];
        self.fill(&mut payload, FRAME_TIME_MAX, stop)?;
        if crc32c::crc32c(&payload) != crc {
            return Err(WireError::Malformed("a frame with a wrong checksum"));
        }
        Message::decode(&payload).map_err(WireError::Malformed)
    }

    fn fill(&mut self, buf: &mut [u8], patience: Duration, stop: &AtomicBool) -> Result<(), WireError> {
        let deadline = Instant::now() + patience;
        let mut done = 0;
        while done < buf.len() {
            // Checked even when bytes are always available: a busy client must not keep a server from
            // stopping.
            if stop.load(Ordering::Relaxed) {
                return Err(WireError::Stopped);
            }
            match self.0.read(&mut buf[done..]) {
                Ok(0) => return Err(WireError::Closed),
                Ok(n) => done += n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(e) => return Err(WireError::Io(e)),
            }
            // Checked even while bytes arrive: a client that sends one byte a second must not hold a
            // connection forever.
            if done < buf.len() && Instant::now() >= deadline {
                return Err(WireError::TimedOut);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_message_survives_the_trip() {
        let reports = vec![Report { stream: 3, sequence: u64::MAX }; REPORTS_MAX];
        let standing =
            Standing { records: 9, flags: FLAG_ENDED, last: vec![7; STREAMS_MAX as usize], description: vec![1; 4096] };
        for message in [
            Message::Auth { token: vec![9; TOKEN_BYTES_MAX] },
            Message::Begin { run: RunId(5), streams: STREAMS_MAX, description: vec![2; DESCRIPTION_BYTES_MAX] },
            Message::Resume { run: RunId(1) },
            Message::Fetch { run: RunId(2) },
            Message::Page { run: RunId(2), from: 77 },
            Message::Report(reports.clone()),
            Message::End,
            Message::Ping,
            Message::Done,
            Message::Standing(standing),
            Message::Records(reports),
            Message::Refused { code: Refusal::Gap, text: "no".into() },
        ] {
            let frame = message.encode();
            assert_eq!(Message::decode(&frame[8..]), Ok(message));
        }
        let long = Message::Refused { code: Refusal::Full, text: "ä".repeat(5000) }.encode();
        assert!(matches!(Message::decode(&long[8..]), Ok(Message::Refused { text, .. }) if text.len() <= 1024));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_means_what_it_encodes_to(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..24) {
            let mut payload = vec![kind];
            payload.extend(bytes);
            if let Ok(message) = Message::decode(&payload) {
                if !matches!(message, Message::Refused { .. }) {
                    prop_assert_eq!(&message.encode()[8..], &payload[..]);
                }
            }
        }
    }
}
