//! Progress on standard error: a bar with the remaining time on a terminal, occasional lines elsewhere.

use crate::note;
use indicatif::{ProgressBar, ProgressStyle};
use seawall_lab::run::Progress;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    phase: String,
    total: u64,
    terminal: bool,
    last_line: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        Self {
            bar,
            phase: String::new(),
            total: 0,
            terminal: std::io::stderr().is_terminal(),
            last_line: Instant::now(),
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn begin(&mut self, phase: &str, total: u64) {
        self.bar.finish_and_clear();
        self.phase = phase.into();
        self.total = total;
        self.last_line = Instant::now();
        if self.terminal {
            let style =
                ProgressStyle::with_template("{prefix:>24} {bar:30.cyan/dim} {percent:>3}%  {eta} left  {wide_msg}");
            self.bar = ProgressBar::new(total);
            if let Ok(style) = style {
                self.bar.set_style(style);
            }
            self.bar.set_prefix(phase.to_owned());
            self.bar.enable_steady_tick(Duration::from_millis(250));
        } else {
            note(format_args!("{phase} ..."));
        }
    }

    fn at(&mut self, done: u64, now: &str) {
        if self.terminal {
            self.bar.set_position(done.min(self.total));
            self.bar.set_message(now.to_owned());
        } else if self.last_line.elapsed() >= Duration::from_secs(10) {
            self.last_line = Instant::now();
            note(format_args!("{}: {} of {}, {now}", self.phase, done.min(self.total), self.total));
        }
    }
}
