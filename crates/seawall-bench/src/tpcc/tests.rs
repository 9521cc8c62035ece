//! A small TPC-C on Seawall holds every condition; broken rows are reported.

use super::Shape;
use super::check::{Checked, check};
use super::client::{Client, by_kind};
use super::layout::columns_mut;
use super::load::{fill, rows_about};
use super::schema::{
    CUSTOMER, CUSTOMER_NAME, Customer, DISTRICT, District, HISTORY, NEW_ORDER, ORDER_CUSTOMER, ORDER_LINE, ORDERS,
    Order, OrderLine, WAREHOUSE, Warehouse, key,
};
use crate::observe::Observer;
use crate::run::{Driven, Limit, Spec, drive};
use crate::store::{Durability, Settings, Store};
use crate::stores::Seawall;
use seawall_lab::run::Silent;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn settings(dir: &std::path::Path) -> Settings {
    Settings {
        dir: dir.join("db"),
        pool_bytes: 16 << 20,
        durability: Durability::Written,
        tables: super::TABLES.map(str::to_owned).into(),
        threads: 4,
        options: Vec::new(),
        flush_delay: Duration::ZERO,
        data_bytes: 8 << 20,
    }
}

fn loaded(dir: &std::path::Path, shape: Shape) -> Seawall {
    let store = Seawall::open(&settings(dir)).unwrap();
    let (observer, stop) = (&mut Observer::new(dir), AtomicBool::new(false));
    let load = fill(&store, shape, 5, 2, observer, &mut Silent, &stop).unwrap();
    let (rows, about) = (load.rows_per_s * load.seconds, rows_about(shape) as f64);
    assert!(rows > about * 0.9 && rows < about * 1.1, "{rows} rows, not {about}");
    store
}

fn worked(dir: &std::path::Path, store: &dyn Store, shape: Shape, ops: u64) -> Driven {
    let stop = AtomicBool::new(false);
    let spec = Spec::new(4, Limit::Ops(ops), &stop);
    let driven = drive(&spec, &mut Observer::new(dir), &mut Silent, "working", |thread| {
        Client::new(store, shape, thread as u16, 9)
    });
    assert!(driven.error.is_none(), "{:?}", driven.error);
    driven
}

#[test]
fn every_condition_holds_after_concurrent_work_and_a_restart() {
    // One warehouse too: there all threads contend for the same rows.
    for warehouses in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape { warehouses, items: 1000, customers: 30 };
        let mut store = loaded(dir.path(), shape);
        assert_eq!(check(&store, shape).unwrap(), Checked::default(), "as loaded");
        for _ in 0..2 {
            let driven = worked(dir.path(), &store, shape, 1200);
            let (kinds, rolled_back) = by_kind(&driven);
            let done = kinds.each_ref().map(|kind| kind.ops);
            assert_eq!((driven.ops, done), (1200, [540, 516, 48, 48, 48]));
            assert_eq!(kinds[0].count(), 540);
            assert!(rolled_back > 0 && rolled_back < 30, "{rolled_back}");
            assert_eq!(check(&store, shape).unwrap(), Checked::default());
            Box::new(store).close().unwrap();
            store = Seawall::open(&settings(dir.path())).unwrap();
        }
        assert_eq!(check(&store, shape).unwrap(), Checked::default(), "after a restart");
    }
}

