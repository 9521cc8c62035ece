//! Support for an outside log: positions in the engine's log, and when they become durable.
//! docs/transactions.md, "Beside an outside log".
//!
//! 1. A commit is in the log before the position that
//!    [`Transaction::commit_ordered`](super::Transaction::commit_ordered) returns, and durable when
//!    [`Database::durable_position`] has reached that position.
//! 2. The first callback starts the thread that calls callbacks; a database without callbacks has no such
//!    thread. It ends when the database has closed. A callback that closes the database does not wait for
//!    this thread.

use super::database::Database;
use super::durable::LogPosition;
use crate::error::Result;
use crate::format::Lsn;

impl Database {
    /// Flushes the whole log. This makes durable all commits below
    /// [`Durability::Flushed`](crate::Durability::Flushed) and by
    /// [`Transaction::commit_ordered`](super::Transaction::commit_ordered). Returns the durable position.
    ///
    /// # Errors
    /// [`Poisoned`](crate::Error::Poisoned): log that was not durable before may or may not be durable now.
    pub fn flush_log(&self) -> Result<LogPosition> {
        let _running = self.running()?;
        let log = self.inner.engine().log();
        let head = log.head();
        log.flush_to(head)?;
        Ok(head.into())
    }

    /// Makes the log before `position` durable; returns at once if it already is. Concurrent calls share a
    /// flush.
    ///
    /// # Errors
    /// [`Usage`](crate::Error::Usage) for a position beyond the log; those of [`Database::flush_log`].
    pub fn flush_log_to(&self, position: LogPosition) -> Result<()> {
        self.here()?;
        self.inner.engine().log().flush_to(Lsn(position.0))
    }

    /// Returns the end of the log now; [`LogPosition::START`] in a forked process, and after a shutdown.
    #[must_use]
    pub fn log_position(&self) -> LogPosition {
        self.here().map_or(LogPosition::START, |()| self.inner.engine().log().head().into())
    }

    /// Returns the position before which all log is durable; [`LogPosition::START`] in a forked process, and after
    /// a shutdown.
    #[must_use]
    pub fn durable_position(&self) -> LogPosition {
        self.here().map_or(LogPosition::START, |()| self.inner.engine().log().durable_whole().into())
    }

