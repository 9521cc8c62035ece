//! The goals: cells measured side by side in one run, and whether they reach their thresholds.
//!
//! ```text
//!   goals.toml ──plan──> groups of goals, and the commands that they share
//!       each group: ──run, measure: rounds in turn──> records (a file of JSON each) ──evaluate──> met, short, reported
//!       all: ──report──> goals.json, goals.md
//! ```
//!
//! 1. A goal is never left out of the count: one that could not be measured is not met.
//! 2. Cells of a goal are measured alternately, round by round, so that changes of the machine over time
//!    affect all of them alike.
//! 3. Only one measuring process runs at a time.

pub mod disks;
pub mod evaluate;
pub mod measure;
pub mod plan;
pub mod records;
pub mod report;
pub mod run;
#[cfg(test)]
mod tests;

pub use evaluate::{Outcome, Verdict};
pub use plan::{Extent, GOALS, Overrides, Plan};
pub use records::Records;
