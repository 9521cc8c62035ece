//! Backups on request of other processes, through a socket in the directory of an open database.
//!
//! ```text
//!   client: "seawall-control 1", "backup", fields, "."      server: "seawall-control 1", then "progress ..." any number of times,
//!                                                                     "waiting ..." when the end is to be told,
//!                                                                     then "done ..." or "error ..."
//! ```
//!
//! 1. The protocol is lines of text, at most [`LINE_MAX`] bytes each; a request has at most [`LINES_MAX`] lines. Paths
//!    and messages have `%xx` in place of special bytes. An invalid request is answered with an error. It ends its own
//!    connection and nothing else.
//! 2. Only the owner can use it: the socket has mode 0600 before it gets its name, and the kernel names the user of
//!    each connection, who must be this process's user or root. The address of a socket has room for 107 bytes: a
//!    longer one is reached through a descriptor of the directory.
//! 3. The process that makes the socket has the database locked. A socket that it finds was left by a killed process,
//!    and is replaced.
//! 4. No thread here is a handle of the database: when the last handle is dropped the database closes, even while a
//!    backup runs. Closing removes the socket, cancels the backup, and waits for it at most [`CLOSE_PATIENCE`], so that
//!    a hanging write to its target does not delay closing any longer.
//! 5. One thread accepts connections, and each connection has its own thread, [`CONNECTIONS_MAX`] at most: a client
//!    that hangs does not delay another. A request must arrive within [`PATIENCE`]. A backup ends when its client
//!    disconnects.
//! 6. A forked process has none of the threads and leaves the socket alone. Its copy of the descriptor does not keep
//!    the socket alive: closing shuts the socket down for all copies.

use super::copy::{Subject, take};
use super::types::{BackupOptions, BackupProgress, BackupReport};
use crate::counted::Mutex;
use crate::db::background::Work;
use crate::error::{Error, Result};
use parking_lot::Condvar;
use rustix::fs::{AtFlags, Mode};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The name of the socket in the directory of an open database.
pub(super) const SOCKET: &str = "control.socket";
/// The name of the socket until it has its mode.
const NEW: &str = "control.socket.new";
pub(super) const GREETING: &str = "seawall-control 1";
/// The longest line, bytes.
pub(super) const LINE_MAX: u64 = 16 << 10;
/// The most lines of a request.
const LINES_MAX: usize = 16;
/// The time within which a request and the greeting must arrive, and within which a client must take what is written to
/// it.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that closing waits for a backup that it has cancelled.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// The least time between two reports of progress, and how often a client checks whether to stop.
pub(super) const TOLD_EVERY: Duration = Duration::from_millis(200);
/// The most connections at a time.
const CONNECTIONS_MAX: usize = 8;
/// The longest address of a socket, bytes.
const ADDRESS_MAX: usize = 107;

/// Returns a path to the socket `name` in `dir` that is short enough, as long as `opened`, which is `dir`, is open.
pub(super) fn address(dir: &Path, opened: &File, name: &str) -> PathBuf {
    let path = dir.join(name);
    let fits = path.as_os_str().len() <= ADDRESS_MAX;
    if fits { path } else { format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()).into() }
}

