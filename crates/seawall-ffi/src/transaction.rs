//! Transactions.

use crate::database::{CommitLevel, Database};
use crate::lock::WaitMode;
use crate::slice::{Enumeration, Slice, exclusive, free, hand_out, shared, store, usage};
use crate::status::{Status, call};
use seawall::{InterruptHandle, Isolation, OnConflict, Result, TxOptions, Xid};

/// A transaction. After it ends, the object is a new transaction with the same options, so one object can serve a
/// connection.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) tx: seawall::Transaction,
    /// The bytes that were lent to the caller last.
    pub(crate) lent: Vec<u8>,
}

/// The largest lent value whose memory is kept for the next one, bytes.
const LENT_KEPT: usize = 64 << 10;

impl Transaction {
    /// Frees the memory of a large value that was lent: a transaction object may live as long as a connection.
    fn forget_large(&mut self) {
        if self.lent.capacity() > LENT_KEPT {
            self.lent = Vec::new();
        }
    }
}

/// A point to which a transaction can be rolled back.
#[derive(Debug)]
pub struct Savepoint(seawall::Savepoint);

/// A handle that interrupts a transaction while it waits or scans.
#[derive(Debug)]
pub struct Interrupt(pub(crate) InterruptHandle);

/// What other transactions may do to the rows that a transaction reads.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Each statement sees what was committed when it began.
    ReadCommitted = 0,
    /// All statements see what was committed at the first read without a lock.
    RepeatableRead = 1,
    /// The result is as if transactions ran one after the other.
    Serializable = 2,
}

impl Enumeration for IsolationLevel {
    const NAME: &'static str = "seawall_isolation";
    const VALUES: &'static [Self] = &[Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];
}

/// The options of a transaction.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TransactionOptions {
    /// The isolation level: a `seawall_isolation`.
    pub isolation: u32,
    /// What the commit waits for: a `seawall_commit_level`.
    pub level: u32,
    /// What a call does when another transaction holds a lock: a `seawall_wait_mode`.
    pub wait: u32,
    /// The longest wait for a lock, ms, with `SEAWALL_WAIT_MODE_FOR`.
    pub wait_ms: u64,
    /// Whether changing a row whose latest version was committed after the transaction's snapshot fails (snapshot
    /// isolation). Otherwise the change acts on the latest version. As in InnoDB, only reads take the snapshot.
    pub fail_on_conflict: bool,
    /// A number that reports of lock waits show, for example a connection's number.
    pub tag: u64,
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
            like_innodb: true,
            ..TxOptions::default()
        })
    }
}

/// Makes a transaction. It holds no lock and no snapshot until it is used.
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

/// Frees a transaction, and rolls it back unless it is prepared.
///
/// # Safety
/// `tx` is null, or a handle of a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_transaction_free(tx: *mut Transaction) {
    // SAFETY: as the function requires.
    unsafe { free(tx) };
}

/// Runs `f` on a transaction.
///
/// # Safety
/// `tx` is null, or a handle of a transaction that no other call uses.
pub(crate) unsafe fn with(tx: *mut Transaction, f: impl FnOnce(&mut Transaction) -> Result<Status>) -> Status {
    // SAFETY: as the function requires.
    call(|| f(unsafe { exclusive(tx) }?))
}

/// Rolls back uncommitted changes, and begins a new transaction with new options.
///
/// # Safety
/// `tx` is a handle of a transaction; `options` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_restart(tx: *mut Transaction, options: *const TransactionOptions) -> Status {
    let restart = |tx: &mut Transaction| {
        tx.forget_large();
        // SAFETY: as the function requires.
        tx.tx.restart(unsafe { shared(options) }?.options()?)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, restart) }
}

/// Commits the transaction. After a failure, `seawall_error` says whether it is committed.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_commit(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.forget_large();
        tx.tx.commit_in_place()?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Rolls the transaction back.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_rollback(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.forget_large();
        tx.tx.rollback_in_place()?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// At repeatable read, takes the snapshot now instead of at the first read. At serializable with `fail_on_conflict`,
/// reading or changing a row whose latest version is committed later fails from then on.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_take_snapshot(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.take_snapshot()?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Begins a statement: at read committed, its reads see what is committed now.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_begin_statement(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.begin_statement();
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Ends a statement: `seawall_unlock_row` can no longer release the locks that it took.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_end_statement(tx: *mut Transaction) -> Status {
    let run = |tx: &mut Transaction| {
        tx.forget_large();
        tx.tx.end_statement();
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Changes the isolation level from the next statement on.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_isolation(tx: *mut Transaction, isolation: u32) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.set_isolation(IsolationLevel::of(isolation)?.isolation());
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Changes what a call does when another transaction holds a lock.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_wait(tx: *mut Transaction, wait: u32, wait_ms: u64) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.set_lock_wait(WaitMode::of(wait)?.wait(wait_ms).unwrap_or_default());
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Changes what the transaction's commit waits for.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_set_level(tx: *mut Transaction, level: u32) -> Status {
    let run = |tx: &mut Transaction| {
        tx.tx.set_durability(CommitLevel::of(level)?.durability());
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Stores in `id` the transaction's id, or 0 if it has not changed anything.
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

/// Undoes all changes since the savepoint, which stays valid. If that stops halfway, for example because a page cannot
/// be read, the transaction can only be rolled back, to that savepoint, an earlier one, or as a whole.
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

/// Frees a savepoint; does not change the transaction.
///
/// # Safety
/// `savepoint` is null, or a handle of a savepoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_savepoint_free(savepoint: *mut Savepoint) {
    // SAFETY: as the function requires.
    unsafe { free(savepoint) };
}

/// Makes a handle with which any thread can interrupt the transaction, even after later commits and rollbacks.
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

/// Interrupts the transaction's waits and scans until `seawall_interrupt_clear`. Any thread may call this function.
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

/// Ends the interrupt, so that the transaction can continue.
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
    unsafe { free(interrupt) };
}

// --- beside an outside log -------------------------------------------------------------------------------

/// Prepares the transaction under the name `xid` (1 to 140 bytes): it survives a crash, and waits for the outside log's
/// decision. If `level` is below `SEAWALL_COMMIT_LEVEL_FLUSHED`, Seawall's log must be flushed up to the stored
/// `position` before the outside log records the commit.
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

/// Commits a prepared transaction that the outside log has decided, in that log's order. The commit is visible to
/// others at once and does no I/O. It is durable when Seawall's log is flushed up to the stored `position`.
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
