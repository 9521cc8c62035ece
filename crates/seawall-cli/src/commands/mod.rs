//! One module for each subcommand, with its arguments and its work.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod db;
pub(crate) mod lab;
pub(crate) mod manual;
pub(crate) mod probe;
pub(crate) mod witness;
