//! Transactions, trees, and rows by key.

use crate::database::{CommitLevel, Database};
use crate::slice::{Enumeration, Slice, exclusive, free, hand_out, shared, store, text};
use crate::status::{Status, call, usage};
use seawall::{
    InterruptHandle, Isolation, LockMode, LockOrCommitted, LockWait, OnConflict, Readable, Result, TxOptions, Xid,
};
use std::ffi::c_char;
use std::time::Duration;

/// A transaction. After its end it is a new one with the same options: one object serves a connection.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) tx: seawall::Transaction,
    /// What was handed out last.
    lent: Vec<u8>,
}

/// A tree: an ordered map of keys to values.
#[derive(Debug)]
pub struct Tree(pub(crate) seawall::Tree);

/// A point to which a transaction can be rolled back.
#[derive(Debug)]
pub struct Savepoint(seawall::Savepoint);

/// Interrupts a transaction while it waits or scans.
#[derive(Debug)]
pub struct Interrupt(InterruptHandle);

/// What others may do to what a transaction reads.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Each statement sees what was committed when it began.
    ReadCommitted = 0,
    /// All statements see what was committed at the first read without a lock.
    RepeatableRead = 1,
    /// As if transactions ran one after the other.
    Serializable = 2,
}

/// What a call does when another transaction holds a lock.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// The transaction's setting; in the options of a transaction, as `Wait`.
    Default = 0,
    /// Wait, up to the option `lock_wait_timeout`.
    Wait = 1,
    /// Wait, up to `wait_ms`.
    For = 2,
    /// Fail at once.
    No = 3,
    /// Locking cursors skip the row; elsewhere as `No`.
    SkipLocked = 4,
}

/// A lock.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// None: the snapshot is read.
    None = 0,
    /// Others may read it with a lock, too.
    Shared = 1,
    /// No other transaction has it.
    Exclusive = 2,
}

impl Enumeration for Lock {
    const NAME: &'static str = "seawall_lock";
    const VALUES: &'static [Self] = &[Self::None, Self::Shared, Self::Exclusive];
}

impl Enumeration for WaitMode {
    const NAME: &'static str = "seawall_wait_mode";
    const VALUES: &'static [Self] = &[Self::Default, Self::Wait, Self::For, Self::No, Self::SkipLocked];
}

impl Enumeration for IsolationLevel {
    const NAME: &'static str = "seawall_isolation";
    const VALUES: &'static [Self] = &[Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];
}

impl Lock {
    pub(crate) fn mode(self) -> Option<LockMode> {
        match self {
            Self::None => None,
            Self::Shared => Some(LockMode::Shared),
            Self::Exclusive => Some(LockMode::Exclusive),
        }
    }
}

/// How a transaction is to run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TransactionOptions {
    /// What others may do to what it reads: a `seawall_isolation`.
    pub isolation: u32,
    /// What its commit waits for: a `seawall_commit_level`.
    pub level: u32,
    /// What it does when another transaction holds a lock: a `seawall_wait_mode`.
    pub wait: u32,
    /// The longest wait for a lock, ms, with `SEAWALL_WAIT_MODE_FOR`.
    pub wait_ms: u64,
    /// Whether a change of a row that is newer than its snapshot fails (snapshot isolation). Otherwise it
    /// acts on the latest version, as InnoDB does.
    pub fail_on_conflict: bool,
    /// A number that reports of lock waits show: a connection's, for example.
    pub tag: u64,
}

impl WaitMode {
    pub(crate) fn wait(self, wait_ms: u64) -> Option<LockWait> {
        match self {
            Self::Default => None,
            Self::Wait => Some(LockWait::Wait),
            Self::For => Some(LockWait::For(Duration::from_millis(wait_ms))),
            Self::No => Some(LockWait::NoWait),
            Self::SkipLocked => Some(LockWait::SkipLocked),
        }
    }
}

