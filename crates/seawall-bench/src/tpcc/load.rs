//! Fills a store by clause 4.3.3.
//!
//! 1. The work is divided into units (the items, a warehouse's stock, a district) that threads take one after
//!    the other, and each unit into parts of about a thousand rows, a transaction each. The content of a unit
//!    depends only on the seed and the unit.
//! 2. Every consistency condition holds when the last part is committed; not before.

use super::random::{LastName, Random};
use super::schema::{
    CUSTOMER, CUSTOMER_NAME, DISTRICT, DISTRICTS, HISTORY, ITEM, NEW_ORDER, ORDER_CUSTOMER, ORDER_LINE, ORDERS, STOCK,
    WAREHOUSE, customer, district, history, item, key, order_line, orders, stock, warehouse,
};
use super::{Scale, Shape, now_us};
use crate::run::{Operation, Outcome};
use crate::store::{Result, Session, Store};
use std::sync::atomic::{AtomicU32, Ordering};

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
pub(crate) struct Units(AtomicU32);

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
type Rows = Vec<(usize, super::layout::Key, Vec<u8>)>;

/// One loading thread.
pub(crate) struct Loader<'s> {
    shape: Shape,
    seed: u64,
    session: Box<dyn Session + 's>,
    units: &'s Units,
    unit: Option<UnitLoad>,
    /// The part that met a conflict.
    pending: Rows,
}

impl<'s> Loader<'s> {
    pub(crate) fn new(store: &'s dyn Store, shape: Shape, seed: u64, units: &'s Units) -> Result<Self> {
        Ok(Self { shape, seed, session: store.session()?, units, unit: None, pending: Rows::new() })
    }

    /// The rows of the next part; empty when all is loaded.
    fn part(&mut self) -> Result<Rows> {
        loop {
            let rows = self.unit.as_mut().map_or_else(|| Ok(Rows::new()), UnitLoad::part)?;
            if !rows.is_empty() {
                return Ok(rows);
            }
            let Some((number, unit)) = self.units.take(self.shape.warehouses) else { return Ok(rows) };
            let (random, ordering) =
                (Random::new(self.seed, number.into()), (1..=self.shape.scale.customers).collect());
            self.unit = Some(UnitLoad { unit, shape: self.shape, random, done: 0, ordering });
        }
    }
}

