//! The nine tables of TPC-C (clause 1.3), two indexes, and where each column lies. Column names are the specification's
//! without the prefix.
//!
//! 1. A row holds every column except those in its key.
//! 2. A transaction that adds an order adds its entry to `ORDER_CUSTOMER` too; customers are never added or
//!    renamed.

use super::layout::{Field, Key};

/// Names of the tables, in the order of their numbers.
pub const TABLES: [&str; 11] = [
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
    "customer_name",
    "order_customer",
];

pub(super) const WAREHOUSE: usize = 0;
pub(super) const DISTRICT: usize = 1;
pub(super) const CUSTOMER: usize = 2;
pub(super) const HISTORY: usize = 3;
pub(super) const NEW_ORDER: usize = 4;
pub(super) const ORDERS: usize = 5;
pub(super) const ORDER_LINE: usize = 6;
pub(super) const ITEM: usize = 7;
pub(super) const STOCK: usize = 8;
/// Customers by last, then first name. Keys only, no values.
pub(super) const CUSTOMER_NAME: usize = 9;
/// Orders by customer. Keys only, no values.
pub(super) const ORDER_CUSTOMER: usize = 10;

/// Districts of a warehouse.
pub(super) const DISTRICTS: u8 = 10;

/// Fixed columns, then name, street 1, street 2, city.
pub(super) mod warehouse {
    use super::Field;
    pub(in crate::tpcc) const YTD: Field<i64> = Field::at(0);
    pub(in crate::tpcc) const TAX: Field<u16> = Field::at(YTD.end());
    pub(in crate::tpcc) const STATE: Field<[u8; 2]> = Field::at(TAX.end());
    pub(in crate::tpcc) const ZIP: Field<[u8; 9]> = Field::at(STATE.end());
    pub(in crate::tpcc) const NAME: usize = ZIP.end();
}

/// Fixed columns, then name, street 1, street 2, city.
pub(super) mod district {
    use super::Field;
    pub(in crate::tpcc) const YTD: Field<i64> = Field::at(0);
    pub(in crate::tpcc) const NEXT_O_ID: Field<u32> = Field::at(YTD.end());
    pub(in crate::tpcc) const TAX: Field<u16> = Field::at(NEXT_O_ID.end());
    pub(in crate::tpcc) const STATE: Field<[u8; 2]> = Field::at(TAX.end());
    pub(in crate::tpcc) const ZIP: Field<[u8; 9]> = Field::at(STATE.end());
    pub(in crate::tpcc) const NAME: usize = ZIP.end();
}

/// Fixed columns, then first name, last name, street 1, street 2, city; the rest is the data.
pub(super) mod customer {
    use super::Field;
    pub(in crate::tpcc) const BALANCE: Field<i64> = Field::at(0);
    pub(in crate::tpcc) const YTD_PAYMENT: Field<i64> = Field::at(BALANCE.end());
    pub(in crate::tpcc) const CREDIT_LIM: Field<i64> = Field::at(YTD_PAYMENT.end());
    pub(in crate::tpcc) const SINCE: Field<u64> = Field::at(CREDIT_LIM.end());
    pub(in crate::tpcc) const PAYMENT_CNT: Field<u32> = Field::at(SINCE.end());
    pub(in crate::tpcc) const DELIVERY_CNT: Field<u32> = Field::at(PAYMENT_CNT.end());
    pub(in crate::tpcc) const DISCOUNT: Field<u16> = Field::at(DELIVERY_CNT.end());
    pub(in crate::tpcc) const CREDIT: Field<[u8; 2]> = Field::at(DISCOUNT.end());
    pub(in crate::tpcc) const MIDDLE: Field<[u8; 2]> = Field::at(CREDIT.end());
    pub(in crate::tpcc) const STATE: Field<[u8; 2]> = Field::at(MIDDLE.end());
    pub(in crate::tpcc) const ZIP: Field<[u8; 9]> = Field::at(STATE.end());
    pub(in crate::tpcc) const PHONE: Field<[u8; 16]> = Field::at(ZIP.end());
    pub(in crate::tpcc) const FIRST: usize = PHONE.end();
    /// Texts before the data.
    pub(in crate::tpcc) const TEXTS: usize = 5;
    pub(in crate::tpcc) const DATA_BYTES_MAX: usize = 500;
}

/// Fixed columns; the rest is the data. The warehouse of the payment is in the key.
pub(super) mod history {
    use super::Field;
    pub(in crate::tpcc) const AMOUNT: Field<u32> = Field::at(0);
    pub(in crate::tpcc) const DATE: Field<u64> = Field::at(AMOUNT.end());
    pub(in crate::tpcc) const C_ID: Field<u32> = Field::at(DATE.end());
    pub(in crate::tpcc) const C_W_ID: Field<u16> = Field::at(C_ID.end());
    pub(in crate::tpcc) const C_D_ID: Field<u8> = Field::at(C_W_ID.end());
    pub(in crate::tpcc) const D_ID: Field<u8> = Field::at(C_D_ID.end());
    pub(in crate::tpcc) const DATA: usize = D_ID.end();
}

