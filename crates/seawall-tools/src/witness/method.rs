//! How a run makes its writes durable, and two controls that do not.
//!
//! | method | open | a write is acknowledged when |
//! |---|---|---|
//! | `direct` | `O_DIRECT` | the write and an fdatasync have returned |
//! | `direct-dsync` | `O_DIRECT` | a write with `RWF_DSYNC` has returned |
//! | `buffered` | page cache | the write and an fdatasync have returned |
//! | `o-dsync` | page cache, `O_DSYNC` | the write has returned |
//! | `nosync` | page cache | the write has returned: a control that must lose data in any power cut |
//! | `direct-nosync` | `O_DIRECT` | the write has returned: a control that loses data if the drive's cache is volatile |

use seawall_io::{Create, OpenHow, WriteHow};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How writes are made durable.
///
/// ```
/// use seawall_tools::witness::WriteMethod;
/// assert_eq!("direct-dsync".parse(), Ok(WriteMethod::DirectDsync));
/// assert!("turbo".parse::<WriteMethod>().unwrap_err().to_string().contains("buffered"));
/// assert!(WriteMethod::NoSync.is_control());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMethod {
    /// Direct write, then fdatasync.
    #[default]
    DirectFdatasync,
    /// Direct write with `RWF_DSYNC`.
    DirectDsync,
    /// Buffered write, then fdatasync.
    BufferedFdatasync,
    /// Buffered write to a file opened with `O_DSYNC`.
    ODsync,
    /// Buffered write and nothing else.
    NoSync,
    /// Direct write and nothing else.
    DirectNoSync,
}

impl WriteMethod {
    /// Every method.
    pub const ALL: [Self; 6] = [
        Self::DirectFdatasync,
        Self::DirectDsync,
        Self::BufferedFdatasync,
        Self::ODsync,
        Self::NoSync,
        Self::DirectNoSync,
    ];

    /// Returns the name used on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DirectFdatasync => "direct",
            Self::DirectDsync => "direct-dsync",
            Self::BufferedFdatasync => "buffered",
            Self::ODsync => "o-dsync",
            Self::NoSync => "nosync",
            Self::DirectNoSync => "direct-nosync",
        }
    }

    /// Returns a description for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::DirectFdatasync => "O_DIRECT and fdatasync",
            Self::DirectDsync => "O_DIRECT and RWF_DSYNC",
            Self::BufferedFdatasync => "buffered writes and fdatasync",
            Self::ODsync => "buffered writes to a file opened with O_DSYNC",
            Self::NoSync => "buffered writes without any sync",
            Self::DirectNoSync => "O_DIRECT without any sync",
        }
    }

    /// Returns whether the method does nothing to make its writes durable: losses then say something about the cut, not
    /// about the disk.
    #[must_use]
    pub fn is_control(self) -> bool {
        matches!(self, Self::NoSync | Self::DirectNoSync)
    }

    pub(super) fn open(self, create: Create) -> OpenHow {
        let direct = matches!(self, Self::DirectFdatasync | Self::DirectDsync | Self::DirectNoSync);
        OpenHow { write: true, create, direct, dsync: self == Self::ODsync }
    }

    pub(super) fn write(self) -> WriteHow {
        WriteHow { dsync: self == Self::DirectDsync, ..WriteHow::default() }
    }

    /// Returns whether an fdatasync must follow the write.
    pub(super) fn syncs_after(self) -> bool {
        matches!(self, Self::DirectFdatasync | Self::BufferedFdatasync)
    }
}

impl fmt::Display for WriteMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that is not a write method.
///
/// ```
/// use seawall_tools::witness::{UnknownWriteMethod, WriteMethod};
/// assert_eq!("turbo".parse::<WriteMethod>(), Err(UnknownWriteMethod("turbo".into())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a write method; use direct, direct-dsync, buffered, o-dsync, or one of the controls nosync and \
     direct-nosync"
)]
pub struct UnknownWriteMethod(pub String);

impl FromStr for WriteMethod {
    type Err = UnknownWriteMethod;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|m| text.eq_ignore_ascii_case(m.name()))
            .ok_or_else(|| UnknownWriteMethod(text.into()))
    }
}
