//! Threads that follow the callers' rules, and a register beside the table in which each enters its granted
//! locks: two entries that exclude each other are a failure, and so is a wait that never ends.

use super::*;
use crate::txn::views::ActiveSet;
use parking_lot::RwLock;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

const KEYS: usize = 10;
const THREADS: usize = 6;

#[derive(Debug, Default)]
struct Entered {
    reads: BTreeSet<u64>,
    alone: Option<u64>,
}

struct World {
    table: LockTable,
    active: ActiveSet,
    /// The latch of each row's page, and the row's writer.
    rows: Vec<RwLock<TxnId>>,
    register: Vec<Mutex<Entered>>,
    /// The interrupt of the current transaction of each thread.
    interrupts: Vec<Mutex<Arc<Interrupt>>>,
}

struct Txn<'w> {
    world: &'w World,
    owner: Arc<LockOwner>,
    /// Rows changed, and their writers before.
    undo: Vec<(usize, TxnId)>,
    entered: BTreeSet<usize>,
    interrupt: Arc<Interrupt>,
}

fn key(at: usize) -> [u8; 2] {
    [b'k', at as u8]
}

impl<'w> Txn<'w> {
    fn new(world: &'w World, thread: usize) -> Self {
        let interrupt: Arc<Interrupt> = Arc::default();
        *world.interrupts[thread].lock() = interrupt.clone();
        Self { world, owner: world.table.owner(), undo: Vec::new(), entered: BTreeSet::new(), interrupt }
    }

    fn wait(&self, request: &LockRequest<'_>) -> crate::Result<()> {
        self.world.table.wait(request, LONG, Some(&*self.interrupt))
    }

    fn enter(&mut self, at: usize, mode: Mode) {
        let me = self.owner.serial;
        let mut entered = self.world.register[at].lock();
        assert!(entered.alone.is_none_or(|other| other == me), "{at}: {mode:?} beside an exclusive one");
        if mode == X {
            assert!(entered.reads.iter().all(|&other| other == me), "{at}: exclusive beside a shared one");
            entered.alone = Some(me);
        }
        entered.reads.insert(me);
        drop(entered);
        self.entered.insert(at);
    }

    /// `Ok` if the row is this transaction's own; a conflict if its writer is another active transaction.
    fn row(&self, at: usize, writer: TxnId) -> Option<Result<(), Conflict>> {
        if writer == TxnId::NONE {
            return None;
        }
        if writer == self.owner.txn() {
            return Some(Ok(()));
        }
        if !self.world.active.is_active(writer) {
            return None;
        }
        match self.world.table.convert(writer, &self.owner, TREE, &key(at)) {
            Converted::Held(conflict) => Some(Err(conflict)),
            Converted::Gone => {
                assert!(!self.world.active.is_active(writer), "it leaves the active set first");
                None
            }
        }
    }

    fn lock(&mut self, at: usize, mode: Mode, scan: bool) -> crate::Result<()> {
        loop {
            let row = self.world.rows[at].read();
            let (table, key) = (&self.world.table, key(at));
            let own = self.row(at, *row);
            if scan && matches!(own, Some(Ok(()))) {
                table.add_own_row(&self.owner, TREE, &key, mode);
            }
            let answer = own.unwrap_or_else(|| match scan {
                true => {
                    let place = KeySpan::key(&key);
                    table.add_range_to(&LockRequest::span(&self.owner, TREE, &place, mode), &key)
                }
                false => table.try_point(&self.owner, TREE, &key, mode),
            });
            if answer.is_ok() {
                self.enter(at, mode);
                return Ok(());
            }
            drop(row);
            self.wait(&LockRequest::key(&self.owner, TREE, &key, mode))?;
        }
    }

    /// Locks a row and gives the lock back, if it is new.
    fn lock_in_vain(&mut self, at: usize, mode: Mode) -> crate::Result<()> {
        if self.entered.contains(&at) {
            return Ok(());
        }
        let (table, mut waited) = (&self.world.table, false);
        loop {
            let row = self.world.rows[at].read();
            let answer = self.row(at, *row).map(|own| own.map(|()| false)).unwrap_or_else(|| match waited {
                false => table.try_new_point(&self.owner, TREE, &key(at), mode),
                true => table.try_point_again(&self.owner, TREE, &key(at), mode),
            });
            if answer.is_ok() {
                self.enter(at, mode);
                break;
            }
            drop(row);
            self.wait(&LockRequest::key(&self.owner, TREE, &key(at), mode))?;
            waited = true;
        }
        // Removed from the register before it is given back; if it is not given back, it is still held.
        self.strike_out(at);
        self.entered.remove(&at);
        if !table.give_back_of_statement(&self.owner, TREE, &key(at)) {
            self.enter(at, mode);
        }
        Ok(())
    }

    fn strike_out(&self, at: usize) {
        let mut entered = self.world.register[at].lock();
        entered.reads.remove(&self.owner.serial);
        if entered.alone == Some(self.owner.serial) {
            entered.alone = None;
        }
    }

    fn write(&mut self, at: usize) -> crate::Result<()> {
        if self.owner.txn() == TxnId::NONE {
            self.world.table.register(&self.owner, self.world.active.begin());
        }
        loop {
            let mut row = self.world.rows[at].write();
            let answer = match self.row(at, *row) {
                Some(answer) => answer.map(|()| false),
                None => self.world.table.check_write(&self.owner, TREE, &key(at)),
            };
            if let Ok(has_point) = answer {
                self.undo.push((at, *row));
                *row = self.owner.txn();
                if has_point {
                    self.world.table.written(&self.owner, TREE, &key(at));
                }
                self.owner.add_weight(1);
                self.enter(at, X);
                return Ok(());
            }
            drop(row);
            self.wait(&LockRequest::key(&self.owner, TREE, &key(at), X))?;
        }
    }

