//! `seawall cache show|drop|watch PATH...`: shows what the page cache holds of any files, and drops it.
//!
//! - Files are only ever opened for reading; nothing about their content changes.
//! - Dropping affects clean pages only; `--sync` writes dirty ones back first. Pages that stay are shown.
//! - A directory means the regular files below it; a glob is expanded again at every interval of `watch`.

use crate::{Ended, Outcome, note, print, units};
use clap::{Args, Subcommand};
use seawall_io::{Cached, Disk, IoError, IoErrorKind, Op, OpenHow, OsDisk, SyncHow};
use seawall_lab::run::pause;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Resident, dirty and evicted bytes of each file
    Show {
        #[command(flatten)]
        files: Files,
    },
    /// Drop the files' pages from the page cache
    Drop {
        #[command(flatten)]
        files: Files,
        /// Write dirty pages back first (an fdatasync of each file); else dirty pages stay
        #[arg(long)]
        sync: bool,
    },
    /// Keep files out of the page cache: drop their pages at every interval, with totals on exit
    Watch {
        #[command(flatten)]
        files: Files,
        /// Time between two passes, with ms, s, m or h
        #[arg(long, default_value = "5s", value_parser = units::duration)]
        interval: Duration,
        /// Stop after this long, such as 1h, instead of at Ctrl-C
        #[arg(long, value_parser = units::duration)]
        duration: Option<Duration>,
        /// Write dirty pages back before dropping (an fdatasync of each file at each pass)
        #[arg(long)]
        sync: bool,
    },
}

#[derive(Debug, Args)]
struct Files {
    /// Files, directories (the files below them), or quoted globs such as '/var/lib/mysql/binlog.*'
    #[arg(required = true)]
    paths: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A file and what the page cache holds of it.
#[derive(Debug, Clone)]
struct Held {
    path: PathBuf,
    len: u64,
    cached: Cached,
}

impl Files {
    /// The selected files, sorted. With `must_exist` a pattern without a match is an error.
    fn find(&self, must_exist: bool, failures: &mut Failures) -> Result<Vec<PathBuf>, Box<dyn std::error::Error>> {
        let mut found = BTreeSet::new();
        for pattern in &self.paths {
            let mut any = false;
            if Path::new(pattern).exists() {
                any = true;
                walk(Path::new(pattern), &mut found, failures)?;
            } else {
                let matches = glob::glob(pattern).map_err(|e| format!("{pattern:?} is no path and no glob: {e}"))?;
                for path in matches {
                    any = true;
                    let path = path.map_err(|e| format!("cannot look for {pattern:?}: {e}"))?;
                    // A link to a file counts as the file; a link to a directory may lead out of the
                    // selection.
                    if path.is_symlink() && path.is_dir() {
                        continue;
                    }
                    let walked = walk(&path, &mut found, failures);
                    failures.keep(&path, walked);
                }
            }
            if must_exist && !any {
                return Err(format!(
                    "{pattern:?} matches no file: check the spelling, and quote globs so that the shell leaves them"
                )
                .into());
            }
        }
        Ok(found.into_iter().collect())
    }
}

/// Adds `path`, or the regular files below it. Symbolic links inside directories are not followed; an
/// unreadable directory below it is one of the failures.
fn walk(path: &Path, found: &mut BTreeSet<PathBuf>, failures: &mut Failures) -> Result<(), IoError> {
    let failed = |e: std::io::Error| IoError::new(Op::Directory, path, IoErrorKind::Os(e.raw_os_error().unwrap_or(5)));
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() || kind.is_file() {
                let walked = walk(&entry.path(), found, failures);
                failures.keep(&entry.path(), walked);
            }
        }
    } else if meta.is_file() {
        found.insert(path.into());
    }
    Ok(())
}

fn look(disk: &OsDisk, path: &Path) -> Result<Held, IoError> {
    let file = disk.open(path, OpenHow::default())?;
    let len = disk.len(&file)?;
    Ok(Held { path: path.into(), len, cached: disk.cached(&file, len)? })
}

/// The error of a command that could not read some files. The others were processed, and are shown.
#[derive(Debug, Default)]
struct Failures(BTreeMap<PathBuf, IoError>);

