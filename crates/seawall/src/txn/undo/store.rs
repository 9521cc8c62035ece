//! All undo logs: creates them, finds them at open, and assigns them.
//!
//! 1. Idle undo logs are assigned last in, first out, so that only a few of them are in use and warm, and the older
//!    ones are left to purge. A thread first gets undo logs that it released itself: their pages are warm in its
//!    processor's cache, and no other thread writes them meanwhile. Next come those found at open, then those of other
//!    threads.
//! 2. Creating an undo log is rare: there are as many as transactions ever wrote at one time. Only one thread
//!    at a time creates one.

use super::directory::{self, InitDirectory, SetDirectoryNext, SetSlot};
use super::page::{self, InitUndo, State, TailState};
use super::record::UndoRecord;
use super::undo_log::{Slot, UndoLog};
use crate::buffer::role::Role;
use crate::buffer::{Mtr, MtrSize};
use crate::counted::{Mutex, Padded, RwLock, thread_number};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TreeId, TxnId, UndoPtr};
use crate::space::{Purpose, Space};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Most transactions that can write at one time.
pub const UNDO_LOGS_MAX: usize = 8192;

/// Number of lists of idle undo logs, besides the list of those found at open.
const STRIPES: usize = 32;

/// The undo logs of a database.
#[derive(Debug)]
pub struct UndoStore {
    pub(super) space: Arc<Space>,
    /// The directory's pages, in order.
    directory: RwLock<Vec<PageId>>,
    slots: RwLock<Vec<Arc<Slot>>>,
    /// Idle undo logs, listed by the thread that released them; the last list has those found at open.
    idle: Vec<Padded<Mutex<Vec<UndoLog>>>>,
    making: Role,
    /// Tails that shrinking has moved to another page. Purge frees their old pages.
    moved: AtomicU64,
    /// Commits that are kept ready.
    pub(super) kept: AtomicU32,
}

/// First and last page of an undo log.
type Ends = (PageId, PageId);

/// The state of a transaction found at open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenState {
    /// The transaction never ended: roll it back.
    Active,
    /// The transaction waits for its coordinator's decision.
    Prepared {
        /// The name by which the coordinator knows it.
        xid: Vec<u8>,
    },
}

/// A transaction found at open.
#[derive(Debug)]
pub struct OpenUndoLog {
    /// Its undo log, as if it had been acquired.
    pub undo_log: UndoLog,
    /// The transaction.
    pub txn: TxnId,
    /// Its state.
    pub state: OpenState,
}

