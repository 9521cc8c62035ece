//! Asks the process that has a database open for a backup: the client's side of `socket.rs`.

use super::socket::{GREETING, LINE_MAX, PATIENCE, Request, SOCKET, TOLD_EVERY, address, say, unescape};
use super::types::{BackupAnswer, BackupOptions, BackupProgress, BackupReport};
use crate::db::database::Database;
use crate::error::{Error, Result};
use seawall_io::errno::EIO;
use seawall_io::{IoError, Op};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// Connects to the socket in the database's directory `dir`; returns `None` if there is none, or no process listens.
fn connect(dir: &Path) -> Result<Option<UnixStream>> {
    let path = dir.join(SOCKET);
    let failed = |e: std::io::Error| -> Error { IoError::os(Op::Open, &path, e.raw_os_error().unwrap_or(EIO)).into() };
    let opened = match File::open(dir) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    match UnixStream::connect(address(dir, &opened, SOCKET)) {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

/// The lines that the other process sends.
struct Answers<'s> {
    stream: &'s UnixStream,
    bytes: Vec<u8>,
}

impl Answers<'_> {
    /// Returns the next line. While nothing comes, calls `goes_on` again and again, and returns `None` if that returns
    /// false.
    fn line(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<Option<String>, String> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let rest = self.bytes.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.truncate(end);
                return String::from_utf8(line).map(Some).map_err(|e| e.to_string());
            }
            if self.bytes.len() as u64 >= LINE_MAX {
                return Err(format!("it sent a line longer than {LINE_MAX} bytes"));
            }
            let mut more = [0; 4096];
            let mut stream = self.stream;
            match stream.read(&mut more) {
                Ok(0) => {
                    return Err("it closed the connection before the backup was taken; it may have been killed".into());
                }
                Ok(n) => self.bytes.extend(&more[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if !goes_on() {
                        return Ok(None);
                    }
                }
                Err(e) => return Err(format!("the connection to it failed: {e}")),
            }
        }
    }
}

impl Database {
    /// Asks the process that has the database in `dir` open for a backup into `to`. That process writes the backup,
    /// with its own rights. `go_on` is called with the reported progress, several times a second; `Break` stops the
    /// backup.
    ///
    /// # Errors
    /// [`Error::BackupRefused`] if the other process refuses the backup, cannot finish it, or does not answer;
    /// [`Error::Io`] if its socket cannot be reached.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    /// use seawall::{BackupAnswer, BackupOptions, Database};
    /// use std::ops::ControlFlow::Continue;
    /// let db = Database::open(&path)?;
    /// // In another process:
    /// let asked = Database::ask_for_backup(&path, &copy, &BackupOptions::default(), |_| Continue(()))?;
    /// assert!(matches!(asked, BackupAnswer::Done(_)));
    /// db.close()?;
    /// let asked = Database::ask_for_backup(&path, &copy, &BackupOptions::default(), |_| Continue(()))?;
    /// assert_eq!(asked, BackupAnswer::NoListener);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn ask_for_backup(
        dir: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: &BackupOptions,
        mut go_on: impl FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupAnswer> {
        let dir = dir.as_ref();
        let failed = |path: &Path, e: &std::io::Error| -> Error {
            IoError::os(Op::Inspect, path, e.raw_os_error().unwrap_or(EIO)).into()
        };
        let absolute = |path: &Path| std::path::absolute(path).map_err(|e| failed(path, &e));
        let incremental_from = options.incremental_from.as_deref().map(absolute).transpose()?;
        let options = BackupOptions { incremental_from, ..options.clone() };
        let request = Request { to: absolute(to.as_ref())?, options };
        let Some(stream) = connect(dir)? else { return Ok(BackupAnswer::NoListener) };
        let prepared =
            stream.set_write_timeout(Some(PATIENCE)).and_then(|()| stream.set_read_timeout(Some(TOLD_EVERY)));
        prepared.map_err(|e| failed(dir, &e))?;
        let refused = |why: String| Error::BackupRefused { path: dir.into(), why };
        // A process that refuses at once does not read the request: its answer tells more than the failed write.
        let written = say(&stream, &request.write());
        let mut answers = Answers { stream: &stream, bytes: Vec::new() };
        let mut progress = BackupProgress::default();
        let (asked, mut stops) = (Instant::now(), false);
        let greeting = answers.line(|| {
            stops = go_on(&progress).is_break();
            !stops && asked.elapsed() < PATIENCE
        });
        match greeting {
            Ok(Some(greeting)) if greeting == GREETING => {}
            Ok(Some(greeting)) => {
                return Err(refused(format!(
                    "it speaks {greeting:?}, and this program {GREETING:?}: use the same version"
                )));
            }
            Ok(None) if stops => return Ok(BackupAnswer::Aborted),
            Ok(None) => return Err(refused(format!("no answer came within {PATIENCE:?}: it hangs or is stopped"))),
            Err(why) => {
                return Err(refused(written.err().map_or(why, |e| format!("the connection to it failed: {e}"))));
            }
        }
        loop {
            let Some(answer) = answers.line(|| go_on(&progress).is_continue()).map_err(refused)? else {
                return Ok(BackupAnswer::Aborted);
            };
            let (what, rest) = answer.split_once(' ').unwrap_or((&answer, ""));
            let numbers: Vec<u64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
            match (what, &numbers[..]) {
                ("progress" | "waiting", &[pages_read, pages, pages_copied, log_bytes]) => {
                    let waits = what == "waiting";
                    let done = pages_read == pages && !waits;
                    progress = BackupProgress { pages_read, pages, pages_copied, log_bytes, done, waits };
                    if go_on(&progress).is_break() {
                        return Ok(BackupAnswer::Aborted);
                    }
                }
                ("done", &[begin, end, pages, log_bytes, read_again, incremental]) => {
                    let incremental = incremental == 1;
                    return Ok(BackupAnswer::Done(BackupReport {
                        begin,
                        end,
                        pages,
                        log_bytes,
                        read_again,
                        incremental,
                    }));
                }
                ("error", _) => {
                    let why = unescape(rest).map(|why| String::from_utf8_lossy(&why).into_owned());
                    return Err(refused(why.unwrap_or_else(|why| why)));
                }
                _ => return Err(refused(format!("it said {answer:?}, which this program does not know"))),
            }
        }
    }
}
