//! The result of a call, and its text.

use crate::slice::Slice;
use seawall::{Error, Result};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such row, entry, tree or prepared transaction. Not a failure.
    NotFound = 1,
    /// The key exists.
    KeyExists = 2,
    /// Another transaction changed the row after this transaction took its snapshot: roll back and run it again.
    WriteConflict = 3,
    /// The transaction was chosen as the victim of a deadlock: roll back and run it again.
    Deadlock = 4,
    /// The lock was not free in time. This call changed nothing.
    LockTimeout = 5,
    /// Another thread interrupted the call. This call changed nothing.
    Interrupted = 6,
    /// The transaction holds as many locks as it may.
    TooManyLocks = 7,
    /// The disk is full.
    NoSpace = 8,
    /// An I/O request failed, or the system could not start a thread.
    Io = 9,
    /// Data read from disk is damaged.
    Corrupt = 10,
    /// An earlier write or flush failed: no transaction can commit until the database is opened again.
    Poisoned = 11,
    /// It is unknown whether the transaction is committed: open the database again and look.
    OutcomeUnknown = 12,
    /// The tree was dropped.
    TreeDropped = 13,
    /// The tree is newer than the transaction's snapshot.
    TreeTooNew = 14,
    /// A tree with that name exists.
    TreeExists = 15,
    /// A key, value or name is too long.
    TooLong = 16,
    /// The database or the transaction permits no changes.
    ReadOnly = 17,
    /// An option has an invalid value.
    InvalidOption = 18,
    /// The directory cannot be opened as a database: it holds other files, another format, or a backup, or needs
    /// recovery.
    NotADatabase = 19,
    /// The database is open already.
    Locked = 20,
    /// The transaction has ended.
    TransactionEnded = 21,
    /// Too many transactions write or are prepared at once.
    TooManyTransactions = 22,
    /// The database was shut down, or open transactions prevent the shutdown.
    ShutDown = 23,
    /// The rows are not in key order.
    RowsOutOfOrder = 24,
    /// The interface was used incorrectly.
    Usage = 25,
    /// Any other failure; `seawall_error` says which.
    Other = 26,
    /// The call panicked: a defect of the engine.
    Panic = 27,
}

impl Status {
    fn of(error: &Error) -> Self {
        match error {
            Error::Io(_) | Error::NoThread { .. } => Self::Io,
            Error::Corrupt(_) => Self::Corrupt,
            Error::Poisoned { .. } => Self::Poisoned,
            Error::OutcomeUnknown { .. } => Self::OutcomeUnknown,
            Error::ReadOnly { .. } => Self::ReadOnly,
            Error::NoSpace { .. } => Self::NoSpace,
            Error::Deadlock { .. } => Self::Deadlock,
            Error::LockTimeout { .. } => Self::LockTimeout,
            Error::Interrupted { .. } => Self::Interrupted,
            Error::TooManyLocks { .. } => Self::TooManyLocks,
            Error::WriteConflict { .. } => Self::WriteConflict,
            Error::KeyExists { .. } | Error::DuplicateRow { .. } => Self::KeyExists,
            Error::RowsOutOfOrder { .. } => Self::RowsOutOfOrder,
            Error::KeyTooLong { .. } | Error::NameTooLong { .. } | Error::ValueTooLong { .. } => Self::TooLong,
            Error::NoSuchTree { .. } => Self::NotFound,
            Error::TreeDropped { .. } => Self::TreeDropped,
            Error::TreeTooNew { .. } => Self::TreeTooNew,
            Error::TreeExists { .. } => Self::TreeExists,
            Error::InvalidOption { .. } => Self::InvalidOption,
            Error::NotADatabase { .. }
            | Error::OtherFormat { .. }
            | Error::IsABackup { .. }
            | Error::UnfinishedBackup { .. }
            | Error::NeedsRecovery { .. } => Self::NotADatabase,
            Error::Locked { .. } => Self::Locked,
            Error::TooManyTransactions { .. } | Error::TooManyPrepared { .. } => Self::TooManyTransactions,
            Error::TransactionEnded { .. } => Self::TransactionEnded,
            Error::Unknown { .. } => Self::NotFound,
            Error::ShutDown | Error::StillRunning { .. } => Self::ShutDown,
            Error::Usage(_) => Self::Usage,
            _ => Self::Other,
        }
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
    static KEY: RefCell<Vec<u8>> = RefCell::default();
}

/// Keeps the text of a failure for `seawall_error`. (A thread that is ending keeps none.)
pub(crate) fn remember(text: &str) {
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    drop(TEXT.try_with(|last| last.replace(text)));
}

/// Runs a call: catches a panic, and keeps the text of a failure.
pub(crate) fn call(f: impl FnOnce() -> Result<Status>) -> Status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            remember(&error.to_string());
            if let Error::KeyExists { on } | Error::DuplicateRow { on, .. } = &error {
                drop(KEY.try_with(|last| last.replace(on.key.clone())));
            }
            Status::of(&error)
        }
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            remember(&format!("a defect of the engine: {said}. Roll back the transaction, and report it"));
            Status::Panic
        }
    }
}

/// Returns the text of the calling thread's last failure: what, where, and what to do. UTF-8. It stays valid until the
/// thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn seawall_error() -> *const c_char {
    TEXT.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the existing key of the calling thread's last failure with `SEAWALL_STATUS_KEY_EXISTS`. It stays valid until
/// the thread's next such failure.
#[unsafe(no_mangle)]
pub extern "C" fn seawall_error_key() -> Slice {
    KEY.try_with(|last| Slice::of(&last.borrow())).unwrap_or_else(|_| Slice::of(&[]))
}

/// Returns the version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn seawall_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
