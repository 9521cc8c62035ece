//! Picks a backend by trial, and keeps the reason.

use super::dirs::Dirs;
use super::{OsDisk, Queue, pool::Pool, uring::Uring};
use crate::buf::Arena;
use crate::disk::BackendInfo;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The requested backend.
///
/// ```
/// use seawall_io::Backend;
/// assert_eq!("io_uring".parse(), Ok(Backend::IoUring));
/// assert!("aio".parse::<Backend>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// io_uring where it works, else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// A pool of threads with positioned system calls.
    Threads,
    /// The calling thread; for tests and tracing.
    Sync,
}

impl FromStr for Backend {
    type Err = UnknownBackend;
    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        match text.to_ascii_lowercase().replace('-', "_").as_str() {
            "auto" => Ok(Self::Auto),
            "io_uring" | "iouring" | "uring" => Ok(Self::IoUring),
            "threads" | "pool" => Ok(Self::Threads),
            "sync" => Ok(Self::Sync),
            _ => Err(UnknownBackend(text.into())),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::IoUring => "io_uring",
            Self::Threads => "threads",
            Self::Sync => "sync",
        })
    }
}

/// The error for a name that is not a backend.
///
/// ```
/// use seawall_io::Backend;
/// assert!("aio".parse::<Backend>().unwrap_err().to_string().contains("use auto, io_uring, threads or sync"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBackend(pub String);

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an I/O backend; use auto, io_uring, threads or sync", self.0)
    }
}

impl std::error::Error for UnknownBackend {}

/// A backend requested by name does not work here.
///
/// ```
/// use seawall_io::{Backend, OsDisk};
/// match OsDisk::new(Backend::IoUring, None) {
///     Ok(_) => println!("io_uring works here"),
///     Err(e) => assert!(e.to_string().contains("use `threads`"), "it says what to do: {e}"),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendUnavailable {
    /// The backend.
    pub backend: Backend,
    /// Why it does not work.
    pub reason: String,
    /// A likely cause, to append to the reason; may be empty.
    pub hint: &'static str,
}

impl fmt::Display for BackendUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, reason, hint } = self;
        write!(
            f,
            "I/O backend {backend} does not work here: {reason}; use `threads`, or `auto` to have the best one \
             picked{hint}"
        )
    }
}

impl std::error::Error for BackendUnavailable {}

pub(super) fn synchronous() -> OsDisk {
    let registered_buffers = Err("only io_uring registers buffers".to_owned());
    OsDisk {
        queue: Queue::Sync,
        info: BackendInfo { name: "sync", reason: "asked for".into(), registered_buffers },
        dirs: Dirs::default(),
    }
}

pub(super) fn choose(
    backend: Backend,
    arena: Option<Arc<Arena>>,
    cooperative: bool,
) -> Result<OsDisk, BackendUnavailable> {
    let unregistered = || Err("only io_uring registers buffers".to_owned());
    let info = |name, reason: &str, registered_buffers| BackendInfo { name, reason: reason.into(), registered_buffers };
    let threads = |reason: &str| OsDisk {
        queue: Queue::Threads(Pool::new()),
        info: info("threads", reason, unregistered()),
        dirs: Dirs::default(),
    };
    match backend {
        Backend::Threads => Ok(threads("asked for")),
        Backend::Sync => Ok(synchronous()),
        Backend::Auto | Backend::IoUring => match (Uring::new(arena, cooperative), backend) {
            (Ok((ring, registered)), _) => {
                let reason = if backend == Backend::Auto { "works here, by trial" } else { "asked for" };
                Ok(OsDisk {
                    queue: Queue::Uring(Box::new(ring)),
                    info: info("io_uring", reason, registered),
                    dirs: Dirs::default(),
                })
            }
            (Err(e), Backend::Auto) => Ok(threads(&format!("io_uring does not work here: {e}"))),
            (Err(e), _) => Err(BackendUnavailable { backend, reason: e.to_string(), hint: hint(&e) }),
        },
    }
}

fn hint(e: &std::io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids io_uring)"
        }
        Some(libc::ENOSYS) => " (this kernel is older than 5.1 or was built without io_uring)",
        Some(libc::ENOMEM) => " (the locked-memory limit, ulimit -l, is too low for the ring)",
        _ => "",
    }
}
