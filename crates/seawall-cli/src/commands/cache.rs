//! `seawall cache show|drop|watch PATH...`: shows what the page cache holds of any files, and drops it.
//!
//! - Files are only ever opened for reading; nothing about their content changes.
//! - Dropping affects clean pages only; `--sync` writes dirty ones back first. Pages that stay are shown.
//! - A directory means the regular files below it; a glob is expanded again at every interval of `watch`.

use crate::{Ended, Failed, Outcome, Stop, note, print, units};
use clap::{Args, Subcommand};
use seawall_io::errno::ENOENT;
use seawall_io::{Cached, Disk, IoError, IoErrorKind, Op, OpenHow, OsDisk, SyncHow};
use seawall_lab::run::pause;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show the resident, dirty and evicted bytes of each file
    Show(Files),
    /// Drop the files' pages from the page cache
    Drop {
        #[command(flatten)]
        files: Files,
        /// Write dirty pages back first, with an fdatasync of each file; otherwise dirty pages stay
        #[arg(long)]
        sync: bool,
    },
    /// Keep files out of the page cache: drop their pages at every interval, and show totals at the end
    Watch(Watch),
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    files: Files,
    /// Time between two passes, with ms, s, m or h
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    interval: Duration,
    /// Stop after this long, such as 1h [default: at Ctrl-C]
    #[arg(long, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Write dirty pages back before dropping, with an fdatasync of each file at each pass
    #[arg(long)]
    sync: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Files {
    /// Files, directories (the files below them), or quoted globs such as '/var/lib/mysql/binlog.*'
    #[arg(required = true)]
    paths: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A file and what the page cache holds of it.
#[derive(Debug, Clone)]
struct CachedFile {
    path: PathBuf,
    len: u64,
    cached: Cached,
}

impl Files {
    /// Returns the selected files, sorted. With `must_exist`, a pattern without a match is an error.
    fn find(&self, must_exist: bool, failures: &mut Failures) -> Result<Vec<PathBuf>, Failed> {
        let mut found = BTreeSet::new();
        for pattern in &self.paths {
            let mut any = Path::new(pattern).exists();
            if any {
                walk(Path::new(pattern), &mut found, failures)?;
            } else {
                let matches =
                    glob::glob(pattern).map_err(|e| format!("{pattern:?} is neither a path nor a glob: {e}"))?;
                for path in matches {
                    any = true;
                    let path = path.map_err(|e| format!("cannot look for {pattern:?}: {e}"))?;
                    // A link to a file counts as the file; a link to a directory may lead out of the
                    // selection.
                    if !(path.is_symlink() && path.is_dir()) {
                        let walked = walk(&path, &mut found, failures);
                        failures.keep(&path, walked);
                    }
                }
            }
            if must_exist && !any {
                let hint = "check the spelling, and quote globs so that the shell leaves them";
                return Err(format!("{pattern:?} matches no file: {hint}").into());
            }
        }
        Ok(found.into_iter().collect())
    }
}

/// Adds `path`, or the regular files below it. Symbolic links inside directories are not followed; an
/// unreadable directory below `path` is added to `failures`.
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

fn look(disk: &OsDisk, path: &Path) -> Result<CachedFile, IoError> {
    let file = disk.open(path, OpenHow::default())?;
    let len = disk.len(&file)?;
    Ok(CachedFile { path: path.into(), len, cached: disk.cached(&file, len)? })
}

/// The files and directories that could not be read. The others were processed, and are shown.
#[derive(Debug, Default)]
struct Failures(BTreeSet<PathBuf>);

impl Failures {
    /// Returns `None` if the file was removed since it was listed (a purged binlog), or cannot be read.
    /// Each such file is reported once.
    fn keep<T>(&mut self, path: &Path, done: Result<T, IoError>) -> Option<T> {
        done.inspect_err(|e| {
            if e.errno() != Some(ENOENT) && self.0.insert(path.into()) {
                note(format_args!("seawall: {e}"));
            }
        })
        .ok()
    }

    fn outcome(&self) -> Outcome {
        match self.0.len() {
            0 => Ok(Ended::Well),
            1 => Err("one file or directory was left out, for the reason above".into()),
            n => Err(format!("{n} files or directories were left out, for the reasons above").into()),
        }
    }
}

/// Returns the cached bytes that were freed by dropping a file's pages.
fn freed(before: &CachedFile, after: &CachedFile) -> u64 {
    before.cached.resident.saturating_sub(after.cached.resident)
}

/// Drops a file's pages; returns the cached bytes before and after.
fn drop_file(disk: &OsDisk, path: &Path, sync: bool) -> Result<(CachedFile, CachedFile), IoError> {
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

fn row(held: &CachedFile) -> [String; 6] {
    let share = if held.len == 0 { 0.0 } else { held.cached.resident as f64 / held.len as f64 * 100.0 };
    let or_dash = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), units::bytes);
    [
        units::bytes(held.len),
        units::bytes(held.cached.resident),
        format!("{:.0}%", share.min(100.0)),
        or_dash(held.cached.dirty),
        or_dash(held.cached.evicted),
        held.path.display().to_string(),
    ]
}

/// Formats right-aligned columns with headings; the last column is as wide as its text.
fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = [header.map(String::from)].into_iter().chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths).take(N - 1) {
            text += &format!("{cell:>width$}  ");
        }
        text += &format!("{}\n", row[N - 1]);
    }
    text
}

