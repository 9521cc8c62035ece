//! placeholder
pub mod probe;