impl UndoStore {
    /// Creates the directory of a new database.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`].
    pub fn create(space: Arc<Space>) -> Result<Self> {
        let mut reserved = space.reserve(TreeId::UNDO, PageId::NONE, 1, Purpose::Grow)?;
        let first = space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let (number, held) = reserved.take(&mut mtr)?;
            // `take` has latched the header page: this cannot stop any more.
            space.set_undo_directory(&mut mtr, number)?;
            mtr.run(held, &InitDirectory { number });
            mtr.commit();
            Ok(number)
        })?;
        drop(reserved);
        Ok(Self::of(space, vec![first]))
    }

    fn of(space: Arc<Space>, directory: Vec<PageId>) -> Self {
        Self {
            space,
            directory: RwLock::new(directory),
            slots: RwLock::default(),
            idle: (0..=STRIPES).map(|_| Padded::default()).collect(),
            making: Role::default(),
            moved: AtomicU64::new(0),
            kept: AtomicU32::new(0),
        }
    }

    /// Reads the ends of all undo logs, and the state of their last transactions. Returns the transactions
    /// that have not ended, and the highest transaction id that any undo log has.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open(space: Arc<Space>) -> Result<(Self, Vec<OpenUndoLog>, TxnId)> {
        let (directory, ends) = Self::read_directory(&space)?;
        let store = Self::of(space, directory);
        let pages: Vec<_> = ends.iter().flat_map(|&(head, tail)| [head, tail]).collect();
        let (mut open, mut idle, mut txn_max) = (Vec::new(), Vec::new(), TxnId::NONE);
        for (number, &(head, tail)) in (0..).zip(&ends) {
            if number % 32 == 0 {
                store.space.pool().prefetch(&pages[2 * number as usize..pages.len().min(2 * number as usize + 64)]);
            }
            let purged = store.read_page(head, number, |page| Ok(page::purged(page)))?;
            let (end, state) = store.read_page(tail, number, |page| {
                if page::next(page) != PageId::NONE {
                    return Err(page::bad(
                        tail,
                        crate::format::Malformed("the last page of an undo log has a next one"),
                    ));
                }
                Ok((page::end(page), TailState::of(page).map_err(|why| page::bad(tail, why))?))
            })?;
            txn_max = txn_max.max(state.txn);
            let active = if state.state == State::Idle { TxnId::NONE } else { state.txn };
            let slot = Slot::new(head, tail, active, state.commits.saturating_sub(purged));
            store.slots.write().push(slot.clone());
            let undo_log = UndoLog::found(number, slot, tail, end, state);
            match state.state {
                State::Idle => idle.push(undo_log),
                State::Active => open.push(OpenUndoLog { undo_log, txn: active, state: OpenState::Active }),
                State::Prepared => {
                    let xid = store.read_now(state.last, |record| match record {
                        UndoRecord::Prepared { xid } => Some(xid.to_vec()),
                        _ => None,
                    })?;
                    let xid = xid.ok_or_else(|| Error::bad_page(tail, "a prepared transaction has no XID"))?;
                    open.push(OpenUndoLog { undo_log, txn: active, state: OpenState::Prepared { xid } });
                }
            }
        }
        idle.reverse();
        *store.idle[STRIPES].0.lock() = idle;
        Ok((store, open, txn_max))
    }

    fn read_directory(space: &Space) -> Result<(Vec<PageId>, Vec<Ends>)> {
        let (mut directory, mut ends) = (Vec::new(), Vec::new());
        let mut page = space.undo_directory()?;
        if page == PageId::NONE {
            return Err(Error::bad_page(page, "it names no undo directory"));
        }
        while page != PageId::NONE {
            if directory.contains(&page) {
                return Err(Error::bad_page(page, "the undo directory runs in a circle"));
            }
            directory.push(page);
            let (next, found) = space.pool().retry(|| {
                let bytes = space.pool().shared(page)?;
                directory::verify(&bytes).map_err(|why| page::bad(page, why))?;
                let slots = (0..directory::slots(bytes.len())).map(|index| directory::slot(&bytes, index));
                let used = slots.take_while(|&(head, _)| head != PageId::NONE);
                Ok((directory::next(&bytes), used.collect::<Vec<_>>()))
            })?;
            ends.extend(found);
            page = next;
        }
        Ok((directory, ends))
    }

    fn read_page<T>(&self, number: PageId, undo_log: u32, read: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
        self.space.pool().retry(|| {
            let bytes = self.space.pool().shared(number)?;
            page::verify(&bytes).map_err(|why| page::bad(number, why))?;
            if page::undo_log(&bytes) != undo_log {
                let why =
                    format!("undo log {undo_log} has it, but it says it is undo log {}'s", page::undo_log(&bytes));
                return Err(Error::bad_page(number, why).into());
            }
            Ok(read(&bytes)?)
        })
    }

    // --- acquiring and releasing ---------------------------------------------------------------------------

    /// Acquires an undo log for one transaction. No latch may be held.
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`]; [`Error::NoSpace`], [`Error::Io`] if an undo log has to be created.
    pub fn acquire(&self) -> Result<UndoLog> {
        if let Some(undo_log) = self.pop_idle() {
            return Ok(undo_log);
        }
        let _role = self.making.take();
        // Another thread may have released one while this one waited for the role.
        self.pop_idle().map_or_else(|| self.make(), Ok)
    }

    fn pop_idle(&self) -> Option<UndoLog> {
        let own = thread_number() % STRIPES;
        let others = (0..STRIPES).filter(|&stripe| stripe != own);
        [own, STRIPES].into_iter().chain(others).find_map(|stripe| self.idle[stripe].0.lock().pop())
    }

    /// Releases an undo log whose transaction has ended. A committed transaction must be durable at its level
    /// by then (exception: `txn/prepared.rs`, 3).
    ///
    /// # Errors
    /// [`Error::Usage`] when its transaction has not ended; the undo log is then lost until the database is
    /// opened again.
    pub fn release(&self, mut undo_log: UndoLog) -> Result<()> {
        undo_log.disown_unused();
        if undo_log.txn() != TxnId::NONE {
            return Err(Error::Usage(format!("the undo log of {} is given back before it has ended", undo_log.txn())));
        }
        self.idle[thread_number() % STRIPES].0.lock().push(undo_log);
        Ok(())
    }

    /// Links a new last page to each idle undo log whose last page lies at `fence` or after it; purge frees
    /// the old one. Returns how many it moved. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`]; each undo log is unchanged, or moved.
    pub fn move_idle_tails(&self, fence: PageId) -> Result<u32> {
        let mut moved = 0;
        for _ in 0..self.undo_logs() {
            let found = self.idle.iter().enumerate().find_map(|(stripe, idle)| {
                let mut idle = idle.0.lock();
                let at = idle.iter().position(|undo_log| undo_log.tail >= fence)?;
                Some((stripe, idle.remove(at)))
            });
            let Some((stripe, mut undo_log)) = found else { break };
            let linked = self.link_tail(&mut undo_log, Purpose::Grow);
            let still_there = undo_log.tail >= fence;
            self.idle[stripe].0.lock().push(undo_log);
            linked?;
            moved += 1;
            self.moved.fetch_add(1, Release);
            // No page below the fence was free.
            if still_there {
                break;
            }
        }
        Ok(moved)
    }

    /// How many tails [`UndoStore::move_idle_tails`] has moved.
    pub fn tails_moved(&self) -> u64 {
        self.moved.load(Acquire)
    }

    /// Creates an undo log of one empty page.
    fn make(&self) -> Result<UndoLog> {
        let number = self.slots.read().len() as u32;
        if number as usize >= UNDO_LOGS_MAX {
            return Err(Error::TooManyTransactions { max: UNDO_LOGS_MAX });
        }
        let per_page = directory::slots(self.space.pool().page_bytes());
        if (number / per_page) as usize == self.directory.read().len() {
            self.lengthen_directory()?;
        }
        let directory = self.directory_page(number);
        let mut reserved = self.space.reserve(TreeId::UNDO, directory, 1, Purpose::Delete)?;
        let page = self.space.pool().retry(|| {
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let slots = mtr.latch(directory)?;
            let (page, held) = reserved.take(&mut mtr)?;
            let init = InitUndo { number: page, undo_log: number, prev: PageId::NONE, tail: TailState::default() };
            mtr.run(held, &init);
            mtr.run(slots, &SetSlot { index: number % per_page, head: page, tail: page });
            mtr.commit();
            Ok(page)
        })?;
        let slot = Slot::new(page, page, TxnId::NONE, 0);
        self.slots.write().push(slot.clone());
        Ok(UndoLog::found(number, slot, page, page::RECORDS as u16, TailState::default()))
    }

    fn lengthen_directory(&self) -> Result<()> {
        let last = *self.directory.read().last().expect("the directory has a first page");
        let mut reserved = self.space.reserve(TreeId::UNDO, last, 1, Purpose::Delete)?;
        let next = self.space.pool().retry(|| {
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let before = mtr.latch(last)?;
            let (number, held) = reserved.take(&mut mtr)?;
            mtr.run(held, &InitDirectory { number });
            mtr.run(before, &SetDirectoryNext { next: number });
            mtr.commit();
            Ok(number)
        })?;
        self.directory.write().push(next);
        Ok(())
    }

    /// The directory page of an undo log.
    pub(super) fn directory_page(&self, undo_log: u32) -> PageId {
        self.directory.read()[(undo_log / directory::slots(self.space.pool().page_bytes())) as usize]
    }

    /// The directory's pages, in order.
    pub(super) fn directory_pages(&self) -> Vec<PageId> {
        self.directory.read().clone()
    }

    /// Returns the change of one end of an undo log, for the directory page that the caller has latched.
    pub(super) fn set_end(&self, page: &[u8], undo_log: u32, head: Option<PageId>, tail: Option<PageId>) -> SetSlot {
        let index = undo_log % directory::slots(page.len());
        let (old_head, old_tail) = directory::slot(page, index);
        SetSlot { index, head: head.unwrap_or(old_head), tail: tail.unwrap_or(old_tail) }
    }

    // --- reading -------------------------------------------------------------------------------------------

    /// The number of undo logs; they are numbered from 0.
    pub fn undo_logs(&self) -> u32 {
        self.slots.read().len() as u32
    }

    pub(super) fn slot(&self, undo_log: u32) -> Result<Arc<Slot>> {
        let slot = self.slots.read().get(undo_log as usize).cloned();
        slot.ok_or_else(|| Error::Usage(format!("there is no undo log {undo_log}")))
    }

    /// Committed transactions that purge has not finished.
    pub fn history_length(&self) -> u64 {
        self.slots.read().iter().map(|slot| slot.waiting.load(Relaxed)).sum()
    }

    /// Reads a record under a shared latch.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Corrupt`] when no record begins there.
    pub fn read<T>(&self, ptr: UndoPtr, read: impl FnOnce(UndoRecord<'_>) -> T) -> Result<T, Stop> {
        let bytes = self.space.pool().shared(ptr.page())?;
        let record = page::verify(&bytes)
            .and_then(|()| page::record_at(&bytes, ptr.offset()))
            .and_then(|raw| UndoRecord::decode(raw.kind, raw.body))
            .map_err(|why| page::bad(ptr.page(), why))?;
        Ok(read(record))
    }

    /// Like [`UndoStore::read`], but loads the page if needed. No latch may be held.
    pub(super) fn read_now<T>(&self, ptr: UndoPtr, read: impl Fn(UndoRecord<'_>) -> T) -> Result<T> {
        self.space.pool().retry(|| self.read(ptr, &read))
    }
}