/// Writes all of `text`. A peer that has disconnected is an error, never a signal.
pub(super) fn say(stream: &UnixStream, text: &str) -> std::io::Result<()> {
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns whether the peer has closed its end. What it sends after its request does not matter.
fn is_gone(stream: &UnixStream) -> bool {
    let mut byte = [0];
    match rustix::net::recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((taken, _)) => taken == 0,
        Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

// --- the process that has the database open ------------------------------------------------------------

/// The socket of an open database, and the threads that serve it.
#[derive(Debug)]
pub(in crate::db) struct ControlSocket {
    server: Arc<Server>,
    listener: Arc<UnixListener>,
    dir: File,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Server {
    path: PathBuf,
    work: Weak<Work>,
    stop: AtomicBool,
    connections: Mutex<Connections>,
    /// Signals that a connection has ended, or the thread that accepts.
    ended: Condvar,
}

#[derive(Debug)]
struct Connections {
    accepts: bool,
    next: u64,
    open: BTreeMap<u64, Arc<UnixStream>>,
}

impl ControlSocket {
    /// Creates the socket of the database in `path`, which this process has locked, and listens.
    ///
    /// # Errors
    /// If the directory takes no socket, or the system cannot start the thread.
    pub(in crate::db) fn start(path: &Path, work: &Arc<Work>) -> std::io::Result<Self> {
        let dir = File::open(path)?;
        match rustix::fs::unlinkat(&dir, NEW, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(address(path, &dir, NEW))?);
        rustix::fs::chmodat(&dir, NEW, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        rustix::fs::renameat(&dir, NEW, &dir, SOCKET)?;
        let server = Arc::new(Server {
            path: path.into(),
            work: Arc::downgrade(work),
            stop: AtomicBool::new(false),
            connections: Mutex::new(Connections { accepts: true, next: 0, open: BTreeMap::new() }),
            ended: Condvar::new(),
        });
        let (accepts, listens) = (server.clone(), listener.clone());
        let thread = std::thread::Builder::new().name("seawall-control".into()).stack_size(128 << 10);
        match thread.spawn(move || accepts.accept(&listens)) {
            Ok(accepting) => Ok(Self { server, listener, dir, accepting }),
            Err(error) => {
                rustix::fs::unlinkat(&dir, SOCKET, AtFlags::empty())?;
                Err(error)
            }
        }
    }

    /// Removes the socket and cancels running backups (4).
    pub(in crate::db) fn stop(self) {
        self.server.stop.store(true, Ordering::SeqCst);
        let removed = rustix::fs::unlinkat(&self.dir, SOCKET, AtFlags::empty());
        let shut = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        if removed.and(shut).is_err() {
            // What is left is a stale socket, which the next opening replaces.
        }
        let until = Instant::now() + CLOSE_PATIENCE;
        let mut connections = self.server.connections.lock();
        loop {
            for stream in connections.open.values() {
                // Ends the wait for a request; answers can still be sent.
                drop(stream.shutdown(std::net::Shutdown::Read));
            }
            if !connections.accepts && connections.open.is_empty() {
                break;
            }
            if self.server.ended.wait_until(&mut connections, until).timed_out() {
                connections.open.values().for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Both)));
                return;
            }
        }
        drop(connections);
        if self.accepting.join().is_err() {
            // The thread has panicked, and the panic hook has reported that; closing continues.
        }
    }
}

impl Server {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        while !self.stops() {
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(_) if self.stops() => {}
                // No descriptor may be free, for example: try again later.
                Err(_) => std::thread::sleep(TOLD_EVERY),
            }
        }
        self.connections.lock().accepts = false;
        self.ended.notify_all();
    }

    /// Serves a connection in its own thread.
    fn admit(self: &Arc<Self>, stream: UnixStream) {
        let stream = Arc::new(stream);
        let number = {
            let mut connections = self.connections.lock();
            let room = connections.open.len() < CONNECTIONS_MAX;
            connections.next += u64::from(room);
            let number = connections.next;
            if room {
                connections.open.insert(number, stream.clone());
            }
            room.then_some(number)
        };
        let Some(number) = number else {
            let why = format!("it already serves {CONNECTIONS_MAX} other connections: wait until one has ended");
            // The buffer of a new socket has room for this: the write does not wait.
            return drop(say(&stream, &format!("{GREETING}\nerror {}\n", escape(why.as_bytes()))));
        };
        let connection = Connection { server: self.clone(), number, stream };
        let serve = move || {
            if connection.serve().is_err() {
                // The client is gone: there is nothing to tell it.
            }
        };
        // If no thread can be started, the connection ends here.
        drop(std::thread::Builder::new().name("seawall-backup".into()).spawn(serve));
    }
}

/// A client's connection, which a drop ends.
struct Connection {
    server: Arc<Server>,
    number: u64,
    stream: Arc<UnixStream>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Shuts down all copies of the descriptor, even those of a forked process, so that the client sees the end.
        drop(self.stream.shutdown(std::net::Shutdown::Both));
        self.server.connections.lock().open.remove(&self.number);
        self.server.ended.notify_all();
    }
}

impl Connection {
    /// Answers one request.
    fn serve(&self) -> std::io::Result<()> {
        let stream = &*self.stream;
        stream.set_write_timeout(Some(PATIENCE))?;
        let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
        let done = if user == rustix::process::geteuid() || user.is_root() {
            let request = Request::read(&mut BufReader::new(Until { stream, at: Instant::now() + PATIENCE }));
            say(stream, &format!("{GREETING}\n"))?;
            request.map_err(Error::Usage).and_then(|request| self.backup(&request))
        } else {
            say(stream, &format!("{GREETING}\n"))?;
            Err(Error::Usage("it serves its own user only".into()))
        };
        say(
            stream,
            &match done {
                Ok(BackupReport { begin, end, pages, log_bytes, read_again, incremental }) => {
                    format!("done {begin} {end} {pages} {log_bytes} {read_again} {}\n", u8::from(incremental))
                }
                Err(error) => format!("error {}\n", escape(error.to_string().as_bytes())),
            },
        )
    }

    fn backup(&self, request: &Request) -> Result<BackupReport> {
        let Some(work) = self.server.work.upgrade() else { return Err(Error::ShutDown) };
        let (server, stream) = (self.server.clone(), self.stream.clone());
        let ends = move || server.stops() || is_gone(&stream);
        let subject = Subject::beside(&work, &self.server.path, Arc::new(ends));
        drop(work);
        let mut told: Option<Instant> = None;
        let done = take(subject, &request.to, &request.options, |progress| {
            // Reports at once that the end is decided.
            if !progress.done && told.is_some_and(|at| at.elapsed() < TOLD_EVERY) {
                return ControlFlow::Continue(());
            }
            told = Some(Instant::now());
            let BackupProgress { pages_read, pages, pages_copied, log_bytes, done: _, waits } = progress;
            let what = if *waits { "waiting" } else { "progress" };
            // A client that is gone or no longer reads wants no backup.
            match say(&self.stream, &format!("{what} {pages_read} {pages} {pages_copied} {log_bytes}\n")) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        done.ok_or(Error::ShutDown)
    }
}

/// Reads until a deadline.
struct Until<'s> {
    stream: &'s UnixStream,
    at: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let late = || std::io::Error::new(ErrorKind::TimedOut, format!("no whole request came within {PATIENCE:?}"));
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buf).map_err(|e| if e.kind() == ErrorKind::WouldBlock { late() } else { e })
    }
}

