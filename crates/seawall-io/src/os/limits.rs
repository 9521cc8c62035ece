//! The process's limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// Raises the process's soft limit of open files to its hard limit, once in the life of the process. Returns
/// the resulting limit, `None` for no limit. If the system refuses, the limit is unchanged.
///
/// ```
/// let limit = seawall_io::raise_descriptor_limit();
/// assert_eq!(seawall_io::raise_descriptor_limit(), limit);
/// ```
pub fn raise_descriptor_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current == maximum {
            return current;
        }
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => maximum,
            Err(_) => current,
        }
    })
}
