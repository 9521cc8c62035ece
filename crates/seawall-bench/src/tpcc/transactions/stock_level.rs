//! Stock-level (clause 2.8): how many items of a district's last 20 orders are scarce. Reads only.

use super::super::scan;
use super::super::schema::*;
use super::{End, Transaction, get};
use crate::store::{Result, Tx};
use std::hint::black_box;

/// Orders that are examined.
const ORDERS_BACK: u32 = 20;

#[derive(Debug, Clone)]
pub(in crate::tpcc) struct StockLevel {
    pub(in crate::tpcc) w: u16,
    pub(in crate::tpcc) d: u8,
    pub(in crate::tpcc) threshold: i16,
}

impl Transaction for StockLevel {
    fn run(&self, tx: &mut dyn Tx) -> Result<End> {
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
        Ok(End::Commit)
    }
}
