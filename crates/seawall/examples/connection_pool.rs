//! A pool of connections, each with a transaction object and cursors that are reused from one statement to
//! the next.
//!
//! Every thread takes a connection, runs a transaction with a join (for each order of a customer, the lines
//! of that order), marks the billed orders, and returns the connection. It creates nothing new: the
//! transaction is committed in place, and the cursors keep their memory.
//!
//! ```sh
//! cargo run --release --example connection_pool
//! ```

use seawall::{
    CursorOptions, Database, Error, Isolation, LockMode, OwnedCursor, Result, Seek, Transaction, Tree, TxOptions,
};
use std::sync::Mutex;

const CUSTOMERS: u32 = 20;
const THREADS: u32 = 4;
const BILLS: u32 = 200;

/// The objects of a session.
struct Connection {
    tx: Transaction,
    orders: OwnedCursor,
    lines: OwnedCursor,
}

struct Pool {
    db: Database,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    fn take(&self) -> Result<Connection> {
        let idle = self.idle.lock().expect("no thread panics with it").pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Ok(Connection { tx: self.db.begin()?, orders: OwnedCursor::new(), lines: OwnedCursor::new() }),
        }
    }

    /// Returns a connection. An idle connection holds no lock, no snapshot and no read view.
    fn give_back(&self, mut connection: Connection) -> Result<()> {
        connection.tx.rollback_in_place()?;
        self.idle.lock().expect("no thread panics with it").push(connection);
        Ok(())
    }
}

/// The sum of all lines of a customer's unbilled orders, which are then billed.
fn bill(connection: &mut Connection, trees: &[Tree; 2], customer: u32) -> Result<u64> {
    let Connection { tx, orders, lines } = connection;
    tx.restart(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() })?;
    let locking = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
    let of_customer = customer.to_be_bytes()..(customer + 1).to_be_bytes();
    orders.reset(&trees[0], locking, of_customer);
    lines.reset(&trees[1], CursorOptions::default(), ..);
    let mut sum = 0;
    let mut there = orders.seek(tx, Seek::First)?;
    while there {
        if orders.value(tx)? == b"open" {
            let mut line = lines.seek(tx, Seek::AtLeast(orders.key()))?;
            while line && lines.key().starts_with(orders.key()) {
                sum += u64::from(lines.value(tx)?[0]);
                line = lines.next(tx)?;
            }
            // Both cursors keep their positions.
            tx.put(&trees[0], orders.key(), b"billed")?;
        }
        there = orders.next(tx)?;
    }
    tx.commit_in_place()?;
    Ok(sum)
}

fn main() -> Result<()> {
    let db = Database::in_memory()?;
    let trees = [db.create_tree("orders")?, db.create_tree("lines")?];
    let mut billed = 0;
    for order in 0..CUSTOMERS * 10 {
        let key = [(order % CUSTOMERS).to_be_bytes(), order.to_be_bytes()].concat();
        db.transact(|tx| {
            tx.put(&trees[0], &key, b"open")?;
            (0..5u8).try_for_each(|line| tx.put(&trees[1], &[&key[..], &[line]].concat(), &[line + 1]))
        })?;
        billed += 1 + 2 + 3 + 4 + 5;
    }
    let pool = Pool { db: db.clone(), idle: Mutex::default() };
    let sums = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|client| {
                let (pool, trees) = (&pool, &trees);
                scope.spawn(move || -> Result<u64> {
                    let mut sum = 0;
                    for n in 0..BILLS {
                        let mut connection = pool.take()?;
                        match bill(&mut connection, trees, (client + n) % CUSTOMERS) {
                            Ok(billed) => sum += billed,
                            // Rolled back when the connection is returned; another client holds the orders.
                            Err(Error::Deadlock { .. } | Error::LockTimeout { .. }) => {}
                            Err(error) => return Err(error),
                        }
                        pool.give_back(connection)?;
                    }
                    Ok(sum)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no client panics")).sum::<Result<u64>>()
    })?;
    let open = db.begin()?.iter(&trees[0]).filter(|row| row.as_ref().is_ok_and(|(_, state)| state == b"open")).count();
    println!(
        "billed {sums} of {billed}, each line once; {open} orders are open; {} views are held",
        db.stats().txn.views
    );
    assert!(sums == billed && open == 0 && db.stats().txn.views == 0);
    Ok(())
}