impl IsolationLevel {
    fn isolation(self) -> Isolation {
        match self {
            Self::ReadCommitted => Isolation::ReadCommitted,
            Self::RepeatableRead => Isolation::RepeatableRead,
            Self::Serializable => Isolation::Serializable,
        }
    }
}

impl TransactionOptions {
    fn options(self) -> Result<TxOptions> {
        Ok(TxOptions {
            isolation: IsolationLevel::of(self.isolation)?.isolation(),
            durability: CommitLevel::of(self.level)?.durability(),
            wait: WaitMode::of(self.wait)?.wait(self.wait_ms).unwrap_or_default(),
            on_conflict: if self.fail_on_conflict { OnConflict::Fail } else { OnConflict::Latest },
            tag: self.tag,
            ..TxOptions::default()
        })
    }
}

/// Makes a transaction. It costs nothing until it reads or changes a row.
///
/// # Safety
/// `db` is a handle of a database; `options` is readable; `tx` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_begin(
    db: *const Database,
    options: *const TransactionOptions,
    tx: *mut *mut Transaction,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, options) = unsafe { (shared(db)?, shared(options)?) };
        let begun = db.0.begin_with(options.options()?)?;
        // SAFETY: as the function requires.
        unsafe { hand_out(tx, Transaction { tx: begun, lent: Vec::new() }) }?;
        Ok(Status::Ok)
    })
}

/// Frees a transaction: rolls it back, unless it is prepared.
///
/// # Safety
/// `tx` is null, or a handle of a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_transaction_free(tx: *mut Transaction) {
    call(|| {
        // SAFETY: as the function requires.
        drop(unsafe { free(tx) });
        Ok(Status::Ok)
    });
}

/// Runs `f` on a transaction.
///
/// # Safety
/// `tx` is null, or a handle of a transaction that no other call uses.
unsafe fn with(tx: *mut Transaction, f: impl FnOnce(&mut Transaction) -> Result<Status>) -> Status {
    // SAFETY: as the function requires.
    call(|| f(unsafe { exclusive(tx) }?))
}

/// Gives the transaction new options, from its beginning on: it must not have read or changed anything yet.
///
/// # Safety
/// `tx` is a handle of a transaction; `options` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_restart(tx: *mut Transaction, options: *const TransactionOptions) -> Status {
    let restart = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        tx.tx.restart(unsafe { shared(options) }?.options()?)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, restart) }
}

/// Commits. After a failure the text says whether it is committed.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_commit(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.commit_in_place()?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Rolls back.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_rollback(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.rollback_in_place()?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Takes the snapshot now, not at the first read.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_take_snapshot(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.take_snapshot()?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Begins a statement: at read committed it sees what is committed now.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_begin_statement(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.begin_statement();
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Ends a statement: `seawall_unlock_row` returns no lock of it any more.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_end_statement(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.end_statement();
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Changes the isolation from the next statement on.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_isolation(tx: *mut Transaction, isolation: u32) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.set_isolation(IsolationLevel::of(isolation)?.isolation());
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Changes what it does when another transaction holds a lock.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_wait(tx: *mut Transaction, wait: u32, wait_ms: u64) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.set_lock_wait(WaitMode::of(wait)?.wait(wait_ms).unwrap_or_default());
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Changes what its commit waits for.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_level(tx: *mut Transaction, level: u32) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.set_durability(CommitLevel::of(level)?.durability());
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Whether the transaction has changed anything: `id` is its number then, otherwise 0.
///
/// # Safety
/// `tx` is a handle of a transaction; `id` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_transaction_id(tx: *mut Transaction, id: *mut u64) -> Status {
    let get = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        unsafe { store(id, tx.tx.id().map_or(0, |id| id.0)) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, get) }
}

/// Makes a savepoint. Free it with `seawall_savepoint_free`, in any order.
///
/// # Safety
/// `tx` is a handle of a transaction; `savepoint` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_savepoint(tx: *mut Transaction, savepoint: *mut *mut Savepoint) -> Status {
    let make = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        unsafe { hand_out(savepoint, Savepoint(tx.tx.savepoint())) }?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, make) }
}

