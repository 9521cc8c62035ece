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
//! 4. The output of a terminal is computed and passed to [`black_box`].

use super::layout::{Key, NAME, last_u32_of, skip_texts, text};
use super::random::{LastName, is_original};
use super::schema::*;
use super::{collect, edge, now_us, scan};
use crate::store::{Error, Result, Tx};
use std::hint::black_box;

/// A transaction with its input. It does all its work except the commit.
pub(super) trait Transaction {
    fn run(&self, tx: &mut dyn Tx) -> Result<()>;
}

/// How a customer is selected.
#[derive(Debug, Clone)]
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

/// An order line of the input.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) item: u32,
    /// The warehouse that delivers it.
    pub(super) supply: u16,
    pub(super) quantity: u8,
}

/// New-order (clause 2.4): a customer orders 5 to 15 items.
///
/// One in a hundred names an item that does not exist and is rolled back after all other work is done (clause
/// 2.4.2.3).
#[derive(Debug, Clone)]
pub(super) struct NewOrder {
    pub(super) w: u16,
    pub(super) d: u8,
    pub(super) c: u32,
    pub(super) lines: Vec<Line>,
    /// The last item does not exist.
    pub(super) fails: bool,
}

/// The values read from a line's item and stock.
struct Worked {
    amount: u32,
    original: bool,
    info: [u8; 24],
}

impl Transaction for NewOrder {
    fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let (w, d) = (self.w, self.d);
        let tax = warehouse::TAX.get(&get(tx, WAREHOUSE, &key::warehouse(w))?)?;
        let buyer = get(tx, CUSTOMER, &key::customer(w, d, self.c))?;
        let discount = customer::DISCOUNT.get(&buyer)?;
        black_box((customer::CREDIT.get(&buyer)?, buyer.get(customer::FIRST..)));

        let mut worked = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            let Some(row) = tx.get(ITEM, &key::item(line.item))? else { break };
            let amount = item::PRICE.get(&row)? * u32::from(line.quantity);
            let original = is_original(&row[skip_texts(&row, item::NAME, 1)?..]);
            worked.push(Worked { amount, original, info: [0; 24] });
        }
        if worked.len() != self.lines.len() - usize::from(self.fails) {
            let item = self.lines[worked.len().min(self.lines.len() - 1)].item;
            let what = format!("item {item} is wrongly there or missing: the data is of another scale; load it anew");
            return Err(Error::failed(NAME, what));
        }
        self.take_from_stock(tx, &mut worked)?;

        let take_number = |row: &mut Vec<u8>| Ok(district::NEXT_O_ID.add(row, 1)? - 1);
        let (row, o) = update(tx, DISTRICT, &key::district(w, d), take_number)?;
        let taxes = u64::from(tax) + u64::from(district::TAX.get(&row)?);

        let (local, count) = (u8::from(self.lines.iter().all(|line| line.supply == w)), self.lines.len() as u8);
        let row = orders::Row { ENTRY_D: now_us(), C_ID: self.c, CARRIER_ID: 0, OL_CNT: count, ALL_LOCAL: local };
        tx.put(ORDERS, &key::order(w, d, o), &row.bytes())?;
        tx.put(NEW_ORDER, &key::order(w, d, o), &[])?;
        tx.put(ORDER_CUSTOMER, &key::order_customer(w, d, self.c, o), &[])?;
        let mut total = 0;
        for ((line, worked), number) in self.lines.iter().zip(&worked).zip(1..) {
            let row = order_line::Row {
                DELIVERY_D: 0,
                I_ID: line.item,
                AMOUNT: worked.amount,
                SUPPLY_W_ID: line.supply,
                QUANTITY: line.quantity,
                DIST_INFO: worked.info,
            };
            tx.put(ORDER_LINE, &key::order_line(w, d, o, number), &row.bytes())?;
            total += u64::from(worked.amount);
            black_box(worked.original);
        }
        black_box(total * u64::from(10_000u16.saturating_sub(discount)) * (10_000 + taxes) / 100_000_000);
        Ok(())
    }
}

