//! Tests of nodes alone, and of whole trees on a simulated disk.

mod compact;
mod hint;
mod long;
mod lookahead;
mod node;
mod rig;
mod tree;