/// Undoes all changes since the savepoint, which stays.
///
/// # Safety
/// `tx` and `savepoint` are handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_rollback_to(tx: *mut Transaction, savepoint: *const Savepoint) -> Status {
    let back = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        tx.tx.rollback_to(&unsafe { shared(savepoint) }?.0)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, back) }
}

/// Frees a savepoint; changes nothing.
///
/// # Safety
/// `savepoint` is null, or a handle of a savepoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_savepoint_free(savepoint: *mut Savepoint) {
    // SAFETY: as the function requires.
    drop(unsafe { free(savepoint) });
}

/// A handle with which any thread interrupts the transaction, also after later commits and rollbacks.
///
/// # Safety
/// `tx` is a handle of a transaction; `interrupt` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_interrupt_new(tx: *mut Transaction, interrupt: *mut *mut Interrupt) -> Status {
    let make = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        unsafe { hand_out(interrupt, Interrupt(tx.tx.interrupt_handle())) }?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, make) }
}

/// Interrupts the transaction's waits and scans until `seawall_interrupt_clear`. Any thread may call it.
///
/// # Safety
/// `interrupt` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_interrupt(interrupt: *const Interrupt) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        unsafe { shared(interrupt) }?.0.interrupt();
        Ok(Status::Ok)
    })
}

/// Lets the transaction go on.
///
/// # Safety
/// `interrupt` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_interrupt_clear(interrupt: *const Interrupt) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        unsafe { shared(interrupt) }?.0.clear();
        Ok(Status::Ok)
    })
}

/// Frees the handle.
///
/// # Safety
/// `interrupt` is null, or a handle that no call uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_interrupt_free(interrupt: *mut Interrupt) {
    // SAFETY: as the function requires.
    drop(unsafe { free(interrupt) });
}

// --- beside an outside log -------------------------------------------------------------------------------

/// Prepares the transaction under the name `xid` (1 to 140 bytes): it survives a crash, and waits for the
/// outside log's decision. `position` is where the log must be flushed to if `level` is below
/// `SEAWALL_COMMIT_LEVEL_FLUSHED`.
///
/// # Safety
/// `tx` is a handle of a transaction; `xid` is readable; `position` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_prepare(tx: *mut Transaction, xid: Slice, level: u32, position: *mut u64) -> Status {
    let prepare = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let xid = Xid(unsafe { xid.bytes() }?.to_vec());
        let level =
            CommitLevel::of(level)?.durability().ok_or_else(|| usage("name the level: prepare has no default"))?;
        let end = tx.tx.prepare_in_place(&xid, level)?;
        // SAFETY: as the function requires.
        unsafe { store(position, end.as_u64()) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, prepare) }
}

/// Commits a prepared transaction that the outside log has decided, in that log's order: visible to others at once, no
/// flush, no I/O. It is durable when the log is flushed to `position`.
///
/// # Safety
/// `tx` is a handle of a transaction; `position` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_commit_ordered(tx: *mut Transaction, position: *mut u64) -> Status {
    let commit = |tx: &mut Transaction| {
        let end = tx.tx.commit_ordered()?;
        // SAFETY: as the function requires.
        unsafe { store(position, end.as_u64()) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, commit) }
}

// --- trees -----------------------------------------------------------------------------------------------

/// Makes a tree. It exists for others when the transaction has committed.
///
/// # Safety
/// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_create_tree(
    tx: *mut Transaction,
    name: *const c_char,
    tree: *mut *mut Tree,
) -> Status {
    let create = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let made = tx.tx.create_tree(unsafe { text(name) }?)?;
        // SAFETY: as the function requires.
        unsafe { hand_out(tree, Tree(made)) }?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, create) }
}

