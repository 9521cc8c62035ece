//! Tools around a database, for the command `seawall` and for programs that embed the store.
//!
//! - [`doctor`]: findings and advice from statistics.
//! - [`prometheus`]: statistics as Prometheus text.
//! - [`witness`]: proves what no measurement can: what a disk keeps after a power cut.

pub mod doctor;
pub mod prometheus;
pub mod witness;