/// A client's request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) to: PathBuf,
    pub(super) options: BackupOptions,
}

impl Request {
    pub(super) fn write(&self) -> String {
        let path = |path: &Path| escape(path.as_os_str().as_bytes());
        let BackupOptions { rate, held_log_max, incremental_from, ends_when_told } = &self.options;
        let mut text = format!("{GREETING}\nbackup\nto {}\nrate {rate}\nheld_log_max {held_log_max}\n", path(&self.to));
        if let Some(base) = incremental_from {
            writeln!(text, "incremental_from {}", path(base)).expect("a string takes all");
        }
        if *ends_when_told {
            text += "ends_when_told\n";
        }
        text + ".\n"
    }

    fn read(lines: &mut impl BufRead) -> Result<Self, String> {
        let greeting = line(lines)?;
        if greeting != GREETING {
            return Err(format!("this process expects the greeting {GREETING:?} but received {greeting:?}"));
        }
        let what = line(lines)?;
        if what != "backup" {
            return Err(format!("unknown request {what:?}: this process knows \"backup\""));
        }
        let (mut to, mut options) = (None, BackupOptions::default());
        for _ in 0..LINES_MAX {
            let line = line(lines)?;
            let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
            let number = || value.parse::<u64>().ok().ok_or_else(|| format!("{name} {value:?} is not a number"));
            let path = || {
                let path = PathBuf::from(OsString::from_vec(unescape(value)?));
                if path.is_absolute() { Ok(path) } else { Err(format!("{name} {value:?} is not an absolute path")) }
            };
            match name {
                "to" => to = Some(path()?),
                "rate" => options.rate = number()?,
                "held_log_max" => options.held_log_max = number()?,
                "incremental_from" => options.incremental_from = Some(path()?),
                "ends_when_told" => options.ends_when_told = true,
                "." => return to.map(|to| Self { to, options }).ok_or_else(|| "the request names no target".into()),
                _ => return Err(format!("unknown field {name:?}")),
            }
        }
        Err(format!("the request has more than {LINES_MAX} lines"))
    }
}

/// Reads the next line, without its end.
fn line(from: &mut impl BufRead) -> Result<String, String> {
    let mut text = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut text).map_err(|e| e.to_string())?;
    match text.pop() {
        Some(b'\n') => String::from_utf8(text).map_err(|e| e.to_string()),
        Some(_) if text.len() as u64 + 1 >= LINE_MAX => Err(format!("a line is longer than {LINE_MAX} bytes")),
        _ => Err("the connection ended in the middle of a line".into()),
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'!'..=b'~' if byte != b'%' => text.push(byte as char),
            _ => write!(text, "%{byte:02x}").expect("a string takes all"),
        }
    }
    text
}

pub(super) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("{text:?} is not escaped as it must be");
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|byte| (*byte as char).to_digit(16)).ok_or_else(bad);
        bytes.push((digit(0)? << 4 | digit(1)?) as u8);
        rest = &rest[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &[u8]) -> Result<Request, String> {
        Request::read(&mut BufReader::new(text))
    }

    #[test]
    fn what_is_asked_is_understood() {
        for to in [&b"/srv/copy"[..], b"/a b\n%\xff"] {
            let to = PathBuf::from(OsString::from_vec(to.to_vec()));
            for incremental_from in [None, Some(to.clone())] {
                let ends_when_told = incremental_from.is_some();
                let options = BackupOptions { rate: 7, held_log_max: 9, incremental_from, ends_when_told };
                let asked = Request { to: to.clone(), options };
                assert_eq!(request(asked.write().as_bytes()), Ok(asked));
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let long = format!("{GREETING}\nbackup\nto /{}\n.\n", "a".repeat(LINE_MAX as usize));
        let many = format!("{GREETING}\nbackup\n{}.\n", "rate 1\n".repeat(LINES_MAX + 1));
        let begun = format!("{GREETING}\nbackup\n");
        for (text, why) in [
            (String::new(), "ended"),
            ("seawall-control 2\nbackup\n.\n".into(), "expects the greeting"),
            (format!("{GREETING}\nrestore\n.\n"), "unknown request"),
            (begun.clone(), "ended"),
            (begun.clone() + ".\n", "no target"),
            (begun.clone() + "to copy\n.\n", "absolute"),
            (begun.clone() + "to /a%\n.\n", "escaped"),
            (begun.clone() + "to /a%g0\n.\n", "escaped"),
            (begun.clone() + "rate fast\n.\n", "not a number"),
            (begun + "colour red\n.\n", "unknown field"),
            (long, "longer"),
            (many, "more than"),
        ] {
            let error = request(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
