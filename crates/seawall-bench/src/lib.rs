//! Measures Seawall and the stores it is compared with by the same workloads, in one process per cell.
//!
//! - [`store`]: what a store must do to be measured; `stores` has Seawall's own, the crate `seawall-peers` the others'.

pub mod conformance;
pub mod store;
pub mod stores;

pub use store::{Error, Result, Session, Settings, Store, Tx};
