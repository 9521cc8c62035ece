//! The engine's errors, written for the person who has to act on them.
//!
//! 1. [`Error`] leaves the engine; [`Stop`] never does: it tells the caller of latched code to release its
//!    latches, satisfy a need, and start over.
//! 2. The first failure of a log or data write is sticky ([`Health`]): every later commit fails with it,
//!    nothing is retried.
//! 3. Damage carries its evidence: file, page or position, expected and found.

use crate::format::{Lsn, PageId, TreeId, TxnId};
use crate::mutants::{Mutant, Planted};
use seawall_io::{Clock, IoError};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Implements `Display` from a table of the variants' messages: `Variant { fields } => "text", arguments;`. A variant
/// without a message does not compile.
macro_rules! messages {
    ($type:ident: $($variant:ident $({ $($field:tt)* })? $(($inner:ident))? => $text:literal $(, $argument:expr)*;)+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant $({ $($field)* })? $(($inner))? => write!(f, $text $(, $argument)*),)+
                }
            }
        }
    };
}

/// Why the engine could not do what was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// An I/O request failed.
    Io(IoError),
    /// Data read from disk is damaged.
    Corrupt(Box<Corruption>),
    /// An earlier write or flush of the log or the data failed: no transaction can commit any more.
    Poisoned {
        /// The first failure.
        first_error: Arc<Error>,
    },
    /// The log could not be made durable during this commit: after a restart the transaction may be committed or not.
    OutcomeUnknown {
        /// What failed.
        cause: Arc<Error>,
    },
    /// The transaction or the database does not permit changes.
    ReadOnly {
        /// Why.
        why: String,
    },
    /// There is no space for more data.
    NoSpace {
        /// The file that had to grow.
        path: PathBuf,
        /// How much it had to grow, bytes.
        needed_bytes: u64,
        /// The free space that the option `log_space_reserve` keeps unused, bytes; 0 if none.
        kept_free_bytes: u64,
    },
    /// This transaction was chosen as the victim of a deadlock: roll it back and run it again.
    Deadlock {
        /// This transaction.
        victim: TxnId,
        /// The transaction it waits for.
        waits_for: TxnId,
        /// What it waits for.
        on: LockedOn,
    },
    /// The lock wait time-out passed, or the caller did not want to wait.
    LockTimeout {
        /// The transaction that holds the lock.
        holder: TxnId,
        /// What it waited for.
        on: LockedOn,
        /// How long it waited, ms.
        waited_ms: u64,
    },
    /// Another thread interrupted this transaction, before or while it waited or scanned: see
    /// [`InterruptHandle`](crate::InterruptHandle). The call changed no more than any failed call does.
    Interrupted {
        /// What the call was doing.
        during: &'static str,
        /// What it waited for, if that was a lock.
        on: Option<LockedOn>,
    },
    /// A read committed transaction holds as many key locks as it may. Rows that it has written need no key lock.
    TooManyLocks {
        /// The number of locks that it holds.
        locks: usize,
        /// The memory that its locks may use, bytes.
        max_bytes: u64,
    },
    /// Another transaction changed this key after this transaction took its snapshot.
    WriteConflict {
        /// The transaction that changed it.
        writer: TxnId,
        /// What.
        on: LockedOn,
    },
    /// `insert` found that the key exists.
    KeyExists {
        /// Where.
        on: LockedOn,
    },
    /// Rows that must be in key order are not.
    RowsOutOfOrder {
        /// The first row that is out of order, counted from 0.
        index: u64,
    },
    /// One of the rows to insert has the key of an earlier row or of an existing one.
    DuplicateRow {
        /// The first row whose key exists, counted from 0.
        index: u64,
        /// Where.
        on: LockedOn,
    },
    /// A key is longer than the page size allows.
    KeyTooLong {
        /// Its length, bytes.
        len_bytes: usize,
        /// The maximum, bytes.
        max_bytes: usize,
    },
    /// The name of a tree is too long.
    NameTooLong {
        /// Its length, bytes.
        len_bytes: usize,
        /// The maximum, bytes.
        max_bytes: usize,
    },
    /// A value is longer than 1 GiB.
    ValueTooLong {
        /// Its length, bytes.
        len_bytes: u64,
        /// The maximum, bytes.
        max_bytes: u64,
    },
    /// No tree has that name.
    NoSuchTree {
        /// The name.
        name: String,
    },
    /// The tree behind a handle was dropped.
    TreeDropped {
        /// The tree.
        tree: TreeId,
    },
    /// The tree was built after the snapshot was taken, and does not have the contents of that time.
    TreeTooNew {
        /// The tree.
        tree: TreeId,
    },
    /// A tree with that name exists.
    TreeExists {
        /// The name.
        name: String,
    },
    /// An option has an invalid value.
    InvalidOption {
        /// Its name.
        name: String,
        /// What was given.
        value: String,
        /// What is allowed.
        why: String,
    },
    /// The directory holds something else.
    NotADatabase {
        /// The directory or file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// A newer program wrote the database, or one so old that its format is no longer supported.
    OtherFormat {
        /// The control file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The format version that this program reads.
        supported: u32,
    },
    /// The system could not start another thread.
    NoThread {
        /// The database.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Another process, or this one, has the database open.
    Locked {
        /// The file that is locked.
        path: PathBuf,
        /// Whether this process has the file open.
        in_this_process: bool,
    },
    /// The database was not closed or is incomplete, so it cannot be opened without writing.
    NeedsRecovery {
        /// The database.
        path: PathBuf,
    },
    /// The directory holds a backup, which must be restored and cannot be opened.
    IsABackup {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds an unfinished backup or an unfinished restore.
    UnfinishedBackup {
        /// The directory.
        path: PathBuf,
    },
    /// A backup, or a chain of backups, that does not match.
    BadBackup {
        /// The directory or file of the backup.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The process that has the database open refused a backup requested through its control socket, could not finish
    /// it, or did not answer.
    BackupRefused {
        /// The database.
        path: PathBuf,
        /// Its answer, or why there is none.
        why: String,
    },
    /// Writers produced log faster than the backup copied it. The backup was aborted; the writers were not stopped.
    BackupTooSlow {
        /// Log that it would have had to keep, bytes.
        held_bytes: u64,
        /// The most that it may keep, bytes: `BackupOptions::held_log_max`.
        max_bytes: u64,
        /// Whether the disk was full, and writers needed the files.
        disk_full: bool,
    },
    /// More transactions are writing at once than there are undo logs.
    TooManyTransactions {
        /// The most at one time.
        max: usize,
    },
    /// Too many transactions are prepared in place: log space and pages are reserved for no more.
    TooManyPrepared {
        /// The most at one time.
        max: usize,
    },
    /// The transaction is over, or doomed by an earlier error.
    TransactionEnded {
        /// How it ended.
        why: String,
    },
    /// A name that is not known here: a savepoint, an XID.
    Unknown {
        /// What kind of name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The database was shut down, or is being shut down: [`Database::shutdown`](crate::Database::shutdown).
    ShutDown,
    /// The database is being shut down, but transactions are open. No new ones can begin.
    StillRunning {
        /// How many.
        running: usize,
    },
    /// The interface was used incorrectly.
    Usage(String),
}

messages! { Error:
    Io(inner) => "{inner}";
    Corrupt(inner) => "{inner}";
    Poisoned { first_error } =>
        "the database stopped at its first failed write: {first_error}. What was flushed is safe; later commits at \
         written or deferred may be lost. Close the database, repair the disk, and open the database again";
    OutcomeUnknown { cause } =>
        "it is unknown whether this transaction was committed: {cause}. Open the database again to find out";
    ReadOnly { why } => "read-only: {why}";
    NoSpace { path, needed_bytes, kept_free_bytes } =>
        "no space: {} cannot grow by {needed_bytes} bytes{}. Free space on that file system, then try again",
        path.display(), kept_free(*kept_free_bytes);
    Deadlock { victim, waits_for, on } =>
        "deadlock: {victim} waits for {waits_for} on {on}, which waits for it in turn. Roll back and \
         run it again";
    LockTimeout { holder, on, waited_ms } =>
        "lock time-out after {waited_ms} ms on {on}, held by {holder}. Run the statement again, or raise \
         lock_wait_timeout. If {holder} is prepared, only commit_prepared or rollback_prepared ends it";
    Interrupted { during, on } =>
        "interrupted during {during}{}. Roll back the transaction, or clear the interrupt and go on",
        on.as_ref().map(|on| format!(" on {on}")).unwrap_or_default();
    TooManyLocks { locks, max_bytes } =>
        "this transaction holds {locks} key locks, the maximum for {max_bytes} bytes of lock memory: commit it and \
         continue in another, lock fewer rows at a time, or raise lock_memory_per_transaction";
    WriteConflict { writer, on } =>
        "write conflict on {on}: {writer} changed it after this snapshot was taken. Roll back and run \
         it again";
    KeyExists { on } => "the key exists: {on}";
    RowsOutOfOrder { index } =>
        "row {index} (counted from 0) has a smaller key than the row before it: sort the rows by their keys, as \
         bytes";
    DuplicateRow { index, on } => "row {index} (counted from 0) cannot be inserted, its key exists: {on}";
    KeyTooLong { len_bytes, max_bytes } => "a key of {len_bytes} bytes is too long: this database allows {max_bytes}";
    NameTooLong { len_bytes, max_bytes } => "a tree name of {len_bytes} bytes is too long: {max_bytes} are allowed";
    ValueTooLong { len_bytes, max_bytes } => "a value of {len_bytes} bytes is too long: {max_bytes} are allowed";
    NoSuchTree { name } => "there is no tree named {name:?}";
    TreeDropped { tree } => "tree {tree} was dropped";
    TreeTooNew { tree } =>
        "tree {tree} was built after this transaction's snapshot was taken: end the transaction and begin another";
    TreeExists { name } => "a tree named {name:?} exists";
    InvalidOption { name, value, why } => "option {name} = {value}: {why}";
    NotADatabase { path, why } => "{} is not a Seawall database: {why}", path.display();
    OtherFormat { path, found, supported } =>
        "{} has format version {found}, and this program reads {supported}: open it with the Seawall that wrote \
         it, or a newer one", path.display();
    NoThread { path, why } =>
        "{} was not opened: the system refused to start a background thread ({why}). Raise the process limit \
         (ulimit -u) or the container's (pids.max), or give it more memory", path.display();
    Locked { path, in_this_process: true } =>
        "{} is open in this process already: use that `Database` (its clones are handles of the same database), \
         or close it first", path.display();
    Locked { path, in_this_process: false } =>
        "{} is open in another process: one process may have it open, or several read-only. Close it there \
         first", path.display();
    NeedsRecovery { path } =>
        "{} was not closed cleanly and cannot be recovered read-only: open it for writing once and close it, then \
         open it read-only", path.display();
    IsABackup { path } =>
        "{} holds a backup, and opening a backup would change it. Restore it into another directory (`seawall \
         restore`, Database::restore)", path.display();
    UnfinishedBackup { path } =>
        "{} holds an unfinished backup or restore: it was interrupted or is still running. Nothing in it can be \
         used. If none is running, remove the directory and start again", path.display();
    BadBackup { path, why } => "backup {}: {why}", path.display();
    BackupRefused { path, why } => "the process that has {} open made no backup: {why}", path.display();
    BackupTooSlow { held_bytes, max_bytes, disk_full } =>
        "the backup was aborted: {}", too_slow(*held_bytes, *max_bytes, *disk_full);
    TooManyTransactions { max } => "{max} transactions are writing already: commit or roll back one of them first";
    TooManyPrepared { max } =>
        "{max} transactions are already prepared in place, the maximum for this pool size: commit or roll back one \
         of them, prepare with `Transaction::prepare`, or raise pool_size";
    TransactionEnded { why } => "the transaction has ended: {why}";
    Unknown { what, name } => "unknown {what}: {name:?}";
    ShutDown => "the database was shut down and accepts no new work. Open it again to continue";
    StillRunning { running } => "{running} transactions or calls are still running: end them, then shut down again";
    Usage(inner) => "{inner}";
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(inner) => Some(inner),
            _ => None,
        }
    }
}

impl From<IoError> for Error {
    fn from(inner: IoError) -> Self {
        Self::Io(inner)
    }
}

/// Says why a backup did not keep up.
fn too_slow(held_bytes: u64, max_bytes: u64, disk_full: bool) -> String {
    if disk_full {
        "the log's disk is full, and writers needed the files that the backup held. Free space there, then begin again"
            .to_owned()
    } else {
        format!(
            "it held back {held_bytes} bytes of log that could otherwise have been reused, and held_log_max allows \
             {max_bytes}. Raise rate or held_log_max, or begin again when less is written"
        )
    }
}

/// The part of a message about space that is kept free.
fn kept_free(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(" and leave {bytes} free (option log_space_reserve)") }
}

/// The object of a lock, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedOn {
    /// The tree.
    pub tree: TreeId,
    /// The key, or the first key of a range; empty for a whole tree.
    pub key: Vec<u8>,
    /// Whether it is the whole tree: all its keys, and the tree itself, which is dropped, renamed or built.
    pub whole_tree: bool,
}

