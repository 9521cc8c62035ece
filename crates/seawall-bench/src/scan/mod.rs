//! Scans: queries over ranges, over everything and for many keys at a time, on a tree in key order or
//! scattered.
//!
//! ```text
//!   Rows ──fill──> a tree in the file ──close, drop page cache, open──> ScanRun::measure ──> figures
//! ```
//!
//! 1. Every query knows how many rows it must find and their size; another number is an error, not a fast
//!    query.
//! 2. Rows count when they are visited, so that a query longer than the window counts in part.
//! 3. The device is measured: the data is at least [`COLD_FACTOR`] times the memory that may hold it, and
//!    none of it is in memory when the warm-up begins.

pub mod fio;
mod measure;
mod query;
pub mod run;
#[cfg(test)]
mod tests;

pub use query::{COLD_FACTOR, Order, Query, Rows};
