//! What a kept cursor allocates: nothing, once it is warm.
//!
//! 1. Neither a reset and a seek, nor a step within what was copied of a leaf, nor a change of another tree beside them. The control: a step after a
//!    change of its own tree, which seeks again, allocates.
//! 2. Nor does a transaction object that is restarted and reads, but for the snapshot of repeatable read.
#![allow(unsafe_code)]

use seawall::{CursorOptions, Database, Isolation, OwnedCursor, Seek, Transaction, Tree, TxOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

struct Counting;

// SAFETY: forwards to the system's allocator; what it adds touches a number of the thread's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
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
        // A snapshot that is kept is one.
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
