//! What the handles, transactions and temporary trees of an open database share.

use super::background::{Threads, Work};
use super::backup::socket::ControlSocket;
use super::counts::Counts;
use super::durable::CallbackThread;
use super::handle::Shutdown;
use super::options::Options;
use super::prepared::{Prepared, XID_BYTES_MAX, Xid};
use super::publish::Publisher;
use crate::counted::Mutex;
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::txn::{Engine, Names, Refs, Txn};
use seawall_io::{InUse, Process, ProcessGate};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The shared state of a database's temporary trees.
#[derive(Debug)]
pub(super) struct Temporaries {
    /// Closes with the database.
    gate: ProcessGate,
    /// The opening that they belong to.
    pub(super) opening: u64,
    pub(super) made: AtomicU64,
}

impl Temporaries {
    pub(super) fn new(opening: u64) -> Self {
        Self { gate: ProcessGate::new(Process::current()), opening, made: AtomicU64::new(0) }
    }

    pub(super) fn close(&self) {
        self.gate.close();
    }

    pub(super) fn here(&self) -> Result<()> {
        if self.gate.is_open() {
            return Ok(());
        }
        if self.gate.is_closed() {
            return Err(Error::ShutDown);
        }
        let why = "this process was forked from the one that made this temporary tree: make another in a database \
            opened here";
        Err(Error::Usage(why.into()))
    }
}

/// The longest wait before the second attempt, us; doubled for each further attempt, ...
const BACK_OFF_US: u64 = 50;
/// ... up to this.
const BACK_OFF_US_MAX: u64 = 10_000;

/// Spreads the bits of a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// What handles and transactions share.
pub(super) struct Inner {
    pub path: PathBuf,
    pub work: Arc<Work>,
    /// References to the engine for transactions.
    pub engine_refs: Refs<Engine>,
    pub options: Mutex<Options>,
    pub counts: Arc<Counts>,
    pub prepared: Prepared,
    pub callback_thread: CallbackThread,
    threads: Mutex<Option<Threads>>,
    publisher: Mutex<Option<Publisher>>,
    socket: Mutex<Option<ControlSocket>>,
    in_use: Mutex<Option<InUse>>,
    closed: AtomicBool,
    pub temporaries: Arc<Temporaries>,
    pub shutdown: Shutdown,
    /// Counts the waits before a retry: seeds the random length of the next wait.
    backed_off: AtomicU64,
}

