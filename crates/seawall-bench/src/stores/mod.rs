//! Stores that need no library but Seawall's own.

mod raw;
mod seawall;

pub use raw::Raw;
pub use seawall::Seawall;

use crate::store::{Result, Settings, Store};

/// The names that [`open`] takes.
pub const NAMES: [&str; 2] = ["seawall", "raw"];

/// Opens the store of that name; `None` when it is not one of [`NAMES`].
pub fn open(name: &str, settings: &Settings) -> Option<Result<Box<dyn Store>>> {
    Some(match name {
        "seawall" => Seawall::open(settings).map(|store| Box::new(store) as Box<dyn Store>),
        "raw" => Raw::open(settings).map(|store| Box::new(store) as Box<dyn Store>),
        _ => return None,
    })
}
