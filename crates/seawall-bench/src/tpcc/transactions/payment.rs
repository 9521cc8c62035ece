//! Payment (clause 2.5): a customer pays at a warehouse, in 15 of 100 cases not at its own.

use super::super::layout::{skip_texts, text};
use super::super::now_us;
use super::super::schema::{CUSTOMER, DISTRICT, HISTORY, WAREHOUSE, customer, district, history, key, warehouse};
use super::{End, Transaction, Who, lock};
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
        let customer_key = key::customer(self.c_w, self.c_d, c);
        let mut row = lock(tx, CUSTOMER, &customer_key)?;
        customer::BALANCE.add(&mut row, -amount)?;
        customer::YTD_PAYMENT.add(&mut row, amount)?;
        customer::PAYMENT_CNT.add(&mut row, 1)?;
        if customer::CREDIT.get(&row)? == *b"BC" {
            self.note(c, &mut row)?;
        }
        tx.put(CUSTOMER, &customer_key, &row)?;
        black_box(&row);

        let district_key = key::district(self.w, self.d);
        let mut of_district = lock(tx, DISTRICT, &district_key)?;
        district::YTD.add(&mut of_district, amount)?;
        tx.put(DISTRICT, &district_key, &of_district)?;

        let warehouse_key = key::warehouse(self.w);
        let mut of_warehouse = lock(tx, WAREHOUSE, &warehouse_key)?;
        warehouse::YTD.add(&mut of_warehouse, amount)?;
        tx.put(WAREHOUSE, &warehouse_key, &of_warehouse)?;

        let mut row = vec![0; history::DATA];
        history::AMOUNT.set(&mut row, self.amount)?;
        history::DATE.set(&mut row, now_us())?;
        history::C_ID.set(&mut row, c)?;
        history::C_W_ID.set(&mut row, self.c_w)?;
        history::C_D_ID.set(&mut row, self.c_d)?;
        history::D_ID.set(&mut row, self.d)?;
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
        let at = skip_texts(row, customer::FIRST, customer::TEXTS)?;
        let Self { w, d, c_w, c_d, amount, .. } = self;
        let note = format!("{c} {c_d} {c_w} {d} {w} {}.{:02}|", amount / 100, amount % 100);
        row.splice(at..at, note.into_bytes());
        row.truncate(at + customer::DATA_BYTES_MAX);
        Ok(())
    }
}
