//! The Hermitage tests (Kleppmann, github.com/ept/hermitage) and the engine's promise for each.
//!
//! `-`: prevented. `yes`: can happen. RC: read committed; RR latest: repeatable read whose writes act on the latest
//! version, as InnoDB's; RR fail: repeatable read that fails on a conflict, which is snapshot isolation; S:
//! serializable.
//!
//! | anomaly | | RC | RR latest | RR fail | S |
//! |---|---|---|---|---|---|
//! | G0 | dirty write | - | - | - | - |
//! | G1a | aborted read | - | - | - | - |
//! | G1b | intermediate read | - | - | - | - |
//! | G1c | circular information flow | - | - | - | - |
//! | OTV | observed transaction vanishes | - | - | - | - |
//! | PMP | predicate-many-preceders, read | yes | - | - | - |
//! | PMP-write | the same for a write's predicate | yes | yes | - | - |
//! | P4 | lost update | yes | yes | - | - |
//! | G-single | read skew | yes | - | - | - |
//! | G-single-predicate | read skew over predicates | yes | - | - | - |
//! | G-single-write | a write's predicate meets what the reads did not see | yes | yes | - | - |
//! | G-single-write-2 | the same while the other is not committed | yes | yes | - | - |
//! | G2-item | write skew | yes | yes | yes | - |
//! | G2 | anti-dependency cycle over predicates | yes | yes | yes | - |
//! | G2-two-edges | a reader sees the skew (Fekete, O'Neil, O'Neil) | yes | yes | yes | - |
//!
//! Where MySQL's InnoDB has an entry in Hermitage, the first two and the last column are the same as InnoDB's.
//!
//! Each script runs once per level, with one thread per transaction. A step without an answer for a while is
//! taken to wait for a lock; the script continues with the next one, and later steps of that transaction wait
//! behind it. A step that fails ends its transaction.

use seawall::{CursorOptions, Database, Error, Isolation, LockMode, OnConflict, Seek, Transaction, Tree, TxOptions};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// After this time without an answer a step is taken to wait for a lock. Long enough for a busy machine: it
/// decides the interleaving, not the verdict.
const BLOCKED_AFTER: Duration = Duration::from_millis(150);

const LEVELS: [&str; 4] = ["RC", "RR latest", "RR fail", "S"];

fn options(level: &str) -> TxOptions {
    let (isolation, on_conflict) = match level {
        "RC" => (Isolation::ReadCommitted, OnConflict::Latest),
        "RR latest" => (Isolation::RepeatableRead, OnConflict::Latest),
        "RR fail" => (Isolation::RepeatableRead, OnConflict::Fail),
        _ => (Isolation::Serializable, OnConflict::Latest),
    };
    TxOptions { isolation, on_conflict, ..TxOptions::default() }
}

/// The next step of a transaction.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// Reads a row.
    Get(u8),
    Put(u8, i64),
    Insert(u8, i64),
    /// Reads all rows whose value is a multiple.
    Multiples(i64),
    /// Deletes all rows with this value, as `DELETE ... WHERE value = x` would: the scan locks.
    DeleteWhere(i64),
    /// Adds to all rows, as `UPDATE ... SET value = value + x`.
    AddToAll(i64),
    Commit,
    Rollback,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Saw {
    /// Key and value of each row read.
    Rows(Vec<(u8, i64)>),
    Done,
    /// The step failed, and the transaction was rolled back.
    Failed(String),
    /// The transaction had ended already.
    Skipped,
}

/// Steps of all transactions in the order of the requests: transaction, step, whether it had to wait, and its
/// result.
struct Outcome {
    steps: Vec<(usize, Do, bool, Saw)>,
    last: BTreeMap<u8, i64>,
}

