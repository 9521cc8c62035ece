//! The C interface of Seawall.
//!
//! Conventions, for every function unless it says otherwise:
//!
//! 1. It returns a `seawall_status`. Results are stored through pointers, and only when the status says that there is a
//!    result. `seawall_error` returns the text of the calling thread's last failure.
//! 2. One function makes a handle (a `seawall_db`, `seawall_tree`, `seawall_tx`, `seawall_cursor`, ...) and another
//!    frees it. A null handle is refused with `SEAWALL_STATUS_USAGE`; freeing null does nothing.
//! 3. Only one thread at a time may use a handle, except a `seawall_db`, a `seawall_tree` and a `seawall_interrupt_t`,
//!    which any number of threads may use at once. Handles may be freed in any order: each keeps alive what it needs.
//! 4. A call reads the bytes of its arguments (`seawall_slice`) only until it returns. Bytes that a call stores for the
//!    caller belong to the first handle among its arguments, and stay valid until the next call with that handle
//!    returns: they may be arguments of that call. Bytes that a callback gets are valid only until it returns.
//! 5. No panic crosses the interface: a call that panics returns `SEAWALL_STATUS_PANIC`. Then roll the transaction
//!    back. (The engine stops itself if a panic left a page half changed.)
//!
//! The header `include/seawall.h` is generated from this crate; a test compares them.

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
