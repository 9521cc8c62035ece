//! Running a workload: [`drive()`] runs operations on threads for a while and records them; `cell` turns the records
//! into a result.

pub mod cell;
pub mod data_dir;
pub mod drive;
pub mod kv;
pub(crate) mod load;
pub mod recorder;

pub use cell::{Cell, Open, Ran, RunConfig};
pub use drive::{Driven, Limit, Operation, Outcome, Spec, drive};
