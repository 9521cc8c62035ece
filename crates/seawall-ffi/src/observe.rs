//! Transactions, lock waits and statistics, for the reports of a server.
//!
//! 1. A report is collected first; then the caller's function is called for each of its rows, while the engine holds no
//!    latch and no mutex. Slices that the function gets are readable during that call only.
//! 2. A report shows one moment, or nearly so, and uses memory only for the rows that it lists.

use crate::database::Database;
use crate::lock::Lock;
use crate::slice::{Slice, shared, store, usage};
use crate::status::{Status, call};
use crate::tree::Tree;
use seawall::stats::{percentile_ns, total_ns};
use seawall::{LockMode, TreeId, metrics::Meaning};
use std::cell::RefCell;
use std::ffi::c_void;

/// How reports name a transaction.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Party {
    /// A number that is unique since the database was opened. Later transactions mostly have higher numbers.
    pub serial: u64,
    /// The tag of the transaction's options; 0 if none.
    pub tag: u64,
    /// The transaction's id; 0 before its first change.
    pub id: u64,
}

impl From<seawall::Party> for Party {
    fn from(party: seawall::Party) -> Self {
        Self { serial: party.serial, tag: party.tag, id: party.id.0 }
    }
}

/// A transaction that writes, or holds or waits for locks.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TransactionInfo {
    /// The transaction.
    pub who: Party,
    /// The number of changes that it has made.
    pub changes: u64,
    /// The number of keys that it has locked, without ranges, and without rows that it wrote and no other transaction
    /// asked for.
    pub locked_keys: u64,
    /// Whether it waits for a lock.
    pub waits: bool,
    /// Whether it is the victim of a deadlock and must be rolled back.
    pub is_victim: bool,
    /// Whether it is prepared and belongs to no handle.
    pub is_prepared: bool,
}

/// A transaction that waits for a lock, and one transaction that blocks it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LockWaitInfo {
    /// The transaction that waits.
    pub waiter: Party,
    /// A transaction that it waits for.
    pub holder: Party,
    /// The id of the tree.
    pub tree: u32,
    /// The key, or the first key of a range; empty for a whole tree.
    pub key: Slice,
    /// The requested lock: a `seawall_lock`.
    pub wanted: u32,
    /// The lock that the holder has: a `seawall_lock`, or `SEAWALL_LOCK_NONE` if the holder is only ahead in the queue.
    pub held: u32,
    /// How long the waiter has waited, ms.
    pub waited_ms: u64,
}

/// A transaction of a deadlock. Each waits for a lock of the next one, and the last for a lock of the first.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeadlockParty {
    /// The transaction.
    pub who: Party,
    /// The id of the tree.
    pub tree: u32,
    /// The key, or the first key of a range, for which it waited; empty for a whole tree.
    pub key: Slice,
    /// The lock that it requested: a `seawall_lock`.
    pub wanted: u32,
    /// Whether it was chosen as the victim.
    pub is_victim: bool,
}

/// The I/O of one class of files, one operation and one cause.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IoInfo {
    /// The class of files.
    pub file_class: Slice,
    /// The operation.
    pub operation: Slice,
    /// The cause.
    pub cause: Slice,
    /// Operations that succeeded.
    pub count: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// The total time of the operations, ns.
    pub total_ns: u64,
    /// Half of the operations took no longer than this, ns.
    pub p50_ns: u64,
    /// 95% of the operations took no longer than this, ns.
    pub p95_ns: u64,
    /// 99% of the operations took no longer than this, ns.
    pub p99_ns: u64,
    /// The longest operation took this, ns.
    pub max_ns: u64,
}

/// How the files of one class are opened.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileInfo {
    /// The class of files.
    pub file_class: Slice,
    /// The flush method in effect, and the reason if it is not the requested one.
    pub mode: Slice,
    /// Bytes of the files in the page cache; `UINT64_MAX` if unknown.
    pub page_cache_bytes: u64,
}

/// The size of a tree, and the layout of its leaves in the file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TreeInfo {
    /// The tree's id; ids are never reused.
    pub id: u32,
    /// The number of its pages, as far as the space maps have been read.
    pub pages: u64,
    /// The bytes of those pages.
    pub bytes: u64,
    /// The number of its leaves; 0 unless they were measured.
    pub leaves: u64,
    /// Leaves that do not directly follow, in the file, the leaf before them in key order.
    pub apart: u64,
    /// How full the leaves are, percent, from a sample of 32 leaves.
    pub fill_percent: u32,
}

