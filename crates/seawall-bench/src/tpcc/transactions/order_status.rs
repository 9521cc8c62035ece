//! Order-status (clause 2.6): a customer's last order. Reads only.

use super::super::schema::*;
use super::super::{edge, scan};
use super::{End, Transaction, Who, get, missing};
use crate::store::{Result, Tx};
use std::hint::black_box;

#[derive(Debug, Clone)]
pub(in crate::tpcc) struct OrderStatus {
    pub(in crate::tpcc) w: u16,
    pub(in crate::tpcc) d: u8,
    pub(in crate::tpcc) who: Who,
}

impl Transaction for OrderStatus {
    fn run(&self, tx: &mut dyn Tx) -> Result<End> {
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
        Ok(End::Commit)
    }
}
