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

use super::layout::{NAME, after, columns, columns_mut, last_u32_of, skip_texts, text};
use super::random::is_original;
use super::schema::*;
use super::{collect, edge, now_us, scan};
use crate::store::{Error, Result, Tx};
use std::hint::black_box;
use zerocopy::IntoBytes as _;

/// A transaction with its input. It does all its work except the commit.
pub(super) type Transaction = dyn Fn(&mut dyn Tx) -> Result<()>;

/// How a customer is selected.
#[derive(Debug, Clone)]
pub(super) enum Who {
    Number(u32),
    /// The middle one of all customers of this name, by first name (clause 2.5.2.2).
    Name(Vec<u8>),
}

impl Who {
    /// The customer's number.
    fn find(&self, tx: &mut dyn Tx, w: u16, d: u8) -> Result<u32> {
        let name = match self {
            Self::Number(c) => return Ok(*c),
            Self::Name(name) => name,
        };
        let prefix = key::customers_named(w, d, name);
        let found = collect(tx, CUSTOMER_NAME, &prefix, |key, _| last_u32_of(key))?;
        found.get(found.len().saturating_sub(1) / 2).copied().ok_or_else(|| missing(CUSTOMER_NAME, &prefix))
    }
}

fn missing(table: usize, key: &[u8]) -> Error {
    Error::failed(
        NAME,
        format_args!(
            "{} has no row with key {:02x?}: the data is not that of this many warehouses, or damaged; load it anew",
            TABLES[table], key
        ),
    )
}

/// A row that must exist.
pub(super) fn get(tx: &mut dyn Tx, table: usize, key: &[u8]) -> Result<Vec<u8>> {
    tx.get(table, key)?.ok_or_else(|| missing(table, key))
}