    /// Locks a key for one moment, and keeps no lock.
    fn lock_briefly(&mut self, at: usize) -> crate::Result<()> {
        let (table, key) = (&self.world.table, key(at));
        let new = !table.holds(&self.owner, TREE, &key);
        loop {
            let row = self.world.rows[at].read();
            // If another transaction has written the row, this one only waits for it.
            let granted = match self.row(at, *row) {
                Some(Ok(())) => return Ok(()),
                Some(Err(_)) => false,
                None => table.try_point(&self.owner, TREE, &key, X).is_ok(),
            };
            if granted {
                let entered = self.world.register[at].lock();
                let me = self.owner.serial;
                assert!(entered.alone.is_none_or(|other| other == me), "{at}: beside an exclusive one");
                assert!(entered.reads.iter().all(|&other| other == me), "{at}: exclusive beside a shared one");
            }
            drop(row);
            if granted {
                if new {
                    table.give_back(&self.owner, TREE, &key);
                }
                return Ok(());
            }
            // If the wait is granted, the lock is kept until this thread has checked again: several threads that each
            // released it before that would pass it round for ever.
            self.wait(&LockRequest::key(&self.owner, TREE, &key, X))?;
        }
    }

    fn scan(&mut self, from: usize, to: usize, mode: Mode) -> crate::Result<()> {
        for at in from..to {
            let (lo, hi) = (key(at), key(at + 1));
            let between = KeySpan::new(Excluded(&lo[..]), Excluded(&hi[..]));
            while self.world.table.add_range(&LockRequest::span(&self.owner, TREE, &between, mode)).is_err() {
                self.wait(&LockRequest::span(&self.owner, TREE, &between, mode))?;
            }
            self.lock(at, mode, true)?;
        }
        Ok(())
    }

    fn whole(&mut self) -> crate::Result<()> {
        while self.world.table.add_range(&LockRequest::span(&self.owner, TREE, &KeySpan::default(), X)).is_err() {
            self.wait(&LockRequest::span(&self.owner, TREE, &KeySpan::default(), X))?;
        }
        (0..KEYS).for_each(|at| self.enter(at, X));
        Ok(())
    }

    fn run(&mut self, dice: &mut Pcg64Mcg) -> crate::Result<()> {
        if dice.random_ratio(1, 30) {
            return self.whole();
        }
        for _ in 0..dice.random_range(1..5) {
            let at = dice.random_range(0..KEYS);
            let mode = if dice.random() { S } else { X };
            if dice.random_ratio(1, 20) {
                self.world.interrupts[dice.random_range(0..THREADS)].lock().raise();
            }
            if dice.random_ratio(1, 3) {
                self.owner.next_statement();
            }
            match dice.random_range(0..10) {
                8..10 => self.lock_in_vain(at, mode)?,
                0..3 => self.lock(at, mode, false)?,
                3..6 => self.write(at)?,
                6 => self.lock_briefly(at)?,
                _ => self.scan(at, (at + dice.random_range(1..4)).min(KEYS), mode)?,
            }
            if dice.random_ratio(1, 4) {
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn end(mut self, commit: bool) {
        // Every lock is removed from the register before it is released.
        for at in std::mem::take(&mut self.entered) {
            self.strike_out(at);
        }
        if !commit {
            for (at, before) in self.undo.drain(..).rev() {
                *self.world.rows[at].write() = before;
            }
        }
        if self.owner.txn() != TxnId::NONE {
            self.world.active.end(self.owner.txn());
        }
        self.world.table.release_all(&self.owner);
    }
}

fn run(seed: u64, change: impl FnOnce(&mut LockConfig), hash_mask: u64) {
    const TXNS: usize = 250;
    let clock = Arc::new(SystemClock::default());
    let mut config = LockConfig::new(clock.clone());
    change(&mut config);
    let mut table = LockTable::new(config);
    table.hash_mask = hash_mask;
    let world = World {
        table,
        active: ActiveSet::new(clock),
        rows: (0..KEYS).map(|_| RwLock::new(TxnId::NONE)).collect(),
        register: (0..KEYS).map(|_| Mutex::default()).collect(),
        interrupts: (0..THREADS).map(|_| Mutex::default()).collect(),
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let world = &world;
            scope.spawn(move || {
                let mut dice = Pcg64Mcg::seed_from_u64(seed * THREADS as u64 + thread as u64);
                for _ in 0..TXNS {
                    let mut txn = Txn::new(world, thread);
                    let mut outcome = txn.run(&mut dice);
                    while matches!(outcome, Err(Error::Interrupted { .. })) && dice.random() {
                        // It keeps its locks, and continues.
                        txn.interrupt.clear();
                        outcome = txn.run(&mut dice);
                    }
                    assert!(!matches!(outcome, Err(Error::LockTimeout { .. })), "the wait never ended: {outcome:?}");
                    let commit = outcome.is_ok() && dice.random_ratio(4, 5);
                    txn.end(commit);
                }
            });
        }
    });
    let stats = world.table.stats();
    assert!(stats.waits > 0 && stats.timeouts == 0, "{stats:?}");
    world.table.assert_empty();
}

#[test]
fn no_two_hold_what_excludes_each_other() {
    run(1, |_| (), u64::MAX);
}

#[test]
fn nor_when_points_become_ranges_and_ranges_are_joined() {
    run(2, |config| (config.point_max, config.range_max) = (1, 1), u64::MAX);
}

#[test]
fn nor_when_keys_collide() {
    run(3, |config| config.point_max = 2, 1 << 40);
}
