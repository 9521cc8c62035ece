//! The consistency conditions of clause 3.3.2, and that the indexes match their tables.
//!
//! 1. All twelve are checked, over snapshots taken while no transaction writes; one thread checks a
//!    warehouse.
//! 2. Condition 11 holds as specified only initially: every delivery increases the difference by one. It is
//!    checked with the deliveries added that the customers count.
//! 3. A malformed row is an error, not a violation.

use super::layout::{NAME, last_u32_of, u32_of};
use super::schema::{
    CUSTOMER, CUSTOMER_NAME, DISTRICT, DISTRICTS, HISTORY, NEW_ORDER, ORDER_CUSTOMER, ORDER_LINE, ORDERS, WAREHOUSE,
    customer, district, history, key, order_line, orders, warehouse,
};
use super::{Shape, scan};
use crate::store::{Error, Result, Store, Tx};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Violations listed for each warehouse; the rest is counted.
const NAMED_MAX: usize = 10;

/// A condition that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its clause, or `index`.
    pub condition: &'static str,
    /// The rows and their values.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "consistency condition {} does not hold: {}", self.condition, self.what)
    }
}

/// The result of the checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Conditions that do not hold, up to ten of each warehouse.
    pub violations: Vec<Violation>,
    /// The number of those not listed.
    pub more: u64,
}

