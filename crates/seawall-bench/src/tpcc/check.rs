//! The consistency conditions of clause 3.3.2, and that the indexes match their tables.
//!
//! 1. All twelve are checked, over snapshots taken while no transaction writes.
//! 2. Condition 11 holds as specified only initially: every delivery increases the difference by one. The check adds
//!    the number of deliveries, as counted in the customers' rows.
//! 3. A malformed row is an error, not a violation.

use super::layout::{after, columns, last_u32_of, u32_of};
use super::schema::{self, *};
use super::transactions::get;
use super::{Shape, collect, scan};
use crate::store::{Result, Store, Tx};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

/// Violations that are listed; the rest is counted.
const NAMED_MAX: usize = 20;

/// A condition that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("consistency condition {condition} does not hold: {what}")]
pub struct Violation {
    /// Its clause, or `index`.
    pub condition: &'static str,
    /// The rows and their values.
    pub what: String,
}

/// The result of the checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Conditions that do not hold, up to twenty.
    pub violations: Vec<Violation>,
    /// The number of those not listed.
    pub more: u64,
}

impl Checked {
    /// Records a condition that does not hold.
    fn violated(&mut self, condition: &'static str, what: String) {
        if self.violations.len() < NAMED_MAX {
            self.violations.push(Violation { condition, what });
        } else {
            self.more += 1;
        }
    }

    /// Records a violation unless both values, each with its name, are equal.
    fn equal<T: PartialEq + Display>(&mut self, condition: &'static str, place: impl Display, values: [(&str, T); 2]) {
        let [(name, value), (other_name, other)] = values;
        if value != other {
            self.violated(condition, format!("{place}: {name} is {value}, {other_name} is {other}"));
        }
    }
}

/// Checks everything.
///
/// # Errors
/// Those of the store; a row that is missing or malformed. Violations are in the result.
pub fn check(store: &dyn Store, shape: Shape) -> Result<Checked> {
    let mut session = store.session()?;
    let (mut checked, mut paid) = <(Checked, Payments)>::default();
    // A customer can pay in any warehouse, so all histories are read first.
    for w in 1..=shape.warehouses {
        paid.read(&mut *session.begin()?, shape, w, &mut checked)?;
    }
    for w in 1..=shape.warehouses {
        check_warehouse(&mut *session.begin()?, shape, w, &paid, &mut checked)?;
    }
    Ok(checked)
}

/// Whether there is such a customer.
fn is_customer(shape: Shape, w: u16, d: u8, c: u32) -> bool {
    (1..=shape.warehouses).contains(&w) && (1..=DISTRICTS).contains(&d) && (1..=shape.customers).contains(&c)
}

/// The payments in the histories, cents.
#[derive(Default)]
struct Payments {
    by_district: BTreeMap<(u16, u8), i64>,
    by_customer: HashMap<(u16, u8, u32), i64>,
}

impl Payments {
    /// Reads the history of a warehouse.
    fn read(&mut self, tx: &mut dyn Tx, shape: Shape, w: u16, checked: &mut Checked) -> Result<()> {
        let prefix = key::warehouse(w);
        scan(tx, HISTORY, &prefix, &after(&prefix), &mut |key, row| {
            let row: &History = columns(row)?;
            let (amount, d) = (i64::from(row.amount.get()), row.d_id);
            *self.by_district.entry((w, d)).or_default() += amount;
            if !(1..=DISTRICTS).contains(&d) {
                checked.violated("3.3.2.9", format!("history row {key:02x?} is of district {d}"));
            }
            let (c_w, c_d, c) = (row.c_w_id.get(), row.c_d_id, row.c_id.get());
            *self.by_customer.entry((c_w, c_d, c)).or_default() += amount;
            if !is_customer(shape, c_w, c_d, c) {
                let who = format!("customer {c} of district {c_d} of warehouse {c_w}");
                checked.violated("3.3.2.10", format!("history row {key:02x?} is of {who}, who is not"));
            }
            Ok(())
        })
    }
}