impl LockedOn {
    /// Returns the object for a key, or for a range that begins with it.
    #[must_use]
    pub fn row(tree: TreeId, key: impl Into<Vec<u8>>) -> Self {
        Self { tree, key: key.into(), whole_tree: false }
    }

    /// Returns the object for a whole tree.
    #[must_use]
    pub fn whole(tree: TreeId) -> Self {
        Self { tree, key: Vec::new(), whole_tree: true }
    }
}

impl std::fmt::Display for LockedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { whole_tree: true, tree, .. } => write!(f, "the whole tree {tree}"),
            // The catalog's keys are the names of trees.
            Self { tree: TreeId::CATALOG, key, .. } => {
                write!(f, "the name of tree {:?}", String::from_utf8_lossy(key))
            }
            Self { tree, key, .. } => write!(f, "key \"{}\" of tree {tree}", key.escape_ascii()),
        }
    }
}

/// Evidence of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corruption {
    /// A page's checksum does not match its contents.
    ChecksumMismatch {
        /// The file.
        path: PathBuf,
        /// The page.
        page: PageId,
        /// Computed from the bytes that were read.
        expected: u32,
        /// Stored in the page.
        found: u32,
    },
    /// A page holds another page's contents.
    Misdirected {
        /// The file.
        path: PathBuf,
        /// The page asked for.
        page: PageId,
        /// The page found.
        found: PageId,
    },
    /// Recovery could not read the page, and gave it up, as option `damaged_pages` told it.
    Abandoned {
        /// The file.
        path: PathBuf,
        /// The page.
        page: PageId,
    },
    /// A page is newer than the log: flushed log was lost.
    LogBehindPage {
        /// The page.
        page: PageId,
        /// Its LSN.
        page_lsn: Lsn,
        /// The log's end.
        log_end: Lsn,
    },
    /// The log is damaged before its end.
    Log {
        /// Where.
        at: Lsn,
        /// The evidence.
        why: String,
    },
    /// A page's checksum holds but its contents are invalid.
    Page {
        /// The page.
        page: PageId,
        /// The evidence.
        why: String,
    },
    /// A file is shorter than its known contents, or is damaged as a whole.
    File {
        /// The file.
        path: PathBuf,
        /// The evidence.
        why: String,
    },
}

