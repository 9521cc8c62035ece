//! placeholder
mod finding;
pub use finding::*;
