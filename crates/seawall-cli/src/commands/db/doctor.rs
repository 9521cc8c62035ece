//! `seawall doctor DIR`: where the I/O time goes, and what to change. Each finding includes its numbers.

use super::stat::{Seen, percentile, time};
use crate::{Ended, Failed, Outcome, Stop, answer, pretty, units};
use seawall::Stats;
use seawall::stats::total_ns;
use seawall_lab::run::pause;
use seawall_tools::doctor::{diagnose, place};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of causes of I/O to report.
const TOLD_MAX: usize = 6;
/// Numbers that come no later than this are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The directory of the database
    dir: PathBuf,
    /// Measure for this long, such as 10s [default: the time since the database was opened]
    #[arg(long, value_parser = units::duration)]
    window: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn doctor(args: &DoctorArgs, stop: &Stop) -> Outcome {
    let first = Seen::look(&args.dir)?;
    let mut now = first.clone();
    if let Some(time) = args.window {
        if !first.is_live() {
            let why = match first.held {
                Some(true) => "there are no new numbers to measure with",
                _ => "no process has the database open, so there is nothing to measure",
            };
            return Err(format!("{why}: {}", first.origin()).into());
        }
        if !pause(time, stop) {
            return Ok(Ended::Interrupted);
        }
        let Some(later) = published_after(&first, &args.dir, stop)? else { return Ok(Ended::Interrupted) };
        now = later;
    }
    let window = args.window.map(|_| &first.published.stats);
    let mut found = diagnose(&now.published.stats, window);
    found.extend(place(&args.dir));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let stats = window.map_or_else(|| now.published.stats.clone(), |earlier| now.published.stats.since(earlier));
    let (told, seconds) = (io_time(&stats), stats.elapsed_ns as f64 / 1e9);
    if args.json {
        return answer(pretty(&serde_json::json!({
            "live": now.is_live(), "pid": now.published.pid, "seconds": seconds, "io_time": told, "findings": found,
        }))?);
    }
    let (origin, told, found) = (now.origin(), list(&told, "there was no I/O."), list(&found, "nothing was found."));
    answer(format!(
        "{origin}\n{seconds:.0} s are looked at.\n\nWhere the I/O time goes:\n{told}\nWhat to change:\n{found}"
    ))
}

/// Returns the numbers that the same process publishes after `first`; `None` if the user interrupts.
fn published_after(first: &Seen, dir: &Path, stop: &Stop) -> Result<Option<Seen>, Failed> {
    let before = &first.published;
    let every = Duration::from_millis(before.every_ms);
    let until = Instant::now() + if every <= PATIENCE { every + Duration::from_secs(1) } else { Duration::ZERO };
    loop {
        let now = Seen::look(dir)?;
        if now.published.pid != before.pid || now.published.stats.elapsed_ns < before.stats.elapsed_ns {
            return Err(format!("the database was opened again meanwhile: {}", now.origin()).into());
        }
        if now.published.at_unix_ms != before.at_unix_ms {
            return Ok(Some(now));
        }
        if now.held == Some(false) {
            return Err(format!("the database was closed meanwhile: {}", now.origin()).into());
        }
        if Instant::now() >= until {
            let every = time(before.every_ms.saturating_mul(1_000_000));
            let why = format!("no numbers came within the window: they come every {every} (option stats_interval)");
            return Err(why.into());
        }
        if !pause(Duration::from_millis(20), stop) {
            return Ok(None);
        }
    }
}

fn list(lines: &[impl Display], none: &str) -> String {
    if lines.is_empty() { format!("  {none}\n") } else { lines.iter().map(|line| format!("  {line}\n")).collect() }
}

/// Returns the causes with the most I/O time, a sentence each.
fn io_time(stats: &Stats) -> Vec<String> {
    let mut cells: Vec<_> =
        stats.io.cells.iter().filter(|cell| cell.count() > 0).map(|cell| (total_ns(cell), cell)).collect();
    let all: u64 = cells.iter().map(|(ns, _)| *ns).fold(0, u64::saturating_add);
    cells.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let tell = |(ns, cell): (u64, &seawall_io::CellSnapshot)| {
        let share = if all == 0 { 0.0 } else { ns as f64 * 100.0 / all as f64 };
        let (count, moved) = (cell.count(), units::bytes(cell.bytes));
        let [mean, slow, ns, all] = [ns / count, percentile(cell, 99.0), ns, all].map(time);
        format!(
            "{share:.0}% ({ns} of {all}) went to {} {} for {}: {count} operations of {mean}, the slowest hundredth \
             {slow} or more, {moved} moved.",
            cell.class, cell.op, cell.cause
        )
    };
    cells.into_iter().take(TOLD_MAX).map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_io::{Cause, FileClass, IoStats, Op};

    #[test]
    fn the_longest_comes_first_with_its_share() {
        let io = IoStats::new();
        io.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::from_millis(30), 0);
        io.record(FileClass::Data, Op::Read, Cause::DemandRead, Duration::from_millis(10), 16384);
        let told = io_time(&Stats { io: io.snapshot(), ..Stats::default() });
        assert!(told[0].starts_with("75%") && told[0].contains("redo sync for commit: 1 operations of 30"), "{told:?}");
        assert!(told[1].starts_with("25%") && told[1].contains("16.0 KiB"), "{told:?}");
        assert!(io_time(&Stats::default()).is_empty());
    }
}
