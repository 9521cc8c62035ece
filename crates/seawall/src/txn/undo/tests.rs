//! Undo logs on bare pages, and on a pool over a simulated disk.

use super::record::tests::made;
use super::record::{END_RECORD, RECORD_HEAD};
use super::*;
use crate::btree::{entry_bytes_max, key_bytes_max};
use crate::format::page as any_page;
use crate::format::{PageId, TxnId, UndoPtr};
use page::{State, TailState};
use proptest::prelude::*;

/// Applies a change directly and as a replay, and compares the results.
fn apply<R: Redo>(change: &R, page: &mut [u8]) {
    let mut body = Vec::new();
    change.encode(&mut body);
    let mut replayed = page.to_vec();
    redo(R::TAG, &body, &mut replayed).expect("what was made can be replayed");
    change.apply(page);
    assert!(replayed == page, "replaying does what was done");
}

fn append(page: &mut [u8], record: &UndoRecord<'_>) {
    let mut body = Vec::new();
    record.encode(&mut body);
    apply(&Append { kind: record.kind(), body: &body }, page);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_page_is_what_was_appended_less_what_was_cut(
        page_bytes in prop_oneof![Just(4usize << 10), Just(32 << 10)],
        records in proptest::collection::vec((made(4), 0usize..3), 1..20),
    ) {
        let mut page = vec![0xee; page_bytes];
        let number = PageId(0xfedc_ba98);
        let init = InitUndo { number, undo_log: 7, prev: PageId(3), tail: TailState::default() };
        apply(&init, &mut page);
        prop_assert_eq!(page::verify(&page), Ok(()));
        append(&mut page, &UndoRecord::Begin { txn: TxnId(5) });
        // The records in the page, each with the page's header before it was appended.
        let mut model = Vec::new();
        for (record, cuts) in &records {
            let record = record.record();
            if usize::from(page::end(&page)) + record.room_max() + END_RECORD <= page_bytes {
                model.push((record, TailState::of(&page), page::end(&page)));
                append(&mut page, &record);
            }
            for _ in 0..*cuts {
                if let Some((_, before, end)) = model.pop() {
                    apply(&Cut, &mut page);
                    prop_assert_eq!((TailState::of(&page), page::end(&page)), (before, end));
                }
            }
        }
        let mut ptr = TailState::of(&page).expect("it is in order").last;
        for (record, ..) in model.iter().rev() {
            let raw = page::record_at(&page, ptr.offset()).expect("a record");
            prop_assert_eq!(&UndoRecord::decode(raw.kind, raw.body).expect("decodes"), record);
            ptr = raw.prev;
        }
        prop_assert_eq!(ptr, TailState::of(&page).expect("it is in order").begin);
        append(&mut page, &UndoRecord::Prepared { xid: b"x" });
        prop_assert_eq!(TailState::of(&page).expect("it is in order").state, State::Prepared);
        append(&mut page, &UndoRecord::Commit { txn: TxnId(5) });
        let over = TailState::of(&page).expect("it is in order");
        prop_assert_eq!((over.state, over.txn, over.commits, over.last), (State::Idle, TxnId(5), 1, UndoPtr::NONE));
        prop_assert!(Cut::check(&page).is_err(), "what is committed is not cut");
        for _ in 0..model.len() + 3 {
            apply(&Advance::check(&page, 1).unwrap(), &mut page);
        }
        prop_assert_eq!(page::purged_to(&page), page::end(&page));
        prop_assert_eq!((page::purge_txn(&page), page::purged(&page)), (TxnId(5), 1));
        prop_assert!(Advance::check(&page, 1).is_err(), "there is nothing to move past");
    }

    #[test]
    fn bad_records_are_refused(
        tag in prop_oneof![0x40u8..0x50, 0xc0u8..0xd0, any::<u8>()],
        body in proptest::collection::vec(any::<u8>(), 0..60),
        mut page in proptest::collection::vec(any::<u8>(), 4096),
        kind in 6u8..8,
        end in 100u16..4200,
    ) {
        page[any_page::KIND] = kind;
        any_page::set_u16(&mut page, 44, end);
        any_page::set_u16(&mut page, 46, 104);
        let last = UndoPtr::new(any_page::number(&page), 104);
        any_page::set_u64(&mut page, 72, last.0);
        page[48] = 1;
        let before = page.clone();
        if redo(tag, &body, &mut page).is_err() {
            prop_assert!(page == before);
        }
    }
}