/// Its path alone: the rest is the whole state of the engine.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(
        path: PathBuf,
        work: Arc<Work>,
        options: Options,
        counts: Arc<Counts>,
        prepared: Prepared,
        threads: Option<Threads>,
        in_use: InUse,
    ) -> Self {
        Self {
            path,
            engine_refs: Refs::new(&work.engine),
            temporaries: Arc::new(Temporaries::new(work.engine.instance.number())),
            work,
            options: Mutex::new(options),
            counts,
            prepared,
            callback_thread: CallbackThread::default(),
            threads: Mutex::new(threads),
            publisher: Mutex::default(),
            socket: Mutex::default(),
            in_use: Mutex::new(Some(in_use)),
            closed: AtomicBool::new(false),
            shutdown: Shutdown::default(),
            backed_off: AtomicU64::new(0),
        }
    }

    /// Waits before a retry: a random time up to a bound that doubles with each attempt, so that transactions
    /// that conflicted once do not conflict again. No lock is held meanwhile.
    pub(super) fn back_off(&self, attempts: u32) {
        let bound_us = (BACK_OFF_US << (attempts - 1).min(16)).min(BACK_OFF_US_MAX);
        let clock = &self.engine().clock;
        let drawn = self.backed_off.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let wait_us = mix(drawn ^ clock.now().as_nanos() as u64) % (bound_us + 1);
        clock.sleep(Duration::from_micros(wait_us));
    }

    /// Publishes the statistics for other processes.
    pub(super) fn publish(&self) -> std::io::Result<()> {
        *self.publisher.lock() = Some(Publisher::start(&self.path, self.counts.clone())?);
        Ok(())
    }

    /// Listens for backup requests of this user's other processes. If the socket cannot be created, the
    /// database runs without it.
    pub(super) fn listen(&self) {
        match ControlSocket::start(&self.path, &self.work) {
            Ok(socket) => *self.socket.lock() = Some(socket),
            Err(error) => ::log::warn!("{} has no control socket: {error}", self.path.display()),
        }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.work.engine
    }

    /// Returns whether background work has threads of its own.
    pub(super) fn has_threads(&self) -> bool {
        self.threads.lock().is_some()
    }

    /// Reserves the name of a transaction that is about to be prepared.
    fn take_name(&self, xid: &Xid) -> Result<()> {
        if xid.0.is_empty() || xid.0.len() > XID_BYTES_MAX {
            return Err(Error::Usage(format!("an XID of {} bytes: 1 to {XID_BYTES_MAX} are allowed", xid.0.len())));
        }
        let mut prepared = self.prepared.lock();
        if prepared.contains_key(xid) {
            return Err(Error::Usage(format!("a transaction is prepared as {xid} already")));
        }
        prepared.insert(xid.clone(), None);
        Ok(())
    }

    /// Runs `prepare` with the name reserved. If `prepare` leaves the transaction prepared in place, the
    /// transaction keeps the name.
    pub(super) fn prepare_in_place<T>(
        &self,
        xid: &Xid,
        txn: &mut Txn,
        prepare: impl FnOnce(&mut Txn, Arc<dyn Names>) -> Result<T>,
    ) -> Result<T> {
        if txn.is_prepared() {
            return Err(Error::Usage("the transaction is prepared already".into()));
        }
        self.take_name(xid)?;
        let prepared = prepare(txn, self.prepared.clone());
        if !txn.is_prepared() {
            self.prepared.lock().remove(xid);
        }
        prepared
    }

    /// Runs `prepare` with the name reserved.
    pub(super) fn prepare(&self, xid: &Xid, prepare: impl FnOnce() -> Result<Txn>) -> Result<()> {
        self.take_name(xid)?;
        match prepare() {
            Ok(txn) => {
                self.prepared.lock().insert(xid.clone(), Some(txn));
                Ok(())
            }
            Err(error) => {
                self.prepared.lock().remove(xid);
                Err(error)
            }
        }
    }

    /// Returns the ids of the prepared transactions that belong to no handle.
    pub(super) fn prepared_ids(&self) -> Vec<TxnId> {
        self.prepared.lock().values().flatten().map(Txn::id).collect()
    }

    pub(super) fn take_prepared(&self, xid: &Xid) -> Result<Txn> {
        let taken = self.prepared.lock().get_mut(xid).and_then(Option::take);
        taken.ok_or_else(|| Error::Unknown { what: "prepared transaction", name: xid.to_string() })
    }

    pub(super) fn close(&self) -> Result<()> {
        self.close_after(|| {})
    }

    /// Closes the database; calls `last` when background work has stopped.
    pub(super) fn close_after(&self, last: impl FnOnce()) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.temporaries.close();
        // First, so that a backup requested by another process does not delay closing.
        let socket = self.socket.lock().take();
        if let Some(socket) = socket {
            socket.stop();
        }
        let threads = self.threads.lock().take();
        if let Some(threads) = threads {
            threads.stop();
        }
        last();
        let closed = self.work.close();
        self.engine().log().end_watch(closed.as_ref().err());
        self.callback_thread.join();
        // Last, so that the writes of closing are counted, even if closing failed.
        let publisher = self.publisher.lock().take();
        if let Some(publisher) = publisher {
            publisher.stop();
        }
        self.in_use.lock().take();
        closed
    }
}

impl Inner {
    /// In a forked process, leaves everything unchanged. It does not join the threads (the child has none),
    /// closes no file, and leaks the values whose drop would do so.
    fn leave(&mut self) {
        let threads = (self.threads.get_mut().take(), self.publisher.get_mut().take(), self.socket.get_mut().take());
        std::mem::forget(threads);
        self.callback_thread.leave();
        std::mem::forget((self.work.clone(), self.engine_refs.clone(), self.counts.clone(), self.prepared.clone()));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.engine().instance.is_here() {
            return self.leave();
        }
        for txn in self.prepared.lock().values_mut().flatten() {
            txn.keep();
        }
        if self.close().is_err() {
            // Nothing is lost: all commits are in the log, and the next opening recovers them.
        }
    }
}