impl Failures {
    /// `None` when the file was removed since it was listed (a purged binlog), or cannot be read; the error
    /// is kept, and reported once.
    fn keep<T>(&mut self, path: &Path, done: Result<T, IoError>) -> Option<T> {
        match done {
            Ok(done) => return Some(done),
            Err(e) if e.errno() == Some(2) => {}
            Err(e) => {
                if !self.0.contains_key(path) {
                    note(format_args!("seawall: {e}"));
                }
                self.0.insert(path.into(), e);
            }
        }
        None
    }

    fn outcome(&self) -> Outcome {
        match self.0.len() {
            0 => Ok(Ended::Well),
            1 => Err("one file or directory was left out, for the reason above".into()),
            n => Err(format!("{n} files or directories were left out, for the reasons above").into()),
        }
    }
}

/// Drops a file's pages; returns the cached bytes before and after.
fn drop_file(disk: &OsDisk, path: &Path, sync: bool) -> Result<(Held, Held), IoError> {
    let before = look(disk, path)?;
    if before.cached.resident > 0 {
        let file = disk.open(path, OpenHow::default())?;
        if sync {
            disk.sync(&file, SyncHow::Data)?;
        }
        disk.drop_cache(&file, 0, 0)?;
    }
    Ok((before, look(disk, path)?))
}

fn or_dash(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), units::bytes)
}

fn row(held: &Held) -> [String; 6] {
    let share = if held.len == 0 { 0.0 } else { held.cached.resident as f64 / held.len as f64 * 100.0 };
    [
        units::bytes(held.len),
        units::bytes(held.cached.resident),
        format!("{:.0}%", share.min(100.0)),
        or_dash(held.cached.dirty),
        or_dash(held.cached.evicted),
        held.path.display().to_string(),
    ]
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let widths: Vec<usize> = header
        .iter()
        .enumerate()
        .map(|(i, h)| rows.iter().map(|r| r[i].chars().count()).chain([h.len()]).max().unwrap_or(0))
        .collect();
    let mut line = |cells: Vec<&str>| {
        for (i, cell) in cells.iter().enumerate() {
            if i + 1 == cells.len() {
                text.push_str(cell);
            } else {
                let width = widths[i];
                text.push_str(&format!("{cell:>width$}  "));
            }
        }
        text.push('\n');
    };
    line(header.to_vec());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
    text
}

fn total(held: &[Held]) -> Held {
    let sum = |f: fn(&Cached) -> Option<u64>| held.iter().map(|h| f(&h.cached)).sum::<Option<u64>>();
    Held {
        path: format!("{} files in all", held.len()).into(),
        len: held.iter().map(|h| h.len).sum(),
        cached: Cached {
            resident: held.iter().map(|h| h.cached.resident).sum(),
            dirty: sum(|c| c.dirty),
            writeback: sum(|c| c.writeback),
            evicted: sum(|c| c.evicted),
        },
    }
}

fn json(held: &Held) -> serde_json::Value {
    serde_json::json!({
        "path": held.path.display().to_string(), "bytes": held.len, "resident_bytes": held.cached.resident, "dirty_bytes": held.cached.dirty,
        "writeback_bytes": held.cached.writeback, "evicted_bytes": held.cached.evicted,
    })
}

pub(crate) fn run(args: &CacheArgs, stop: &AtomicBool) -> Outcome {
    let disk = OsDisk::synchronous();
    match &args.command {
        CacheCommand::Show { files } => show(&disk, files),
        CacheCommand::Drop { files, sync } => drop_all(&disk, files, *sync),
        CacheCommand::Watch { files, interval, duration, sync } => {
            watch(&disk, files, *interval, *duration, *sync, stop)
        }
    }
}

fn show(disk: &OsDisk, files: &Files) -> Outcome {
    let mut failures = Failures::default();
    let found = files.find(true, &mut failures)?;
    let mut held: Vec<Held> = found.iter().filter_map(|p| failures.keep(p, look(disk, p))).collect();
    if files.json {
        print(&format!("{}\n", serde_json::Value::Array(held.iter().map(json).collect())))?;
        return failures.outcome();
    }
    if held.len() > 1 {
        held.push(total(&held));
    }
    let rows: Vec<Vec<String>> = held.iter().map(|h| row(h).to_vec()).collect();
    print(&table(&["size", "resident", "", "dirty", "evicted", "file"], &rows))?;
    failures.outcome()
}

