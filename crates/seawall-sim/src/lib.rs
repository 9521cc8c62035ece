//! A deterministic, seeded disk with the faults of real ones, for testing storage engines.
mod cache;
mod clock;
mod crash;
mod dice;
mod disk;
mod fault;
mod file;
mod image;
mod names;
mod options;
mod pending;
mod queue;
mod state;
mod trace;

pub use clock::Latency;
pub use disk::SimDisk;
pub use fault::{Fault, FaultKind, FaultPlan, Legality};
pub use options::SimOptions;
pub use trace::{Call, Tally, Trace, TraceEntry};