/// Opens a tree; `SEAWALL_STATUS_NOT_FOUND` if there is none of this name.
///
/// # Safety
/// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_open_tree(tx: *mut Transaction, name: *const c_char, tree: *mut *mut Tree) -> Status {
    let open = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let opened = tx.tx.open_tree(unsafe { text(name) }?)?;
        // SAFETY: as the function requires.
        unsafe { hand_out(tree, Tree(opened)) }?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, open) }
}

/// Drops a tree; `SEAWALL_STATUS_NOT_FOUND` if there is none of this name.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_drop_tree(tx: *mut Transaction, name: *const c_char) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let name = unsafe { text(name) }?;
        tx.tx.drop_tree(name)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Renames a tree.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_rename_tree(tx: *mut Transaction, from: *const c_char, to: *const c_char) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (from, to) = unsafe { (text(from)?, text(to)?) };
        tx.tx.rename_tree(from, to)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Inserts a row; `SEAWALL_STATUS_KEY_EXISTS` if the key exists.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_insert(tx: *mut Transaction, tree: *const Tree, key: Slice, value: Slice) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        tx.tx.insert(&tree.0, key, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Inserts a row, or replaces it.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_put(tx: *mut Transaction, tree: *const Tree, key: Slice, value: Slice) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        tx.tx.put(&tree.0, key, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Inserts an entry of a unique index: `SEAWALL_STATUS_KEY_EXISTS` if an entry exists whose key begins with the first
/// `prefix_len` bytes of `key`.
///
/// # Safety
/// `tx` is a handle of a transaction; what else is passed is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_insert_unique(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    prefix_len: usize,
    value: Slice,
) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        tx.tx.insert_unique_prefix(&tree.0, prefix_len, key, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Frees the handle of a tree.
///
/// # Safety
/// `tree` is null, or a handle that no call uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_tree_free(tree: *mut Tree) {
    // SAFETY: as the function requires.
    drop(unsafe { free(tree) });
}

// --- rows ------------------------------------------------------------------------------------------------

fn found(found: bool) -> Status {
    if found { Status::Ok } else { Status::NotFound }
}

/// Replaces a row; `SEAWALL_STATUS_NOT_FOUND` if there is none.
///
/// # Safety
/// `tx` and `tree` are handles; `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_update(tx: *mut Transaction, tree: *const Tree, key: Slice, value: Slice) -> Status {
    let update = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        Ok(found(tx.tx.update(&tree.0, key, value)?))
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, update) }
}

/// Deletes a row; `SEAWALL_STATUS_NOT_FOUND` if there is none.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_delete(tx: *mut Transaction, tree: *const Tree, key: Slice) -> Status {
    let delete = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        Ok(found(tx.tx.delete(&tree.0, key)?))
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, delete) }
}

impl Transaction {
    /// Keeps a value and lends it.
    ///
    /// # Safety
    /// `value` is null or writable.
    unsafe fn lend(&mut self, read: Option<Vec<u8>>, value: *mut Slice) -> Status {
        let Some(read) = read else { return Status::NotFound };
        self.lent = read;
        // SAFETY: as the function requires.
        unsafe { store(value, Slice::of(&self.lent)) };
        Status::Ok
    }
}

/// Reads a row of the snapshot; `SEAWALL_STATUS_NOT_FOUND` if there is none.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `value` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_get(tx: *mut Transaction, tree: *const Tree, key: Slice, value: *mut Slice) -> Status {
    let get = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let mut lent = std::mem::take(&mut tx.lent);
        lent.clear();
        let there = tx.tx.get_with(&tree.0, key, |read| lent.extend_from_slice(read))?;
        // SAFETY: as the function requires.
        Ok(unsafe { tx.lend(there.map(|()| lent), value) })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, get) }
}