#[test]
fn what_does_not_hold_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { warehouses: 1, items: 20, customers: 30 };
    let store = loaded(dir.path(), shape);
    assert_eq!(check(&store, shape).unwrap(), Checked::default());

    type Break<'a> = &'a dyn Fn(&mut Vec<u8>);
    // Breaks a row (or removes it), expects exactly these conditions, and repairs it.
    let broken = |table: usize, row_key: &[u8], change: Option<Break<'_>>, expected: &[&str]| {
        let mut session = store.session().unwrap();
        let mut tx = session.begin().unwrap();
        let old = tx.get_for_update(table, row_key).unwrap().unwrap();
        match change {
            Some(change) => {
                let mut row = old.clone();
                change(&mut row);
                tx.put(table, row_key, &row).unwrap();
            }
            None => tx.delete(table, row_key).unwrap(),
        }
        tx.commit().unwrap();
        let found = check(&store, shape).unwrap().violations;
        let mut conditions: Vec<_> = found.iter().map(|violation| violation.condition).collect();
        conditions.sort_unstable();
        conditions.dedup();
        assert_eq!(conditions, expected, "{found:?}");
        assert!(found.iter().all(|violation| violation.to_string().contains("warehouse 1")), "{found:?}");
        let mut tx = session.begin().unwrap();
        tx.put(table, row_key, &old).unwrap();
        tx.commit().unwrap();
    };
    let (old_order, new_order) = (5, shape.delivered() + 3);
    let ytd = |row: &mut Vec<u8>| columns_mut::<Warehouse>(row).unwrap().ytd += 1;
    broken(WAREHOUSE, &key::warehouse(1), Some(&ytd), &["3.3.2.1", "3.3.2.8"]);
    let ytd = |row: &mut Vec<u8>| columns_mut::<District>(row).unwrap().ytd += 1;
    broken(DISTRICT, &key::district(1, 4), Some(&ytd), &["3.3.2.1", "3.3.2.9"]);
    let next = |row: &mut Vec<u8>| columns_mut::<District>(row).unwrap().next_o_id.set(9);
    broken(DISTRICT, &key::district(1, 10), Some(&next), &["3.3.2.2"]);
    broken(NEW_ORDER, &key::order(1, 2, new_order), None, &["3.3.2.11", "3.3.2.3", "3.3.2.5"]);
    broken(NEW_ORDER, &key::order(1, 2, shape.customers), None, &["3.3.2.11", "3.3.2.2", "3.3.2.5"]);
    broken(ORDER_LINE, &key::order_line(1, 3, new_order, 2), None, &["3.3.2.4", "3.3.2.6"]);
    let carrier = |row: &mut Vec<u8>| columns_mut::<Order>(row).unwrap().carrier_id = 0;
    broken(ORDERS, &key::order(1, 3, old_order), Some(&carrier), &["3.3.2.5", "3.3.2.7"]);
    let deliver = |row: &mut Vec<u8>| columns_mut::<OrderLine>(row).unwrap().delivery_d.set(1);
    let line = key::order_line(1, 3, new_order, 2);
    broken(ORDER_LINE, &line, Some(&deliver), &["3.3.2.10", "3.3.2.12", "3.3.2.7"]);
    let owner = key::customer(1, 9, 30);
    let balance = |row: &mut Vec<u8>| columns_mut::<Customer>(row).unwrap().balance += 1;
    broken(CUSTOMER, &owner, Some(&balance), &["3.3.2.10", "3.3.2.12"]);
    let paid = |row: &mut Vec<u8>| columns_mut::<Customer>(row).unwrap().ytd_payment += 1;
    broken(CUSTOMER, &owner, Some(&paid), &["3.3.2.12"]);
    let count = |row: &mut Vec<u8>| columns_mut::<Customer>(row).unwrap().delivery_cnt.set(1);
    broken(CUSTOMER, &owner, Some(&count), &["3.3.2.11"]);
    let payment = key::history(1, 9 << 32 | 30, 0);
    broken(HISTORY, &payment, None, &["3.3.2.10", "3.3.2.8", "3.3.2.9"]);
    let mut session = store.session().unwrap();
    for table in [CUSTOMER_NAME, ORDER_CUSTOMER] {
        let (mut tx, mut first) = (session.begin().unwrap(), Vec::new());
        tx.scan(table, &[], &[255], false, &mut |key, _| {
            first = key.to_vec();
            false
        })
        .unwrap();
        drop(tx);
        broken(table, &first, None, &["index"]);
    }
    assert_eq!(check(&store, shape).unwrap(), Checked::default(), "all is repaired");
}
