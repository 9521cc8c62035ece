//! The witness: a small server on another machine that records which writes were acknowledged.
//!
//! 1. Confirmed reports are on its disk (see [`super::record`]); the record contains only reports of the run,
//!    nothing inferred.
//! 2. No client can crash it, fill its memory (bounded frames, bounded connections) or its disk (bounded runs
//!    and records), or hold a connection without sending.
//! 3. One connection at a time reports for a run; a resumed run takes over, so that a half-dead connection
//!    blocks no other.
//!
//! ```text
//!   connected ──preamble, Auth──> idle ──Begin/Resume──> reporting ──End, close, silence──> gone
//!                                  └──Fetch, Page (a verification)──┘
//! ```

use super::RunId;
use super::error::WitnessError;
use super::protocol::{FLAG_ATTACHED, Message, PROTOCOL_VERSION, Refusal, Wire, WireError};
use super::record::{Record, RecordError};
use seawall_io::Disk;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often the server checks for new connections and its stop flag.
const ACCEPT_POLL: Duration = Duration::from_millis(20);
/// Maximum time for the greeting of a new connection.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);

/// Options of the server.
///
/// ```
/// use seawall_tools::witness::ServeOptions;
/// assert!(ServeOptions::default().listen.starts_with("127.0.0.1:"));
/// ```
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address and port to listen on; port 0 picks one.
    pub listen: String,
    /// Shared secret; empty for none. It is sent unencrypted.
    pub token: String,
    /// A client that sends nothing for this long is considered gone. Runs ping every two seconds.
    pub idle_time_max: Duration,
    /// Maximum number of connections at one time.
    pub connections_max: usize,
    /// Maximum number of runs in the state directory; beyond that, new ones are refused.
    pub runs_max: usize,
    /// Maximum bytes of one run's record; 16 for each acknowledged write.
    pub record_bytes_max: u64,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7440".into(),
            token: String::new(),
            idle_time_max: Duration::from_secs(15),
            connections_max: 64,
            runs_max: 1000,
            record_bytes_max: 1 << 30,
        }
    }
}

/// An event at the witness, for the operator.
///
/// ```
/// use seawall_tools::witness::{RunId, ServeEvent};
/// let event = ServeEvent::Vanished { run: RunId(7), acknowledged: 90_000, reason: "silence for 15 s".into() };
/// assert_eq!(event.to_string(), "run 0000000000000007 vanished (silence for 15 s) with 90000 writes on record");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeEvent {
    /// A run began.
    Began {
        /// The run.
        run: RunId,
        /// The client's address.
        peer: SocketAddr,
    },
    /// A run has reconnected after its connection was lost.
    Resumed {
        /// The run.
        run: RunId,
        /// The client's address.
        peer: SocketAddr,
        /// Writes on record.
        acknowledged: u64,
    },
    /// A run ended by itself.
    Ended {
        /// The run.
        run: RunId,
        /// Writes on record.
        acknowledged: u64,
    },
    /// A run's connection ended without a message: this line is expected after a power cut.
    Vanished {
        /// The run.
        run: RunId,
        /// Writes on record.
        acknowledged: u64,
        /// How the connection ended.
        reason: String,
    },
    /// A client was refused.
    Refused {
        /// The client's address.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Began { run, peer } => write!(f, "run {run} began, from {peer}"),
            Self::Resumed { run, peer, acknowledged } => {
                write!(f, "run {run} is back, from {peer}, with {acknowledged} writes on record")
            }
            Self::Ended { run, acknowledged } => write!(f, "run {run} ended with {acknowledged} writes on record"),
            Self::Vanished { run, acknowledged, reason } => {
                write!(f, "run {run} vanished ({reason}) with {acknowledged} writes on record")
            }
            Self::Refused { peer, reason } => write!(f, "turned {peer} away: {reason}"),
        }
    }
}