impl Checked {
    /// Records `what` unless `holds`.
    fn expect(&mut self, condition: &'static str, holds: bool, what: impl FnOnce() -> String) {
        if holds {
        } else if self.violations.len() < NAMED_MAX {
            self.violations.push(Violation { condition, what: what() });
        } else {
            self.more += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.more += other.more;
    }
}

/// Checks everything, by up to `threads` threads.
///
/// # Errors
/// Those of the store; a row that is missing or malformed. Violations are in the result.
pub fn check(store: &dyn Store, shape: Shape, threads: usize) -> Result<Checked> {
    let customers = usize::from(shape.warehouses) * usize::from(DISTRICTS) * shape.scale.customers as usize;
    // What each customer paid, in any warehouse: so it is summed over all histories.
    let paid: Vec<AtomicI64> = (0..customers).map(|_| AtomicI64::new(0)).collect();
    let mut checked = Checked::default();
    let mut taken = Vec::new();
    for (of_warehouse, wrong) in each(store, shape, threads, |tx, w| Taken::read(tx, shape, w, &paid))? {
        taken.push(of_warehouse);
        checked.add(wrong);
    }
    let found = each(store, shape, threads, |tx, w| {
        let mut checked = Checked::default();
        check_warehouse(tx, shape, w, &taken[usize::from(w) - 1], &paid, &mut checked)?;
        Ok(checked)
    })?;
    found.into_iter().for_each(|of_warehouse| checked.add(of_warehouse));
    Ok(checked)
}

/// Calls `work` for each warehouse, in a transaction that is rolled back; returns the answers by warehouse.
fn each<T: Send>(
    store: &dyn Store,
    shape: Shape,
    threads: usize,
    work: impl Fn(&mut dyn Tx, u16) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicU32::new(1);
    let mut answers = std::thread::scope(|scope| {
        let worker = || {
            let mut session = store.session()?;
            let mut answers = Vec::new();
            while let Some(w) =
                u16::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().filter(|w| *w <= shape.warehouses)
            {
                let mut tx = session.begin()?;
                answers.push((w, work(&mut *tx, w)?));
            }
            Ok(answers)
        };
        let workers: Vec<_> = (0..threads.clamp(1, shape.warehouses.into())).map(|_| scope.spawn(worker)).collect();
        let mut answers = Vec::new();
        for worker in workers {
            let of_worker: Result<_> = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            answers.extend(of_worker?);
        }
        Ok::<_, Error>(answers)
    })?;
    answers.sort_unstable_by_key(|(w, _)| *w);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

fn row(tx: &mut dyn Tx, table: usize, key: &[u8]) -> Result<Vec<u8>> {
    let name = super::TABLES[table];
    tx.get(table, key)?.ok_or_else(|| Error::failed(NAME, format_args!("{name} has no row with key {key:02x?}")))
}

/// A customer's index in a list of all.
fn place(shape: Shape, w: u16, d: u8, c: u32) -> Option<usize> {
    let known = (1..=shape.warehouses).contains(&w) && (1..=DISTRICTS).contains(&d);
    let district = usize::from(w).wrapping_sub(1) * usize::from(DISTRICTS) + usize::from(d).wrapping_sub(1);
    (known && (1..=shape.scale.customers).contains(&c))
        .then(|| district * shape.scale.customers as usize + c as usize - 1)
}

/// The payments in a warehouse's history, cents.
struct Taken {
    warehouse: i64,
    districts: [i64; DISTRICTS as usize],
}

impl Taken {
    fn read(tx: &mut dyn Tx, shape: Shape, w: u16, paid: &[AtomicI64]) -> Result<(Self, Checked)> {
        let mut taken = Self { warehouse: 0, districts: [0; DISTRICTS as usize] };
        let mut checked = Checked::default();
        let prefix = key::warehouse(w);
        scan(tx, HISTORY, &prefix, &prefix.after(), &mut |key, row| {
            let amount = i64::from(history::AMOUNT.get(row)?);
            taken.warehouse += amount;
            let d = history::D_ID.get(row)?;
            match taken.districts.get_mut(usize::from(d).wrapping_sub(1)) {
                Some(of_district) => *of_district += amount,
                None => checked.expect("3.3.2.9", false, || format!("history row {key:02x?} is of district {d}")),
            }
            let (c_w, c_d, c) = (history::C_W_ID.get(row)?, history::C_D_ID.get(row)?, history::C_ID.get(row)?);
            match place(shape, c_w, c_d, c).and_then(|place| paid.get(place)) {
                Some(paid) => drop(paid.fetch_add(amount, Ordering::Relaxed)),
                None => checked.expect("3.3.2.10", false, || {
                    format!(
                        "history row {key:02x?} is of customer {c} of district {c_d} of warehouse {c_w}, who is not"
                    )
                }),
            }
            Ok(())
        })?;
        Ok((taken, checked))
    }
}

fn check_warehouse(
    tx: &mut dyn Tx,
    shape: Shape,
    w: u16,
    taken: &Taken,
    paid: &[AtomicI64],
    checked: &mut Checked,
) -> Result<()> {
    let ytd = warehouse::YTD.get(&row(tx, WAREHOUSE, &key::warehouse(w))?)?;
    let mut of_districts = 0;
    for (d, taken) in (1..).zip(taken.districts) {
        let found = row(tx, DISTRICT, &key::district(w, d))?;
        let ytd = district::YTD.get(&found)?;
        of_districts += ytd;
        checked.expect("3.3.2.9", ytd == taken, || {
            format!("warehouse {w} district {d}: D_YTD is {ytd}, its history's amounts are {taken} (cents)")
        });
        District::read(tx, shape, w, d)?.check(district::NEXT_O_ID.get(&found)?, paid, checked);
    }
    checked.expect("3.3.2.1", ytd == of_districts, || {
        format!("warehouse {w}: W_YTD is {ytd}, all D_YTD are {of_districts} (cents)")
    });
    checked.expect("3.3.2.8", ytd == taken.warehouse, || {
        format!("warehouse {w}: W_YTD is {ytd}, its history's amounts are {} (cents)", taken.warehouse)
    });
    Ok(())
}

/// An order, and the sums over its lines.
struct Order {
    number: u32,
    customer: u32,
    carrier: u8,
    line_count: u8,
    lines: u32,
    lines_delivered: u32,
    /// Of delivered lines, cents.
    amount: i64,
    indexed: u32,
}

struct Customer {
    number: u32,
    balance: i64,
    paid: i64,
    deliveries: u32,
}

/// A district's rows, as far as the conditions need them.
struct District {
    shape: Shape,
    w: u16,
    d: u8,
    orders: Vec<Order>,
    new_orders: Vec<u32>,
    customers: Vec<Customer>,
    lines: u64,
    /// Lines, and entries of the index by customer, without an order.
    stray_lines: Vec<u32>,
    stray_entries: Vec<u32>,
    names: u64,
}

impl District {
    fn read(tx: &mut dyn Tx, shape: Shape, w: u16, d: u8) -> Result<Self> {
        let from = key::district(w, d);
        let to = from.after();
        let mut read = Self {
            shape,
            w,
            d,
            orders: Vec::new(),
            new_orders: Vec::new(),
            customers: Vec::new(),
            lines: 0,
            stray_lines: Vec::new(),
            stray_entries: Vec::new(),
            names: 0,
        };
        scan(tx, ORDERS, &from, &to, &mut |key, row| {
            read.orders.push(Order {
                number: last_u32_of(key)?,
                customer: orders::C_ID.get(row)?,
                carrier: orders::CARRIER_ID.get(row)?,
                line_count: orders::OL_CNT.get(row)?,
                lines: 0,
                lines_delivered: 0,
                amount: 0,
                indexed: 0,
            });
            Ok(())
        })?;
        // Both are sorted by number.
        let mut at = 0;
        scan(tx, ORDER_LINE, &from, &to, &mut |key, row| {
            read.lines += 1;
            let number = u32_of(key, from.len())?;
            at += read.orders[at..].iter().take_while(|order| order.number < number).count();
            let Some(order) = read.orders.get_mut(at).filter(|order| order.number == number) else {
                read.stray_lines.push(number);
                return Ok(());
            };
            order.lines += 1;
            if order_line::DELIVERY_D.get(row)? != 0 {
                order.lines_delivered += 1;
                order.amount += i64::from(order_line::AMOUNT.get(row)?);
            }
            Ok(())
        })?;
        scan(tx, NEW_ORDER, &from, &to, &mut |key, _| {
            read.new_orders.push(last_u32_of(key)?);
            Ok(())
        })?;
        scan(tx, ORDER_CUSTOMER, &from, &to, &mut |key, _| {
            let (customer, number) = (u32_of(key, from.len())?, last_u32_of(key)?);
            let order = read.orders.binary_search_by_key(&number, |order| order.number).ok();
            match order.map(|i| &mut read.orders[i]).filter(|order| order.customer == customer) {
                Some(order) => order.indexed += 1,
                None => read.stray_entries.push(number),
            }
            Ok(())
        })?;
        scan(tx, CUSTOMER, &from, &to, &mut |key, row| {
            read.customers.push(Customer {
                number: last_u32_of(key)?,
                balance: customer::BALANCE.get(row)?,
                paid: customer::YTD_PAYMENT.get(row)?,
                deliveries: customer::DELIVERY_CNT.get(row)?,
            });
            Ok(())
        })?;
        scan(tx, CUSTOMER_NAME, &from, &to, &mut |_, _| {
            read.names += 1;
            Ok(())
        })?;
        Ok(read)
    }

    fn check(&self, next_order: u32, paid: &[AtomicI64], checked: &mut Checked) {
        let place = format!("warehouse {} district {}", self.w, self.d);
        let last = self.orders.last().map_or(0, |order| order.number);
        checked.expect("3.3.2.2", next_order.checked_sub(1) == Some(last), || {
            format!("{place}: D_NEXT_O_ID is {next_order}, the last order is {last}")
        });
        if let (Some(first), Some(newest)) = (self.new_orders.first(), self.new_orders.last()) {
            checked.expect("3.3.2.2", *newest == last, || {
                format!("{place}: the last new-order is {newest}, the last order is {last}")
            });
            let count = self.new_orders.len();
            checked.expect("3.3.2.3", (newest - first) as usize + 1 == count, || {
                format!("{place}: new-orders are {first} to {newest}, but {count} in number")
            });
        }
        let line_counts: u64 = self.orders.iter().map(|order| u64::from(order.line_count)).sum();
        checked.expect("3.3.2.4", line_counts == self.lines, || {
            format!("{place}: all O_OL_CNT are {line_counts}, the order lines are {}", self.lines)
        });
        for number in &self.stray_lines {
            checked.expect("3.3.2.6", false, || format!("{place}: a line is of order {number}, which is not"));
        }
        for number in &self.stray_entries {
            checked.expect("index", false, || {
                format!("{place}: order_customer has order {number}, which is not, or is another customer's")
            });
        }
        self.orders.iter().for_each(|order| self.check_order(order, &place, checked));
        self.check_customers(paid, &place, checked);
        let known = self.orders.len() as i64 - self.new_orders.len() as i64;
        let delivered = self.customers.iter().map(|c| i64::from(c.deliveries)).sum::<i64>();
        let expected = i64::from(self.shape.scale.delivered()) + delivered;
        checked.expect("3.3.2.11", known == expected, || {
            format!("{place}: {known} orders are no new-orders, loaded so or delivered since are {expected}")
        });
        let loaded = u64::from(self.shape.scale.customers);
        checked.expect("index", self.names == loaded && self.customers.len() as u64 == loaded, || {
            format!("{place}: {} customers and {} names, of {loaded}", self.customers.len(), self.names)
        });
    }

    fn check_order(&self, order: &Order, place: &str, checked: &mut Checked) {
        let number = order.number;
        let is_new = self.new_orders.binary_search(&number).is_ok();
        checked.expect("3.3.2.5", is_new == (order.carrier == 0), || {
            format!("{place} order {number}: O_CARRIER_ID is {} (0: null), new-order {is_new}", order.carrier)
        });
        checked.expect("3.3.2.6", u32::from(order.line_count) == order.lines, || {
            format!("{place} order {number}: O_OL_CNT is {}, its lines are {}", order.line_count, order.lines)
        });
        let delivered = if order.carrier == 0 { 0 } else { order.lines };
        checked.expect("3.3.2.7", order.lines_delivered == delivered, || {
            let (lines, carrier) = (order.lines, order.carrier);
            let delivered = order.lines_delivered;
            format!("{place} order {number}: {delivered} of {lines} lines delivered, O_CARRIER_ID {carrier} (0: null)")
        });
        checked.expect("index", order.indexed == 1, || {
            format!("{place} order {number}: order_customer has it {} times", order.indexed)
        });
    }

    fn check_customers(&self, paid: &[AtomicI64], name: &str, checked: &mut Checked) {
        let mut delivered = vec![0; self.shape.scale.customers as usize];
        for order in &self.orders {
            match delivered.get_mut((order.customer as usize).wrapping_sub(1)) {
                Some(delivered) => *delivered += order.amount,
                None => checked.expect("3.3.2.10", false, || {
                    format!("{name} order {}: is of customer {}, who is not", order.number, order.customer)
                }),
            }
        }
        for customer in &self.customers {
            let c = customer.number;
            let Some(place) = place(self.shape, self.w, self.d, c) else {
                checked.expect("3.3.2.10", false, || format!("{name}: has a customer {c}"));
                continue;
            };
            let (delivered, paid) = (delivered[c as usize - 1], paid[place].load(Ordering::Relaxed));
            let balance = customer.balance;
            checked.expect("3.3.2.10", balance == delivered - paid, || {
                format!(
                    "{name} customer {c}: C_BALANCE is {balance}, delivered {delivered}, paid by history {paid} (cents)"
                )
            });
            checked.expect("3.3.2.12", balance + customer.paid == delivered, || {
                let ytd = customer.paid;
                format!(
                    "{name} customer {c}: C_BALANCE is {balance}, C_YTD_PAYMENT {ytd}, delivered {delivered} (cents)"
                )
            });
        }
    }
}
