//! placeholder
pub mod cell;
pub mod compare;
pub mod mycnf;
pub mod plan;
pub mod published;
pub mod require;
pub mod results;
pub mod run;
#[doc(hidden)]
pub mod sample;
pub mod settings;
pub mod stats;
pub mod sustain;
pub mod table;
mod text;
pub mod verdict;