/// Called with each transaction.
pub type TransactionFn = Option<unsafe extern "C" fn(context: *mut c_void, one: *const TransactionInfo)>;
/// Called with each pair of a waiting transaction and a transaction that it waits for.
pub type LockWaitFn = Option<unsafe extern "C" fn(context: *mut c_void, one: *const LockWaitInfo)>;
/// Called with each transaction of a deadlock.
pub type DeadlockFn = Option<unsafe extern "C" fn(context: *mut c_void, one: *const DeadlockParty)>;
/// Called with each class, operation and cause that has occurred.
pub type IoFn = Option<unsafe extern "C" fn(context: *mut c_void, one: *const IoInfo)>;
/// Called with each class of files.
pub type FileFn = Option<unsafe extern "C" fn(context: *mut c_void, one: *const FileInfo)>;
/// Called with each number of the statistics: the part of the engine (`group`), the number's name, what it means
/// (`help`), and whether it only grows (`is_counter`).
pub type MetricFn = Option<
    unsafe extern "C" fn(context: *mut c_void, group: Slice, name: Slice, help: Slice, is_counter: bool, value: u64),
>;

fn number_of(mode: Option<LockMode>) -> u32 {
    match mode {
        None => Lock::None as u32,
        Some(LockMode::Shared) => Lock::Shared as u32,
        Some(LockMode::Exclusive) => Lock::Exclusive as u32,
    }
}

fn text(text: &str) -> Slice {
    Slice::of(text.as_bytes())
}

/// Calls `told` with each transaction that writes, or holds or waits for locks, in the order in which they began.
///
/// # Safety
/// `db` is a handle; `told` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_transactions(
    db: *const Database,
    told: TransactionFn,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let told = told.ok_or_else(|| usage("seawall_transactions without a function"))?;
        for one in db.0.transactions() {
            let info = TransactionInfo {
                who: one.who.into(),
                changes: one.changes,
                locked_keys: one.locked_keys as u64,
                waits: one.waits_for.is_some(),
                is_victim: one.is_victim,
                is_prepared: one.is_prepared,
            };
            // SAFETY: as the function requires.
            unsafe { told(context, &info) };
        }
        Ok(Status::Ok)
    })
}

/// Calls `told` with each transaction that waits for a lock, once for each transaction that it waits for.
///
/// # Safety
/// `db` is a handle; `told` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_lock_waits(db: *const Database, told: LockWaitFn, context: *mut c_void) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let told = told.ok_or_else(|| usage("seawall_lock_waits without a function"))?;
        for wait in db.0.lock_waits() {
            for (&holder, &mode) in wait.holders.iter().zip(&wait.modes) {
                let info = LockWaitInfo {
                    waiter: wait.waiter.into(),
                    holder: holder.into(),
                    tree: wait.wanted.on.tree.0,
                    key: Slice::of(&wait.wanted.on.key),
                    wanted: number_of(Some(wait.wanted.mode)),
                    held: number_of(mode),
                    waited_ms: u64::try_from(wait.waited.as_millis()).unwrap_or(u64::MAX),
                };
                // SAFETY: as the function requires.
                unsafe { told(context, &info) };
            }
        }
        Ok(Status::Ok)
    })
}

/// Calls `told` with each transaction of the last deadlock since the database was opened. Returns
/// `SEAWALL_STATUS_NOT_FOUND` if there was none.
///
/// # Safety
/// `db` is a handle; `told` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_last_deadlock(db: *const Database, told: DeadlockFn, context: *mut c_void) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let told = told.ok_or_else(|| usage("seawall_last_deadlock without a function"))?;
        let Some(deadlock) = db.0.last_deadlock() else { return Ok(Status::NotFound) };
        for (at, (who, wanted)) in deadlock.parties.iter().enumerate() {
            let party = DeadlockParty {
                who: (*who).into(),
                tree: wanted.on.tree.0,
                key: Slice::of(&wanted.on.key),
                wanted: number_of(Some(wanted.mode)),
                is_victim: at == deadlock.victim,
            };
            // SAFETY: as the function requires.
            unsafe { told(context, &party) };
        }
        Ok(Status::Ok)
    })
}

