//! Prepared transactions, by name.

use crate::counted::Mutex;
use crate::txn::{Names, Txn};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The name that a transaction coordinator gives a transaction: at most 140 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub Vec<u8>);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The longest [`Xid`], bytes: 128 bytes of an X/Open XID, its format id and its two lengths.
pub const XID_BYTES_MAX: usize = 140;

/// The prepared transactions by name; `None` while one is being prepared or ended.
pub(super) type Prepared = Arc<Mutex<BTreeMap<Xid, Option<Txn>>>>;

impl Names for Mutex<BTreeMap<Xid, Option<Txn>>> {
    fn ended(&self, xid: &[u8]) {
        self.lock().remove(&Xid(xid.to_vec()));
    }

    fn left(&self, xid: &[u8], txn: Txn) {
        self.lock().insert(Xid(xid.to_vec()), Some(txn));
    }
}
