//! The five transactions (clauses 2.4 to 2.8).
//!
//! 1. A transaction locks a row when it reads it to change it; it reads other rows in its snapshot. Two
//!    exceptions, where another lock already excludes all other writers: an order's lines are changed by the
//!    one delivery that holds its new-order, and inserted rows have numbers taken under a lock.
//! 2. Locks are taken in one order, so that transactions wait but do not deadlock. New-order: stock by
//!    warehouse and item, then the district. Payment: customer, district, warehouse. Delivery: district by
//!    district the new-order, then order and customer. A transaction that holds a customer and waits is
//!    either a delivery, which waits for a new-order that only an earlier delivery of that warehouse can
//!    hold, or a payment, which waits for a district or warehouse, whose holders wait only for these.
//! 3. The most contended row is locked last: a payment's warehouse, a new-order's district.
//! 4. The output of a terminal is computed and passed to [`black_box`](std::hint::black_box).

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

pub(super) use delivery::Delivery;
pub(super) use new_order::{Line, NewOrder};
pub(super) use order_status::OrderStatus;
pub(super) use payment::Payment;
pub(super) use stock_level::StockLevel;

use super::collect;
use super::layout::{Key, NAME, last_u32_of};
use super::random::LastName;
use super::schema::*;
use crate::store::{Error, Result, Tx};

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    /// The new-orders of clause 2.4.1.4.
    RollBack,
}

/// A transaction with its input.
pub(super) trait Transaction {
    fn run(&self, tx: &mut dyn Tx) -> Result<End>;
}

/// How a customer is selected.
#[derive(Debug, Clone, Copy)]
pub(super) enum Who {
    Number(u32),
    /// The middle one of all customers of this name, by first name (clause 2.5.2.2).
    Name(LastName),
}

impl Who {
    /// The customer's number.
    fn find(&self, tx: &mut dyn Tx, w: u16, d: u8) -> Result<u32> {
        let name = match self {
            Self::Number(c) => return Ok(*c),
            Self::Name(name) => name,
        };
        let prefix = key::customers_named(w, d, name.bytes());
        let found = collect(tx, CUSTOMER_NAME, &prefix, |key, _| last_u32_of(key))?;
        found.get(found.len().saturating_sub(1) / 2).copied().ok_or_else(|| missing(CUSTOMER_NAME, &prefix))
    }
}

fn missing(table: usize, key: &Key) -> Error {
    Error::failed(
        NAME,
        format_args!(
            "{} has no row with key {:02x?}: the data is not that of this many warehouses, or damaged; load it anew",
            TABLES[table], &**key
        ),
    )
}

/// A row that must exist.
pub(super) fn get(tx: &mut dyn Tx, table: usize, key: &Key) -> Result<Vec<u8>> {
    tx.get(table, key)?.ok_or_else(|| missing(table, key))
}

/// Changes a row that must exist, and locks it.
fn update<T>(
    tx: &mut dyn Tx,
    table: usize,
    key: &Key,
    change: impl FnOnce(&mut Vec<u8>) -> Result<T>,
) -> Result<(Vec<u8>, T)> {
    let mut row = tx.get_for_update(table, key)?.ok_or_else(|| missing(table, key))?;
    let changed = change(&mut row)?;
    tx.put(table, key, &row)?;
    Ok((row, changed))
}
