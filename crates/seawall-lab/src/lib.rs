//! placeholder
pub mod cell;
pub mod plan;
pub mod published;
pub mod results;
pub mod run;
#[doc(hidden)]
pub mod sample;
pub mod stats;