impl NewOrder {
    /// Locks and changes the stock of each line, in the order of warehouse and item.
    fn take_from_stock(&self, tx: &mut dyn Tx, worked: &mut [Worked]) -> Result<()> {
        let mut lines: Vec<_> = self.lines.iter().zip(worked).collect();
        lines.sort_by_key(|(line, _)| (line.supply, line.item));
        for (line, worked) in lines {
            update(tx, STOCK, &key::stock(line.supply, line.item), |row| {
                let left = stock::QUANTITY.get(row)? - i16::from(line.quantity);
                stock::QUANTITY.set(row, if left >= 10 { left } else { left + 91 })?;
                stock::YTD.add(row, line.quantity.into())?;
                stock::ORDER_CNT.add(row, 1)?;
                stock::REMOTE_CNT.add(row, u32::from(line.supply != self.w))?;
                worked.info = dist_info(self.d).get(row)?;
                worked.original = worked.original && is_original(row.get(stock::DATA..).unwrap_or_default());
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Payment (clause 2.5): a customer pays at a warehouse, in 15 of 100 cases not at its own.
#[derive(Debug, Clone)]
pub(super) struct Payment {
    pub(super) w: u16,
    pub(super) d: u8,
    /// The customer's own.
    pub(super) c_w: u16,
    pub(super) c_d: u8,
    pub(super) who: Who,
    /// Cents.
    pub(super) amount: u32,
    /// Together with the thread, the key of the row in the history.
    pub(super) stamp: u64,
    pub(super) thread: u16,
}

impl Transaction for Payment {
    fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let amount = i64::from(self.amount);
        let c = self.who.find(tx, self.c_w, self.c_d)?;
        let (row, ()) = update(tx, CUSTOMER, &key::customer(self.c_w, self.c_d, c), |row| {
            customer::BALANCE.add(row, -amount)?;
            customer::YTD_PAYMENT.add(row, amount)?;
            customer::PAYMENT_CNT.add(row, 1)?;
            if customer::CREDIT.get(row)? == *b"BC" { self.note(c, row) } else { Ok(()) }
        })?;
        black_box(&row);
        let district_key = key::district(self.w, self.d);
        let (of_district, _) = update(tx, DISTRICT, &district_key, |row| district::YTD.add(row, amount))?;
        let warehouse_key = key::warehouse(self.w);
        let (of_warehouse, _) = update(tx, WAREHOUSE, &warehouse_key, |row| warehouse::YTD.add(row, amount))?;

        let Self { c_w, c_d, d, .. } = *self;
        let row = history::Row { AMOUNT: self.amount, DATE: now_us(), C_ID: c, C_W_ID: c_w, C_D_ID: c_d, D_ID: d };
        let mut row = row.bytes();
        row.extend_from_slice(text(&of_warehouse, warehouse::NAME)?);
        row.extend_from_slice(b"    ");
        row.extend_from_slice(text(&of_district, district::NAME)?);
        tx.put(HISTORY, &key::history(self.w, self.stamp, self.thread), &row)?;
        Ok(())
    }
}

impl Payment {
    /// Inserts the payment at the front of the data of a customer with bad credit, and cuts off its end.
    fn note(&self, c: u32, row: &mut Vec<u8>) -> Result<()> {
        let at = skip_texts(row, customer::FIRST, CUSTOMER_TEXTS)?;
        let Self { w, d, c_w, c_d, amount, .. } = self;
        let note = format!("{c} {c_d} {c_w} {d} {w} {}.{:02}|", amount / 100, amount % 100);
        row.splice(at..at, note.into_bytes());
        row.truncate(at + CUSTOMER_DATA_BYTES_MAX);
        Ok(())
    }
}

/// Order-status (clause 2.6): a customer's last order. Reads only.
#[derive(Debug, Clone)]
pub(super) struct OrderStatus {
    pub(super) w: u16,
    pub(super) d: u8,
    pub(super) who: Who,
}

impl Transaction for OrderStatus {
    fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let (w, d) = (self.w, self.d);
        let c = self.who.find(tx, w, d)?;
        let row = get(tx, CUSTOMER, &key::customer(w, d, c))?;
        black_box((customer::BALANCE.get(&row)?, row.get(customer::FIRST..)));
        let prefix = key::orders_of(w, d, c);
        let last = edge(tx, ORDER_CUSTOMER, &prefix, &prefix.after(), true)?;
        let o = last.ok_or_else(|| missing(ORDER_CUSTOMER, &prefix))?;
        let order_key = key::order(w, d, o);
        let row = get(tx, ORDERS, &order_key)?;
        black_box((orders::ENTRY_D.get(&row)?, orders::CARRIER_ID.get(&row)?));
        scan(tx, ORDER_LINE, &order_key, &order_key.after(), &mut |_, row| {
            black_box((order_line::I_ID.get(row)?, order_line::SUPPLY_W_ID.get(row)?));
            black_box((order_line::QUANTITY.get(row)?, order_line::AMOUNT.get(row)?));
            black_box(order_line::DELIVERY_D.get(row)?);
            Ok(())
        })?;
        Ok(())
    }
}

/// Delivery (clause 2.7): the oldest undelivered order of each district. All ten in one transaction, as
/// clause 2.7.4.2 allows; run at once, not queued.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) w: u16,
    pub(super) carrier: u8,
}

impl Transaction for Delivery {
    fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let now = now_us();
        for d in 1..=DISTRICTS {
            if let Some(o) = self.oldest(tx, d)? {
                self.deliver(tx, d, o, now)?;
            }
        }
        Ok(())
    }
}

impl Delivery {
    /// Locks the oldest new-order of a district; `None` when there is none.
    fn oldest(&self, tx: &mut dyn Tx, d: u8) -> Result<Option<u32>> {
        let to = key::district(self.w, d).after();
        let (mut from, mut passed) = (key::order(self.w, d, 0), false);
        while let Some(o) = edge(tx, NEW_ORDER, &from, &to, false)? {
            if tx.get_for_update(NEW_ORDER, &key::order(self.w, d, o))?.is_some() {
                return Ok(Some(o));
            }
            // Delivered since the snapshot: the next one is the oldest.
            from = key::order(self.w, d, o + 1);
            passed = true;
        }
        if passed {
            // There may be newer orders that the snapshot does not see: only a new snapshot can tell.
            return Err(Error::Conflict(format!("district {d} was delivered by another")));
        }
        Ok(None)
    }