impl Outcome {
    /// The result of a transaction's `n`th read; nothing if it did not happen.
    fn read(&self, tx: usize, n: usize) -> Option<&[(u8, i64)]> {
        let reads =
            self.steps.iter().filter(|(of, what, ..)| *of == tx && matches!(what, Do::Get(_) | Do::Multiples(_)));
        reads.map(|(.., saw)| saw).nth(n).and_then(|saw| if let Saw::Rows(rows) = saw { Some(&rows[..]) } else { None })
    }
    fn value(&self, tx: usize, n: usize) -> Option<i64> {
        self.read(tx, n).and_then(|rows| rows.first()).map(|(_, value)| *value)
    }
    fn committed(&self, tx: usize) -> bool {
        self.steps.iter().any(|(of, what, _, saw)| *of == tx && matches!(what, Do::Commit) && *saw == Saw::Done)
    }
    fn waited(&self, at: usize) -> bool {
        self.steps[at].2
    }
    fn failed(&self, tx: usize) -> Option<&str> {
        self.steps.iter().find_map(|(of, _, _, saw)| match saw {
            Saw::Failed(why) if *of == tx => Some(&why[..]),
            _ => None,
        })
    }
    fn show(&self) -> String {
        let lines = self.steps.iter().map(|(tx, what, waited, saw)| {
            format!("  T{tx} {what:?}{} -> {saw:?}", if *waited { " waits" } else { "" })
        });
        format!("{}\n  in the end {:?}", lines.collect::<Vec<_>>().join("\n"), self.last)
    }
}

fn rows(tx: &Transaction, tree: &Tree) -> seawall::Result<Vec<(u8, i64)>> {
    tx.iter(tree).map(|row| row.map(|(key, value)| (key[0], number(&value)))).collect()
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// Returns the key and latest value of every row, locked.
fn each_locked(tx: &Transaction, tree: &Tree) -> seawall::Result<Vec<(u8, i64)>> {
    let mut found = Vec::new();
    let mut cursor = tx.cursor(tree, CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() });
    let mut there = cursor.seek(Seek::First)?;
    while there {
        let key = cursor.key()[0];
        found.push((key, number(cursor.value()?)));
        there = cursor.next()?;
    }
    Ok(found)
}

fn run_step(tx: &mut Transaction, tree: &Tree, what: Do) -> seawall::Result<Saw> {
    match what {
        Do::Get(key) => {
            let value = tx.get(tree, &[key])?;
            return Ok(Saw::Rows(value.iter().map(|value| (key, number(value))).collect()));
        }
        Do::Multiples(of) => {
            let all = rows(tx, tree)?.into_iter();
            return Ok(Saw::Rows(all.filter(|(_, value)| value % of == 0).collect()));
        }
        Do::Put(key, value) => tx.put(tree, &[key], &value.to_le_bytes())?,
        Do::Insert(key, value) => tx.insert(tree, &[key], &value.to_le_bytes())?,
        Do::DeleteWhere(wanted) => {
            for (key, value) in each_locked(tx, tree)? {
                if value == wanted {
                    tx.delete(tree, &[key])?;
                }
            }
        }
        Do::AddToAll(add) => {
            for (key, value) in each_locked(tx, tree)? {
                tx.put(tree, &[key], &(value + add).to_le_bytes())?;
            }
        }
        Do::Commit | Do::Rollback => unreachable!("they consume the transaction"),
    }
    Ok(Saw::Done)
}

/// One transaction on a thread of its own.
struct Session {
    steps: Sender<Do>,
    answers: Receiver<Saw>,
    /// Steps without an answer.
    asked: Vec<usize>,
    thread: JoinHandle<()>,
}

impl Session {
    fn new(db: &Database, tree: &Tree, options: TxOptions) -> Self {
        let (steps, todo) = channel::<Do>();
        let (told, answers) = channel();
        let (db, tree) = (db.clone(), tree.clone());
        let thread = std::thread::spawn(move || {
            // It begins with its first step, as in SQL.
            let mut tx: Option<Option<Transaction>> = None;
            for what in todo {
                let slot = tx.get_or_insert_with(|| Some(db.begin_with(options).expect("it begins")));
                let saw = match (slot.take(), what) {
                    (None, _) => Saw::Skipped,
                    (Some(tx), Do::Commit) => ended(tx.commit()),
                    (Some(tx), Do::Rollback) => ended(tx.rollback()),
                    (Some(mut tx), what) => match run_step(&mut tx, &tree, what) {
                        Ok(saw) => {
                            *slot = Some(tx);
                            saw
                        }
                        Err(error) => {
                            tx.rollback().expect("it rolls back");
                            assert!(
                                matches!(error, Error::Deadlock { .. } | Error::WriteConflict { .. }),
                                "{what:?}: {error}"
                            );
                            Saw::Failed(error.to_string())
                        }
                    },
                };
                if told.send(saw).is_err() {
                    return;
                }
            }
        });
        Self { steps, answers, asked: Vec::new(), thread }
    }

