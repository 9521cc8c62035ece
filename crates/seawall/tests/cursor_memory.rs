//! The allocations of a reused cursor: none, once it is warm.
//!
//! 1. A reset and a seek allocate nothing, nor does a step within the entries copied from a leaf, even after a change
//!    of another tree. The control: a step after a change of its own tree, which seeks again, allocates.
//! 2. A scan that locks allocates when it reaches a leaf, and for entries of the lock table, but not for each
//!    row.
//! 3. A transaction object that is restarted and reads allocates only for the snapshot of repeatable read.
//!
//! A further test is about the memory of an index build: it holds a few long rows at a time.
#![allow(unsafe_code)]

use seawall::{
    CursorOptions, Database, Error, IndexEntries, IndexOptions, Isolation, LockMode, LockWait, OwnedCursor, Seek,
    Transaction, Tree, TxOptions,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });
thread_local!(static BYTES: Cell<(isize, isize)> = const { Cell::new((0, 0)) });

/// Counts bytes that the thread has allocated, and the most that it had.
fn count(bytes: isize) {
    let (now, most) = BYTES.get();
    BYTES.set((now + bytes, most.max(now + bytes)));
}

struct Counting;

// SAFETY: forwards to the system's allocator; the additions touch only thread-local numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        count(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: u32 = 20_000;

fn rows(db: &Database, name: &str) -> Tree {
    let tree = db.create_tree(name).unwrap();
    let rows: Vec<_> = (0..ROWS).map(|n| (n.to_be_bytes(), [n as u8; 60])).collect();
    db.transact(|tx| tx.put_many(&tree, &rows)).unwrap();
    tree
}

/// Allocations of the second of two runs.
fn counted(mut run: impl FnMut()) -> u64 {
    run();
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

fn probe(cursor: &mut OwnedCursor, tx: &Transaction, tree: &Tree, n: u32) {
    let (low, high) = (n.to_be_bytes(), (n + 1000).to_be_bytes());
    if n % 2 == 0 {
        cursor.reset(tree, CursorOptions::default(), low..high);
    } else {
        cursor.reset(tree, CursorOptions::default(), ..);
    }
    assert!(cursor.seek(tx, Seek::AtLeast(&low)).unwrap());
    assert_eq!(cursor.entry(tx).unwrap(), (&low[..], &[n as u8; 60][..]));
}

#[test]
fn a_reset_and_a_seek_allocate_nothing() {
    let db = Database::in_memory().unwrap();
    let trees = [rows(&db, "a"), rows(&db, "b")];
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let mut tx = db.begin_with(TxOptions { isolation, ..TxOptions::default() }).unwrap();
        let mut cursor = OwnedCursor::new();
        let probes = counted(|| (0..5000).for_each(|n| probe(&mut cursor, &tx, &trees[n as usize / 3 % 2], n * 3)));
        assert_eq!(probes, 0, "{isolation:?}");
        let restarts = counted(|| {
            for n in 0..100 {
                probe(&mut cursor, &tx, &trees[0], n);
                tx.commit_in_place().unwrap();
                probe(&mut cursor, &tx, &trees[0], n);
                tx.restart(tx.options()).unwrap();
            }
        });
        // A kept snapshot is one allocation.
        assert_eq!(restarts, if isolation == Isolation::RepeatableRead { 200 } else { 0 }, "{isolation:?}");
    }
}

#[test]
fn only_changes_of_its_own_tree_make_a_cursor_seek_again() {
    let db = Database::in_memory().unwrap();
    let (tree, other) = (rows(&db, "a"), rows(&db, "b"));
    let mut tx = db.begin().unwrap();
    let mut cursor = OwnedCursor::new();
    cursor.reset(&tree, CursorOptions { limit: Some(60), ..CursorOptions::default() }, ..);
    assert!(cursor.seek(&tx, Seek::AtLeast(&5000u32.to_be_bytes())).unwrap());
    let mut steps = |changed: &Tree| {
        let mut allocations = 0;
        for n in 0..10u32 {
            tx.put(changed, &n.to_be_bytes(), b"changed").unwrap();
            let before = ALLOCATIONS.get();
            assert!(cursor.next(&tx).unwrap());
            allocations += ALLOCATIONS.get() - before;
        }
        allocations
    };
    assert_eq!(steps(&other), 0);
    assert!(steps(&tree) >= 10, "the control: it sees a cursor that seeks");
}

