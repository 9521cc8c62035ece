//! The C interface of Seawall.
//!
//! Conventions, for every function unless it says otherwise:
//!
//! 1. It returns a `seawall_status`. What it produces goes through a pointer, and is written only when the status
//!    says so. `seawall_error` returns the text of the last failure of the calling thread.
//! 2. A handle (a `seawall_db`, `seawall_tree`, `seawall_tx`, `seawall_cursor`, ...) is made by one function and freed
//!    by one. Null is refused with `SEAWALL_STATUS_USAGE`; freeing null does nothing.
//! 3. A handle is used by one thread at a time, except a `seawall_db`, a `seawall_tree` and a `seawall_interrupt_t`,
//!    which any number of threads use at once. Handles can be freed in any order: each keeps alive what it needs.
//! 4. Bytes that are handed in (`seawall_slice`) are read during the call only. Bytes that are handed out belong to
//!    the handle that lent them, and stay until that handle's next call returns: they can be its arguments.
//! 5. No panic crosses the interface: a call that panics returns `SEAWALL_STATUS_PANIC`. Roll the transaction back.
//!    (The engine stops itself if a panic left a page half changed.)
//!
//! The header `include/seawall.h` is made from this crate; a test compares them.

#![allow(unsafe_code, reason = "pointers of a C caller; each function states what it relies on")]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "what a call is given is taken under the one promise that it names"
)]

mod advice;
mod cursor;
mod database;
mod index;
mod lock;
mod measure;
mod observe;
mod rows;
mod slice;
mod status;
mod transaction;
mod tree;

pub use advice::*;
pub use cursor::*;
pub use database::*;
pub use index::*;
pub use lock::*;
pub use measure::*;
pub use observe::*;
pub use rows::*;
pub use slice::*;
pub use status::*;
pub use transaction::*;
pub use tree::*;