    /// Stores the answers received; waits a while for all of them.
    fn collect(&mut self, into: &mut [(usize, Do, bool, Saw)], patience: Duration) {
        while let Some(&first) = self.asked.first() {
            match self.answers.recv_timeout(patience) {
                Ok(saw) => {
                    into[first].3 = saw;
                    self.asked.remove(0);
                }
                Err(_) => {
                    into[first].2 = true;
                    return;
                }
            }
        }
    }
}

fn ended(answer: seawall::Result<()>) -> Saw {
    match answer {
        Ok(()) => Saw::Done,
        Err(error) => Saw::Failed(error.to_string()),
    }
}

/// Runs a script on rows 1 = 10 and 2 = 20.
fn run(level: &str, script: &[(usize, Do)]) -> Outcome {
    let db = Database::in_memory().expect("memory");
    let tree = db.create_tree("test").expect("a tree");
    db.transact(|tx| {
        tx.put(&tree, &[1], &10i64.to_le_bytes())?;
        tx.put(&tree, &[2], &20i64.to_le_bytes())
    })
    .expect("two rows");
    let count = script.iter().map(|(tx, _)| tx + 1).max().unwrap_or(0);
    let mut sessions: Vec<Session> = (0..count).map(|_| Session::new(&db, &tree, options(level))).collect();
    let mut steps = Vec::new();
    for (tx, what) in script {
        let waiting = !sessions[*tx].asked.is_empty();
        steps.push((*tx, *what, waiting, Saw::Skipped));
        sessions[*tx].steps.send(*what).expect("its thread runs");
        sessions[*tx].asked.push(steps.len() - 1);
        for session in &mut sessions {
            let own = session.asked.last() == Some(&(steps.len() - 1));
            let patience = if own && !waiting { BLOCKED_AFTER } else { Duration::from_millis(5) };
            session.collect(&mut steps, patience);
        }
        // Transactions released by this step get time to run as far as they can.
        for session in sessions.iter_mut().filter(|session| !session.asked.is_empty()) {
            session.collect(&mut steps, BLOCKED_AFTER);
        }
    }
    for mut session in sessions {
        session.collect(&mut steps, Duration::from_secs(60));
        assert!(session.asked.is_empty(), "steps {:?} never answer:\n{steps:?}", session.asked);
        drop(session.steps);
        session.thread.join().expect("no panic");
    }
    let last = rows(&db.begin().expect("it begins"), &tree).expect("all rows").into_iter().collect();
    Outcome { steps, last }
}

/// Runs the script at each level and compares with a row of the table.
fn table(script: &[(usize, Do)], expected: [bool; 4], anomaly: impl Fn(&Outcome) -> bool) -> Vec<Outcome> {
    let outcomes: Vec<Outcome> = LEVELS.iter().map(|level| run(level, script)).collect();
    for ((level, expected), outcome) in LEVELS.iter().zip(expected).zip(&outcomes) {
        assert_eq!(anomaly(outcome), expected, "{level}:\n{}", outcome.show());
    }
    outcomes
}

fn last(outcome: &Outcome, rows: &[(u8, i64)]) -> bool {
    outcome.last == rows.iter().copied().collect()
}

const NO: bool = false;
const YES: bool = true;
use Do::{AddToAll, Commit, DeleteWhere, Get, Insert, Multiples, Put, Rollback};

