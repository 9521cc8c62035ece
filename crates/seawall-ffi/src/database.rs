//! Databases, their log, and prepared transactions that are not decided yet.

use crate::slice::{Enumeration, Slice, exclusive, free, hand_out, shared, store, text, usage};
use crate::status::{Status, call};
use seawall::{Durability, LogPosition, Options, Xid};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::time::Duration;

/// An open database.
#[derive(Debug)]
pub struct Database(pub(crate) seawall::Database);

/// What a commit waits for.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLevel {
    /// The database's option `durability`.
    Default = 0,
    /// The flush: the commit survives a power cut.
    Flushed = 1,
    /// The write to the device: the commit survives the death of the process. A power cut loses at most the commits of
    /// the last `flush_interval`.
    Written = 2,
    /// Nothing: the death of the process or a power cut loses at most the commits of the last `flush_interval`.
    Deferred = 3,
}

impl Enumeration for CommitLevel {
    const NAME: &'static str = "seawall_commit_level";
    const VALUES: &'static [Self] = &[Self::Default, Self::Flushed, Self::Written, Self::Deferred];
}

impl CommitLevel {
    pub(crate) fn durability(self) -> Option<Durability> {
        match self {
            Self::Default => None,
            Self::Flushed => Some(Durability::Flushed),
            Self::Written => Some(Durability::Written),
            Self::Deferred => Some(Durability::Deferred),
        }
    }
}

/// Opens the database in the directory `path`, and creates it if there is none. `options` has `count` texts like
/// "pool_size=4G"; they override the options in the directory's seawall.toml.
///
/// # Safety
/// `path` and the options are texts that end with a zero byte; `db` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_open(
    path: *const c_char,
    options: *const *const c_char,
    count: usize,
    db: *mut *mut Database,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let path = unsafe { text(path) }?;
        if db.is_null() || (count > 0 && options.is_null()) {
            return Err(usage("seawall_open without a place for the handle, or without the options that it counts"));
        }
        let mut set = Options::default();
        for at in 0..count {
            // SAFETY: there are `count` of them.
            let option = unsafe { *options.add(at) };
            // SAFETY: as the function requires.
            let option = unsafe { text(option) }?;
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| usage(&format!("option {option:?} has no '=': write name=value")))?;
            set.set(name.trim(), value.trim())?;
        }
        let opened = seawall::Database::open_with(path, set)?;
        // SAFETY: as the function requires.
        unsafe { hand_out(db, Database(opened)) }?;
        Ok(Status::Ok)
    })
}

/// Shuts the database down: refuses new transactions, waits at most `patience_ms` until all handles of transactions are
/// freed and running calls have returned, then closes the database cleanly. Calls fail afterwards. Returns
/// `SEAWALL_STATUS_SHUT_DOWN` if the time was too short: new transactions stay refused, and the call can be repeated.
/// The handle must still be freed.
///
/// # Safety
/// `db` is a handle of a database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_shutdown(db: *const Database, patience_ms: u64) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        unsafe { shared(db) }?.0.shutdown_within(Duration::from_millis(patience_ms))?;
        Ok(Status::Ok)
    })
}

/// Frees the handle. The database closes when its last handle is freed; to see whether closing fails, call
/// `seawall_shutdown` first.
///
/// # Safety
/// `db` is null, or a handle of a database that no call uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_free(db: *mut Database) {
    // SAFETY: as the function requires.
    unsafe { free(db) };
}

/// Changes an option of the running database.
///
/// # Safety
/// `db` is a handle of a database; `name` and `value` are texts that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_option(db: *const Database, name: *const c_char, value: *const c_char) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, name, value) = unsafe { (shared(db)?, text(name)?, text(value)?) };
        db.0.set(name, value)?;
        Ok(Status::Ok)
    })
}

thread_local! {
    static OPTION: RefCell<String> = RefCell::default();
}

/// Stores in `value` the value of an option of the running database. The text stays valid until the thread's next call
/// of this function.
///
/// # Safety
/// `db` is a handle of a database; `name` is a text that ends with a zero byte; `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_option(db: *const Database, name: *const c_char, value: *mut Slice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, name) = unsafe { (shared(db)?, text(name)?) };
        OPTION.replace(db.0.options().get(name)?);
        // SAFETY: as the function requires.
        OPTION.with_borrow(|text| unsafe { store(value, Slice::of(text.as_bytes())) });
        Ok(Status::Ok)
    })
}

/// Makes the log before `position` durable, or the whole log if `position` is 0. Concurrent calls share a flush.
///
/// # Safety
/// `db` is a handle of a database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_flush_log(db: *const Database, position: u64) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = &unsafe { shared(db) }?.0;
        match position {
            0 => drop(db.flush_log()?),
            position => db.flush_log_to(LogPosition::from_u64(position))?,
        }
        Ok(Status::Ok)
    })
}

/// Decides the end of the backup that another process requested with `--wait-for-end`: the backup has everything that
/// was committed before this call, and nothing whose commit begins after it. Stores the end in `position`, or 0 when no
/// backup waits.
///
/// # Safety
/// `db` is a handle of a database; `position` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_end_backup(db: *const Database, position: *mut u64) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db) }?;
        let end = db.0.tell_backup_to_end()?;
        // SAFETY: as the function requires.
        unsafe { store(position, end.unwrap_or(0)) };
        Ok(Status::Ok)
    })
}

/// A list of the transactions that are prepared and not decided.
#[derive(Debug)]
pub struct PreparedList {
    left: std::vec::IntoIter<Xid>,
    last: Xid,
}