/// A listening witness.
///
/// ```
/// use seawall_io::{Disk, OsDisk};
/// use seawall_tools::witness::{ServeOptions, Witness};
/// use std::sync::Arc;
/// # let dir = tempfile::tempdir()?;
/// let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
/// let options = ServeOptions { listen: "127.0.0.1:0".into(), ..ServeOptions::default() };
/// let witness = Witness::bind(&disk, dir.path(), &options)?;
/// assert_ne!(witness.local_addr()?.port(), 0, "a free one was picked");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Witness {
    listener: TcpListener,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: ServeOptions,
    records: Mutex<HashMap<RunId, Weak<Mutex<Record>>>>,
    connections: AtomicUsize,
    next_connection: AtomicU64,
}

/// Serves until `stop` is set: [`Witness::bind`] and [`Witness::serve`].
///
/// # Errors
/// Those of [`Witness::bind`] and [`Witness::serve`].
///
/// ```
/// use seawall_io::{Disk, OsDisk};
/// use seawall_tools::witness::{ServeOptions, serve};
/// use std::sync::{Arc, atomic::AtomicBool};
/// # let dir = tempfile::tempdir()?;
/// let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
/// let options = ServeOptions { listen: "127.0.0.1:0".into(), ..ServeOptions::default() };
/// // A stop request before it begins makes it return at once.
/// serve(&disk, dir.path(), &options, &AtomicBool::new(true), &|event| println!("{event}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &ServeOptions,
    stop: &AtomicBool,
    on_event: &(dyn Fn(&ServeEvent) + Sync),
) -> Result<(), WitnessError> {
    Witness::bind(disk, dir, options)?.serve(stop, on_event);
    Ok(())
}

impl Witness {
    /// Starts listening, with records in `dir`, which must exist.
    ///
    /// ```no_run
    /// use seawall_tools::witness::{ServeOptions, Witness};
    /// use std::sync::{Arc, atomic::AtomicBool};
    /// # fn demo(disk: Arc<dyn seawall_io::Disk>) -> Result<(), seawall_tools::witness::WitnessError> {
    /// let options = ServeOptions { listen: "0.0.0.0:7440".into(), token: "tide".into(), ..Default::default() };
    /// let witness = Witness::bind(&disk, "/var/lib/seawall-witness".as_ref(), &options)?;
    /// println!("listening on {}", witness.local_addr()?);
    /// witness.serve(&AtomicBool::new(false), &|event| println!("{event}"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`WitnessError::AddressInUse`], [`WitnessError::CannotListen`], or the disk's refusal of the
    /// directory.
    pub fn bind(disk: &Arc<dyn Disk>, dir: &Path, options: &ServeOptions) -> Result<Self, WitnessError> {
        disk.list(dir)?;
        let cannot = |source| WitnessError::CannotListen { addr: options.listen.clone(), source };
        let listener = TcpListener::bind(&options.listen).map_err(|source| match source.kind() {
            ErrorKind::AddrInUse => WitnessError::AddressInUse { addr: options.listen.clone() },
            _ => cannot(source),
        })?;
        listener.set_nonblocking(true).map_err(cannot)?;
        Ok(Self {
            listener,
            disk: disk.clone(),
            dir: dir.into(),
            options: options.clone(),
            records: Mutex::default(),
            connections: AtomicUsize::new(0),
            next_connection: AtomicU64::new(1),
        })
    }

    /// Returns the address on which the witness listens.
    ///
    /// # Errors
    /// The kernel's refusal, as [`WitnessError::CannotListen`].
    pub fn local_addr(&self) -> Result<SocketAddr, WitnessError> {
        let addr = self.options.listen.clone();
        self.listener.local_addr().map_err(|source| WitnessError::CannotListen { addr, source })
    }