/// Allocations of a scan that locks rows from `first` on, in one direction.
fn locked(tx: &Transaction, tree: &Tree, first: u32, rows: u32, forward: bool) -> u64 {
    let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
    let mut cursor = tx.cursor(tree, options);
    let key = first.to_be_bytes();
    let before = ALLOCATIONS.get();
    let mut there = cursor.seek(if forward { Seek::AtLeast(&key) } else { Seek::AtMost(&key) }).unwrap();
    for at in 0..rows {
        let n = if forward { first + at } else { first - at };
        assert!(there && cursor.key() == n.to_be_bytes() && cursor.value().unwrap() == [n as u8; 60]);
        there = if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
    ALLOCATIONS.get() - before
}

#[test]
fn a_locking_scan_allocates_for_leaves_and_not_for_rows() {
    let db = Database::in_memory().unwrap();
    let tree = rows(&db, "a");
    for (isolation, forward) in
        [(Isolation::RepeatableRead, true), (Isolation::RepeatableRead, false), (Isolation::ReadCommitted, true)]
    {
        let tx = db.begin_with(TxOptions { isolation, ..TxOptions::default() }).unwrap();
        // The lock on a point is an entry of the growing lock table.
        let allocations = locked(&tx, &tree, 10_000, 4_000, forward);
        assert!(allocations < 4_000 / 4, "{isolation:?}, forward {forward}: {allocations} for 4000 rows");
        // Locked rows stay locked: no insert between them, no change of them.
        let mut other = db.begin_with(TxOptions { wait: LockWait::NoWait, ..TxOptions::default() }).unwrap();
        let (inside, outside) = if forward { (12_000u32, 9_000u32) } else { (8_000, 11_000) };
        assert!(matches!(other.put(&tree, &inside.to_be_bytes(), b"x"), Err(Error::LockTimeout { .. })));
        let between = [&inside.to_be_bytes()[..], b"x"].concat();
        let inserted = other.put(&tree, &between, b"x");
        assert_eq!(inserted.is_ok(), isolation == Isolation::ReadCommitted, "{inserted:?}");
        other.put(&tree, &outside.to_be_bytes(), &[outside as u8; 60]).unwrap();
    }
}

/// The rows are read when the index is built, and again, because all of them change meanwhile.
#[test]
fn an_index_build_has_few_long_rows_at_a_time() {
    const LONG: usize = 300_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let tree = db.create_tree("rows").unwrap();
    let put = |fill: u8| {
        // Short rows come first.
        let value = |key: u8| vec![fill; if key < 40 { 10 } else { LONG }];
        db.transact(|tx| (0..100u8).try_for_each(|key| tx.put(&tree, &[key], &value(key)))).unwrap();
    };
    put(1);
    let mut changed = false;
    let start = BYTES.get().0;
    BYTES.set((start, start));
    let by_fill = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
        if !std::mem::replace(&mut changed, true) {
            put(2);
        }
        index.push([&value[..1], key].concat(), b"");
    };
    let index = db.build_index(&tree, "by fill", IndexOptions::default(), by_fill, |_| Ok(())).unwrap();
    let most = BYTES.get().1 - start;
    assert!(most < 20 * LONG as isize, "{most} bytes");
    let keys: Vec<Vec<u8>> = db.begin().unwrap().iter(&index).map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, (0..100u8).map(|key| vec![2, key]).collect::<Vec<_>>());
}
