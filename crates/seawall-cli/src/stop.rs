//! The request to end: the first Ctrl-C, SIGTERM or hang-up. The second one ends the process at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the command should end early.
#[derive(Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Registers the handlers that set the flag. If the command never `looks` at it, the first signal ends the
    /// process, which harms nothing.
    pub(crate) fn on_signals(looks: bool) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        // Without a handler `ulimit -f` kills the run silently; with one, the write fails with an error that
        // names the file.
        register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        let hang_up = (!hang_up_is_ignored()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            let ends = if looks { stop.clone() } else { Arc::new(AtomicBool::new(true)) };
            register_conditional_shutdown(signal, 130, ends)?;
            register(signal, stop.clone())?;
        }
        Ok(Self(stop))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag as the result of a callback of the engine.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if self.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Deref for Stop {
    type Target = AtomicBool;

    fn deref(&self) -> &AtomicBool {
        &self.0
    }
}

/// Returns whether `nohup` started this process: a lost terminal must then not end the run.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}
