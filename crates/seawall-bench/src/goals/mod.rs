//! The goals: cells measured side by side in one run, and whether they reach their thresholds.
//!
//! ```text
//!   goals.toml ──spec──> Plan: groups of goals, and the cells they share
//!       each group: ──prepare──> rows ──run: rounds in turn──> records ──evaluate──> met, short, reported
//!       all: ──report──> goals.json, goals.md
//! ```
//!
//! 1. A goal is never left out of the count: one that could not be measured is not met.
//! 2. Cells of a goal are measured alternately, round by round, so that changes of the machine over time
//!    affect all of them alike.
//! 3. Only one measuring process runs at a time.

pub mod cell;
pub mod disks;
pub mod evaluate;
pub mod measure;
pub mod process;
pub mod report;
pub mod restart;
pub mod run;
pub mod spec;
#[cfg(test)]
mod tests;

pub use evaluate::{Outcome, Verdict};
pub use run::{Ran, Records, Runner};
pub use spec::{Extent, GOALS, Overrides, Plan};