/// Lists the transactions that are prepared and not decided.
///
/// # Safety
/// `db` is a handle of a database; `list` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_prepared(db: *const Database, list: *mut *mut PreparedList) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db) }?;
        let left = db.0.prepared().into_iter();
        // SAFETY: as the function requires.
        unsafe { hand_out(list, PreparedList { left, last: Xid(Vec::new()) }) }?;
        Ok(Status::Ok)
    })
}

/// Stores the next name of the list in `xid`. Returns `SEAWALL_STATUS_NOT_FOUND` at the end of the list.
///
/// # Safety
/// `list` is a handle of a list; `xid` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_prepared_next(list: *mut PreparedList, xid: *mut Slice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let list = unsafe { exclusive(list) }?;
        let Some(next) = list.left.next() else { return Ok(Status::NotFound) };
        list.last = next;
        // SAFETY: as the function requires.
        unsafe { store(xid, Slice::of(&list.last.0)) };
        Ok(Status::Ok)
    })
}

/// Frees the list.
///
/// # Safety
/// `list` is null, or a handle of a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_prepared_free(list: *mut PreparedList) {
    // SAFETY: as the function requires.
    unsafe { free(list) };
}

/// Commits a prepared transaction that belongs to no handle. Returns `SEAWALL_STATUS_NOT_FOUND` if none has this name.
///
/// # Safety
/// `db` is a handle of a database; `xid` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_commit_prepared(db: *const Database, xid: Slice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, xid) = unsafe { (shared(db)?, xid.bytes()?) };
        db.0.commit_prepared(&Xid(xid.to_vec()))?;
        Ok(Status::Ok)
    })
}

/// Like `seawall_commit_prepared`, in the order of an outside log: the commit is visible to others at once. It is
/// durable when Seawall's log is flushed up to the stored `position`.
///
/// # Safety
/// `db` is a handle of a database; `xid` is readable; `position` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_commit_prepared_ordered(
    db: *const Database,
    xid: Slice,
    position: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, xid) = unsafe { (shared(db)?, xid.bytes()?) };
        let end = db.0.commit_prepared_ordered(&Xid(xid.to_vec()))?;
        // SAFETY: as the function requires.
        unsafe { store(position, end.as_u64()) };
        Ok(Status::Ok)
    })
}

/// Rolls back a prepared transaction that belongs to no handle. Returns `SEAWALL_STATUS_NOT_FOUND` if none has this
/// name.
///
/// # Safety
/// `db` is a handle of a database; `xid` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_rollback_prepared(db: *const Database, xid: Slice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, xid) = unsafe { (shared(db)?, xid.bytes()?) };
        db.0.rollback_prepared(&Xid(xid.to_vec()))?;
        Ok(Status::Ok)
    })
}

/// What a thread waits for.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// A lock that another transaction holds.
    Lock = 0,
    /// The log: a commit that becomes durable, or space for a change.
    Log = 1,
    /// A page that is read from the data file.
    Page = 2,
}

/// Called by a thread that is about to wait.
pub type BlocksFn = Option<unsafe extern "C" fn(on: Blocking)>;

/// Called by a thread that has waited, once for each call of the other function.
pub type GoesOnFn = Option<unsafe extern "C" fn()>;

/// Sets the functions that are told of the waits of threads, for a program that schedules its threads itself: for all
/// databases of the process, until it ends. Returns `SEAWALL_STATUS_USAGE` if they are set already. The functions must
/// be short and must not call the engine; the engine's own threads call them, too.
///
/// # Safety
/// Any thread may call `blocks` and `goes_on` from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_on_block(blocks: BlocksFn, goes_on: GoesOnFn) -> Status {
    struct Observer {
        blocks: unsafe extern "C" fn(on: Blocking),
        goes_on: unsafe extern "C" fn(),
    }
    impl seawall::BlockObserver for Observer {
        fn begins(&self, on: seawall::Blocking) {
            let on = match on {
                seawall::Blocking::Lock => Blocking::Lock,
                seawall::Blocking::Log => Blocking::Log,
                seawall::Blocking::Page => Blocking::Page,
            };
            // SAFETY: as the function requires.
            unsafe { (self.blocks)(on) };
        }
        fn ended(&self) {
            // SAFETY: as the function requires.
            unsafe { (self.goes_on)() };
        }
    }
    call(|| {
        let (Some(blocks), Some(goes_on)) = (blocks, goes_on) else {
            return Err(usage("seawall_on_block without both functions"));
        };
        seawall::observe_blocking(Observer { blocks, goes_on })?;
        Ok(Status::Ok)
    })
}

/// Called when a transaction begins to wait for a lock, by the thread that waits, once for each transaction that blocks
/// it. `waiter` and `holder` are the tags of the transactions' options.
pub type OnWait = Option<unsafe extern "C" fn(context: *mut c_void, waiter: u64, holder: u64)>;

/// Sets the function that is called at each wait for a lock; null removes it. The engine holds no lock of its own while
/// the function runs. The function must be short; it may interrupt any transaction.
///
/// # Safety
/// `db` is a handle; any thread may call `told` with `context`, as long as the database is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_on_wait(db: *const Database, told: OnWait, context: *mut c_void) -> Status {
    /// The caller promises that other threads may use the context.
    struct Context(*mut c_void);
    // SAFETY: as the function requires.
    unsafe impl Send for Context {}
    // SAFETY: as the function requires.
    unsafe impl Sync for Context {}
    impl Context {
        fn get(&self) -> *mut c_void {
            self.0
        }
    }
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let Some(told) = told else {
            db.0.forget_on_wait()?;
            return Ok(Status::Ok);
        };
        let context = Context(context);
        db.0.on_wait(move |wait| {
            for holder in &wait.holders {
                // SAFETY: as the function requires.
                unsafe { told(context.get(), wait.waiter.tag, holder.tag) };
            }
        })?;
        Ok(Status::Ok)
    })
}