messages! { Corruption:
    ChecksumMismatch { path, page, expected, found } =>
        "{}: page {page} has checksum {found:#010x} where {expected:#010x} was expected. Restore it from a \
         backup; `seawall check` lists all damage", path.display();
    Misdirected { path, page, found } =>
        "{}: page {page} holds page {found}: a write went to the wrong place. Restore it from a backup",
        path.display();
    Abandoned { path, page } =>
        "{}: page {page} was abandoned by an opening with damaged_pages = abandon, because it could not be read: what \
         it held is lost. Dump what is left, or restore a backup; `seawall check` lists all damage", path.display();
    LogBehindPage { page, page_lsn, log_end } =>
        "page {page} was changed at {page_lsn}, but the log ends at {log_end}: flushed log is lost. Restore from a \
         backup";
    Log { at, why } => "the log is damaged at {at}: {why}. Restore from a backup";
    Page { page, why } =>
        "page {page} has invalid contents: {why}. The disk lost a write of it, memory is damaged, or this is a bug: \
         restore a backup, and please report it";
    File { path, why } => "{}: {why}", path.display();
}

impl std::error::Error for Corruption {}

impl Corruption {
    /// Returns the damaged page, if the damage is in one.
    #[must_use]
    pub fn page(&self) -> Option<PageId> {
        match self {
            Self::ChecksumMismatch { page, .. }
            | Self::Misdirected { page, .. }
            | Self::Abandoned { page, .. }
            | Self::LogBehindPage { page, .. }
            | Self::Page { page, .. } => Some(*page),
            Self::Log { .. } | Self::File { .. } => None,
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(Box::new(corruption))
    }
}

impl Error {
    /// Returns whether the transaction that got this error should be rolled back and run again: [`Error::Deadlock`] or
    /// [`Error::WriteConflict`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Deadlock { .. } | Self::WriteConflict { .. })
    }

