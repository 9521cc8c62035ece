//! Stores measured without any library but Seawall's own.

mod seawall;

pub use seawall::Seawall;
