//! Fills a store by clause 4.3.3.
//!
//! 1. The work is divided into units (the items, a warehouse's stock, a district) that threads take one after
//!    the other, and each unit into parts of about a thousand rows, a transaction each. The content of a unit
//!    depends only on the seed and the unit.
//! 2. Every consistency condition holds when the last part is committed; not before.

use super::random::{C_LAST_LOAD, Random, last_name};
use super::schema::*;
use super::{Shape, now_us};
use crate::observe::Observer;
use crate::results::Load;
use crate::run::{Limit, Operation, Outcome, Spec, drive};
use crate::store::{Result, Session, Store};
use seawall_lab::run::Progress;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zerocopy::IntoBytes as _;

/// Rows of a part, approximately.
const PART_ROWS: u32 = 1000;
/// Customers of a part: each has a row in the history and one in the index.
const PART_CUSTOMERS: u32 = PART_ROWS / 3;
/// Orders of a part: each has ten lines on average, and a row in the index.
const PART_ORDERS: u32 = PART_ROWS / 12;

/// A unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Items,
    /// A warehouse's row and stock.
    Warehouse(u16),
    /// A district's row, customers, history and orders.
    District(u16, u8),
}

/// The remaining units, for all threads.
#[derive(Debug, Default)]
struct Units(AtomicU32);

impl Units {
    fn take(&self, warehouses: u16) -> Option<(u32, Unit)> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let each = 1 + u32::from(DISTRICTS);
        let Some(rest) = number.checked_sub(1) else { return Some((0, Unit::Items)) };
        let w = u16::try_from(rest / each + 1).ok().filter(|w| *w <= warehouses)?;
        let unit = if rest % each == 0 { Unit::Warehouse(w) } else { Unit::District(w, (rest % each) as u8) };
        Some((number, unit))
    }
}

/// Rows of one transaction: table, key, value.
type Rows = Vec<(usize, Vec<u8>, Vec<u8>)>;

/// One loading thread.
struct Loader<'s> {
    shape: Shape,
    seed: u64,
    session: Box<dyn Session + 's>,
    units: &'s Units,
    unit: Option<UnitLoad>,
    /// The part that met a conflict.
    pending: Rows,
}

impl<'s> Loader<'s> {
    fn new(store: &'s dyn Store, shape: Shape, seed: u64, units: &'s Units) -> Result<Self> {
        Ok(Self { shape, seed, session: store.session()?, units, unit: None, pending: Rows::new() })
    }

    /// The rows of the next part; empty when all is loaded.
    fn part(&mut self) -> Rows {
        loop {
            let rows = self.unit.as_mut().map_or_else(Rows::new, UnitLoad::part);
            if !rows.is_empty() {
                return rows;
            }
            let Some((number, unit)) = self.units.take(self.shape.warehouses) else { return rows };
            let (random, ordering) = (Random::new(self.seed, number.into()), (1..=self.shape.customers).collect());
            self.unit = Some(UnitLoad { unit, shape: self.shape, random, done: 0, ordering });
        }
    }
}

impl Operation for Loader<'_> {
    fn next(&mut self) -> Result<Outcome> {
        if self.pending.is_empty() {
            self.pending = self.part();
        }
        if self.pending.is_empty() {
            return Ok(Outcome::Finished);
        }
        let mut tx = self.session.begin()?;
        let put = self.pending.iter().try_for_each(|(table, key, value)| tx.put(*table, key, value));
        let outcome = Outcome::of(put.and_then(|()| tx.commit()), self.pending.len() as u64)?;
        if outcome != Outcome::Conflict {
            self.pending.clear();
        }
        Ok(outcome)
    }
}

/// Loads all rows with some threads and settles.
///
/// # Errors
/// Those of the store.
pub(crate) fn fill(
    store: &dyn Store,
    shape: Shape,
    seed: u64,
    threads: usize,
    observer: &mut Observer<'_>,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Load> {
    let units = Units::default();
    let spec = Spec::new(threads, Limit::Finished { ops: rows_about(shape) }, stop);
    let load = drive(&spec, observer, progress, "loading", |_| Loader::new(store, shape, seed, &units));
    match load.error {
        Some(error) => Err(error),
        None => Load::settled(store, load.ops, load.window.as_secs_f64(), progress),
    }
}

