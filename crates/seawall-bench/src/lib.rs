//! Measures Seawall and the stores it is compared with by the same workloads, in one process per cell.
//!
//! - [`run`] lets threads work and records it, [`observe`] watches the machine meanwhile, [`results`] is what comes out.
//! - [`lab`] is what `seawall lab` measures of the engine itself.
//! - [`bulk`] is what only Seawall is asked: rows from the front, a tree built of sorted rows, an index beside writers.
//! - [`scan`] and [`tpcc`] are workloads with rows of their own.
//! - [`goals`] runs cells of many stores in turn and holds them against what must be reached.
//! - [`store`]: what a store must do to be measured; `stores` has Seawall's own, the crate `seawall-peers` the others'.

pub mod bulk;
pub mod cgroup;
pub mod conformance;
pub mod fold;
pub mod goals;
pub mod lab;
pub mod observe;
pub mod report;
pub mod results;
pub mod run;
pub mod scan;
pub mod slow_disk;
pub mod store;
pub mod stores;
pub mod tpcc;
pub mod workload;

pub use store::{Error, Result, Session, Settings, Store, Tx};