    /// Registers a callback, called once, for a durable position of the log. When all log before `position` is
    /// durable, `call` is called with the position that is durable then; if that can no longer happen, with the
    /// error. A background thread calls it and holds no latch or lock meanwhile. (With
    /// [`Background::Steps`](crate::Background::Steps), [`Task::Log`](crate::Task::Log) or closing calls it.)
    /// It should be short: other callbacks wait behind it. The registration causes no flush; background work
    /// flushes within `flush_interval`.
    ///
    /// # Errors
    /// [`Usage`](crate::Error::Usage) for a position beyond the log; [`NoThread`](crate::Error::NoThread). Then `call`
    /// is never called.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// # let tree = db.create_tree("t")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&tree, b"k", b"v")?;
    /// tx.commit_with(seawall::Durability::Deferred)?;
    /// let (told, tells) = std::sync::mpsc::channel();
    /// db.on_durable(db.log_position(), move |durable| told.send(durable).unwrap())?;
    /// let position = db.flush_log()?;
    /// assert!(tells.recv().unwrap()? >= position);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn on_durable(
        &self,
        position: LogPosition,
        call: impl FnOnce(Result<LogPosition>) + Send + 'static,
    ) -> Result<()> {
        self.here()?;
        if self.inner.has_threads() {
            self.inner.callback_thread.start(self.inner.engine(), &self.inner.path)?;
        }
        let call = Box::new(move |durable: Result<Lsn>| call(durable.map(LogPosition::from)));
        let log = self.inner.engine().log();
        log.on_durable(Lsn(position.0), call)?;
        if self.inner.engine().health().is_read_only() {
            // No other thread would call it.
            log.tell();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LogPosition;
    use crate::log::{Credit, MTR_BYTES_MAX, NoRoom};
    use crate::{Background, Database, Durability, Env, Error, Options, Task, Xid};
    use seawall_io::{Op, SystemClock};
    use seawall_sim::{Fault, SimDisk, SimOptions};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, mpsc};

    fn open(sim: &Arc<SimDisk>, background: Background) -> Database {
        let env = Env { disk: sim.clone(), clock: Arc::new(SystemClock::default()), seed: 1, background };
        let options = Options::default()
            .with_page_size(4096)
            .with_pool_size(256 << 10)
            .with_data_initial_size(1 << 20)
            .with_log_segment_size(128 << 10)
            .with_log_capacity(2 << 20)
            .with_log_buffer_size(1 << 20);
        Database::open_in(env, "/db", options).unwrap()
    }

    fn sim() -> Arc<SimDisk> {
        SimDisk::new(SimOptions { seed: 5, ..SimOptions::default() })
    }

    fn xid(n: u32) -> Xid {
        Xid(n.to_be_bytes().to_vec())
    }

    /// Takes all free space in log and buffer.
    fn fill(db: &Database) -> (Vec<Credit<'_>>, NoRoom) {
        let log = db.inner.engine().log();
        let (mut all, mut bytes) = (Vec::new(), MTR_BYTES_MAX);
        loop {
            match log.try_admit(bytes).unwrap() {
                Ok(credit) => all.push(credit),
                Err(why) if bytes == 0 => return (all, why),
                Err(_) => bytes /= 2,
            }
        }
    }

    #[test]
    fn a_commit_in_order_needs_no_room_and_no_disk() {
        let sim = sim();
        let db = open(&sim, Background::Steps);
        let tree = db.create_tree("t").unwrap();
        let mut txs: Vec<_> = (0..6u32)
            .map(|n| {
                let mut tx = db.begin().unwrap();
                tx.put(&tree, &n.to_be_bytes(), &[1; 300]).unwrap();
                tx.prepare_in_place(&xid(n), Durability::Flushed).unwrap();
                tx
            })
            .collect();
        // Only pinned pages are in memory, and the log admits no more.
        db.inner.engine().pool().chill();
        let (all, why) = fill(&db);
        assert!(!all.is_empty(), "{why:?}");
        let mut other = db.begin().unwrap();
        assert!(db.inner.engine().log().try_admit(1).unwrap().is_err());
        let operations = sim.trace().len();
        sim.inject(Fault::eio());
        let positions: Vec<_> = txs.iter_mut().map(|tx| tx.commit_ordered().unwrap()).collect();
        assert_eq!(sim.trace().len(), operations, "operations of the disk");
        assert!(positions.is_sorted());
        assert_eq!(db.inner.engine().undo.kept(), 0);
        assert!(db.durable_position() < positions[0]);
        sim.clear_faults();
        drop(all);
        db.flush_log_to(positions[5]).unwrap();
        assert!(db.durable_position() >= positions[5]);
        assert_eq!(other.iter(&tree).count(), 6);
        other.put(&tree, b"more", b"").unwrap();
        other.commit().unwrap();
    }

    /// Each kind of transaction end releases the reserved resources; at most a share of the pool is reserved.
    #[test]
    fn what_is_kept_is_bounded_and_given_back() {
        let sim = sim();
        let db = open(&sim, Background::Steps);
        let tree = db.create_tree("t").unwrap();
        let undo = &db.inner.engine().undo;
        let promised = || db.inner.engine().log().promised_and_not_logged();
        let most = undo.kept_max() as u32;
        assert_eq!(most, 8, "of 64 pages");
        for _ in 0..3 {
            let mut txs: Vec<_> = (0..most)
                .map(|n| {
                    let mut tx = db.begin().unwrap();
                    tx.put(&tree, &n.to_be_bytes(), b"v").unwrap();
                    tx.prepare_in_place(&xid(n), Durability::Deferred).unwrap();
                    tx
                })
                .collect();
            let mut one_more = db.begin().unwrap();
            one_more.put(&tree, b"more", b"v").unwrap();
            let refused = one_more.prepare_in_place(&xid(99), Durability::Deferred).unwrap_err();
            assert!(matches!(refused, Error::TooManyPrepared { max: 8 }), "{refused}");
            // The transaction is unchanged.
            one_more.put(&tree, b"more", b"w").unwrap();
            one_more.commit().unwrap();
            assert!(promised() > 0);
            txs.pop().unwrap().rollback().unwrap();
            txs.pop().unwrap().commit().unwrap();
            txs.pop().unwrap().commit_start().unwrap().wait().unwrap();
            txs.pop().unwrap().commit_ordered().unwrap();
            drop(txs);
            assert_eq!((undo.kept(), promised()), (0, 0));
            for name in db.prepared() {
                db.rollback_prepared(&name).unwrap();
            }
            db.inner.engine().pool().chill();
        }
    }

    #[test]
    fn callbacks_are_called_once_when_durable() {
        let sim = sim();
        let db = open(&sim, Background::Steps);
        let tree = db.create_tree("t").unwrap();
        let put = |n: u32| {
            let mut tx = db.begin().unwrap();
            tx.put(&tree, &n.to_be_bytes(), b"v").unwrap();
            tx.commit_with(Durability::Deferred).unwrap();
            db.log_position()
        };
        let called = Arc::new(Mutex::new(Vec::new()));
        let ask = |n: u32, position: LogPosition| {
            let called = called.clone();
            db.on_durable(position, move |durable| called.lock().unwrap().push((n, durable.is_ok()))).unwrap();
        };
        let (one, two) = (put(1), put(2));
        ask(2, two);
        ask(1, one);
        db.step_task(Task::Log).unwrap();
        assert_eq!(*called.lock().unwrap(), [], "asking flushes nothing");
        db.flush_log_to(two).unwrap();
        while db.step_task(Task::Log).unwrap() {}
        assert_eq!(*called.lock().unwrap(), [(1, true), (2, true)]);
        let beyond = LogPosition::from_u64(db.log_position().as_u64() + 1);
        assert!(matches!(db.on_durable(beyond, |_| unreachable!()), Err(Error::Usage(_))));
        // Closing makes all log durable and calls the remaining callbacks.
        ask(3, put(3));
        let inner = db.inner.clone();
        drop((tree, inner));
        db.close().unwrap();
        assert_eq!(called.lock().unwrap()[2..], [(3, true)]);
    }

    #[test]
    fn callbacks_are_told_of_poisoning() {
        for background in [Background::Steps, Background::Threads] {
            let sim = sim();
            let db = open(&sim, background);
            let tree = db.create_tree("t").unwrap();
            let mut tx = db.begin().unwrap();
            tx.put(&tree, b"k", b"v").unwrap();
            tx.prepare_in_place(&xid(1), Durability::Flushed).unwrap();
            let mut second = db.begin().unwrap();
            second.put(&tree, b"l", b"v").unwrap();
            second.prepare_in_place(&xid(2), Durability::Flushed).unwrap();
            sim.inject(Fault::eio().on(Op::Sync));
            sim.inject(Fault::eio().on(Op::Write));
            let position = tx.commit_ordered().unwrap();
            let (tell, told) = mpsc::channel();
            db.on_durable(position, move |durable| tell.send(durable).unwrap()).unwrap();
            assert!(db.flush_log().is_err());
            if background == Background::Steps {
                // The step fails, as all steps do now; it still calls the callbacks.
                assert!(db.step_task(Task::Log).is_err());
            }
            assert!(matches!(told.recv().unwrap(), Err(Error::Poisoned { .. })));
            assert!(matches!(second.commit_ordered(), Err(Error::Poisoned { .. })), "it stays prepared");
            assert!(db.get(&tree, b"k").unwrap().is_some() && db.get(&tree, b"l").unwrap().is_none());
            drop((tx, second, tree));
            assert_eq!(db.prepared(), [xid(2)]);
            sim.clear_faults();
            drop(db);
            // The next opening finds the durable preparation. The failed write may have left a part of the
            // visible commit.
            sim.power_cut();
            let db = open(&sim, Background::Steps);
            let seen = db.get(&db.open_tree("t").unwrap(), b"k").unwrap().is_some();
            assert_eq!(db.prepared(), if seen { vec![xid(2)] } else { vec![xid(1), xid(2)] });
        }
    }

    /// A callback delays only other callbacks: it may commit, register again, panic, and drop the last
    /// handle.
    #[test]
    fn a_callback_may_do_what_it_likes() {
        let sim = sim();
        let db = open(&sim, Background::Threads);
        let tree = db.create_tree("t").unwrap();
        let (tell, told) = mpsc::channel();
        let calls = Arc::new(AtomicUsize::new(0));
        db.on_durable(LogPosition::START, |_| panic!("a defect of the caller's")).unwrap();
        let (again, counted) = (db.clone(), calls.clone());
        db.on_durable(db.log_position(), move |durable| {
            durable.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            again.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
            let position = again.log_position();
            let last = again.clone();
            again
                .on_durable(position, move |durable| {
                    drop((last, durable.unwrap()));
                    tell.send(()).unwrap();
                })
                .unwrap();
        })
        .unwrap();
        db.flush_log().unwrap();
        drop(db);
        told.recv().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        // The database is closed by now, or soon will be: an opening waits for the files.
        let db = open(&sim, Background::Steps);
        assert!(db.get(&db.open_tree("t").unwrap(), b"k").unwrap().is_some());
    }
}
