//! Payment (clause 2.5): a customer pays at a warehouse, in 15 of 100 cases not at its own.

use super::super::layout::{skip_texts, text};
use super::super::now_us;
use super::super::schema::*;
use super::{End, Transaction, Who, update};
use crate::store::{Result, Tx};
use std::hint::black_box;

#[derive(Debug, Clone)]
pub(in crate::tpcc) struct Payment {
    pub(in crate::tpcc) w: u16,
    pub(in crate::tpcc) d: u8,
    /// The customer's own.
    pub(in crate::tpcc) c_w: u16,
    pub(in crate::tpcc) c_d: u8,
    pub(in crate::tpcc) who: Who,
    /// Cents.
    pub(in crate::tpcc) amount: u32,
    /// Together with the thread, the key of the row in the history.
    pub(in crate::tpcc) stamp: u64,
    pub(in crate::tpcc) thread: u16,
}

impl Transaction for Payment {
    fn run(&self, tx: &mut dyn Tx) -> Result<End> {
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
        let mut row = row.bytes().to_vec();
        row.extend_from_slice(text(&of_warehouse, warehouse::NAME)?);
        row.extend_from_slice(b"    ");
        row.extend_from_slice(text(&of_district, district::NAME)?);
        tx.put(HISTORY, &key::history(self.w, self.stamp, self.thread), &row)?;
        Ok(End::Commit)
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
