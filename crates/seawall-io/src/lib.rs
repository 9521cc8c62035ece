//! placeholder
mod buf;
mod class;
mod disk;
mod error;
mod method;
pub mod probe;

pub use buf::{AlignedBuf, Arena, BUFFER_ALIGN, IoBuf};
pub use class::{Cause, FileClass, Op};
pub use disk::{
    Allocate, BackendInfo, Cached, Completer, Completion, Create, Disk, Handle, OpenHow, Request, RequestKind, SyncHow,
    Ticket, WriteHow,
};
pub use error::{IoError, IoErrorKind, Result};
pub use method::{EffectiveMode, FlushMethod, UnknownFlushMethod};
