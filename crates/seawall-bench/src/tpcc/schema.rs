//! The nine tables of TPC-C (clause 1.3), two indexes, and the fixed columns of each. Column names are the
//! specification's without the prefix, in lower case.
//!
//! 1. A row holds every column except those in its key.
//! 2. A transaction that adds an order adds its entry to `ORDER_CUSTOMER` too; customers are never added or
//!    renamed.

use seawall::keys::Key;
use zerocopy::little_endian::{I16, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Declares tables: the number, the name, and for tables with values the fixed columns of a row in order.
macro_rules! tables {
    ($($(#[$doc:meta])* $number:ident = $n:literal, $table:ident $($row:ident { $($column:ident: $type:ty,)* })?;)*) => {
        /// Names of the tables, in the order of their numbers.
        pub const TABLES: [&str; 11] = [$(stringify!($table)),*];

        $(
            $(#[$doc])*
            pub(super) const $number: usize = $n;
            $(
                #[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
                #[repr(C)]
                pub(super) struct $row {
                    $(pub(super) $column: $type,)*
                }
            )?
        )*
    };
}

tables! {
    /// Fixed columns, then name, street 1, street 2, city.
    WAREHOUSE = 0, warehouse Warehouse { ytd: I64, tax: U16, state: [u8; 2], zip: [u8; 9], };
    /// Fixed columns, then name, street 1, street 2, city.
    DISTRICT = 1, district District { ytd: I64, next_o_id: U32, tax: U16, state: [u8; 2], zip: [u8; 9], };
    /// Fixed columns, then first name, last name, street 1, street 2, city; the rest is the data.
    CUSTOMER = 2, customer Customer {
        balance: I64, ytd_payment: I64, credit_lim: I64, since: U64, payment_cnt: U32, delivery_cnt: U32,
        discount: U16, credit: [u8; 2], middle: [u8; 2], state: [u8; 2], zip: [u8; 9], phone: [u8; 16],
    };
    /// Fixed columns; the rest is the data. The warehouse of the payment is in the key.
    HISTORY = 3, history History { amount: U32, date: U64, c_id: U32, c_w_id: U16, c_d_id: u8, d_id: u8, };
    /// Keys only, no values.
    NEW_ORDER = 4, new_order;
    /// The carrier 0 is null.
    ORDERS = 5, orders Order { entry_d: U64, c_id: U32, carrier_id: u8, ol_cnt: u8, all_local: u8, };
    /// The time 0 of the delivery is null.
    ORDER_LINE = 6, order_line OrderLine {
        delivery_d: U64, i_id: U32, amount: U32, supply_w_id: U16, quantity: u8, dist_info: [u8; 24],
    };
    /// Fixed columns, then the name; the rest is the data.
    ITEM = 7, item Item { price: U32, im_id: U32, };
    /// Fixed columns, the last of which is 24 characters for each district; the rest is the data.
    STOCK = 8, stock Stock { quantity: I16, ytd: U32, order_cnt: U32, remote_cnt: U32, dists: [[u8; 24]; 10], };
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

/// Declares keys: their columns in order.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident($($column:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        pub(in crate::tpcc) fn $name($($column: $type),*) -> Vec<u8> {
            ($($column,)*).encode()
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