#[test]
fn g0_dirty_write() {
    let script = [(0, Put(1, 11)), (1, Put(1, 12)), (0, Put(2, 21)), (0, Commit), (1, Put(2, 22)), (1, Commit)];
    let mixed = |outcome: &Outcome| !last(outcome, &[(1, 11), (2, 21)]) && !last(outcome, &[(1, 12), (2, 22)]);
    let outcomes = table(&script, [NO; 4], mixed);
    for outcome in &outcomes {
        assert!(outcome.waited(1), "T1 waits for T0:\n{}", outcome.show());
        assert!(outcome.committed(0));
    }
    assert!(outcomes.iter().all(|outcome| outcome.committed(1)), "T1 has read nothing that it could conflict with");
}

/// The same when T1 has a snapshot from before T0's commit.
#[test]
fn g0_dirty_write_after_a_read() {
    let script =
        [(1, Get(2)), (0, Put(1, 11)), (1, Put(1, 12)), (0, Put(2, 21)), (0, Commit), (1, Put(2, 22)), (1, Commit)];
    let mixed = |outcome: &Outcome| !last(outcome, &[(1, 11), (2, 21)]) && !last(outcome, &[(1, 12), (2, 22)]);
    let outcomes = table(&script, [NO; 4], mixed);
    assert!(outcomes[0].committed(1) && outcomes[1].committed(1));
    assert!(outcomes[2].failed(1).is_some_and(|why| why.contains("write conflict")), "{}", outcomes[2].show());
}

#[test]
fn g1a_aborted_read() {
    let script = [(0, Put(1, 101)), (1, Get(1)), (0, Rollback), (1, Get(1)), (1, Commit)];
    let outcomes = table(&script, [NO; 4], |outcome| (0..2).any(|n| outcome.value(1, n) != Some(10)));
    assert!(outcomes[..3].iter().all(|outcome| !outcome.waited(1)), "snapshot reads never wait");
    assert!(outcomes[3].waited(1), "a serializable read waits for the writer:\n{}", outcomes[3].show());
}

#[test]
fn g1b_intermediate_read() {
    let script = [(0, Put(1, 101)), (1, Get(1)), (0, Put(1, 11)), (0, Commit), (1, Get(1)), (1, Commit)];
    let outcomes = table(&script, [NO; 4], |outcome| (0..2).any(|n| outcome.value(1, n) == Some(101)));
    let seen = |level: usize| [outcomes[level].value(1, 0), outcomes[level].value(1, 1)];
    assert_eq!(seen(0), [Some(10), Some(11)]);
    assert_eq!(seen(1), [Some(10), Some(10)]);
    assert_eq!(seen(2), [Some(10), Some(10)]);
    assert_eq!(seen(3), [Some(11), Some(11)]);
}

#[test]
fn g1c_circular_information_flow() {
    let script = [(0, Put(1, 11)), (1, Put(2, 22)), (0, Get(2)), (1, Get(1)), (0, Commit), (1, Commit)];
    let circle = |outcome: &Outcome| outcome.value(0, 0) == Some(22) && outcome.value(1, 0) == Some(11);
    let outcomes = table(&script, [NO; 4], circle);
    for outcome in &outcomes[..3] {
        assert_eq!((outcome.value(0, 0), outcome.value(1, 0)), (Some(20), Some(10)));
        assert!(outcome.committed(0) && outcome.committed(1));
    }
    let one = outcomes[3].committed(0) != outcomes[3].committed(1);
    assert!(one, "a deadlock has one victim:\n{}", outcomes[3].show());
}

