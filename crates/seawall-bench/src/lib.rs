//! Measures Seawall and the stores it is compared with by the same workloads, each cell in its own process.
//!
//! - [`run`] runs threads and records their operations, [`observe`] watches the machine meanwhile,
//!   [`results`] defines the output.
//! - [`lab`] is what `seawall lab` measures of the engine itself.
//! - [`bulk`] has workloads for Seawall only: rows popped from the front, a tree built of sorted rows, an index built
//!   while threads write.
//! - [`scan`] and [`tpcc`] are workloads with rows of their own.
//! - [`goals`] measures cells of many stores alternately and compares them with thresholds.
//! - [`store`] is the interface that a measured store implements; `stores` has Seawall's own, the crate
//!   `seawall-peers` the others'.

pub mod bulk;
pub mod cgroup;
pub mod client_batching;
pub mod goals;
pub mod lab;
pub mod observe;
pub mod process;
pub mod report;
pub mod restart;
pub mod results;
pub mod run;
pub mod scan;
pub mod slow_disk;
pub mod store;
pub mod stores;
pub mod tpcc;
pub mod workload;

pub use store::{Error, Result, Session, Settings, Store, Tx};