fn check_warehouse(tx: &mut dyn Tx, shape: Shape, w: u16, paid: &Payments, checked: &mut Checked) -> Result<()> {
    let ytd = columns::<Warehouse>(&get(tx, WAREHOUSE, &key::warehouse(w))?)?.ytd.get();
    let mut of_districts = 0;
    for d in 1..=DISTRICTS {
        let taken = paid.by_district.get(&(w, d)).copied().unwrap_or(0);
        let found = get(tx, DISTRICT, &key::district(w, d))?;
        let &schema::District { ytd, next_o_id, .. } = columns(&found)?;
        let ytd = ytd.get();
        of_districts += ytd;
        let name = format!("warehouse {w} district {d}");
        checked.equal("3.3.2.9", &name, [("D_YTD", ytd), ("the sum of its history's amounts", taken)]);
        let read = District::read(tx, w, d, &name, checked)?;
        read.check(shape, &name, next_o_id.get(), checked);
        let paid = |c| paid.by_customer.get(&(w, d, c)).copied().unwrap_or(0);
        read.check_customers(|c| is_customer(shape, w, d, c).then(|| paid(c)), &name, checked);
    }
    let name = &format!("warehouse {w}");
    let taken = paid.by_district.range((w, 0)..=(w, u8::MAX)).map(|(_, amount)| amount).sum();
    checked.equal("3.3.2.1", name, [("W_YTD", ytd), ("the sum of all D_YTD", of_districts)]);
    checked.equal("3.3.2.8", name, [("W_YTD", ytd), ("the sum of its history's amounts", taken)]);
    Ok(())
}

/// An order, and the sums over its lines.
#[derive(Default)]
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
#[derive(Default)]
struct District {
    orders: Vec<Order>,
    new_orders: Vec<u32>,
    customers: Vec<Customer>,
    lines: u64,
    names: u64,
}

impl District {
    /// Reads the rows. Lines, and entries of the index by customer, without an order are violations.
    fn read(tx: &mut dyn Tx, w: u16, d: u8, name: &str, checked: &mut Checked) -> Result<Self> {
        let from = key::district(w, d);
        let to = after(&from);
        let orders = collect(tx, ORDERS, &from, |key, row| {
            let (number, row) = (last_u32_of(key)?, columns::<schema::Order>(row)?);
            let (customer, carrier, line_count) = (row.c_id.get(), row.carrier_id, row.ol_cnt);
            Ok(Order { number, customer, carrier, line_count, ..Order::default() })
        })?;
        let mut read = Self { orders, ..Self::default() };
        // Both are sorted by number.
        let mut at = 0;
        scan(tx, ORDER_LINE, &from, &to, &mut |key, row| {
            read.lines += 1;
            let number = u32_of(key, from.len())?;
            at += read.orders[at..].iter().take_while(|order| order.number < number).count();
            let Some(order) = read.orders.get_mut(at).filter(|order| order.number == number) else {
                checked.violated("3.3.2.6", format!("{name}: a line is of order {number}, which is not"));
                return Ok(());
            };
            order.lines += 1;
            let row: &OrderLine = columns(row)?;
            if row.delivery_d != 0 {
                order.lines_delivered += 1;
                order.amount += i64::from(row.amount.get());
            }
            Ok(())
        })?;
        read.new_orders = collect(tx, NEW_ORDER, &from, |key, _| last_u32_of(key))?;
        scan(tx, ORDER_CUSTOMER, &from, &to, &mut |key, _| {
            let (customer, number) = (u32_of(key, from.len())?, last_u32_of(key)?);
            let order = read.orders.binary_search_by_key(&number, |order| order.number).ok();
            match order.map(|i| &mut read.orders[i]).filter(|order| order.customer == customer) {
                Some(order) => order.indexed += 1,
                None => {
                    let what = format!("order_customer has order {number}, which is not, or is another customer's");
                    checked.violated("index", format!("{name}: {what}"));
                }
            }
            Ok(())
        })?;
        read.customers = collect(tx, CUSTOMER, &from, |key, row| {
            let (number, row) = (last_u32_of(key)?, columns::<schema::Customer>(row)?);
            let (balance, paid, deliveries) = (row.balance.get(), row.ytd_payment.get(), row.delivery_cnt.get());
            Ok(Customer { number, balance, paid, deliveries })
        })?;
        read.names = collect(tx, CUSTOMER_NAME, &from, |_, _| Ok(()))?.len() as u64;
        Ok(read)
    }