#[test]
fn otv_observed_transaction_vanishes() {
    let script = [
        (0, Put(1, 11)),
        (0, Put(2, 19)),
        (1, Put(1, 12)),
        (0, Commit),
        (2, Get(1)),
        (1, Put(2, 18)),
        (2, Get(2)),
        (1, Commit),
        (2, Get(2)),
        (2, Get(1)),
        (2, Commit),
    ];
    let vanishes = |outcome: &Outcome| {
        let seen: Vec<i64> = (0..4).filter_map(|n| outcome.value(2, n)).collect();
        // Once a change of T1 was seen, no older value may be seen.
        let newer = |at: usize| matches!(seen.get(at), Some(12 | 18));
        (0..seen.len()).any(|at| newer(at) && seen[at..].iter().any(|value| matches!(value, 11 | 19)))
    };
    let outcomes = table(&script, [NO; 4], vanishes);
    let seen = |level: usize| (0..4).map(|n| outcomes[level].value(2, n).unwrap()).collect::<Vec<_>>();
    assert_eq!(seen(0), [11, 19, 18, 12]);
    assert_eq!(seen(1), [11, 19, 19, 11]);
    assert!(outcomes[3].read(2, 0).is_none_or(|_| seen(3) == [12, 18, 18, 12]), "{}", outcomes[3].show());
}

#[test]
fn pmp_predicate_many_preceders() {
    let script = [(0, Multiples(30)), (1, Insert(3, 30)), (1, Commit), (0, Multiples(3)), (0, Commit)];
    let outcomes = table(&script, [YES, NO, NO, NO], |outcome| outcome.read(0, 1) == Some(&[(3, 30)]));
    assert!(outcomes[3].waited(1), "the insert waits for the range that was read:\n{}", outcomes[3].show());
    assert!(outcomes.iter().all(|outcome| outcome.committed(0) && outcome.committed(1)));
}

#[test]
fn pmp_write_predicate() {
    // T1 reads 2 = 20 and deletes where the value is 20, which by then is 1.
    let script =
        [(0, AddToAll(10)), (1, Multiples(20)), (1, DeleteWhere(20)), (0, Commit), (1, Multiples(20)), (1, Commit)];
    let other_row = |outcome: &Outcome| {
        outcome.committed(1) && outcome.read(1, 0) == Some(&[(2, 20)]) && !outcome.last.contains_key(&1)
    };
    let outcomes = table(&script, [YES, YES, NO, NO], other_row);
    assert!(outcomes[0].waited(2) && outcomes[1].waited(2) && outcomes[2].waited(2));
    assert!(outcomes[2].failed(1).is_some_and(|why| why.contains("write conflict")), "{}", outcomes[2].show());
}

#[test]
fn p4_lost_update() {
    let script = [(0, Get(1)), (1, Get(1)), (0, Put(1, 11)), (1, Put(1, 11)), (0, Commit), (1, Commit)];
    let lost = |outcome: &Outcome| outcome.committed(0) && outcome.committed(1);
    let outcomes = table(&script, [YES, YES, NO, NO], lost);
    assert!(outcomes[2].failed(1).is_some_and(|why| why.contains("write conflict")), "{}", outcomes[2].show());
    let deadlock = [0, 1].iter().filter_map(|tx| outcomes[3].failed(*tx)).any(|why| why.contains("deadlock"));
    assert!(deadlock, "{}", outcomes[3].show());
}

#[test]
fn g_single_read_skew() {
    let script = [
        (0, Get(1)),
        (1, Get(1)),
        (1, Get(2)),
        (1, Put(1, 12)),
        (1, Put(2, 18)),
        (1, Commit),
        (0, Get(2)),
        (0, Commit),
    ];
    let skew = |outcome: &Outcome| outcome.value(0, 0) == Some(10) && outcome.value(0, 1) == Some(18);
    let outcomes = table(&script, [YES, NO, NO, NO], skew);
    assert!(outcomes.iter().all(|outcome| outcome.committed(1)), "readers stop no writer for good");
}

#[test]
fn g_single_predicate() {
    let script = [(0, Multiples(5)), (1, Put(1, 12)), (1, Commit), (0, Multiples(3)), (0, Commit)];
    let skew =
        |outcome: &Outcome| outcome.read(0, 0) == Some(&[(1, 10), (2, 20)]) && outcome.read(0, 1) == Some(&[(1, 12)]);
    table(&script, [YES, NO, NO, NO], skew);
}

