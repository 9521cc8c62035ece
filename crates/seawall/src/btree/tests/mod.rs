//! Tests of nodes alone, and of whole trees on a simulated disk.

mod compact;
mod hint;
mod long;
mod node;
mod read_ahead;
mod rig;
mod tree;