fn total(held: &[CachedFile]) -> CachedFile {
    let sum = |f: fn(&Cached) -> Option<u64>| held.iter().map(|h| f(&h.cached)).sum::<Option<u64>>();
    CachedFile {
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

fn as_json(held: &CachedFile) -> Value {
    let Cached { resident, dirty, writeback, evicted } = held.cached;
    json!({
        "path": held.path.display().to_string(), "bytes": held.len, "resident_bytes": resident, "dirty_bytes": dirty,
        "writeback_bytes": writeback, "evicted_bytes": evicted,
    })
}

pub(crate) fn run(command: &CacheCommand, stop: &Stop) -> Outcome {
    let (disk, mut failures) = (OsDisk::synchronous(), Failures::default());
    let text = match command {
        CacheCommand::Show(files) => show(&disk, files, &mut failures)?,
        CacheCommand::Drop { files, sync } => drop_all(&disk, files, *sync, &mut failures)?,
        CacheCommand::Watch(args) => watch(&disk, args, &mut failures, stop)?,
    };
    print(text)?;
    failures.outcome()
}

fn show(disk: &OsDisk, files: &Files, failures: &mut Failures) -> Result<String, Failed> {
    let found = files.find(true, failures)?;
    let mut held: Vec<CachedFile> = found.iter().filter_map(|p| failures.keep(p, look(disk, p))).collect();
    if files.json {
        return Ok(format!("{}\n", held.iter().map(as_json).collect::<Value>()));
    }
    if held.len() > 1 {
        held.push(total(&held));
    }
    Ok(table(["size", "resident", "", "dirty", "evicted", "file"], held.iter().map(row)))
}

fn drop_all(disk: &OsDisk, files: &Files, sync: bool, failures: &mut Failures) -> Result<String, Failed> {
    let found = files.find(true, failures)?;
    let pairs: Vec<_> = found.iter().filter_map(|p| failures.keep(p, drop_file(disk, p, sync))).collect();
    if files.json {
        let list: Value = pairs.iter().map(|(b, a)| json!({ "before": as_json(b), "after": as_json(a) })).collect();
        return Ok(format!("{list}\n"));
    }
    let row = |(before, after): &(CachedFile, CachedFile)| {
        let bytes = [before.cached.resident, freed(before, after), after.cached.resident];
        let [resident, dropped, stays] = bytes.map(units::bytes);
        [resident, dropped, stays, before.path.display().to_string()]
    };
    let mut text = table(["resident", "dropped", "stays", "file"], pairs.iter().map(row));
    let freed: u64 = pairs.iter().map(|(before, after)| freed(before, after)).sum();
    let stays: u64 = pairs.iter().map(|(_, after)| after.cached.resident).sum();
    text += &format!("{} dropped of {} files\n", units::bytes(freed), pairs.len());
    if stays > 0 {
        let why = if sync {
            "in use: mapped, locked or being written"
        } else {
            "dirty or in use: --sync writes dirty pages back first"
        };
        text += &format!("{} stay: {why}\n", units::bytes(stays));
    }
    Ok(text)
}

fn watch(disk: &OsDisk, args: &Watch, failures: &mut Failures, stop: &Stop) -> Result<String, Failed> {
    // The bytes freed of each file, and the maximum that all files held at any pass.
    let mut freed_bytes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    let (mut passes, mut resident_max, mut stays) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    args.files.find(true, failures)?;
    note(format_args!("dropping {} every {:?}; Ctrl-C ends it with totals", args.files.paths.join(" "), args.interval));
    while !stop.is_set() && args.duration.is_none_or(|d| start.elapsed() < d) {
        let (mut resident, mut pass_freed) = (0, 0);
        stays = 0;
        for path in args.files.find(false, failures)? {
            if let Some((before, after)) = failures.keep(&path, drop_file(disk, &path, args.sync)) {
                resident += before.cached.resident;
                stays += after.cached.resident;
                pass_freed += freed(&before, &after);
                *freed_bytes.entry(path).or_default() += freed(&before, &after);
            }
        }
        passes += 1;
        resident_max = resident_max.max(resident);
        if pass_freed > 0 {
            let [freed, stays] = [pass_freed, stays].map(units::bytes);
            note(format_args!("{:>6.0}s  {freed} dropped, {stays} stay", start.elapsed().as_secs_f64()));
        }
        pause(args.duration.map_or(args.interval, |d| args.interval.min(d.saturating_sub(start.elapsed()))), stop);
    }

    let (all, seconds) = (freed_bytes.values().sum(), start.elapsed().as_secs_f64());
    let files = freed_bytes.iter().map(|(path, bytes)| (path.display().to_string(), *bytes));
    if args.files.json {
        let files: Value = files.map(|(path, bytes)| json!({ "path": path, "dropped_bytes": bytes })).collect();
        let value = json!({
            "passes": passes, "seconds": seconds, "dropped_bytes": all, "resident_bytes_max": resident_max,
            "stay_bytes": stays, "files": files,
        });
        return Ok(format!("{value}\n"));
    }
    let rows: Vec<_> = files.map(|(path, bytes)| [units::bytes(bytes), path]).collect();
    let files = if rows.is_empty() { String::new() } else { table(["dropped", "file"], rows) };
    let [all, most, stays] = [all, resident_max, stays].map(units::bytes);
    Ok(format!(
        "{files}{all} dropped in {passes} passes over {seconds:.0} s; at most {most} were resident at a pass, {stays} \
         stay\n"
    ))
}