impl Operation for Loader<'_> {
    fn next(&mut self) -> Result<Outcome> {
        if self.pending.is_empty() {
            self.pending = self.part()?;
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

/// Rows of a whole load, approximately: an order has 10 lines on average.
pub(crate) fn rows_about(shape: Shape) -> u64 {
    let customers = u64::from(shape.scale.customers) * u64::from(DISTRICTS);
    let orders = customers * 12 + u64::from(shape.scale.undelivered()) * u64::from(DISTRICTS);
    let of_warehouse = 1 + u64::from(DISTRICTS) + u64::from(shape.scale.items) + customers * 3 + orders;
    u64::from(shape.scale.items) + u64::from(shape.warehouses) * of_warehouse
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

fn push_text(row: &mut Vec<u8>, random: &mut Random, from: u32, to: u32) {
    let at = row.len();
    row.push(0);
    random.letters(row, from, to);
    // At most 24 letters, by the specification's columns.
    row[at] = (row.len() - at - 1) as u8;
}

fn push_address(row: &mut Vec<u8>, random: &mut Random) {
    (0..3).for_each(|_| push_text(row, random, 10, 20));
}

impl UnitLoad {
    /// The next rows; empty when the unit is complete.
    fn part(&mut self) -> Result<Rows> {
        let Scale { items, customers } = self.shape.scale;
        let (part, total) = match self.unit {
            Unit::Items | Unit::Warehouse(_) => (PART_ROWS, items),
            Unit::District(..) if self.done < customers => (PART_CUSTOMERS, customers),
            Unit::District(..) => (PART_ORDERS, 2 * customers),
        };
        let mut rows = Rows::new();
        match self.unit {
            Unit::Warehouse(w) if self.done == 0 => rows.push((WAREHOUSE, key::warehouse(w), self.warehouse()?)),
            Unit::District(w, d) if self.done == 0 => rows.push((DISTRICT, key::district(w, d), self.district()?)),
            Unit::District(..) if self.done == customers => self.random.shuffle(&mut self.ordering),
            _ => {}
        }
        for n in self.done + 1..=(self.done + part).min(total) {
            match self.unit {
                Unit::Items => rows.push((ITEM, key::item(n), self.item()?)),
                Unit::Warehouse(w) => rows.push((STOCK, key::stock(w, n), self.stock()?)),
                Unit::District(w, d) if n <= customers => self.customer(w, d, n, &mut rows)?,
                Unit::District(w, d) => self.order(w, d, n - customers, &mut rows)?,
            }
            self.done = n;
        }
        Ok(rows)
    }

    fn item(&mut self) -> Result<Vec<u8>> {
        let random = &mut self.random;
        let mut row = vec![0; item::NAME];
        item::IM_ID.set(&mut row, random.range(1, 10_000))?;
        item::PRICE.set(&mut row, random.range(100, 10_000))?;
        push_text(&mut row, random, 14, 24);
        random.data(&mut row);
        Ok(row)
    }

    fn stock(&mut self) -> Result<Vec<u8>> {
        let random = &mut self.random;
        let mut row = vec![0; stock::DATA];
        stock::QUANTITY.set(&mut row, random.range(10, 100) as i16)?;
        for d in 1..=DISTRICTS {
            stock::dist(d).set(&mut row, random.chars())?;
        }
        random.data(&mut row);
        Ok(row)
    }

    fn warehouse(&mut self) -> Result<Vec<u8>> {
        let paid = i64::from(self.shape.scale.customers) * i64::from(DISTRICTS) * FIRST_PAYMENT;
        let random = &mut self.random;
        let mut row = vec![0; warehouse::NAME];
        warehouse::YTD.set(&mut row, paid)?;
        warehouse::TAX.set(&mut row, random.range(0, 2000) as u16)?;
        warehouse::STATE.set(&mut row, random.chars())?;
        warehouse::ZIP.set(&mut row, random.zip())?;
        push_text(&mut row, random, 6, 10);
        push_address(&mut row, random);
        Ok(row)
    }

    fn district(&mut self) -> Result<Vec<u8>> {
        let scale = self.shape.scale;
        let random = &mut self.random;
        let mut row = vec![0; district::NAME];
        district::YTD.set(&mut row, i64::from(scale.customers) * FIRST_PAYMENT)?;
        district::NEXT_O_ID.set(&mut row, scale.customers + 1)?;
        district::TAX.set(&mut row, random.range(0, 2000) as u16)?;
        district::STATE.set(&mut row, random.chars())?;
        district::ZIP.set(&mut row, random.zip())?;
        push_text(&mut row, random, 6, 10);
        push_address(&mut row, random);
        Ok(row)
    }

    /// A customer, its index entry and its row in the history.
    fn customer(&mut self, w: u16, d: u8, c: u32, rows: &mut Rows) -> Result<()> {
        let names = self.shape.scale.names();
        let random = &mut self.random;
        // The first customers get every existing name, so that a lookup by name always finds a customer.
        let last = if c <= names { LastName::new(c - 1) } else { random.last_name_to_load(names) };
        let now = now_us();
        let mut row = vec![0; customer::FIRST];
        customer::BALANCE.set(&mut row, -FIRST_PAYMENT)?;
        customer::YTD_PAYMENT.set(&mut row, FIRST_PAYMENT)?;
        customer::CREDIT_LIM.set(&mut row, 5_000_000)?;
        customer::SINCE.set(&mut row, now)?;
        customer::PAYMENT_CNT.set(&mut row, 1)?;
        customer::DISCOUNT.set(&mut row, random.range(0, 5000) as u16)?;
        customer::CREDIT.set(&mut row, if random.percent(10) { *b"BC" } else { *b"GC" })?;
        customer::MIDDLE.set(&mut row, *b"OE")?;
        customer::STATE.set(&mut row, random.chars())?;
        customer::ZIP.set(&mut row, random.zip())?;
        customer::PHONE.set(&mut row, random.digits())?;
        push_text(&mut row, random, 8, 16);
        let first = row[customer::FIRST + 1..].to_vec();
        row.push(last.bytes().len() as u8);
        row.extend_from_slice(last.bytes());
        push_address(&mut row, random);
        random.letters(&mut row, 300, customer::DATA_BYTES_MAX as u32);
        rows.push((CUSTOMER, key::customer(w, d, c), row));
        rows.push((CUSTOMER_NAME, key::customer_name(w, d, last.bytes(), &first, c), Vec::new()));

        let mut row = vec![0; history::DATA];
        history::AMOUNT.set(&mut row, FIRST_PAYMENT as u32)?;
        history::DATE.set(&mut row, now)?;
        history::C_ID.set(&mut row, c)?;
        history::C_W_ID.set(&mut row, w)?;
        history::C_D_ID.set(&mut row, d)?;
        history::D_ID.set(&mut row, d)?;
        random.letters(&mut row, 12, 24);
        // Smaller than any stamp taken from a clock.
        let stamp = u64::from(d) << 32 | u64::from(c);
        rows.push((HISTORY, key::history(w, stamp, 0), row));
        Ok(())
    }

    /// An order with its lines; the last three tenths are not delivered yet.
    fn order(&mut self, w: u16, d: u8, o: u32, rows: &mut Rows) -> Result<()> {
        let scale = self.shape.scale;
        let delivered = o <= scale.delivered();
        let c = self.ordering[o as usize - 1];
        let random = &mut self.random;
        let (now, lines) = (now_us(), random.range(5, 15) as u8);
        let mut row = vec![0; orders::BYTES];
        orders::ENTRY_D.set(&mut row, now)?;
        orders::C_ID.set(&mut row, c)?;
        orders::CARRIER_ID.set(&mut row, if delivered { random.range(1, 10) as u8 } else { 0 })?;
        orders::OL_CNT.set(&mut row, lines)?;
        orders::ALL_LOCAL.set(&mut row, 1)?;
        rows.push((ORDERS, key::order(w, d, o), row));
        rows.push((ORDER_CUSTOMER, key::order_customer(w, d, c, o), Vec::new()));
        for line in 1..=lines {
            let mut row = vec![0; order_line::BYTES];
            order_line::DELIVERY_D.set(&mut row, if delivered { now } else { 0 })?;
            order_line::I_ID.set(&mut row, random.range(1, scale.items))?;
            order_line::AMOUNT.set(&mut row, if delivered { 0 } else { random.range(1, 999_999) })?;
            order_line::SUPPLY_W_ID.set(&mut row, w)?;
            order_line::QUANTITY.set(&mut row, 5)?;
            order_line::DIST_INFO.set(&mut row, random.chars())?;
            rows.push((ORDER_LINE, key::order_line(w, d, o, line), row));
        }
        if !delivered {
            rows.push((NEW_ORDER, key::order(w, d, o), Vec::new()));
        }
        Ok(())
    }
}

/// The initial payment of every customer, cents.
const FIRST_PAYMENT: i64 = 1000;
