//! The client side of the connection: the requests of a run and of a verification to the witness.
//!
//! 1. Waiting for an answer has a time limit; a connection that failed once is never used again.
//! 2. A refusal becomes an error that says what to do; only a broken connection is worth a retry
//!    ([`Failure::Broken`]).

use super::RunId;
use super::error::WitnessError;
use super::protocol::{Message, PROTOCOL_VERSION, Refusal, Report, Standing, TOKEN_BYTES_MAX, Wire, WireError};
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// The witness syncs its disk before it answers: this is long enough for a slow disk.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection broke: reconnect and repeat the request.
    Broken(String),
    /// A retry would not help.
    Final(WitnessError),
}

#[derive(Debug)]
pub(super) struct Client {
    wire: Wire,
    addr: String,
    run: RunId,
}

impl Client {
    /// Connects and sends the greeting.
    pub(super) fn connect(addr: &str, token: &str, run: RunId) -> Result<Self, WitnessError> {
        if token.len() > TOKEN_BYTES_MAX {
            let reason = format!("must have at most {TOKEN_BYTES_MAX} bytes");
            return Err(WitnessError::BadOption { option: "token", reason });
        }
        let unreachable = |source| WitnessError::CannotReach { addr: addr.into(), source };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        let mut socket = None;
        for resolved in addr.to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&resolved, CONNECT_TIME_MAX) {
                Ok(connected) => socket = Some(connected),
                Err(error) => last = error,
            }
            if socket.is_some() {
                break;
            }
        }
        let Some(socket) = socket else { return Err(unreachable(last)) };
        let mut wire = Wire::new(socket).map_err(unreachable)?;
        let stranger = |error: WireError| match error {
            // A reset before any message means a full or stopping witness, or a forwarder without a witness
            // behind it.
            WireError::Io(source) => WitnessError::CannotReach { addr: addr.into(), source },
            error => WitnessError::NotAWitness { addr: addr.into(), detail: error.to_string() },
        };
        wire.send_preamble().map_err(stranger)?;
        let theirs = wire.receive_preamble(CONNECT_TIME_MAX, &AtomicBool::new(false)).map_err(stranger)?;
        if theirs != PROTOCOL_VERSION {
            return Err(WitnessError::ProtocolMismatch { ours: PROTOCOL_VERSION, theirs });
        }
        let mut client = Self { wire, addr: addr.into(), run };
        match client.ask(&Message::Auth { token: token.as_bytes().to_vec() }) {
            Ok(Message::Done) => Ok(client),
            Ok(other) => Err(client.confused(&other)),
            Err(Failure::Final(error)) => Err(error),
            Err(Failure::Broken(detail)) => Err(WitnessError::NotAWitness { addr: addr.into(), detail }),
        }
    }

    fn ask(&mut self, request: &Message) -> Result<Message, Failure> {
        let broken = |error: WireError| Failure::Broken(error.to_string());
        self.wire.send(request).map_err(broken)?;
        match self.wire.receive(ANSWER_TIME_MAX, &AtomicBool::new(false)).map_err(broken)? {
            Message::Refused { code, text } => Err(Failure::Final(match code {
                Refusal::WrongToken => WitnessError::WrongToken,
                Refusal::UnknownRun => WitnessError::UnknownRun { run: self.run, known: text },
                Refusal::RunExists => WitnessError::RunExists { run: self.run },
                Refusal::Gap | Refusal::TakenOver | Refusal::BadRequest | Refusal::Full | Refusal::Storage => {
                    WitnessError::Refused { text }
                }
            })),
            answer => Ok(answer),
        }
    }

    fn confused(&self, answer: &Message) -> WitnessError {
        let mut detail = format!("{answer:?}");
        detail.truncate((0..=100.min(detail.len())).rev().find(|&i| detail.is_char_boundary(i)).unwrap_or(0));
        WitnessError::Confused { addr: self.addr.clone(), detail }
    }

    fn done(&mut self, request: &Message) -> Result<(), Failure> {
        match self.ask(request)? {
            Message::Done => Ok(()),
            other => Err(Failure::Final(self.confused(&other))),
        }
    }

    fn standing(&mut self, request: &Message) -> Result<Standing, Failure> {
        match self.ask(request)? {
            Message::Standing(standing) => Ok(standing),
            other => Err(Failure::Final(self.confused(&other))),
        }
    }

    pub(super) fn begin(&mut self, streams: u32, description: Vec<u8>) -> Result<(), Failure> {
        self.done(&Message::Begin { run: self.run, streams, description })
    }

    pub(super) fn resume(&mut self) -> Result<Standing, Failure> {
        self.standing(&Message::Resume { run: self.run })
    }

    pub(super) fn report(&mut self, reports: Vec<Report>) -> Result<(), Failure> {
        self.done(&Message::Report(reports))
    }

    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.done(&Message::End)
    }

    pub(super) fn ping(&mut self) -> Result<(), Failure> {
        self.done(&Message::Ping)
    }

    pub(super) fn fetch(&mut self) -> Result<Standing, Failure> {
        self.standing(&Message::Fetch { run: self.run })
    }

    pub(super) fn page(&mut self, from: u64) -> Result<Vec<Report>, Failure> {
        match self.ask(&Message::Page { run: self.run, from })? {
            Message::Records(reports) => Ok(reports),
            other => Err(Failure::Final(self.confused(&other))),
        }
    }

    /// Returns the error for a connection that will not be retried.
    pub(super) fn give_up(addr: &str, failure: Failure) -> WitnessError {
        match failure {
            Failure::Final(error) => error,
            Failure::Broken(reason) => WitnessError::ConnectionLost { addr: addr.into(), reason },
        }
    }
}
