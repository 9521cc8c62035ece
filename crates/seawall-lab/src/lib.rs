//! placeholder
pub mod cell;
pub mod plan;
pub mod published;
pub mod results;
#[doc(hidden)]
pub mod sample;
pub mod stats;
pub mod witness;