    fn check(&self, shape: Shape, name: &str, next_order: u32, checked: &mut Checked) {
        let last = self.orders.last().map_or(0, |order| order.number);
        checked.equal("3.3.2.2", name, [("D_NEXT_O_ID", next_order), ("the last order + 1", last + 1)]);
        if let (Some(&first), Some(&newest)) = (self.new_orders.first(), self.new_orders.last()) {
            checked.equal("3.3.2.2", name, [("the last new-order", newest), ("the last order", last)]);
            let count = self.new_orders.len() as u32;
            checked.equal("3.3.2.3", name, [("the range of new-orders", newest - first + 1), ("their number", count)]);
        }
        let line_counts: u64 = self.orders.iter().map(|order| u64::from(order.line_count)).sum();
        checked.equal("3.3.2.4", name, [("the sum of O_OL_CNT", line_counts), ("the number of lines", self.lines)]);
        self.orders.iter().for_each(|order| self.check_order(order, name, checked));
        let known = self.orders.len() as i64 - self.new_orders.len() as i64;
        let delivered = self.customers.iter().map(|c| i64::from(c.deliveries)).sum::<i64>();
        let expected = i64::from(shape.delivered()) + delivered;
        let names = ["the number of orders that are no new-orders", "of those loaded so or delivered since"];
        checked.equal("3.3.2.11", name, [(names[0], known), (names[1], expected)]);
        let loaded = u64::from(shape.customers);
        for (rows, count) in [("customers", self.customers.len() as u64), ("customer_name entries", self.names)] {
            checked.equal("index", name, [(rows, count), ("the number loaded", loaded)]);
        }
    }

    fn check_order(&self, order: &Order, name: &str, checked: &mut Checked) {
        let (is_delivered, number) = (order.carrier != 0, order.number);
        let name = &format!("{name} order {number}");
        let is_new = self.new_orders.binary_search(&number).is_ok();
        checked.equal("3.3.2.5", name, [("O_CARRIER_ID null", !is_delivered), ("a new-order", is_new)]);
        checked.equal("3.3.2.6", name, [("O_OL_CNT", order.line_count.into()), ("the number of lines", order.lines)]);
        let expected = if is_delivered { order.lines } else { 0 };
        let names = ["the number of delivered lines", "by O_CARRIER_ID it"];
        checked.equal("3.3.2.7", name, [(names[0], order.lines_delivered), (names[1], expected)]);
        checked.equal("index", name, [("the number of order_customer entries", order.indexed), ("expected", 1)]);
    }

    /// Checks the customers. `paid` returns what a customer paid according to the histories.
    fn check_customers(&self, paid: impl Fn(u32) -> Option<i64>, name: &str, checked: &mut Checked) {
        let mut delivered = BTreeMap::new();
        for order in &self.orders {
            *delivered.entry(order.customer).or_insert(0) += order.amount;
            if paid(order.customer).is_none() {
                let what = format!("{name} order {}: is of customer {}, who is not", order.number, order.customer);
                checked.violated("3.3.2.10", what);
            }
        }
        for &Customer { number, balance, paid: ytd, .. } in &self.customers {
            let Some(paid) = paid(number) else {
                checked.violated("3.3.2.10", format!("{name}: has a customer {number}"));
                continue;
            };
            let name = &format!("{name} customer {number}");
            let delivered = delivered.get(&number).copied().unwrap_or(0);
            let owed = delivered - paid;
            checked.equal("3.3.2.10", name, [("C_BALANCE", balance), ("delivered less paid by history", owed)]);
            checked.equal("3.3.2.12", name, [("C_BALANCE + C_YTD_PAYMENT", balance + ytd), ("delivered", delivered)]);
        }
    }
}
