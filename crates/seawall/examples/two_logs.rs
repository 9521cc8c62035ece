//! A program with a log of its own, as a database server has its binlog: a transaction is committed if and
//! only if that log contains it.
//!
//!     cargo run --release -p seawall --example two_logs
//!
//! 1. Threads change rows and prepare their transactions in place. One of them, the leader, takes all
//!    prepared transactions: it appends their ids to the outside log, flushes that once, and commits them in
//!    that log's order.
//! 2. The commits do not flush the engine's log. After a crash such a transaction is "prepared" again; the
//!    outside log then decides it.
//! 3. Recovery commits every prepared transaction in the outside log and rolls back every other one, before
//!    the database is used.

use parking_lot::{Condvar, Mutex};
use seawall::{Database, Durability, Transaction, Tree, Xid};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const THREADS: u64 = 8;
const TRANSACTIONS: u64 = 200;

/// The outside log: ids of transactions, eight bytes each, and eight that show that they are complete.
struct Outside(File);

fn record(id: u64) -> [u8; 16] {
    let mut record = [0; 16];
    record[..8].copy_from_slice(&id.to_le_bytes());
    record[8..].copy_from_slice(&id.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1).to_le_bytes());
    record
}

impl Outside {
    /// Opens it and reads the ids in it; cuts off what a crash left incomplete.
    fn open(path: &Path) -> std::io::Result<(Self, HashSet<u64>)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let ids = bytes.chunks(16).map_while(|found| {
            let id = u64::from_le_bytes(found.get(..8)?.try_into().ok()?);
            (found == record(id)).then_some(id)
        });
        let ids: Vec<u64> = ids.collect();
        file.set_len(ids.len() as u64 * 16)?;
        // The process that wrote these ids may not have flushed them; recovery decides by them from now on.
        file.sync_all()?;
        Ok((Self(file), ids.into_iter().collect()))
    }

    /// Appends the ids, and makes them durable.
    fn append(&mut self, ids: impl Iterator<Item = u64>) -> std::io::Result<()> {
        let bytes: Vec<u8> = ids.flat_map(record).collect();
        self.0.write_all(&bytes)?;
        self.0.sync_data()
    }
}

fn xid(id: u64) -> Xid {
    Xid(id.to_le_bytes().to_vec())
}

/// Ends the transactions that the last process left prepared, by the outside log.
fn recover(db: &Database, decided: &HashSet<u64>) -> Result<(usize, usize), Failure> {
    let (mut committed, mut rolled_back) = (0, 0);
    for name in db.prepared() {
        let id = u64::from_le_bytes(name.0.as_slice().try_into()?);
        if decided.contains(&id) {
            db.commit_prepared(&name)?;
            committed += 1;
        } else {
            db.rollback_prepared(&name)?;
            rolled_back += 1;
        }
    }
    Ok((committed, rolled_back))
}

/// The threads that wait for the outside log.
#[derive(Default)]
struct Queue {
    ready: Vec<(u64, Transaction)>,
    /// A leader is writing the outside log.
    led: bool,
    done: HashSet<u64>,
    /// A write failed: its ids may be in the outside log or not.
    failed: bool,
    groups: u64,
}

struct Commits<'a> {
    queue: Mutex<Queue>,
    wake: Condvar,
    outside: Mutex<&'a mut Outside>,
}

impl Commits<'_> {
    /// Commits a prepared transaction: as leader of a group, or by waiting for another leader.
    fn commit(&self, id: u64, tx: Transaction) -> Result<(), Failure> {
        let mut queue = self.queue.lock();
        queue.ready.push((id, tx));
        while !queue.done.remove(&id) {
            if queue.failed {
                return Err("the leader of the group failed: a restart will tell".into());
            }
            if queue.led {
                self.wake.wait(&mut queue);
                continue;
            }
            queue.led = true;
            let mut group = std::mem::take(&mut queue.ready);
            drop(queue);
            let written = self.write(&mut group);
            queue = self.queue.lock();
            queue.led = false;
            queue.groups += 1;
            queue.failed = written.is_err();
            self.wake.notify_all();
            written?;
            queue.done.extend(group.iter().map(|(id, _)| *id));
        }
        Ok(())
    }

    fn write(&self, group: &mut [(u64, Transaction)]) -> Result<(), Failure> {
        self.outside.lock().append(group.iter().map(|(id, _)| *id))?;
        // Decided. They become visible in the order of the outside log, because there is one leader; the
        // engine's log is flushed later.
        for (_, tx) in group {
            tx.commit_ordered()?;
        }
        Ok(())
    }
}

fn rows(db: &Database, tree: &Tree) -> Result<HashSet<u64>, Failure> {
    let tx = db.begin()?;
    tx.iter(tree).map(|entry| Ok(u64::from_be_bytes(entry?.0.as_slice().try_into()?))).collect()
}

fn main() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let (db_dir, log_path) = (dir.path().join("db"), dir.path().join("outside"));
    {
        let db = Database::open(&db_dir)?;
        let tree = db.create_tree("rows")?;
        let (mut outside, _) = Outside::open(&log_path)?;
        let commits = Commits { queue: Mutex::default(), wake: Condvar::new(), outside: Mutex::new(&mut outside) };
        let began = Instant::now();
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let (db, tree, commits) = (&db, &tree, &commits);
                move || {
                    for n in 0..TRANSACTIONS {
                        let id = thread * TRANSACTIONS + n + 1;
                        let mut tx = db.begin()?;
                        tx.put(tree, &id.to_be_bytes(), b"row")?;
                        tx.prepare_in_place(&xid(id), Durability::Flushed)?;
                        commits.commit(id, tx)?;
                    }
                    Ok::<(), Failure>(())
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })?;
        let groups = commits.queue.lock().groups;
        let all = THREADS * TRANSACTIONS;
        println!("{all} transactions in {groups} groups, {:.0} a second", all as f64 / began.elapsed().as_secs_f64());
        // A process that ends here leaves two prepared: one is decided, the other is not.
        for id in [all + 1, all + 2] {
            let mut tx = db.begin()?;
            tx.put(&tree, &id.to_be_bytes(), b"row")?;
            tx.prepare_in_place(&xid(id), Durability::Flushed)?;
        }
        outside.append(std::iter::once(all + 1))?;
    }
    let db = Database::open(&db_dir)?;
    let (_, decided) = Outside::open(&log_path)?;
    let (committed, rolled_back) = recover(&db, &decided)?;
    println!("after the restart: {committed} committed, {rolled_back} rolled back");
    let rows = rows(&db, &db.open_tree("rows")?)?;
    if (committed, rolled_back) != (1, 1) || rows != decided {
        return Err("the two logs do not agree".into());
    }
    println!("both logs have the same {} transactions", rows.len());
    Ok(())
}