/// Changes a row that must exist, and locks it.
fn update<T>(
    tx: &mut dyn Tx,
    table: usize,
    key: &[u8],
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

impl NewOrder {
    pub(super) fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let (w, d) = (self.w, self.d);
        let tax = columns::<Warehouse>(&get(tx, WAREHOUSE, &key::warehouse(w))?)?.tax;
        let buyer = get(tx, CUSTOMER, &key::customer(w, d, self.c))?;
        let &Customer { discount, credit, .. } = columns(&buyer)?;
        black_box((credit, &buyer[size_of::<Customer>()..]));

        let mut worked = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            let Some(row) = tx.get(ITEM, &key::item(line.item))? else { break };
            let amount = columns::<Item>(&row)?.price.get() * u32::from(line.quantity);
            let original = is_original(&row[skip_texts(&row, size_of::<Item>(), 1)?..]);
            worked.push(Worked { amount, original, info: [0; 24] });
        }
        if worked.len() != self.lines.len() - usize::from(self.fails) {
            let item = self.lines[worked.len().min(self.lines.len() - 1)].item;
            let what = format!("item {item} is wrongly there or missing: the data is of another scale; load it anew");
            return Err(Error::failed(NAME, what));
        }
        self.take_from_stock(tx, &mut worked)?;

        let (_, (o, district_tax)) = update(tx, DISTRICT, &key::district(w, d), |row| {
            let district: &mut District = columns_mut(row)?;
            district.next_o_id += 1;
            Ok((district.next_o_id.get() - 1, district.tax))
        })?;
        let taxes = u64::from(tax) + u64::from(district_tax);

        let (local, count) = (u8::from(self.lines.iter().all(|line| line.supply == w)), self.lines.len() as u8);
        let (entry_d, c_id) = (now_us().into(), self.c.into());
        let row = Order { entry_d, c_id, carrier_id: 0, ol_cnt: count, all_local: local };
        tx.put(ORDERS, &key::order(w, d, o), row.as_bytes())?;
        tx.put(NEW_ORDER, &key::order(w, d, o), &[])?;
        tx.put(ORDER_CUSTOMER, &key::order_customer(w, d, self.c, o), &[])?;
        let mut total = 0;
        for ((line, worked), number) in self.lines.iter().zip(&worked).zip(1..) {
            let row = OrderLine {
                delivery_d: 0.into(),
                i_id: line.item.into(),
                amount: worked.amount.into(),
                supply_w_id: line.supply.into(),
                quantity: line.quantity,
                dist_info: worked.info,
            };
            tx.put(ORDER_LINE, &key::order_line(w, d, o, number), row.as_bytes())?;
            total += u64::from(worked.amount);
            black_box(worked.original);
        }
        black_box(total * u64::from(10_000u16.saturating_sub(discount.get())) * (10_000 + taxes) / 100_000_000);
        Ok(())
    }

    /// Locks and changes the stock of each line, in the order of warehouse and item.
    fn take_from_stock(&self, tx: &mut dyn Tx, worked: &mut [Worked]) -> Result<()> {
        let mut lines: Vec<_> = self.lines.iter().zip(worked).collect();
        lines.sort_by_key(|(line, _)| (line.supply, line.item));
        for (line, worked) in lines {
            update(tx, STOCK, &key::stock(line.supply, line.item), |row| {
                let stock: &mut Stock = columns_mut(row)?;
                let left = stock.quantity.get() - i16::from(line.quantity);
                stock.quantity.set(if left >= 10 { left } else { left + 91 });
                stock.ytd += u32::from(line.quantity);
                stock.order_cnt += 1;
                stock.remote_cnt += u32::from(line.supply != self.w);
                worked.info = stock.dists[usize::from(self.d) - 1];
                worked.original = worked.original && is_original(&row[size_of::<Stock>()..]);
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

impl Payment {
    pub(super) fn run(&self, tx: &mut dyn Tx) -> Result<()> {
        let amount = i64::from(self.amount);
        let c = self.who.find(tx, self.c_w, self.c_d)?;
        let (row, ()) = update(tx, CUSTOMER, &key::customer(self.c_w, self.c_d, c), |row| {
            let customer: &mut Customer = columns_mut(row)?;
            customer.balance -= amount;
            customer.ytd_payment += amount;
            customer.payment_cnt += 1;
            if customer.credit == *b"BC" { self.note(c, row) } else { Ok(()) }
        })?;
        black_box(&row);
        let district_key = key::district(self.w, self.d);
        let (of_district, ()) =
            update(tx, DISTRICT, &district_key, |row| columns_mut(row).map(|d: &mut District| d.ytd += amount))?;
        let warehouse_key = key::warehouse(self.w);
        let (of_warehouse, ()) =
            update(tx, WAREHOUSE, &warehouse_key, |row| columns_mut(row).map(|w: &mut Warehouse| w.ytd += amount))?;

        let Self { c_w, c_d, d, .. } = *self;
        let (amount, date) = (self.amount.into(), now_us().into());
        let row = History { amount, date, c_id: c.into(), c_w_id: c_w.into(), c_d_id: c_d, d_id: d };
        let mut row = row.as_bytes().to_vec();
        row.extend_from_slice(text(&of_warehouse, size_of::<Warehouse>())?);
        row.extend_from_slice(b"    ");
        row.extend_from_slice(text(&of_district, size_of::<District>())?);
        tx.put(HISTORY, &key::history(self.w, self.stamp, self.thread), &row)?;
        Ok(())
    }

    /// Inserts the payment at the front of the data of a customer with bad credit, and cuts off its end.
    fn note(&self, c: u32, row: &mut Vec<u8>) -> Result<()> {
        let at = skip_texts(row, size_of::<Customer>(), CUSTOMER_TEXTS)?;
        let Self { w, d, c_w, c_d, amount, .. } = self;
        let note = format!("{c} {c_d} {c_w} {d} {w} {}.{:02}|", amount / 100, amount % 100);
        row.splice(at..at, note.into_bytes());
        row.truncate(at + CUSTOMER_DATA_BYTES_MAX);
        Ok(())
    }
}

/// Order-status (clause 2.6): a customer's last order. Reads only.
pub(super) fn order_status(tx: &mut dyn Tx, w: u16, d: u8, who: &Who) -> Result<()> {
    let c = who.find(tx, w, d)?;
    let row = get(tx, CUSTOMER, &key::customer(w, d, c))?;
    black_box((columns::<Customer>(&row)?.balance, &row[size_of::<Customer>()..]));
    let prefix = key::orders_of(w, d, c);
    let last = edge(tx, ORDER_CUSTOMER, &prefix, &after(&prefix), true)?;
    let o = last.ok_or_else(|| missing(ORDER_CUSTOMER, &prefix))?;
    let order_key = key::order(w, d, o);
    let row = get(tx, ORDERS, &order_key)?;
    let &Order { entry_d, carrier_id, .. } = columns(&row)?;
    black_box((entry_d, carrier_id));
    scan(tx, ORDER_LINE, &order_key, &after(&order_key), &mut |_, row| {
        let &OrderLine { i_id, supply_w_id, quantity, amount, delivery_d, .. } = columns(row)?;
        black_box((i_id, supply_w_id, quantity, amount, delivery_d));
        Ok(())
    })
}

/// Delivery (clause 2.7): the oldest undelivered order of each district. All ten in one transaction, as
/// clause 2.7.4.2 allows; run at once, not queued.
pub(super) fn delivery(tx: &mut dyn Tx, w: u16, carrier: u8) -> Result<()> {
    let now = now_us();
    for d in 1..=DISTRICTS {
        if let Some(o) = oldest(tx, w, d)? {
            deliver(tx, (w, d, o), carrier, now)?;
        }
    }
    Ok(())
}

/// Locks the oldest new-order of a district; `None` when there is none.
fn oldest(tx: &mut dyn Tx, w: u16, d: u8) -> Result<Option<u32>> {
    let to = after(&key::district(w, d));
    let (mut from, mut passed) = (key::order(w, d, 0), false);
    while let Some(o) = edge(tx, NEW_ORDER, &from, &to, false)? {
        if tx.get_for_update(NEW_ORDER, &key::order(w, d, o))?.is_some() {
            return Ok(Some(o));
        }
        // Delivered since the snapshot: the next one is the oldest.
        from = key::order(w, d, o + 1);
        passed = true;
    }
    if passed {
        // There may be newer orders that the snapshot does not see: only a new snapshot can tell.
        return Err(Error::Conflict(format!("district {d} was delivered by another")));
    }
    Ok(None)
}

fn deliver(tx: &mut dyn Tx, (w, d, o): (u16, u8, u32), carrier: u8, now: u64) -> Result<()> {
    let order_key = key::order(w, d, o);
    let (_, c) = update(tx, ORDERS, &order_key, |row| {
        let order: &mut Order = columns_mut(row)?;
        order.carrier_id = carrier;
        Ok(order.c_id.get())
    })?;
    let mut amount = 0;
    let lines = collect(tx, ORDER_LINE, &order_key, |key, row| {
        let mut row = row.to_vec();
        let line: &mut OrderLine = columns_mut(&mut row)?;
        line.delivery_d.set(now);
        amount += i64::from(line.amount.get());
        Ok((key.to_vec(), row))
    })?;
    for (key, row) in &lines {
        tx.put(ORDER_LINE, key, row)?;
    }
    update(tx, CUSTOMER, &key::customer(w, d, c), |row| {
        let customer: &mut Customer = columns_mut(row)?;
        customer.balance += amount;
        customer.delivery_cnt += 1;
        Ok(())
    })?;
    tx.delete(NEW_ORDER, &order_key)
}

/// Orders that are examined.
const ORDERS_BACK: u32 = 20;

/// Stock-level (clause 2.8): how many items of a district's last 20 orders are scarce. Reads only.
pub(super) fn stock_level(tx: &mut dyn Tx, w: u16, d: u8, threshold: i16) -> Result<()> {
    let next = columns::<District>(&get(tx, DISTRICT, &key::district(w, d))?)?.next_o_id.get();
    let from = key::order(w, d, next.saturating_sub(ORDERS_BACK));
    let to = key::order(w, d, next);
    let mut items = Vec::with_capacity(15 * ORDERS_BACK as usize);
    scan(tx, ORDER_LINE, &from, &to, &mut |_, row| {
        items.push(columns::<OrderLine>(row)?.i_id.get());
        Ok(())
    })?;
    items.sort_unstable();
    items.dedup();
    let mut scarce = 0;
    for item in items {
        let row = get(tx, STOCK, &key::stock(w, item))?;
        scarce += u32::from(columns::<Stock>(&row)?.quantity.get() < threshold);
    }
    black_box(scarce);
    Ok(())
}
