//! The nine tables of TPC-C (clause 1.3), two indexes, and where each column lies. Column names are the specification's
//! without the prefix.
//!
//! 1. A row holds every column except those in its key.
//! 2. A transaction that adds an order adds its entry to `ORDER_CUSTOMER` too; customers are never added or
//!    renamed.

use super::layout::{Column, Field, Key};

/// Declares tables: the number, the name, and for tables with values the fixed columns of a row in order and the name
/// of the offset after them.
macro_rules! tables {
    ($($(#[$doc:meta])* $number:ident = $n:literal, $table:ident $({ $($columns:tt)* } $end:ident)?;)*) => {
        /// Names of the tables, in the order of their numbers.
        pub const TABLES: [&str; 11] = [$(stringify!($table)),*];

        $(
            $(#[$doc])*
            pub(super) const $number: usize = $n;
            $(pub(super) mod $table {
                use super::*;
                places!(0, $end: $($columns)*);
                row!($end: $($columns)*);
            })?
        )*
    };
}

/// The offset of each column, one after the other from `$at` on.
macro_rules! places {
    ($at:expr, $end:ident:) => {
        pub(in crate::tpcc) const $end: usize = $at;
    };
    ($at:expr, $end:ident: $column:ident: $type:ty, $($rest:tt)*) => {
        pub(in crate::tpcc) const $column: Field<$type> = Field::at($at);
        places!($column.end(), $end: $($rest)*);
    };
}

/// The values of all columns of a new row.
macro_rules! row {
    ($end:ident: $($column:ident: $type:ty,)*) => {
        #[expect(non_snake_case, reason = "the specification's names")]
        pub(in crate::tpcc) struct Row {
            $(pub(in crate::tpcc) $column: $type,)*
        }

        impl Row {
            pub(in crate::tpcc) fn bytes(self) -> Vec<u8> {
                let mut row = vec![0; $end];
                $(row[$column.place()].copy_from_slice(self.$column.bytes().as_ref());)*
                row
            }
        }
    };
}

tables! {
    /// Fixed columns, then name, street 1, street 2, city.
    WAREHOUSE = 0, warehouse { YTD: i64, TAX: u16, STATE: [u8; 2], ZIP: [u8; 9], } NAME;
    /// Fixed columns, then name, street 1, street 2, city.
    DISTRICT = 1, district { YTD: i64, NEXT_O_ID: u32, TAX: u16, STATE: [u8; 2], ZIP: [u8; 9], } NAME;
    /// Fixed columns, then first name, last name, street 1, street 2, city; the rest is the data.
    CUSTOMER = 2, customer {
        BALANCE: i64, YTD_PAYMENT: i64, CREDIT_LIM: i64, SINCE: u64, PAYMENT_CNT: u32, DELIVERY_CNT: u32,
        DISCOUNT: u16, CREDIT: [u8; 2], MIDDLE: [u8; 2], STATE: [u8; 2], ZIP: [u8; 9], PHONE: [u8; 16],
    } FIRST;
    /// Fixed columns; the rest is the data. The warehouse of the payment is in the key.
    HISTORY = 3, history { AMOUNT: u32, DATE: u64, C_ID: u32, C_W_ID: u16, C_D_ID: u8, D_ID: u8, } DATA;
    /// Keys only, no values.
    NEW_ORDER = 4, new_order;
    /// The carrier 0 is null.
    ORDERS = 5, orders { ENTRY_D: u64, C_ID: u32, CARRIER_ID: u8, OL_CNT: u8, ALL_LOCAL: u8, } BYTES;
    /// The time 0 of the delivery is null.
    ORDER_LINE = 6, order_line {
        DELIVERY_D: u64, I_ID: u32, AMOUNT: u32, SUPPLY_W_ID: u16, QUANTITY: u8, DIST_INFO: [u8; 24],
    } BYTES;
    /// Fixed columns, then the name; the rest is the data.
    ITEM = 7, item { PRICE: u32, IM_ID: u32, } NAME;
    /// Fixed columns, the last of which is ten times 24 characters for the districts; the rest is the data.
    STOCK = 8, stock { QUANTITY: i16, YTD: u32, ORDER_CNT: u32, REMOTE_CNT: u32, DISTS: [u8; 240], } DATA;
    /// Customers by last, then first name. Keys only, no values.
    CUSTOMER_NAME = 9, customer_name;
    /// Orders by customer. Keys only, no values.
    ORDER_CUSTOMER = 10, order_customer;
}

/// Districts of a warehouse.
pub(super) const DISTRICTS: u8 = 10;
/// Texts of a customer before the data.
pub(super) const CUSTOMER_TEXTS: usize = 5;
pub(super) const CUSTOMER_DATA_BYTES_MAX: usize = 500;

/// The text in a row of stock that an order line of this district (1 to 10) gets.
pub(super) const fn dist_info(district: u8) -> Field<[u8; 24]> {
    Field::at(stock::REMOTE_CNT.end() + 24 * (district as usize - 1))
}

/// Declares keys: their columns in order.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident($($column:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        pub(in crate::tpcc) fn $name($($column: $type),*) -> Key {
            Key::new()$(.with($column))*
        }
    )*};
}

/// Keys, and the prefixes that bound scans.
pub(super) mod key {
    use super::Key;

    keys! {
        warehouse(w: u16);
        district(w: u16, d: u8);
        customer(w: u16, d: u8, c: u32);
        customers_named(w: u16, d: u8, last: &[u8]);
        customer_name(w: u16, d: u8, last: &[u8], first: &[u8], c: u32);
        /// A pair of `stamp` and `thread` is used once: rows of the history have no key of their own.
        history(w: u16, stamp: u64, thread: u16);
        /// The key of an order and of a new-order.
        order(w: u16, d: u8, o: u32);
        order_line(w: u16, d: u8, o: u32, line: u8);
        orders_of(w: u16, d: u8, c: u32);
        order_customer(w: u16, d: u8, c: u32, o: u32);
        item(i: u32);
        stock(w: u16, i: u32);
    }
}