    /// Serves until `stop` is set and every connection has ended. `on_event` is called from several threads.
    pub fn serve(&self, stop: &AtomicBool, on_event: &(dyn Fn(&ServeEvent) + Sync)) {
        thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                // A failed accept (out of descriptors, client already gone) affects only that client or is
                // temporary: continue.
                let Ok((socket, peer)) = self.listener.accept() else {
                    thread::sleep(ACCEPT_POLL);
                    continue;
                };
                if self.connections.load(Ordering::Relaxed) >= self.options.connections_max {
                    on_event(&ServeEvent::Refused { peer, reason: "too many connections".into() });
                    continue;
                }
                self.connections.fetch_add(1, Ordering::Relaxed);
                let served = thread::Builder::new().name("witness".into()).spawn_scoped(scope, move || {
                    self.converse(socket, peer, stop, on_event);
                    self.connections.fetch_sub(1, Ordering::Relaxed);
                });
                if let Err(error) = served {
                    self.connections.fetch_sub(1, Ordering::Relaxed);
                    on_event(&ServeEvent::Refused { peer, reason: error.to_string() });
                }
            }
        });
    }

    fn converse(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        stop: &AtomicBool,
        on_event: &(dyn Fn(&ServeEvent) + Sync),
    ) {
        let refused = |reason: String| on_event(&ServeEvent::Refused { peer, reason });
        let mut wire = match Wire::new(socket) {
            Ok(wire) => wire,
            Err(error) => return refused(error.to_string()),
        };
        if let Err(reason) = self.greet(&mut wire, stop) {
            return refused(reason);
        }
        let me = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let mut mine: Option<(RunId, Arc<Mutex<Record>>)> = None;
        let reason = loop {
            let request = match wire.receive(self.options.idle_time_max, stop) {
                Ok(request) => request,
                Err(error) => break error,
            };
            let answer = self.answer(request, me, &mut mine, peer, on_event);
            let broken = matches!(&answer, Message::Refused { code: Refusal::Storage | Refusal::TakenOver, .. });
            if let Message::Refused { text, .. } = &answer {
                refused(text.clone());
            }
            if let Err(error) = wire.send(&answer) {
                break error;
            }
            if broken {
                break WireError::Closed;
            }
        };
        match mine {
            Some((run, record)) => {
                let mut record = held(&record);
                if record.owner == me {
                    record.owner = 0;
                    let (acknowledged, reason) = (record.acknowledged(), reason.to_string());
                    drop(record);
                    on_event(&ServeEvent::Vanished { run, acknowledged, reason });
                }
            }
            None => {
                if let WireError::Malformed(_) = reason {
                    refused(reason.to_string());
                }
            }
        }
    }

    /// Checks preamble and token. The reason for a refusal goes to the log; the client is told only of a wrong
    /// token.
    fn greet(&self, wire: &mut Wire, stop: &AtomicBool) -> Result<(), String> {
        let text = |error: WireError| error.to_string();
        let theirs = wire.receive_preamble(GREETING_TIME_MAX, stop).map_err(text)?;
        wire.send_preamble().map_err(text)?;
        if theirs != PROTOCOL_VERSION {
            return Err(format!("it speaks witness protocol {theirs}, this program {PROTOCOL_VERSION}"));
        }
        match wire.receive(GREETING_TIME_MAX, stop).map_err(text)? {
            Message::Auth { token } if same(&token, self.options.token.as_bytes()) => {
                wire.send(&Message::Done).map_err(text)
            }
            Message::Auth { .. } => {
                // The connection ends even if the client does not receive the refusal.
                drop(wire.send(&refuse(Refusal::WrongToken, "wrong token")));
                Err("wrong token".into())
            }
            _ => Err("it did not introduce itself".into()),
        }
    }

    fn answer(
        &self,
        request: Message,
        me: u64,
        mine: &mut Option<(RunId, Arc<Mutex<Record>>)>,
        peer: SocketAddr,
        on_event: &(dyn Fn(&ServeEvent) + Sync),
    ) -> Message {
        let answer = match request {
            Message::Begin { .. } | Message::Resume { .. } if mine.is_some() => {
                return refuse(Refusal::BadRequest, "this connection already has a run");
            }
            Message::Begin { run, streams, description } => self.begin(run, streams, &description).map(|record| {
                held(&record).owner = me;
                *mine = Some((run, record));
                on_event(&ServeEvent::Began { run, peer });
                Message::Done
            }),
            Message::Resume { run } => self.record(run).map(|record| {
                let mut held = held(&record);
                held.owner = me;
                let standing = held.standing();
                on_event(&ServeEvent::Resumed { run, peer, acknowledged: held.acknowledged() });
                drop(held);
                *mine = Some((run, record));
                Message::Standing(standing)
            }),
            Message::Fetch { run } => self.record(run).map(|record| {
                let mut standing = held(&record).standing();
                if mine.as_ref().is_some_and(|(own, _)| *own == run) {
                    standing.flags &= !FLAG_ATTACHED;
                }
                Message::Standing(standing)
            }),
            Message::Page { run, from } => {
                self.record(run).and_then(|record| held(&record).page(from)).map(Message::Records)
            }
            Message::Report(_) | Message::End => {
                let Some((run, record)) = mine else {
                    return refuse(Refusal::BadRequest, "a report without a run");
                };
                let mut record = held(record);
                if record.owner != me {
                    return refuse(Refusal::TakenOver, "another connection has resumed this run");
                }
                let done = match &request {
                    Message::Report(reports) => record.append(reports),
                    _ => record.end_run(),
                };
                if done.is_ok() && matches!(request, Message::End) {
                    record.owner = 0;
                    on_event(&ServeEvent::Ended { run: *run, acknowledged: record.acknowledged() });
                }
                done.map(|()| Message::Done)
            }
            Message::Ping => Ok(Message::Done),
            _ => return refuse(Refusal::BadRequest, "not a request"),
        };
        answer.unwrap_or_else(|error| self.explain(error))
    }

    fn begin(&self, run: RunId, streams: u32, description: &[u8]) -> Result<Arc<Mutex<Record>>, RecordError> {
        // Under the lock of all records, so that two runs with one id, or one run too many, cannot begin at
        // the same time.
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if self.known().len() >= self.options.runs_max {
            return Err(RecordError::Full);
        }
        let bytes_max = self.options.record_bytes_max;
        let record = Record::create(&self.disk, &self.dir, run, streams, description, bytes_max)?;
        let record = Arc::new(Mutex::new(record));
        records.retain(|_, known| known.strong_count() > 0);
        records.insert(run, Arc::downgrade(&record));
        Ok(record)
    }

    /// Returns the open record of a run, or opens the one on disk.
    fn record(&self, run: RunId) -> Result<Arc<Mutex<Record>>, RecordError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.get(&run).and_then(Weak::upgrade) {
            return Ok(record);
        }
        let record = Record::open(&self.disk, &self.dir, run, self.options.record_bytes_max)?;
        let record = Arc::new(Mutex::new(record));
        records.retain(|_, known| known.strong_count() > 0);
        records.insert(run, Arc::downgrade(&record));
        Ok(record)
    }

    /// Lists the runs on record.
    fn known(&self) -> Vec<String> {
        let files = self.disk.list(&self.dir).unwrap_or_default();
        let name = |p: PathBuf| Some(p.file_name()?.to_str()?.strip_suffix(".witness")?.to_owned());
        files.into_iter().filter_map(name).collect()
    }

    fn explain(&self, error: RecordError) -> Message {
        match error {
            RecordError::Unknown => {
                let known = self.known();
                let text = match known.len() {
                    0 => "it has no runs at all: is it serving the right directory?".into(),
                    1..=8 => format!("it knows {}", known.join(", ")),
                    n => format!("it knows {n} others, such as {}", known[n - 8..].join(", ")),
                };
                refuse(Refusal::UnknownRun, &text)
            }
            RecordError::Exists => refuse(Refusal::RunExists, "the run exists"),
            RecordError::Full => refuse(
                Refusal::Full,
                "its limit of runs, or of bytes for this run, is reached; remove old *.witness files there",
            ),
            RecordError::Gap { report, expected } => refuse(
                Refusal::Gap,
                &format!("stream {} reported write {} where {expected} comes next", report.stream, report.sequence),
            ),
            RecordError::NoSuchStream(stream) => {
                refuse(Refusal::BadRequest, &format!("the run has no stream {stream}"))
            }
            RecordError::Unsound(what) => {
                refuse(Refusal::Storage, &format!("its record of this run is unusable: {what}"))
            }
            RecordError::Io(error) => refuse(Refusal::Storage, &format!("its own storage failed: {error}")),
        }
    }
}

fn refuse(code: Refusal, text: &str) -> Message {
    Message::Refused { code, text: text.into() }
}

fn held(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares in constant time, so that timing does not reveal how many bytes are right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
