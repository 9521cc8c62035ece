//! New-order (clause 2.4): a customer orders 5 to 15 items.
//!
//! One in a hundred names an item that does not exist and is rolled back after all other work is done (clause
//! 2.4.2.3).

use super::super::layout::{NAME, skip_texts};
use super::super::now_us;
use super::super::random::is_original;
use super::super::schema::*;
use super::{End, Transaction, get, update};
use crate::store::{Error, Result, Tx};
use std::hint::black_box;

/// The most lines of an order.
pub(in crate::tpcc) const LINES_MAX: usize = 15;

/// An order line of the input.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::tpcc) struct Line {
    pub(in crate::tpcc) item: u32,
    /// The warehouse that delivers it.
    pub(in crate::tpcc) supply: u16,
    pub(in crate::tpcc) quantity: u8,
}

#[derive(Debug, Clone)]
pub(in crate::tpcc) struct NewOrder {
    pub(in crate::tpcc) w: u16,
    pub(in crate::tpcc) d: u8,
    pub(in crate::tpcc) c: u32,
    pub(in crate::tpcc) lines: [Line; LINES_MAX],
    pub(in crate::tpcc) count: usize,
    /// The last item does not exist.
    pub(in crate::tpcc) fails: bool,
}

/// The values read from a line's item and stock.
#[derive(Debug, Clone, Copy)]
struct Worked {
    amount: u32,
    original: bool,
    info: [u8; 24],
}

impl Transaction for NewOrder {
    fn run(&self, tx: &mut dyn Tx) -> Result<End> {
        let (w, d) = (self.w, self.d);
        let tax = warehouse::TAX.get(&get(tx, WAREHOUSE, &key::warehouse(w))?)?;
        let buyer = get(tx, CUSTOMER, &key::customer(w, d, self.c))?;
        let discount = customer::DISCOUNT.get(&buyer)?;
        black_box((customer::CREDIT.get(&buyer)?, buyer.get(customer::FIRST..)));

        let lines = &self.lines[..self.count];
        let mut worked = [Worked { amount: 0, original: false, info: [0; 24] }; LINES_MAX];
        let mut found = 0;
        for (line, worked) in lines.iter().zip(&mut worked) {
            let Some(row) = tx.get(ITEM, &key::item(line.item))? else { break };
            found += 1;
            worked.amount = item::PRICE.get(&row)? * u32::from(line.quantity);
            worked.original = is_original(&row[skip_texts(&row, item::NAME, 1)?..]);
        }
        if found != self.count - usize::from(self.fails) {
            let item = lines[found.min(lines.len() - 1)].item;
            let what = format!("item {item} is wrongly there or missing: the data is of another scale; load it anew");
            return Err(Error::failed(NAME, what));
        }
        let lines = &lines[..found];
        self.take_from_stock(tx, lines, &mut worked)?;

        let take_number = |row: &mut Vec<u8>| Ok(district::NEXT_O_ID.add(row, 1)? - 1);
        let (row, o) = update(tx, DISTRICT, &key::district(w, d), take_number)?;
        let taxes = u64::from(tax) + u64::from(district::TAX.get(&row)?);

        let (ordered, count) = (&self.lines[..self.count], self.count as u8);
        let local = u8::from(ordered.iter().all(|line| line.supply == w));
        let row = orders::Row { ENTRY_D: now_us(), C_ID: self.c, CARRIER_ID: 0, OL_CNT: count, ALL_LOCAL: local };
        tx.put(ORDERS, &key::order(w, d, o), &row.bytes())?;
        tx.put(NEW_ORDER, &key::order(w, d, o), &[])?;
        tx.put(ORDER_CUSTOMER, &key::order_customer(w, d, self.c, o), &[])?;
        let mut total = 0;
        for ((line, worked), number) in lines.iter().zip(&worked).zip(1..) {
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
        Ok(if self.fails { End::RollBack } else { End::Commit })
    }
}

impl NewOrder {
    /// Locks and changes the stock of each line, in the order of warehouse and item.
    fn take_from_stock(&self, tx: &mut dyn Tx, lines: &[Line], worked: &mut [Worked; LINES_MAX]) -> Result<()> {
        let mut order: [u8; LINES_MAX] = std::array::from_fn(|i| i as u8);
        let order = &mut order[..lines.len()];
        order.sort_unstable_by_key(|&i| (lines[usize::from(i)].supply, lines[usize::from(i)].item));
        for &i in &*order {
            let (line, worked) = (&lines[usize::from(i)], &mut worked[usize::from(i)]);
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
