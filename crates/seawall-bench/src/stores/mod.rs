//! Stores that need no library but Seawall's own.

mod raw;
mod seawall;

pub use raw::Raw;
pub use seawall::Seawall;

use crate::store::{Result, Settings, Store};

/// The names that [`open`] takes.
pub const NAMES: [&str; 2] = ["seawall", "raw"];

/// Opens the store of that name; `None` when it is not one of [`NAMES`].
#[must_use]
pub fn open(name: &str, settings: &Settings) -> Option<Result<Box<dyn Store>>> {
    fn boxed<S: Store + 'static>(store: Result<S>) -> Result<Box<dyn Store>> {
        Ok(Box::new(store?))
    }
    Some(match name {
        "seawall" => boxed(Seawall::open(settings)),
        "raw" => boxed(Raw::open(settings)),
        _ => return None,
    })
}