    /// Returns whether the error reports data on disk that is damaged or unreadable; other parts of the database can
    /// still be read.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt(_) => true,
            Self::Io(error) => error.is_unreadable(),
            _ => false,
        }
    }

    /// Returns whether recovery has abandoned the page that was to be read ([`Corruption::Abandoned`]).
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Self::Corrupt(why) if matches!(**why, Corruption::Abandoned { .. }))
    }

    /// Returns the error for a page whose checksum holds but whose contents are invalid.
    pub fn bad_page(page: PageId, why: impl Into<String>) -> Self {
        Corruption::Page { page, why: why.into() }.into()
    }
}

/// How long opening a database waits for a lock. The kernel releases a killed process's files only after their I/O
/// requests complete, which can be after the process itself is gone.
const LOCKED_PATIENCE: Duration = Duration::from_secs(3);
/// The time between two tries.
const LOCKED_STEP: Duration = Duration::from_millis(20);

/// Repeats `attempt` while the file is locked, for at most [`LOCKED_PATIENCE`] of `clock`.
///
/// # Errors
/// Those of `attempt`; [`Error::Locked`] after that time.
pub(crate) fn while_locked<T>(clock: &dyn Clock, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let until = clock.now() + LOCKED_PATIENCE;
    loop {
        match attempt() {
            Err(Error::Locked { .. }) if clock.now() < until => clock.sleep(LOCKED_STEP),
            Err(Error::Locked { path, .. }) => {
                let in_this_process = is_open_here(&path);
                return Err(Error::Locked { path, in_this_process });
            }
            done => return done,
        }
    }
}

