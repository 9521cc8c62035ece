//! Flush methods: how writes to a class of files become durable. The names are those of InnoDB; the table says what
//! they mean on Linux.
//!
//! | method | open flags | a durable write is | an ordinary barrier is |
//! |---|---|---|---|
//! | `fsync` | buffered | write, fdatasync | fdatasync |
//! | `o_dsync` | buffered, `O_DSYNC` | write | nothing: every write was durable (fdatasync after growth by allocation) |
//! | `o_direct` | `O_DIRECT` | write, fdatasync | fdatasync |
//! | `o_direct_no_fsync` | `O_DIRECT` | write, fdatasync | fdatasync only after growth or into holes or unwritten extents |
//! | `o_direct_dsync` | `O_DIRECT` | write with `RWF_DSYNC` | fdatasync |
//!
//! A *durable write* is durable when it returns, under every method. A *barrier* follows a batch of ordinary writes and
//! makes them durable. `o_dsync` needs none. `o_direct_no_fsync` skips it except in the cases in the table, and at a
//! checkpoint only if the cache is also proven non-volatile.

use std::fmt;
use std::str::FromStr;

/// A flush method.
///
/// ```
/// use seawall_io::FlushMethod;
/// assert_eq!("O_DIRECT_NO_FSYNC".parse(), Ok(FlushMethod::ODirectNoFsync));
/// assert_eq!("fdatasync".parse(), Ok(FlushMethod::Fsync));
/// assert_eq!("allsync".parse(), Ok(FlushMethod::ODirectDsync));
/// assert!("o_turbo".parse::<FlushMethod>().unwrap_err().to_string().contains("o_direct_dsync"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum FlushMethod {
    /// Buffered; durable by fdatasync.
    Fsync,
    /// Buffered; opened with `O_DSYNC`.
    ODsync,
    /// Direct; durable by fdatasync.
    ODirect,
    /// Direct; the barrier after ordinary writes is skipped where that is safe.
    ODirectNoFsync,
    /// Direct; durable by `RWF_DSYNC` on the write itself.
    ODirectDsync,
}

impl FlushMethod {
    /// Every method.
    pub const ALL: [Self; 5] = [Self::Fsync, Self::ODsync, Self::ODirect, Self::ODirectNoFsync, Self::ODirectDsync];

    /// Returns the name used in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::ODsync => "o_dsync",
            Self::ODirect => "o_direct",
            Self::ODirectNoFsync => "o_direct_no_fsync",
            Self::ODirectDsync => "o_direct_dsync",
        }
    }

    /// Returns whether the method uses `O_DIRECT`.
    #[must_use]
    pub fn is_direct(self) -> bool {
        matches!(self, Self::ODirect | Self::ODirectNoFsync | Self::ODirectDsync)
    }
}

impl fmt::Display for FlushMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that is not a flush method.
///
/// ```
/// use seawall_io::{FlushMethod, UnknownFlushMethod};
/// assert_eq!("o_turbo".parse::<FlushMethod>(), Err(UnknownFlushMethod("o_turbo".into())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFlushMethod(pub String);

impl fmt::Display for UnknownFlushMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a flush method; use fsync, o_dsync, o_direct, o_direct_no_fsync or o_direct_dsync \
             (InnoDB's fdatasync, littlesync, O_DIRECT, O_DIRECT_NO_FSYNC, ALL_O_DIRECT and allsync are understood)",
            self.0
        )
    }
}

impl std::error::Error for UnknownFlushMethod {}

impl FromStr for FlushMethod {
    type Err = UnknownFlushMethod;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().to_ascii_lowercase().replace('-', "_").as_str() {
            "fsync" | "fdatasync" | "littlesync" => Ok(Self::Fsync),
            "o_dsync" | "o_sync" => Ok(Self::ODsync),
            "o_direct" | "direct" | "all_o_direct" => Ok(Self::ODirect),
            "o_direct_no_fsync" | "nosync" => Ok(Self::ODirectNoFsync),
            "o_direct_dsync" | "allsync" => Ok(Self::ODirectDsync),
            _ => Err(UnknownFlushMethod(text.into())),
        }
    }
}

/// The mode in effect for an open file, and the method requested.
///
/// ```
/// use seawall_io::{EffectiveMode, FlushMethod};
/// let mode = EffectiveMode {
///     requested: FlushMethod::ODirect,
///     direct: false,
///     align_bytes: 1,
///     rwf_dsync: false,
///     degraded: Some("the file system refuses O_DIRECT".into()),
/// };
/// assert_eq!(mode.to_string(), "o_direct (in effect: buffered; the file system refuses O_DIRECT)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EffectiveMode {
    /// The requested method.
    pub requested: FlushMethod,
    /// Whether the file is open with `O_DIRECT`.
    pub direct: bool,
    /// Alignment that offset and length need, bytes; 1 when buffered.
    pub align_bytes: u32,
    /// Whether durable writes carry `RWF_DSYNC` (else they are followed by fdatasync, unless the file is open
    /// `O_DSYNC`).
    pub rwf_dsync: bool,
    /// Why the mode in effect differs from the requested method.
    pub degraded: Option<String>,
}

impl fmt::Display for EffectiveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.requested)?;
        match &self.degraded {
            Some(reason) => write!(f, " (in effect: {}; {reason})", if self.direct { "direct" } else { "buffered" }),
            None => Ok(()),
        }
    }
}