/// Rows of a whole load, approximately: an order has 10 lines on average.
pub(crate) fn rows_about(shape: Shape) -> u64 {
    let customers = u64::from(shape.customers) * u64::from(DISTRICTS);
    let orders = customers * 12 + u64::from(shape.undelivered()) * u64::from(DISTRICTS);
    let of_warehouse = 1 + u64::from(DISTRICTS) + u64::from(shape.items) + customers * 3 + orders;
    u64::from(shape.items) + u64::from(shape.warehouses) * of_warehouse
}

/// The progress of a unit.
#[derive(Debug)]
struct UnitLoad {
    unit: Unit,
    shape: Shape,
    random: Random,
    /// Items done; or customers, then orders.
    done: u32,
    /// Customers in the order of their orders (clause 4.3.3.1).
    ordering: Vec<u32>,
}

fn push_texts<const N: usize>(row: &mut Vec<u8>, random: &mut Random, lengths: [(u32, u32); N]) {
    for (from, to) in lengths {
        let at = row.len();
        row.push(0);
        random.letters(row, from, to);
        // At most 24 letters, by the specification's columns.
        row[at] = (row.len() - at - 1) as u8;
    }
}

/// Two lines of a street, and a city.
const ADDRESS: [(u32, u32); 3] = [(10, 20); 3];
/// The name of a warehouse or district, and its address.
const NAME_AND_ADDRESS: [(u32, u32); 4] = [(6, 10), ADDRESS[0], ADDRESS[1], ADDRESS[2]];

impl UnitLoad {
    /// The next rows; empty when the unit is complete.
    fn part(&mut self) -> Rows {
        let Shape { items, customers, .. } = self.shape;
        let (part, total) = match self.unit {
            Unit::Items | Unit::Warehouse(_) => (PART_ROWS, items),
            Unit::District(..) if self.done < customers => (PART_CUSTOMERS, customers),
            Unit::District(..) => (PART_ORDERS, 2 * customers),
        };
        let mut rows = Rows::new();
        match self.unit {
            Unit::Warehouse(w) if self.done == 0 => rows.push((WAREHOUSE, key::warehouse(w), self.warehouse())),
            Unit::District(w, d) if self.done == 0 => rows.push((DISTRICT, key::district(w, d), self.district())),
            Unit::District(..) if self.done == customers => self.random.shuffle(&mut self.ordering),
            _ => {}
        }
        for n in self.done + 1..=(self.done + part).min(total) {
            match self.unit {
                Unit::Items => rows.push((ITEM, key::item(n), self.item())),
                Unit::Warehouse(w) => rows.push((STOCK, key::stock(w, n), self.stock())),
                Unit::District(w, d) if n <= customers => self.customer(w, d, n, &mut rows),
                Unit::District(w, d) => self.order(w, d, n - customers, &mut rows),
            }
            self.done = n;
        }
        rows
    }

    fn item(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let (im_id, price) = (random.range(1, 10_000).into(), random.range(100, 10_000).into());
        let mut row = Item { im_id, price }.as_bytes().to_vec();
        push_texts(&mut row, random, [(14, 24)]);
        random.data(&mut row);
        row
    }

    fn stock(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let (quantity, zero) = ((random.range(10, 100) as i16).into(), 0.into());
        let dists = std::array::from_fn(|_| random.chars());
        let mut row = Stock { quantity, ytd: zero, order_cnt: zero, remote_cnt: zero, dists }.as_bytes().to_vec();
        random.data(&mut row);
        row
    }

    fn warehouse(&mut self) -> Vec<u8> {
        let paid = i64::from(self.shape.customers) * i64::from(DISTRICTS) * FIRST_PAYMENT;
        let random = &mut self.random;
        let tax = (random.range(0, 2000) as u16).into();
        let row = Warehouse { ytd: paid.into(), tax, state: random.chars(), zip: random.zip() };
        let mut row = row.as_bytes().to_vec();
        push_texts(&mut row, random, NAME_AND_ADDRESS);
        row
    }

