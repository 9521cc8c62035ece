//! Scans: queries over ranges, over everything and for many keys at a time, on a tree that lies in key order or scattered.
//!
//! ```text
//!   Rows ──fill──> a tree in the file ──close, drop page cache, open──> Scans::measure ──> Scanned ──> Figures
//! ```
//!
//! 1. Every query knows how many rows it must find and of which size; another number is an error, not a fast query.
//! 2. Rows count as they are visited, so that a query longer than the window counts by its part in it.
//! 3. What is measured is the device: the data is at least [`COLD_FACTOR`] times the memory that may hold it, and nothing of it is in memory
//!    when the warm-up begins.

pub mod fio;
mod measure;
mod query;
mod rows;
pub mod run;
#[cfg(test)]
mod tests;

pub use measure::{Figures, Scanned, Scans};
pub use query::Query;
pub use rows::{COLD_FACTOR, Order, Rows, cold, options};
