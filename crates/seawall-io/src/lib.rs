//! The I/O layer of Seawall: everything that touches a device, and nothing that knows what a page is.
//!
//! - [`Disk`] is the seam: one trait, implemented by [`OsDisk`] (io_uring, a thread pool, or plain
//!   synchronous calls, picked by trial) and by the simulated disk of `seawall-sim`.
//! - [`File`] is a file of a class ([`FileClass`]) opened by a [`FlushMethod`]; it completes short transfers,
//!   makes writes durable by that method, and counts everything in [`IoStats`].
//! - [`Fill`] prepares files ahead of need; [`probe::probe`] finds out what a path really offers.
//!
//! `unsafe` is denied in this crate except in the modules `buf`, `shared`, `os::sys` and `os::uring`, where every block
//! says why it is sound.
//!
//! # Follow one durable write
//! [`File::write_durable_at`] checks alignment (`file.rs`), hands the slices to [`Disk::write_at`]
//! (`disk.rs`), which on Linux is `pwrite` or `pwritev2` with `RWF_DSYNC` on the calling thread (`os/mod.rs`,
//! `os/raw.rs`), completes a short write, calls [`Disk::sync`] if the method needs it, and records the
//! latency (`stats.rs`).

#[cfg(not(target_os = "linux"))]
compile_error!("seawall-io runs on Linux only: its I/O path is built on O_DIRECT, io_uring, cachestat and fallocate");

mod buf;
mod class;
mod clock;
mod disk;
mod error;
mod file;
mod latency;
mod method;
mod os;
mod prealloc;
pub mod probe;
mod process;
mod read_only;
mod shared;
mod stats;

pub use buf::{AlignedBuf, Arena, BUFFER_ALIGN, IoBuf};
pub use class::{Cause, FileClass, Op};
pub use clock::{Clock, Pace, SystemClock};
pub use disk::{
    Allocate, BackendInfo, Cached, Completer, Completion, Create, Disk, FileIdentity, Handle, OpenHow, Request,
    RequestKind, SyncHow, Ticket, WriteHow,
};
pub use error::{IoError, IoErrorKind, Result};
pub use file::{Barrier, File, FileOptions, FileRequest, Pending};
pub use latency::{GROUPING_POWER, Latencies, Latency, LatencyBucket, MAX_VALUE_POWER};
pub use method::{EffectiveMode, FlushMethod, UnknownFlushMethod};
pub use os::limits::raise_descriptor_limit;
pub use os::{Backend, BackendUnavailable, OsDisk, UnknownBackend, create_dir, create_dir_all};
pub use prealloc::{FILLING, Fill, FillOptions, FillStep, STEP_BYTES, recycle, sweep};
pub use process::{InUse, Process, ProcessGate};
pub use read_only::ReadOnlyDisk;
pub use shared::SharedMemory;
pub use stats::{CellSnapshot, IoSnapshot, IoStats};

/// Linux's error numbers that callers distinguish ([`IoError::errno`]).
pub mod errno {
    pub use libc::{EACCES, EBADF, EEXIST, EINVAL, EIO, EISDIR, ENOENT, ENOSYS, ENOTDIR, EOPNOTSUPP, EPERM, EROFS};
}

/// The README's example, tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
