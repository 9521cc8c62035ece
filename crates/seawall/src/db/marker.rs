//! The marker of a database under creation, and its meaning for the files beside it.
//!
//! 1. The marker is durable before the first other file is created, and names the log's directory. It is
//!    locked while its owner lives: of two openings that create a database in one directory, one is refused.
//! 2. A database is complete when its control block has a checkpoint, the last step of its creation. Before
//!    that no caller has had it open, and it contains no user data.
//! 3. Files are removed only beside a marker whose lock is held and that names a log directory (so that an earlier
//!    creation may have made them), only if there is no complete control block, and only if they have the names of a
//!    database's files. Segments of the log are removed only from a directory that has a log marker with the same
//!    random token and no control file: the directory that the marker names or, if that was moved, one of those given
//!    now. The log marker is locked while the creation runs, and is durable before the first segment. No creation
//!    begins beside segments of another one. So the log of another database is never removed.
//! 4. The names of the database's directory and of the log's directory, and of the directories above them,
//!    are durable before the database is complete.
//! 5. A marker beside a complete database is left from a crash between the last two steps; the next opening
//!    removes it.

use super::backup::{manifest, taken};
use crate::buffer::{CONTROL_FILE, Control, DATA_FILE, DOUBLEWRITE_FILE, is_spilled};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::log::is_of_log;
use seawall_io::errno::ENOENT;
use seawall_io::{Create, Disk, Handle, IoError, IoErrorKind, IoStats, OpenHow, SyncHow, WriteHow};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that marks a database under creation: while it exists, the database is not complete, or has just become
/// so. An opening for writing creates the database again, or removes the file.
pub const CREATING_FILE: &str = "creating";
/// The file that marks the log's directory of a database under creation. It holds the creation's token.
const LOG_MARKER: &str = "creating-log";
/// The longest path of a log directory, bytes.
const PATH_BYTES_MAX: usize = 4096;
const TOKEN_BYTES: usize = 16;

/// The state of a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A database.
    Whole(Beside),
    /// No database, or one whose creation was interrupted or is in progress.
    Unmade,
}

/// What a database's directory has beside the database.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Beside {
    /// Files of temporary trees whose names a power cut has brought back.
    pub(super) leftovers: Vec<PathBuf>,
    /// Whether backups were taken.
    pub(super) backed_up: bool,
    /// A file of the log.
    pub(super) log: Option<PathBuf>,
}

fn log_among(names: &[PathBuf]) -> Option<PathBuf> {
    names.iter().find(|path| is_of_log(path)).cloned()
}