    fn district(&mut self) -> Vec<u8> {
        let customers = self.shape.customers;
        let random = &mut self.random;
        let (paid, tax) = (i64::from(customers) * FIRST_PAYMENT, random.range(0, 2000) as u16);
        let (state, zip) = (random.chars(), random.zip());
        let row = District { ytd: paid.into(), next_o_id: (customers + 1).into(), tax: tax.into(), state, zip };
        let mut row = row.as_bytes().to_vec();
        push_texts(&mut row, random, NAME_AND_ADDRESS);
        row
    }

    /// A customer, its index entry and its row in the history.
    fn customer(&mut self, w: u16, d: u8, c: u32, rows: &mut Rows) {
        let names = self.shape.names();
        let random = &mut self.random;
        // The first customers get every existing name, so that a lookup by name always finds a customer.
        let last = if c <= names { last_name(c - 1) } else { random.last_name(C_LAST_LOAD, names) };
        let now = now_us();
        let row = Customer {
            balance: (-FIRST_PAYMENT).into(),
            ytd_payment: FIRST_PAYMENT.into(),
            credit_lim: 5_000_000.into(),
            since: now.into(),
            payment_cnt: 1.into(),
            delivery_cnt: 0.into(),
            discount: (random.range(0, 5000) as u16).into(),
            credit: if random.percent(10) { *b"BC" } else { *b"GC" },
            middle: *b"OE",
            state: random.chars(),
            zip: random.zip(),
            phone: random.digits(),
        };
        let mut row = row.as_bytes().to_vec();
        push_texts(&mut row, random, [(8, 16)]);
        let first = row[size_of::<Customer>() + 1..].to_vec();
        row.push(last.len() as u8);
        row.extend_from_slice(&last);
        push_texts(&mut row, random, ADDRESS);
        random.letters(&mut row, 300, CUSTOMER_DATA_BYTES_MAX as u32);
        rows.push((CUSTOMER, key::customer(w, d, c), row));
        rows.push((CUSTOMER_NAME, key::customer_name(w, d, &last, &first, c), Vec::new()));

        let (amount, date) = ((FIRST_PAYMENT as u32).into(), now.into());
        let row = History { amount, date, c_id: c.into(), c_w_id: w.into(), c_d_id: d, d_id: d };
        let mut row = row.as_bytes().to_vec();
        random.letters(&mut row, 12, 24);
        // Smaller than any stamp taken from a clock.
        let stamp = u64::from(d) << 32 | u64::from(c);
        rows.push((HISTORY, key::history(w, stamp, 0), row));
    }

    /// An order with its lines; the last three tenths are not delivered yet.
    fn order(&mut self, w: u16, d: u8, o: u32, rows: &mut Rows) {
        let delivered = o <= self.shape.delivered();
        let c = self.ordering[o as usize - 1];
        let random = &mut self.random;
        let (now, lines) = (now_us(), random.range(5, 15) as u8);
        let carrier = if delivered { random.range(1, 10) as u8 } else { 0 };
        let row = Order { entry_d: now.into(), c_id: c.into(), carrier_id: carrier, ol_cnt: lines, all_local: 1 };
        rows.push((ORDERS, key::order(w, d, o), row.as_bytes().to_vec()));
        rows.push((ORDER_CUSTOMER, key::order_customer(w, d, c, o), Vec::new()));
        for line in 1..=lines {
            let row = OrderLine {
                delivery_d: if delivered { now } else { 0 }.into(),
                i_id: random.range(1, self.shape.items).into(),
                amount: if delivered { 0 } else { random.range(1, 999_999) }.into(),
                supply_w_id: w.into(),
                quantity: 5,
                dist_info: random.chars(),
            };
            rows.push((ORDER_LINE, key::order_line(w, d, o, line), row.as_bytes().to_vec()));
        }
        if !delivered {
            rows.push((NEW_ORDER, key::order(w, d, o), Vec::new()));
        }
    }
}

/// The initial payment of every customer, cents.
const FIRST_PAYMENT: i64 = 1000;