#[test]
fn g_single_write_predicate() {
    // T0 has seen row 1 before T1; its delete looks for the 20 that T1 has changed.
    let script = [
        (0, Get(1)),
        (1, Multiples(1)),
        (1, Put(1, 12)),
        (1, Put(2, 18)),
        (1, Commit),
        (0, DeleteWhere(20)),
        (0, Commit),
    ];
    // Both commit, and the delete found nothing although T0's own snapshot has 2 = 20.
    let skew = |outcome: &Outcome| {
        outcome.committed(0) && outcome.value(0, 0) == Some(10) && last(outcome, &[(1, 12), (2, 18)])
    };
    let outcomes = table(&script, [YES, YES, NO, NO], skew);
    assert!(outcomes[2].failed(0).is_some_and(|why| why.contains("write conflict")), "{}", outcomes[2].show());
}

#[test]
fn g_single_write_predicate_interleaved() {
    let script = [
        (0, Get(1)),
        (1, Multiples(1)),
        (1, Put(1, 12)),
        (0, DeleteWhere(20)),
        (1, Put(2, 18)),
        (1, Commit),
        (0, Commit),
    ];
    let skew = |outcome: &Outcome| outcome.committed(0) && outcome.committed(1) && last(outcome, &[(1, 12), (2, 18)]);
    let outcomes = table(&script, [YES, YES, NO, NO], skew);
    assert!(outcomes[0].waited(3) && outcomes[1].waited(3) && outcomes[2].waited(3));
}

#[test]
fn g2_item_write_skew() {
    let script = [
        (0, Get(1)),
        (0, Get(2)),
        (1, Get(1)),
        (1, Get(2)),
        (0, Put(1, 11)),
        (1, Put(2, 21)),
        (0, Commit),
        (1, Commit),
    ];
    let skew = |outcome: &Outcome| outcome.committed(0) && outcome.committed(1);
    let outcomes = table(&script, [YES, YES, YES, NO], skew);
    assert!(outcomes[3].committed(0) || outcomes[3].committed(1), "one gives way:\n{}", outcomes[3].show());
}

#[test]
fn g2_anti_dependency_over_predicates() {
    let script =
        [(0, Multiples(3)), (1, Multiples(3)), (0, Insert(3, 30)), (1, Insert(4, 42)), (0, Commit), (1, Commit)];
    let skew = |outcome: &Outcome| outcome.committed(0) && outcome.committed(1);
    let outcomes = table(&script, [YES, YES, YES, NO], skew);
    assert!(outcomes[3].committed(0) || outcomes[3].committed(1), "one gives way:\n{}", outcomes[3].show());
}

#[test]
fn g2_two_edges() {
    let script = [
        (0, Multiples(1)),
        (1, Get(2)),
        (1, Put(2, 25)),
        (1, Commit),
        (2, Multiples(1)),
        (2, Commit),
        (0, Put(1, 0)),
        (0, Commit),
    ];
    // T2 saw T1's write and not T0's, and T0 did not see T1's.
    let skew = |outcome: &Outcome| {
        (0..3).all(|tx| outcome.committed(tx))
            && outcome.read(0, 0) == Some(&[(1, 10), (2, 20)])
            && outcome.read(2, 0) == Some(&[(1, 10), (2, 25)])
    };
    table(&script, [YES, YES, YES, NO], skew);
}

#[test]
fn a_statement_of_read_committed_has_one_snapshot() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("test").unwrap();
    let mut reader = db.begin_with(options("RC")).unwrap();
    let put = |value: &[u8]| db.transact(|tx| tx.put(&tree, b"k", value)).unwrap();
    put(b"1");
    reader.begin_statement();
    assert_eq!(reader.get(&tree, b"k").unwrap().unwrap(), b"1");
    put(b"2");
    assert_eq!(reader.get(&tree, b"k").unwrap().unwrap(), b"1");
    reader.begin_statement();
    assert_eq!(reader.get(&tree, b"k").unwrap().unwrap(), b"2");
    reader.end_statement();
    put(b"3");
    assert_eq!(reader.get(&tree, b"k").unwrap().unwrap(), b"3");
}