/// Returns the state of `dir`.
///
/// # Errors
/// [`Error::NotADatabase`] for data without a control file; [`Error::Locked`].
pub(super) fn look(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Found> {
    let names = disk.list(dir)?;
    let has = |name: &str| names.iter().any(|found| found.file_name().is_some_and(|n| n == name));
    manifest::refuse(&**disk, dir, has)?;
    let leftovers = || names.iter().filter(|path| is_spilled(path)).cloned().collect();
    let whole = || Found::Whole(Beside { leftovers: leftovers(), backed_up: has(taken::FILE), log: log_among(&names) });
    match (has(CONTROL_FILE), has(CREATING_FILE)) {
        (true, false) => Ok(whole()),
        (false, false) if has(DATA_FILE) => {
            let why = format!("it has a file {DATA_FILE:?} but no {CONTROL_FILE:?}: restore that one from a backup");
            Err(Error::NotADatabase { path: dir.into(), why })
        }
        (true, true) if is_whole(disk, dir)? => {
            // What is left of the log marker has no meaning any more: its directory may have been moved since.
            let named = disk.open(&dir.join(CREATING_FILE), OpenHow::default()).map_err(Error::Io);
            let log = named.and_then(|marker| LogMarker::of_creation(&**disk, &Named::read(&**disk, &marker)?, &[dir]));
            if let Ok(Some(log)) = log {
                drop(log.remove(&**disk));
            }
            match disk.remove(&dir.join(CREATING_FILE)) {
                // Another opening has removed it.
                Err(error) if error.errno() == Some(ENOENT) => {}
                removed => removed?,
            }
            disk.sync_dir(dir)?;
            Ok(whole())
        }
        _ => Ok(Found::Unmade),
    }
}

/// Checks `dir` without changing anything, for a read-only opening. Returns a file of the log there.
///
/// # Errors
/// [`Error::NotADatabase`]; [`Error::NeedsRecovery`] if its creation was interrupted.
pub(super) fn look_only(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>> {
    let names = disk.list(dir)?;
    let has = |name: &str| names.iter().any(|found| found.file_name().is_some_and(|n| n == name));
    manifest::refuse(disk, dir, has)?;
    match (has(CONTROL_FILE), has(CREATING_FILE)) {
        (true, false) => Ok(log_among(&names)),
        (_, true) => Err(Error::NeedsRecovery { path: dir.into() }),
        (false, false) => {
            let why = format!("it has no file {CONTROL_FILE:?}");
            Err(Error::NotADatabase { path: dir.into(), why })
        }
    }
}

/// Returns whether the creation is complete, by the control block.
fn is_whole(disk: &Arc<dyn Disk>, dir: &Path) -> Result<bool> {
    match Control::open(disk.clone(), &dir.join(CONTROL_FILE), &Arc::new(IoStats::new())) {
        Ok(control) if control.current().checkpoint > Lsn::ZERO => {
            // The creating process may have been killed before the flush: the marker is removed only once no
            // power cut can undo the block.
            control.make_durable()?;
            Ok(true)
        }
        Ok(_) => Ok(false),
        Err(Error::NotADatabase { .. } | Error::Corrupt(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The content of a marker: the log's directory, a zero byte, and the creation's random token.
#[derive(Debug, Default)]
struct Named {
    log_dir: PathBuf,
    token: Vec<u8>,
}

impl Named {
    fn read(disk: &dyn Disk, marker: &Handle) -> Result<Self> {
        let mut bytes = [0; PATH_BYTES_MAX + 1 + TOKEN_BYTES];
        let len = disk.read_at(marker, 0, &mut bytes)?;
        let mut parts = bytes[..len].splitn(2, |byte| *byte == 0);
        let mut part = || parts.next().unwrap_or_default();
        Ok(Self { log_dir: OsStr::from_bytes(part()).into(), token: part().to_vec() })
    }

    fn is_empty(&self) -> bool {
        self.log_dir.as_os_str().is_empty()
    }
}

/// The locked marker of the log's directory.
#[derive(Debug)]
struct LogMarker {
    dir: PathBuf,
    locked: Handle,
}

impl LogMarker {
    /// Locks the log marker in `dir`, and creates it if it is missing. Returns `None` if its owner has just removed it.
    fn take(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>> {
        let locked = open_locked(disk, dir, LOG_MARKER, Create::IfMissing)?;
        Ok((!is_removed(disk, &locked)).then(|| Self { dir: dir.into(), locked }))
    }

    /// Finds and locks the log marker that the creation of `named` made: in the directory that `named` names or, if
    /// that was moved, in one of `dirs`. Returns `None` if it made none, or another creation has used the directory
    /// since.
    ///
    /// # Errors
    /// [`Error::Locked`] while another creation uses one of the directories.
    fn of_creation(disk: &dyn Disk, named: &Named, dirs: &[&Path]) -> Result<Option<Self>> {
        if named.token.len() < TOKEN_BYTES {
            return Ok(None);
        }
        for &dir in [&*named.log_dir].iter().chain(dirs) {
            let locked = match open_locked(disk, dir, LOG_MARKER, Create::No) {
                Err(Error::Io(error)) if error.errno() == Some(ENOENT) => continue,
                locked => locked?,
            };
            let mut token = [0; TOKEN_BYTES];
            let read = disk.read_at(&locked, 0, &mut token)?;
            if token[..read] == named.token && !is_removed(disk, &locked) {
                return Ok(Some(Self { dir: dir.into(), locked }));
            }
        }
        Ok(None)
    }

    fn remove(self, disk: &dyn Disk) -> Result<()> {
        disk.remove(&self.dir.join(LOG_MARKER))?;
        Ok(disk.sync_dir(&self.dir)?)
    }
}

/// The right to create a database in a directory.
#[derive(Debug)]
pub(super) struct Marker {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    _locked: Handle,
    log: LogMarker,
}

impl Marker {
    /// Takes the marker, and removes the files of an interrupted creation. `token` is random. Returns `None` if another
    /// process has created the database meanwhile: look again.
    ///
    /// # Errors
    /// [`Error::Locked`] while another process creates this database, or one with its log in `log_dir`;
    /// [`Error::NotADatabase`] if `dir` or `log_dir` has another database's log.
    pub(super) fn take(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        log_dir: &Path,
        token: &[u8; TOKEN_BYTES],
    ) -> Result<Option<Self>> {
        let path = dir.join(CREATING_FILE);
        if !disk.list(dir)?.contains(&path) {
            if let Err(foreign) = refuse_foreign(&**disk, dir, log_dir) {
                // The log may belong to another opening, which has begun or completed the creation since the
                // listing: look again.
                let now = disk.list(dir)?;
                let made = now.contains(&path) || now.contains(&dir.join(CONTROL_FILE));
                return if made { Ok(None) } else { Err(foreign) };
            }
        }
        let marker = open_locked(&**disk, dir, CREATING_FILE, Create::IfMissing)?;
        let named = Named::read(&**disk, &marker)?;
        let log = Self::clear_earlier(&**disk, (dir, log_dir), &named, || {
            // Between the first look and the lock, another process may have completed the creation.
            Ok(matches!(look(disk, dir)?, Found::Unmade) && disk.list(dir)?.contains(&path))
        });
        let log = match log {
            Ok(Some(log)) => log,
            refused => {
                // An empty marker marks nothing: removes it, unless it is already removed.
                if named.is_empty() && !is_removed(&**disk, &marker) {
                    disk.remove(&path)?;
                }
                return refused.map(|_| None);
            }
        };
        let name = log_dir.as_os_str().as_bytes();
        if name.len() > PATH_BYTES_MAX {
            return Err(Error::Io(IoError::new(seawall_io::Op::Write, &path, IoErrorKind::NoProgress)));
        }
        replace(&**disk, &marker, &path, &[name, &[0], token].concat())?;
        disk.sync_dir(dir)?;
        replace(&**disk, &log.locked, &log_dir.join(LOG_MARKER), token)?;
        disk.sync_dir(log_dir)?;
        Ok(Some(Self { disk: disk.clone(), dir: dir.into(), _locked: marker, log }))
    }

    /// Removes what an earlier creation left, if the marker names its log directory and the database is still `unmade`;
    /// then takes the log marker. Returns `None` if the caller must look again.
    fn clear_earlier(
        disk: &dyn Disk,
        (dir, log_dir): (&Path, &Path),
        named: &Named,
        unmade: impl FnOnce() -> Result<bool>,
    ) -> Result<Option<LogMarker>> {
        if !unmade()? {
            return Ok(None);
        }
        if !named.is_empty() {
            clear(disk, dir)?;
            if let Some(log) = LogMarker::of_creation(disk, named, &[dir, log_dir])? {
                clear_log(disk, &log.dir)?;
                log.remove(disk)?;
            }
        }
        refuse_foreign(disk, dir, log_dir)?;
        let Some(log) = LogMarker::take(disk, log_dir)? else { return Ok(None) };
        // Before the lock, another creation may have put its log there and ended.
        if let Err(foreign) = refuse_foreign(disk, dir, log_dir) {
            log.remove(disk)?;
            return Err(foreign);
        }
        Ok(Some(log))
    }

    /// Makes the names of the directory and of `log_dir` durable, before the database is complete.
    ///
    /// # Errors
    /// Disk errors.
    pub(super) fn make_names_durable(&self, log_dir: &Path) -> Result<()> {
        self.disk.make_name_durable(&self.dir)?;
        Ok(self.disk.make_name_durable(log_dir)?)
    }

    /// Removes the marker, because the database is complete.
    ///
    /// # Errors
    /// Disk errors; the database is complete nevertheless.
    pub(super) fn remove(self) -> Result<()> {
        self.log.remove(&*self.disk)?;
        self.disk.remove(&self.dir.join(CREATING_FILE))?;
        Ok(self.disk.sync_dir(&self.dir)?)
    }
}

fn is_redo(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("redo."))
}

/// Refuses to create a database beside another one's log, or with its log in another one's directory.
fn refuse_foreign(disk: &dyn Disk, dir: &Path, log_dir: &Path) -> Result<()> {
    let refuse = |path: &Path, why: String| Err(Error::NotADatabase { path: path.into(), why });
    if let Some(found) = disk.list(log_dir)?.iter().find(|file| is_redo(file)) {
        let found = found.display();
        return refuse(log_dir, format!("{found} is the log of another database: give this one a log_dir of its own"));
    }
    if log_dir == dir {
        return Ok(());
    }
    if let Some(found) = disk.list(dir)?.iter().find(|file| is_redo(file)) {
        return refuse(dir, format!("it has a log, {}, but no {CONTROL_FILE:?}", found.display()));
    }
    if let Some(found) =
        disk.list(log_dir)?.iter().find(|file| is_named(file, CONTROL_FILE) || is_named(file, DATA_FILE))
    {
        let found = found.display();
        return refuse(log_dir, format!("{found} is another database: give this one a log_dir of its own"));
    }
    Ok(())
}

/// Removes the files of an interrupted creation from a directory, except its log.
fn clear(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for file in disk.list(dir)? {
        if [CONTROL_FILE, DATA_FILE, DOUBLEWRITE_FILE].into_iter().any(|name| is_named(&file, name)) {
            disk.remove(&file)?;
        }
    }
    Ok(disk.sync_dir(dir)?)
}

/// Removes the log of an interrupted creation. A directory with a control file holds another database, and is left
/// unchanged.
fn clear_log(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let files = disk.list(dir)?;
    if files.iter().any(|file| is_named(file, CONTROL_FILE)) {
        return Ok(());
    }
    files.iter().filter(|file| is_redo(file) || is_of_log(file)).try_for_each(|file| disk.remove(file))?;
    Ok(disk.sync_dir(dir)?)
}

/// Opens a marker for writing and locks it.
fn open_locked(disk: &dyn Disk, dir: &Path, marker: &str, create: Create) -> Result<Handle> {
    let marker = disk.open(&dir.join(marker), OpenHow { write: true, create, ..OpenHow::default() })?;
    disk.lock(&marker).map_err(|error| match error.kind {
        IoErrorKind::Locked => Error::Locked { path: dir.into(), in_this_process: false },
        _ => Error::Io(error),
    })?;
    Ok(marker)
}

/// Returns whether a file that was opened and then locked has been removed in between.
fn is_removed(disk: &dyn Disk, file: &Handle) -> bool {
    disk.identity(file).is_ok_and(|file| file.names == 0)
}

/// Replaces the content of a marker, durably.
fn replace(disk: &dyn Disk, marker: &Handle, path: &Path, content: &[u8]) -> Result<()> {
    disk.set_len(marker, 0)?;
    if disk.write_at(marker, 0, &[IoSlice::new(content)], WriteHow::default())? < content.len() {
        return Err(Error::Io(IoError::new(seawall_io::Op::Write, path, IoErrorKind::NoProgress)));
    }
    Ok(disk.sync(marker, SyncHow::All)?)
}

fn is_named(file: &Path, name: &str) -> bool {
    file.file_name().is_some_and(|found| found == name)
}
