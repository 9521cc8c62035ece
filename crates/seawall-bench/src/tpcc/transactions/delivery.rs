//! Delivery (clause 2.7): the oldest undelivered order of each district. All ten in one transaction, as
//! clause 2.7.4.2 allows; run at once, not queued.

use super::super::layout::NAME;
use super::super::schema::*;
use super::super::{collect, edge, now_us};
use super::{End, Transaction, update};
use crate::store::{Error, Result, Tx};

#[derive(Debug, Clone)]
pub(in crate::tpcc) struct Delivery {
    pub(in crate::tpcc) w: u16,
    pub(in crate::tpcc) carrier: u8,
}

impl Transaction for Delivery {
    fn run(&self, tx: &mut dyn Tx) -> Result<End> {
        let now = now_us();
        for d in 1..=DISTRICTS {
            if let Some(o) = self.oldest(tx, d)? {
                self.deliver(tx, d, o, now)?;
            }
        }
        Ok(End::Commit)
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
