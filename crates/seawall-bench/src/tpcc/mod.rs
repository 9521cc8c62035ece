//! TPC-C, revision 5.11, over any store that offers [`Session::begin`](crate::Session::begin): nine tables,
//! five transactions in the specified mix without think and keying time, and the specification's consistency
//! conditions at the end. The result is not a TPC-C result: those are audited.
//!
//! 1. Transactions follow clauses 2.4 to 2.8; where the specification leaves a choice, the type or function of that
//!    transaction documents it.
//! 2. The conditions hold after every commit, so that data can be reused, and a run that ends early leaves
//!    valid data.
//!
//! `load` fills a store, `client` is one thread's work, `transactions` has its transactions, [`check`] the
//! conditions, [`run`] a cell from beginning to end.

pub mod check;
pub(crate) mod client;
mod layout;
pub(crate) mod load;
mod random;
pub mod run;
mod schema;
#[cfg(test)]
mod tests;
mod transactions;

use crate::store::{Result, Tx};
use std::time::{SystemTime, UNIX_EPOCH};

pub use schema::TABLES;

/// The database. By default it has one warehouse with the specification's numbers of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Warehouses, at least one.
    pub warehouses: u16,
    /// Items, and rows of stock in each warehouse.
    pub items: u32,
    /// Customers of a district, and its initial orders.
    pub customers: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { warehouses: 1, items: 100_000, customers: 3000 }
    }
}

impl Shape {
    /// Initial orders of a district that are not delivered.
    fn undelivered(self) -> u32 {
        self.customers * 3 / 10
    }

    fn delivered(self) -> u32 {
        self.customers - self.undelivered()
    }

    /// Different last names.
    fn names(self) -> u32 {
        (self.customers / 3).clamp(1, 1000)
    }
}

/// Now, microseconds since 1970.
fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// Reads a row's key and value, or reports what is wrong with them.
type Read<'f> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'f;

/// Visits the rows of a range until one is wrong.
fn scan(tx: &mut dyn Tx, table: usize, from: &[u8], to: &[u8], visit: &mut Read<'_>) -> Result<()> {
    let mut visited = Ok(());
    tx.scan(table, from, to, false, &mut |key, row| {
        visited = visit(key, row);
        visited.is_ok()
    })?;
    visited
}

/// What `read` returns for each row whose key begins with `prefix`.
fn collect<T>(
    tx: &mut dyn Tx,
    table: usize,
    prefix: &[u8],
    mut read: impl FnMut(&[u8], &[u8]) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    scan(tx, table, prefix, &layout::after(prefix), &mut |key, row| {
        found.push(read(key, row)?);
        Ok(())
    })?;
    Ok(found)
}

/// The last number in the key of the first or last row of a range.
fn edge(tx: &mut dyn Tx, table: usize, from: &[u8], to: &[u8], backward: bool) -> Result<Option<u32>> {
    let mut found = None;
    tx.scan(table, from, to, backward, &mut |key, _| {
        found = Some(layout::last_u32_of(key));
        false
    })?;
    found.transpose()
}
