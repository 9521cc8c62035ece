//! Progress on standard error: a bar with the remaining time on a terminal, occasional lines elsewhere.

use crate::note;
use indicatif::{ProgressBar, ProgressStyle};
use seawall_lab::run::Progress;
use std::time::{Duration, Instant};

/// Creates a bar on standard error. It is hidden if standard error is not a terminal, and cleared when
/// it is dropped.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = ProgressBar::new(0).with_style(style);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

/// The progress of a run in phases, until it is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    last_line: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { bar: ProgressBar::hidden(), last_line: Instant::now() }
    }
}

impl Progress for Bar {
    fn begin(&mut self, phase: &str, total: u64) {
        self.bar.finish_and_clear();
        self.last_line = Instant::now();
        self.bar = bar("{prefix:>24} {bar:30.cyan/dim} {percent:>3}%  {eta} left  {wide_msg}");
        self.bar.set_length(total);
        self.bar.set_prefix(phase.to_owned());
        if self.bar.is_hidden() {
            note(format_args!("{phase} ..."));
        }
    }

    fn at(&mut self, done: u64, now: &str) {
        let total = self.bar.length().unwrap_or_default();
        let done = done.min(total);
        self.bar.set_position(done);
        self.bar.set_message(now.to_owned());
        if self.bar.is_hidden() && self.last_line.elapsed() >= Duration::from_secs(10) {
            self.last_line = Instant::now();
            note(format_args!("{}: {done} of {total}, {now}", self.bar.prefix()));
        }
    }
}