    fn deliver(&self, tx: &mut dyn Tx, d: u8, o: u32, now: u64) -> Result<()> {
        let order_key = key::order(self.w, d, o);
        let (_, c) = update(tx, ORDERS, &order_key, |row| {
            orders::CARRIER_ID.set(row, self.carrier)?;
            orders::C_ID.get(row)
        })?;
        let mut amount = 0;
        let lines = collect(tx, ORDER_LINE, &order_key, |key, row| {
            let Ok(mut row) = <[u8; order_line::BYTES]>::try_from(row) else {
                return Err(Error::failed(NAME, format_args!("line {key:02x?} of an order has {} bytes", row.len())));
            };
            order_line::DELIVERY_D.set(&mut row, now)?;
            amount += i64::from(order_line::AMOUNT.get(&row)?);
            Ok((key::order_line(self.w, d, o, key.last().copied().unwrap_or(0)), row))
        })?;
        for (key, row) in &lines {
            tx.put(ORDER_LINE, key, row)?;
        }
        update(tx, CUSTOMER, &key::customer(self.w, d, c), |row| {
            customer::BALANCE.add(row, amount)?;
            customer::DELIVERY_CNT.add(row, 1)
        })?;
        tx.delete(NEW_ORDER, &order_key)
    }
}

/// Orders that are examined.
const ORDERS_BACK: u32 = 20;

/// Stock-level (clause 2.8): how many items of a district's last 20 orders are scarce. Reads only.
#[derive(Debug, Clone)]
pub(super) struct StockLevel {
    pub(super) w: u16,
    pub(super) d: u8,
    pub(super) threshold: i16,
}

impl Transaction for StockLevel {
    fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let next = district::NEXT_O_ID.get(&get(tx, DISTRICT, &key::district(self.w, self.d))?)?;
        let from = key::order(self.w, self.d, next.saturating_sub(ORDERS_BACK));
        let to = key::order(self.w, self.d, next);
        let mut items = Vec::with_capacity(15 * ORDERS_BACK as usize);
        scan(tx, ORDER_LINE, &from, &to, &mut |_, row| {
            items.push(order_line::I_ID.get(row)?);
            Ok(())
        })?;
        items.sort_unstable();
        items.dedup();
        let mut scarce = 0;
        for item in items {
            let row = get(tx, STOCK, &key::stock(self.w, item))?;
            scarce += u32::from(stock::QUANTITY.get(&row)? < self.threshold);
        }
        black_box(scarce);
        Ok(())
    }
}