#[test]
fn the_longest_record_fits_every_page() {
    for page_bytes in [4usize << 10, 8 << 10, 16 << 10, 32 << 10] {
        // The entry's header is in the leaf, but not in the record's value.
        let key = vec![7; key_bytes_max(page_bytes)];
        let value = vec![7; entry_bytes_max(page_bytes) - key.len()];
        let previous = Previous { flags: 255, writer: TxnId((1 << 48) - 1), undo: UndoPtr((1 << 48) - 1) };
        let (tree, root) = (crate::format::TreeId(u32::MAX), PageId(u32::MAX));
        let record = UndoRecord::Update { tree, root, key: &key, previous, value: OldValue::Whole(&value) };
        assert!(page::RECORDS + record.room_max() + 2 * END_RECORD <= page_bytes);
        assert_eq!(record.room_max(), UndoRecord::room_for_row(key.len(), entry_bytes_max(page_bytes)));
        let mut body = Vec::new();
        record.encode(&mut body);
        assert!(RECORD_HEAD + body.len() <= record.room_max());
    }
}

// --- on a pool ---------------------------------------------------------------------------------------------

use crate::buffer::{Mtr, MtrSize};
use crate::error::Stop;
use crate::format::TreeId;
use crate::space::testing::{Machine, Running};
use crate::space::{Purpose, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg as Dice;
use seawall_sim::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;

fn redo_all(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    if crate::format::tag::layer(tag) == Some(crate::format::tag::Layer::Txn) {
        redo(tag, body, page)
    } else {
        crate::space::redo(tag, body, page)
    }
}

/// The records of each undo log that purge has not passed, as text: empty undo logs are left out.
type Contents = BTreeMap<u32, Vec<String>>;

fn contents(store: &UndoStore) -> Contents {
    let mut all = Contents::new();
    for undo_log in 0..store.undo_logs() {
        let mut next = store.slot(undo_log).expect("it is there").head();
        let mut records = Vec::new();
        while next != PageId::NONE {
            let bytes = store.space.pool().retry(|| Ok(store.space.pool().shared(next)?.to_vec())).expect("readable");
            let mut at = page::purged_to(&bytes);
            while at < page::end(&bytes) {
                let raw = page::record_at(&bytes, at).expect("a record");
                records.push(format!("{:?}", UndoRecord::decode(raw.kind, raw.body).expect("a record")));
                at = raw.next;
            }
            next = page::next(&bytes);
        }
        if !records.is_empty() {
            all.insert(undo_log, records);
        }
    }
    all
}

fn assert_sound(store: &UndoStore, space: &Space) {
    let mut check = space.check().expect("the header can be read");
    store.check(&mut check).expect("the database is well");
    assert_eq!(check.finish(&[]), vec![]);
}

fn in_mtr<T>(space: &Space, mut change: impl FnMut(&mut Mtr<'_>) -> Result<T, Stop>) -> T {
    let done = space.pool().retry(|| {
        let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
        let done = change(&mut mtr)?;
        mtr.commit();
        Ok(done)
    });
    done.expect("the disk is well")
}

/// A run of random transactions, and the records that every undo log must have after each of its
/// mini-transactions.
struct Run {
    running: Running,
    space: Arc<Space>,
    store: UndoStore,
    dice: Dice,
    open: Vec<UndoLog>,
    next_txn: u64,
    model: Contents,
    states: Vec<Contents>,
    flushed: usize,
}

impl Run {
    fn new(machine: &Machine, seed: u64) -> Self {
        let running = machine.create();
        let space = Arc::new(Space::create(running.pool.clone(), 1).expect("room"));
        let store = UndoStore::create(space.clone()).expect("room");
        running.flush_log();
        Self {
            running,
            space,
            store,
            dice: Dice::seed_from_u64(seed),
            open: Vec::new(),
            next_txn: 1,
            model: Contents::new(),
            states: vec![Contents::new()],
            flushed: 0,
        }
    }

    fn note(&mut self) {
        self.model.retain(|_, records| !records.is_empty());
        self.states.push(self.model.clone());
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.dice.random_range(0..800);
        vec![self.dice.random(); len]
    }

    fn append(&mut self, at: usize) {
        let (key, value) = (self.bytes(), self.bytes());
        let (tree, root) = (TreeId(self.dice.random_range(16..99)), PageId(self.dice.random()));
        let previous = Previous { flags: 3, writer: TxnId(self.next_txn), undo: UndoPtr(77) };
        let record = match self.dice.random_range(0..4) {
            0 => UndoRecord::Insert { tree, root, key: &key },
            1 => UndoRecord::Update { tree, root, key: &key, previous, value: OldValue::Whole(&value) },
            2 => UndoRecord::Delete { tree, root, key: &key, previous, overflow: &[] },
            _ => UndoRecord::OverflowWritten { tree, head: root },
        };
        let (undo_log, store) = (&mut self.open[at], &self.store);
        store.ensure_room(undo_log, record.room_max(), Purpose::Grow).expect("room");
        let first = !undo_log.has_begun();
        let ptr = in_mtr(&self.space, |mtr| store.append(undo_log, mtr, &record));
        assert_eq!(undo_log.last(), ptr);
        let read = store.read_now(ptr, |found| found == record);
        assert!(read.expect("it is there"), "what was appended is read back");
        let (number, txn) = (undo_log.number(), undo_log.txn());
        let records = self.model.entry(number).or_default();
        if first {
            records.push(format!("{:?}", UndoRecord::Begin { txn }));
        }
        records.push(format!("{record:?}"));
        self.note();
    }

    /// Cuts records down to `savepoint`, or the whole transaction if there is none.
    fn roll_back(&mut self, at: usize, savepoint: UndoPtr) {
        let (undo_log, store) = (&mut self.open[at], &self.store);
        let number = undo_log.number();
        loop {
            let last = store.last_record(undo_log).expect("readable");
            if undo_log.last() == savepoint {
                break;
            }
            let (ptr, record) = last.expect("the savepoint is before");
            assert_eq!(ptr, undo_log.last());
            in_mtr(&self.space, |mtr| store.cut(undo_log, mtr));
            let cut = self.model.get_mut(&number).and_then(Vec::pop);
            assert_eq!(cut, Some(format!("{:?}", record.get())));
            self.model.retain(|_, records| !records.is_empty());
            self.states.push(self.model.clone());
        }
    }

    fn end(&mut self, at: usize) {
        let commit = self.dice.random_bool(0.6);
        if !commit {
            self.roll_back(at, UndoPtr::NONE);
        }
        let (undo_log, store) = (&mut self.open[at], &self.store);
        let (number, txn, begun) = (undo_log.number(), undo_log.txn(), undo_log.has_begun());
        if commit {
            in_mtr(&self.space, |mtr| store.commit(undo_log, mtr));
            if begun {
                self.model.entry(number).or_default().push(format!("{:?}", UndoRecord::Commit { txn }));
            }
        } else {
            in_mtr(&self.space, |mtr| store.finish_rollback(undo_log, mtr));
            if begun {
                self.model.get_mut(&number).and_then(Vec::pop).expect("its Begin");
            }
        }
        self.note();
        let undo_log = self.open.swap_remove(at);
        self.store.release(undo_log).expect("it has ended");
    }

    fn purge(&mut self, undo_log: u32, most: usize) -> usize {
        let records = self.store.heads(undo_log, most, |_| true).expect("readable");
        for unpurged in &records {
            assert!(self.open.iter().all(|open| open.txn() != unpurged.txn), "only what has ended is purged");
            in_mtr(&self.space, |mtr| self.store.advance(mtr, std::slice::from_ref(unpurged)));
            let purged = self.model.get_mut(&undo_log).expect("it has records").remove(0);
            assert_eq!(purged, format!("{:?}", unpurged.record.get()));
            self.note();
        }
        records.len()
    }

    fn step(&mut self) {
        match self.dice.random_range(0..20) {
            0..=1 if self.open.len() < 4 => {
                let mut undo_log = self.store.acquire().expect("an undo log");
                self.store.begin(&mut undo_log, TxnId(self.next_txn)).expect("it is idle");
                self.next_txn += 1;
                self.open.push(undo_log);
            }
            2 if !self.open.is_empty() => {
                let at = self.dice.random_range(0..self.open.len());
                self.end(at);
            }
            3..=5 if self.store.undo_logs() > 0 => {
                let undo_log = self.dice.random_range(0..self.store.undo_logs());
                self.purge(undo_log, 3);
            }
            6 if !self.open.is_empty() => {
                // A statement that fails.
                let at = self.dice.random_range(0..self.open.len());
                let savepoint = self.open[at].last();
                for _ in 0..self.dice.random_range(0..12) {
                    self.append(at);
                }
                self.roll_back(at, savepoint);
            }
            7 => {
                self.running.flush_log();
                self.flushed = self.states.len() - 1;
            }
            8 if self.dice.random_bool(0.3) => {
                self.running.pool.flush_all().expect("the disk is well");
                self.flushed = self.states.len() - 1;
            }
            _ if !self.open.is_empty() => {
                let at = self.dice.random_range(0..self.open.len());
                self.append(at);
            }
            _ => {}
        }
    }
}

fn commits(contents: &Contents) -> u64 {
    contents.values().flatten().filter(|record| record.starts_with("Commit")).count() as u64
}

/// Opens a crashed machine's database, compares it with the model, and ends its open transactions.
fn recover(machine: &Machine, allowed: &[Contents], next_txn: u64) {
    let running = machine.recover().expect("it is recovered");
    let space = Arc::new(Space::open(running.pool.clone()).expect("it opens"));
    let (store, open, txn_max) = UndoStore::open(space.clone()).expect("it opens");
    let found = contents(&store);
    assert!(allowed.contains(&found), "{found:#?}");
    assert!(txn_max.0 < next_txn);
    assert_eq!(store.history_length(), commits(&found));
    assert_sound(&store, &space);
    let unfinished = found.values().filter(|records| !records.last().is_some_and(|last| last.starts_with("Commit")));
    assert_eq!(open.len(), unfinished.count());
    for OpenUndoLog { mut undo_log, txn, state } in open {
        assert_eq!((undo_log.txn(), state), (txn, OpenState::Active));
        while store.last_record(&mut undo_log).expect("readable").is_some() {
            in_mtr(&space, |mtr| store.cut(&mut undo_log, mtr));
        }
        in_mtr(&space, |mtr| store.finish_rollback(&mut undo_log, mtr));
        store.release(undo_log).expect("it has ended");
    }
    for undo_log in 0..store.undo_logs() {
        while let Some(unpurged) = store.head(undo_log).expect("readable") {
            in_mtr(&space, |mtr| store.advance(mtr, std::slice::from_ref(&unpurged)));
        }
    }
    assert_eq!((contents(&store), store.history_length()), (Contents::new(), 0));
    assert_sound(&store, &space);
    assert_eq!(space.pages_of(TreeId::UNDO), store.undo_logs() + 1, "every undo log has one page left");
}

#[test]
fn undo_logs_equal_the_model_also_after_a_crash() {
    for seed in 0..8 {
        let machine = Machine::new(seed, 64, redo_all);
        let mut run = Run::new(&machine, seed);
        for step in 0..160 {
            run.step();
            assert_eq!(run.store.history_length(), commits(&run.model));
            if step % 16 == 0 {
                assert_eq!(contents(&run.store), run.model, "seed {seed}, step {step}");
                assert_sound(&run.store, &run.space);
                let crashed = machine.fork(seed << 32 | step);
                crashed.disk.power_cut();
                recover(&crashed, &run.states[run.flushed..], run.next_txn);
            }
        }
        run.running.flush_log();
        run.running.process.crash_by(SimDisk::power_cut);
        let last = run.states.len() - 1;
        recover(&machine, &run.states[last..], run.next_txn);
    }
}

#[test]
fn prepared_survives_and_can_go_either_way() {
    for commit in [false, true] {
        let machine = Machine::new(9, 64, redo_all);
        let running = machine.create();
        let space = Arc::new(Space::create(running.pool.clone(), 1).expect("room"));
        let store = UndoStore::create(space.clone()).expect("room");
        let mut undo_log = store.acquire().expect("an undo log");
        store.begin(&mut undo_log, TxnId(41)).expect("it is idle");
        let record = UndoRecord::Insert { tree: TreeId(16), root: PageId(9), key: b"key" };
        in_mtr(&space, |mtr| store.append(&mut undo_log, mtr, &record));
        store
            .ensure_room(&mut undo_log, UndoRecord::Prepared { xid: b"xid 7" }.room_max(), Purpose::Grow)
            .expect("room");
        in_mtr(&space, |mtr| store.prepare(&mut undo_log, mtr, b"xid 7"));
        running.flush_log();
        running.process.crash_by(SimDisk::power_cut);

        let running = machine.recover().expect("it is recovered");
        let space = Arc::new(Space::open(running.pool.clone()).expect("it opens"));
        let (store, mut open, txn_max) = UndoStore::open(space.clone()).expect("it opens");
        assert_eq!(txn_max, TxnId(41));
        let OpenUndoLog { mut undo_log, txn, state } = open.pop().expect("it is prepared");
        assert_eq!((txn, state), (TxnId(41), OpenState::Prepared { xid: b"xid 7".to_vec() }));
        assert_eq!(store.head(undo_log.number()).expect("readable"), None, "it is not over");
        if commit {
            in_mtr(&space, |mtr| store.commit(&mut undo_log, mtr));
            let heads = store.heads(undo_log.number(), 10, |_| true).expect("readable");
            assert_eq!(heads.len(), 4);
            assert!(heads.iter().all(|unpurged| unpurged.txn == TxnId(41)));
            // One mini-transaction may pass several records.
            in_mtr(&space, |mtr| store.advance(mtr, &heads));
            assert_eq!(store.history_length(), 0);
        } else {
            let (_, record) = store.last_record(&mut undo_log).expect("readable").expect("a record");
            assert_eq!(record.get(), UndoRecord::Prepared { xid: b"xid 7" });
            in_mtr(&space, |mtr| store.cut(&mut undo_log, mtr));
            assert!(store.last_record(&mut undo_log).expect("readable").is_some());
            in_mtr(&space, |mtr| store.cut(&mut undo_log, mtr));
            assert_eq!(store.last_record(&mut undo_log).expect("readable"), None);
            in_mtr(&space, |mtr| store.finish_rollback(&mut undo_log, mtr));
        }
        store.release(undo_log).expect("it has ended");
        assert_sound(&store, &space);
    }
}

#[test]
fn rollback_and_commit_need_no_space() {
    let machine = Machine::new(3, 64, redo_all);
    let running = machine.create();
    let space = Arc::new(Space::create(running.pool.clone(), 1).expect("room"));
    let store = UndoStore::create(space.clone()).expect("room");
    machine.fill_disk();
    let mut undo_logs = [1, 2].map(|txn| {
        let mut undo_log = store.acquire().expect("an undo log");
        store.begin(&mut undo_log, TxnId(txn)).expect("it is idle");
        undo_log
    });
    let record = UndoRecord::Insert { tree: TreeId(16), root: PageId(9), key: &[7; 700] };
    let mut count = 0;
    let error = loop {
        let undo_log = &mut undo_logs[count % 2];
        if let Err(error) = store.ensure_room(undo_log, record.room_max(), Purpose::Grow) {
            break error;
        }
        in_mtr(&space, |mtr| store.append(undo_log, mtr, &record));
        count += 1;
        assert!(count < 20_000, "the disk is full some time");
    };
    assert!(matches!(error, crate::Error::NoSpace { .. }), "{error}");
    // Not even the reserve for rollback is free.
    let all = space.reserve(TreeId(16), PageId(0), space.free_pages() as usize, Purpose::Undo);
    let all = all.expect("it is free");
    let [mut first, mut second] = undo_logs;
    while store.last_record(&mut first).expect("readable").is_some() {
        in_mtr(&space, |mtr| store.cut(&mut first, mtr));
    }
    in_mtr(&space, |mtr| store.finish_rollback(&mut first, mtr));
    in_mtr(&space, |mtr| store.commit(&mut second, mtr));
    store.release(first).expect("it has ended");
    store.release(second).expect("it has ended");
    drop(all);
    assert_sound(&store, &space);
}

#[test]
fn undo_logs_go_on_to_further_directory_pages_and_come_back_last_first() {
    let machine = Machine::new(4, 64, redo_all);
    let running = machine.create();
    let space = Arc::new(Space::create(running.pool.clone(), 1).expect("room"));
    let store = UndoStore::create(space.clone()).expect("room");
    let per_page = directory::slots(4096);
    let undo_logs: Vec<_> = (0..per_page + 3).map(|_| store.acquire().expect("an undo log")).collect();
    assert_eq!(store.directory_pages().len(), 2);
    undo_logs.into_iter().for_each(|undo_log| store.release(undo_log).expect("it is idle"));
    assert_eq!(store.acquire().expect("an undo log").number(), per_page + 2);
    running.flush_log();
    running.process.crash_by(SimDisk::power_cut);
    let running = machine.recover().expect("it is recovered");
    let space = Arc::new(Space::open(running.pool.clone()).expect("it opens"));
    let (store, open, txn_max) = UndoStore::open(space.clone()).expect("it opens");
    assert_eq!((open.len(), txn_max, store.undo_logs()), (0, TxnId::NONE, per_page + 3));
    assert_eq!(store.acquire().expect("an undo log").number(), 0);
    assert_sound(&store, &space);
}

#[test]
fn misuse_is_an_error_that_changes_nothing() {
    let machine = Machine::new(4, 64, redo_all);
    let running = machine.create();
    let space = Arc::new(Space::create(running.pool.clone(), 1).expect("room"));
    let store = UndoStore::create(space.clone()).expect("room");
    let mut undo_log = store.acquire().expect("an undo log");
    let mut mtr = Mtr::begin(space.pool(), MtrSize::Small).expect("room");
    let record = UndoRecord::CreateTree { tree: TreeId(16), root: PageId(9) };
    assert!(store.append(&mut undo_log, &mut mtr, &record).is_err(), "no transaction");
    store.begin(&mut undo_log, TxnId(1)).expect("it is idle");
    assert!(store.begin(&mut undo_log, TxnId(2)).is_err(), "it has one");
    assert!(store.append(&mut undo_log, &mut mtr, &UndoRecord::Commit { txn: TxnId(1) }).is_err());
    assert!(store.cut(&mut undo_log, &mut mtr).is_err(), "nothing to cut");
    assert!(store.prepare(&mut undo_log, &mut mtr, &[0; 1000]).is_err(), "a long XID");
    assert!(store.ensure_room(&mut undo_log, 4000, Purpose::Grow).is_err(), "more than a page");
    assert!(matches!(store.read(UndoPtr::new(PageId(1), 200), |_| ()), Err(Stop::Fail(_))), "no undo page");
    drop(mtr);
    in_mtr(&space, |mtr| store.append(&mut undo_log, mtr, &record));
    in_mtr(&space, |mtr| {
        assert!(store.finish_rollback(&mut undo_log, mtr).is_err(), "records are left");
        Ok(())
    });
    assert!(store.head(7).is_err(), "no such undo log");
    assert_eq!(store.head(undo_log.number()).expect("readable"), None);
    assert!(store.release(undo_log).is_err(), "it has not ended");
    assert!(space.pool().health().check().is_ok());
    assert_sound(&store, &space);
}

#[test]
fn writers_and_purge_meet_in_pages_only() {
    let machine = Machine::new(8, 96, redo_all);
    let running = machine.create();
    let space = Arc::new(Space::create(running.pool.clone(), 1).expect("room"));
    let store = UndoStore::create(space.clone()).expect("room");
    let writers = 3;
    let (committed, purged) = std::thread::scope(|scope| {
        let (store, space) = (&store, &space);
        let workers: Vec<_> = (0..writers)
            .map(|worker| {
                scope.spawn(move || {
                    let (mut dice, mut committed) = (Dice::seed_from_u64(worker), 0);
                    for i in 0..30 {
                        let mut undo_log = store.acquire().expect("an undo log");
                        store.begin(&mut undo_log, TxnId(1 + worker + writers * i)).expect("it is idle");
                        let key = vec![worker as u8; dice.random_range(0..800)];
                        for _ in 0..dice.random_range(0..10) {
                            let record = UndoRecord::Insert { tree: TreeId(16), root: PageId(9), key: &key };
                            store.ensure_room(&mut undo_log, record.room_max(), Purpose::Grow).expect("room");
                            let ptr = in_mtr(space, |mtr| store.append(&mut undo_log, mtr, &record));
                            assert!(store.read_now(ptr, |found| found == record).expect("it is there"));
                        }
                        if dice.random_bool(0.6) {
                            committed += u64::from(undo_log.has_begun());
                            in_mtr(space, |mtr| store.commit(&mut undo_log, mtr));
                        } else {
                            while store.last_record(&mut undo_log).expect("readable").is_some() {
                                in_mtr(space, |mtr| store.cut(&mut undo_log, mtr));
                            }
                            in_mtr(space, |mtr| store.finish_rollback(&mut undo_log, mtr));
                        }
                        store.release(undo_log).expect("it has ended");
                    }
                    committed
                })
            })
            .collect();
        let mut purged = 0;
        loop {
            let last_round = workers.iter().all(std::thread::ScopedJoinHandle::is_finished);
            for undo_log in 0..store.undo_logs() {
                for unpurged in store.heads(undo_log, 5, |_| true).expect("readable") {
                    in_mtr(space, |mtr| store.advance(mtr, std::slice::from_ref(&unpurged)));
                    purged += u64::from(matches!(unpurged.record.get(), UndoRecord::Commit { .. }));
                }
            }
            if last_round && store.history_length() == 0 {
                break;
            }
        }
        (workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<u64>(), purged)
    });
    assert_eq!(purged, committed);
    assert_sound(&store, &space);
}