/// Locks a row, whether it exists or not, and reads its latest version; `SEAWALL_STATUS_NOT_FOUND` if it does not
/// exist. `newly_locked`: `seawall_unlock_row` may return the lock.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `value` and `newly_locked` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_lock_row(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    lock: u32,
    wait: u32,
    wait_ms: u64,
    value: *mut Slice,
    newly_locked: *mut bool,
) -> Status {
    let lock_row = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let mode = Lock::of(lock)?.mode().ok_or_else(|| usage("seawall_lock_row without a lock: use seawall_get"))?;
        let row = tx.tx.lock_row(&tree.0, key, mode, WaitMode::of(wait)?.wait(wait_ms))?;
        // SAFETY: as the function requires.
        unsafe { store(newly_locked, row.newly_locked) };
        // SAFETY: as the function requires.
        Ok(unsafe { tx.lend(row.value, value) })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, lock_row) }
}

/// Returns the lock of a row that a locking read of this statement took new; `unlocked` says whether it did.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `unlocked` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_unlock_row(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    unlocked: *mut bool,
) -> Status {
    let unlock = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let done = tx.tx.unlock_row(&tree.0, key)?;
        // SAFETY: as the function requires.
        unsafe { store(unlocked, done) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, unlock) }
}

/// A semi-consistent read, at read committed: locks the row if it is free (`locked`), otherwise reads its committed
/// version.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `value` and `locked` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_lock_or_committed(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    value: *mut Slice,
    locked: *mut bool,
) -> Status {
    let lock = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let (is_locked, read) = match tx.tx.lock_or_committed(&tree.0, key)? {
            LockOrCommitted::Locked(row) => (true, row.value),
            LockOrCommitted::Committed(read) => (false, read),
        };
        // SAFETY: as the function requires.
        unsafe { store(locked, is_locked) };
        // SAFETY: as the function requires.
        Ok(unsafe { tx.lend(read, value) })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, lock) }
}

/// Whether the transaction's snapshot, if it has taken one, is as new as the tree: `SEAWALL_STATUS_TREE_TOO_NEW` if
/// the tree was made later, so that the snapshot would find it empty.
///
/// # Safety
/// `tx` and `tree` are handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_may_read(tx: *mut Transaction, tree: *const Tree) -> Status {
    let may_read = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let tree = unsafe { shared(tree)? };
        Ok(match tx.tx.may_read(&tree.0)? {
            Readable::Yes => Status::Ok,
            Readable::CreatedLater => Status::TreeTooNew,
            Readable::Dropped => Status::TreeDropped,
        })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, may_read) }
}

/// Requests the pages of rows that are going to be read soon, and waits for none of them. `absent`: how many are not in
/// memory yet.
///
/// # Safety
/// `tx` and `tree` are handles; `keys` are `count` readable slices; `absent` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_prefetch(
    tx: *mut Transaction,
    tree: *const Tree,
    keys: *const Slice,
    count: usize,
    absent: *mut usize,
) -> Status {
    let prefetch = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let tree = unsafe { shared(tree)? };
        // SAFETY: as the function requires.
        let keys = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(keys, count) } };
        // SAFETY: as the function requires.
        let keys = keys.iter().map(|key| unsafe { key.bytes() }).collect::<Result<Vec<_>>>()?;
        let pages = tx.tx.prefetch(&tree.0, &keys)?;
        // SAFETY: as the function requires.
        unsafe { store(absent, pages) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, prefetch) }
}

/// An estimate of a range's rows and pages, from branch pages. An unbounded end is a null slice.
///
/// # Safety
/// `tx` and `tree` are handles; the bounds are readable; `rows` and `pages` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_estimate_range(
    tx: *mut Transaction,
    tree: *const Tree,
    lower: crate::cursor::Bound,
    upper: crate::cursor::Bound,
    rows: *mut u64,
    pages: *mut u64,
) -> Status {
    let estimate = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, lower, upper) = unsafe { (shared(tree)?, lower.bound()?, upper.bound()?) };
        let range = tx.tx.estimate_range::<&[u8]>(&tree.0, (lower, upper))?;
        // SAFETY: as the function requires.
        unsafe { store(rows, range.rows) };
        // SAFETY: as the function requires.
        unsafe { store(pages, range.pages) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, estimate) }
}