fn drop_all(disk: &OsDisk, files: &Files, sync: bool) -> Outcome {
    let mut failures = Failures::default();
    let found = files.find(true, &mut failures)?;
    let pairs: Vec<_> = found.iter().filter_map(|p| failures.keep(p, drop_file(disk, p, sync))).collect();
    if files.json {
        let list = pairs.iter().map(|(b, a)| serde_json::json!({ "before": json(b), "after": json(a) })).collect();
        print(&format!("{}\n", serde_json::Value::Array(list)))?;
        return failures.outcome();
    }
    let freed = |b: &Held, a: &Held| b.cached.resident.saturating_sub(a.cached.resident);
    let rows: Vec<Vec<String>> = pairs
        .iter()
        .map(|(b, a)| {
            vec![
                units::bytes(b.cached.resident),
                units::bytes(freed(b, a)),
                units::bytes(a.cached.resident),
                b.path.display().to_string(),
            ]
        })
        .collect();
    let mut text = table(&["resident", "dropped", "stays", "file"], &rows);
    let stays: u64 = pairs.iter().map(|(_, a)| a.cached.resident).sum();
    writeln!(text, "{} dropped of {} files", units::bytes(pairs.iter().map(|(b, a)| freed(b, a)).sum()), pairs.len())?;
    if stays > 0 {
        let why = if sync {
            "in use: mapped, locked or being written"
        } else {
            "dirty or in use: --sync writes dirty pages back first"
        };
        writeln!(text, "{} stay: {why}", units::bytes(stays))?;
    }
    print(&text)?;
    failures.outcome()
}

fn watch(
    disk: &OsDisk,
    files: &Files,
    interval: Duration,
    duration: Option<Duration>,
    sync: bool,
    stop: &AtomicBool,
) -> Outcome {
    // Freed bytes of each file, and the most that all files held at any pass.
    let mut freed: BTreeMap<PathBuf, u64> = BTreeMap::new();
    let (mut passes, mut resident_max, mut stays) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    let mut failures = Failures::default();
    files.find(true, &mut failures)?;
    note(format_args!("dropping {} every {interval:?}; Ctrl-C ends it with totals", files.paths.join(" ")));
    while !stop.load(Ordering::Relaxed) && duration.is_none_or(|d| start.elapsed() < d) {
        let (mut resident, mut pass_freed) = (0, 0);
        stays = 0;
        for path in files.find(false, &mut failures)? {
            if let Some((before, after)) = failures.keep(&path, drop_file(disk, &path, sync)) {
                let gone = before.cached.resident.saturating_sub(after.cached.resident);
                resident += before.cached.resident;
                stays += after.cached.resident;
                pass_freed += gone;
                *freed.entry(path).or_default() += gone;
            }
        }
        passes += 1;
        resident_max = resident_max.max(resident);
        if pass_freed > 0 {
            note(format_args!(
                "{:>6.0}s  {} dropped, {} stay",
                start.elapsed().as_secs_f64(),
                units::bytes(pass_freed),
                units::bytes(stays)
            ));
        }
        pause(duration.map_or(interval, |d| interval.min(d.saturating_sub(start.elapsed()))), stop);
    }

    let all: u64 = freed.values().sum();
    if files.json {
        let value = serde_json::json!({
            "passes": passes, "seconds": start.elapsed().as_secs_f64(), "dropped_bytes": all,
            "resident_bytes_max": resident_max, "stay_bytes": stays,
            "files": freed.iter().map(|(p, b)| serde_json::json!({ "path": p.display().to_string(), "dropped_bytes": b })).collect::<Vec<_>>(),
        });
        print(&format!("{value}\n"))?;
        return failures.outcome();
    }
    let rows: Vec<Vec<String>> =
        freed.iter().map(|(path, bytes)| vec![units::bytes(*bytes), path.display().to_string()]).collect();
    let mut text = if rows.is_empty() { String::new() } else { table(&["dropped", "file"], &rows) };
    writeln!(
        text,
        "{} dropped in {passes} passes over {:.0} s; at most {} were resident at a pass, {} stay",
        units::bytes(all),
        start.elapsed().as_secs_f64(),
        units::bytes(resident_max),
        units::bytes(stays)
    )?;
    print(&text)?;
    failures.outcome()
}