/// Calls `told` with each class of files, operation and cause that has occurred since the database was opened.
///
/// # Safety
/// `db` is a handle; `told` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_io(db: *const Database, told: IoFn, context: *mut c_void) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let told = told.ok_or_else(|| usage("seawall_io without a function"))?;
        for cell in db.0.io().cells {
            let info = IoInfo {
                file_class: text(cell.class.name()),
                operation: text(cell.op.name()),
                cause: text(cell.cause.name()),
                count: cell.count(),
                errors: cell.errors,
                bytes: cell.bytes,
                total_ns: total_ns(&cell),
                p50_ns: percentile_ns(&cell, 50.0),
                p95_ns: percentile_ns(&cell, 95.0),
                p99_ns: percentile_ns(&cell, 99.0),
                max_ns: percentile_ns(&cell, 100.0),
            };
            // SAFETY: as the function requires.
            unsafe { told(context, &info) };
        }
        Ok(Status::Ok)
    })
}

thread_local! {
    static LENT: RefCell<String> = RefCell::default();
}

/// Calls `told` with each class of files. Stores in `backend` the I/O backend with the reason why it was chosen. That
/// text stays valid until the thread's next call of this function or of `seawall_tree_name`.
///
/// # Safety
/// `db` is a handle; `told` may be called with `context`; `backend` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_files(
    db: *const Database,
    told: FileFn,
    context: *mut c_void,
    backend: *mut Slice,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let told = told.ok_or_else(|| usage("seawall_files without a function"))?;
        let stats = db.0.stats();
        for file in &stats.files {
            let mode = file.mode.to_string();
            let page_cache_bytes = file.page_cache_bytes.unwrap_or(u64::MAX);
            let info = FileInfo { file_class: text(file.class.name()), mode: text(&mode), page_cache_bytes };
            // SAFETY: as the function requires.
            unsafe { told(context, &info) };
        }
        LENT.replace(stats.backend);
        // SAFETY: as the function requires.
        LENT.with_borrow(|lent| unsafe { store(backend, text(lent)) });
        Ok(Status::Ok)
    })
}

/// Stores in `name` the name of the tree with this id. It stays valid until the thread's next call of this function or
/// of `seawall_files`. Returns `SEAWALL_STATUS_NOT_FOUND` if there is no such tree, or its creation is not committed.
/// Scans the names of all trees.
///
/// # Safety
/// `db` is a handle; `name` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_tree_name(db: *const Database, id: u32, name: *mut Slice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        LENT.replace(db.0.open_tree_by_id(TreeId(id))?.name().to_owned());
        // SAFETY: as the function requires.
        LENT.with_borrow(|lent| unsafe { store(name, text(lent)) });
        Ok(Status::Ok)
    })
}

/// Stores the size of a tree in `info`. With `measure`, also measures how its leaves lie in the file and how full they
/// are: this reads the branch pages above the leaves (about one in some hundreds of the tree's pages) and at most 32
/// leaves.
///
/// # Safety
/// `db` and `tree` are handles; `info` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_tree_info(
    db: *const Database,
    tree: *const Tree,
    measure: bool,
    info: *mut TreeInfo,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, tree) = unsafe { (shared(db)?, shared(tree)?) };
        let bytes = db.0.tree_bytes(&tree.0);
        let found = if measure { db.0.fragmentation(&tree.0)? } else { seawall::Fragmentation::default() };
        let made = TreeInfo {
            id: tree.0.id().0,
            pages: bytes / db.0.page_bytes().max(1),
            bytes,
            leaves: found.leaves,
            apart: found.apart,
            fill_percent: found.fill_percent,
        };
        // SAFETY: as the function requires.
        unsafe { store(info, made) };
        Ok(Status::Ok)
    })
}

/// Calls `told` with each number of the database's statistics. The texts stay valid until the process ends.
///
/// # Safety
/// `db` is a handle; `told` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_metrics(db: *const Database, told: MetricFn, context: *mut c_void) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let db = unsafe { shared(db)? };
        let told = told.ok_or_else(|| usage("seawall_metrics without a function"))?;
        for metric in db.0.stats().metrics() {
            let counter = metric.meaning == Meaning::Counter;
            // SAFETY: as the function requires.
            unsafe { told(context, text(metric.group), text(metric.name), text(metric.help), counter, metric.value) };
        }
        Ok(Status::Ok)
    })
}