pub(super) mod orders {
    use super::Field;
    pub(in crate::tpcc) const ENTRY_D: Field<u64> = Field::at(0);
    pub(in crate::tpcc) const C_ID: Field<u32> = Field::at(ENTRY_D.end());
    /// 0 is null.
    pub(in crate::tpcc) const CARRIER_ID: Field<u8> = Field::at(C_ID.end());
    pub(in crate::tpcc) const OL_CNT: Field<u8> = Field::at(CARRIER_ID.end());
    pub(in crate::tpcc) const ALL_LOCAL: Field<u8> = Field::at(OL_CNT.end());
    pub(in crate::tpcc) const BYTES: usize = ALL_LOCAL.end();
}

pub(super) mod order_line {
    use super::Field;
    /// 0 is null.
    pub(in crate::tpcc) const DELIVERY_D: Field<u64> = Field::at(0);
    pub(in crate::tpcc) const I_ID: Field<u32> = Field::at(DELIVERY_D.end());
    pub(in crate::tpcc) const AMOUNT: Field<u32> = Field::at(I_ID.end());
    pub(in crate::tpcc) const SUPPLY_W_ID: Field<u16> = Field::at(AMOUNT.end());
    pub(in crate::tpcc) const QUANTITY: Field<u8> = Field::at(SUPPLY_W_ID.end());
    pub(in crate::tpcc) const DIST_INFO: Field<[u8; 24]> = Field::at(QUANTITY.end());
    pub(in crate::tpcc) const BYTES: usize = DIST_INFO.end();
}

/// Fixed columns, then the name; the rest is the data.
pub(super) mod item {
    use super::Field;
    pub(in crate::tpcc) const PRICE: Field<u32> = Field::at(0);
    pub(in crate::tpcc) const IM_ID: Field<u32> = Field::at(PRICE.end());
    pub(in crate::tpcc) const NAME: usize = IM_ID.end();
}

/// Fixed columns, then ten times 24 characters for the districts; the rest is the data.
pub(super) mod stock {
    use super::Field;
    pub(in crate::tpcc) const QUANTITY: Field<i16> = Field::at(0);
    pub(in crate::tpcc) const YTD: Field<u32> = Field::at(QUANTITY.end());
    pub(in crate::tpcc) const ORDER_CNT: Field<u32> = Field::at(YTD.end());
    pub(in crate::tpcc) const REMOTE_CNT: Field<u32> = Field::at(ORDER_CNT.end());
    pub(in crate::tpcc) const DATA: usize = REMOTE_CNT.end() + 24 * super::DISTRICTS as usize;

    /// The text that an order line of this district (1 to 10) gets.
    pub(in crate::tpcc) const fn dist(district: u8) -> Field<[u8; 24]> {
        Field::at(REMOTE_CNT.end() + 24 * (district as usize - 1))
    }
}

/// Keys, and the prefixes that bound scans.
pub(super) mod key {
    use super::Key;

    pub(in crate::tpcc) fn warehouse(w: u16) -> Key {
        Key::new().u16(w)
    }

    pub(in crate::tpcc) fn district(w: u16, d: u8) -> Key {
        warehouse(w).u8(d)
    }

    pub(in crate::tpcc) fn customer(w: u16, d: u8, c: u32) -> Key {
        district(w, d).u32(c)
    }

    pub(in crate::tpcc) fn customers_named(w: u16, d: u8, last: &[u8]) -> Key {
        district(w, d).text(last)
    }

    pub(in crate::tpcc) fn customer_name(w: u16, d: u8, last: &[u8], first: &[u8], c: u32) -> Key {
        customers_named(w, d, last).text(first).u32(c)
    }

    /// A pair of `stamp` and `thread` is used once: rows of the history have no key of their own.
    pub(in crate::tpcc) fn history(w: u16, stamp: u64, thread: u16) -> Key {
        warehouse(w).u64(stamp).u16(thread)
    }

    /// The key of an order and of a new-order.
    pub(in crate::tpcc) fn order(w: u16, d: u8, o: u32) -> Key {
        district(w, d).u32(o)
    }

    pub(in crate::tpcc) fn order_line(w: u16, d: u8, o: u32, line: u8) -> Key {
        order(w, d, o).u8(line)
    }

    pub(in crate::tpcc) fn orders_of(w: u16, d: u8, c: u32) -> Key {
        district(w, d).u32(c)
    }

    pub(in crate::tpcc) fn order_customer(w: u16, d: u8, c: u32, o: u32) -> Key {
        orders_of(w, d, c).u32(o)
    }

    pub(in crate::tpcc) fn item(i: u32) -> Key {
        Key::new().u32(i)
    }

    pub(in crate::tpcc) fn stock(w: u16, i: u32) -> Key {
        warehouse(w).u32(i)
    }
}