/// How often a read that failed is repeated where its failure would cost data or space for ever.
pub(crate) const READS_AGAIN: u32 = 2;

/// Repeats work that a failed read stops, up to [`READS_AGAIN`] times.
///
/// # Errors
/// Those of `work`.
pub(crate) fn read_again<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..READS_AGAIN {
        match work() {
            Err(Error::Io(error)) if error.is_unreadable() => {}
            done => return done,
        }
    }
    work()
}

/// Returns whether a descriptor of this process refers to the file.
fn is_open_here(path: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let descriptors = || std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    file(path).is_some_and(|wanted| descriptors().any(|descriptor| file(&descriptor.path()) == Some(wanted)))
}

/// Why latched code stopped. The caller releases every latch before it acts on this.
#[derive(Debug)]
pub enum Stop {
    /// This page must be read first.
    Load(PageId),
    /// A frame must be freed first.
    Frames,
    /// Another thread reads or merges this page, and must finish first.
    Loading(PageId),
    /// The operation failed.
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(error)
    }
}

impl From<Corruption> for Stop {
    fn from(corruption: Corruption) -> Self {
        Self::Fail(corruption.into())
    }
}

/// Whether the database may still write. Shared by all layers.
#[derive(Debug)]
pub struct Health {
    first: OnceLock<Arc<Error>>,
    planted: Planted,
}

impl Default for Health {
    fn default() -> Self {
        Self { first: OnceLock::new(), planted: Planted::here() }
    }
}

impl Health {
    /// Returns the health of a database that is opened read-only: every change is refused, although nothing has failed.
    pub fn read_only() -> Self {
        let health = Self::default();
        let why = "the database was opened read-only; Database::open opens it for writing".to_owned();
        drop(health.poison(Error::ReadOnly { why }));
        health
    }

    /// Returns whether the database was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.first.get().is_some_and(|first| matches!(**first, Error::ReadOnly { .. }))
    }

    /// Checks, for calls that only read, that no failure has stopped the database.
    ///
    /// # Errors
    /// Those of [`Health::check`], but none for a database that was opened read-only.
    pub fn check_for_reads(&self) -> Result<()> {
        if self.is_read_only() { Ok(()) } else { self.check() }
    }

    /// Records `error` if it is the first failure; returns the error for the caller.
    pub fn poison(&self, error: Error) -> Error {
        Self::stopped(self.first.get_or_init(|| Arc::new(error)))
    }

    /// # Errors
    /// [`Error::Poisoned`] with the first failure, if there was one; [`Error::ShutDown`] after a shutdown;
    /// [`Error::ReadOnly`].
    pub fn check(&self) -> Result<()> {
        self.first.get().map_or(Ok(()), |first| Err(Self::stopped(first)))
    }

    /// Returns the error for a call that finds `first`. A shutdown or a read-only opening is not a failure, and needs
    /// no repair.
    fn stopped(first: &Arc<Error>) -> Error {
        match &**first {
            Error::ShutDown => Error::ShutDown,
            Error::ReadOnly { why } => Error::ReadOnly { why: why.clone() },
            _ => Error::Poisoned { first_error: first.clone() },
        }
    }

    /// The first failure.
    pub fn first_error(&self) -> Option<Arc<Error>> {
        self.first.get().cloned()
    }

    /// Returns whether a test has planted this defect; `false` in every ordinary build.
    #[inline]
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.planted.has(mutant)
    }
}
