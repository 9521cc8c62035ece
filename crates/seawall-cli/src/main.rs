//! The `seawall` command.
//!
//! - Exit codes: 0 done; 1 the answer is no (a `--require` is not met, a witness found losses, `check` found
//!   damage, the key does not exist); 2 bad input or an error; 130 ended early by Ctrl-C, SIGTERM or hang-up.
//!   A command that only Ctrl-C ends (watching, serving) exits with 0.
//! - Results go to standard output; progress, notes and errors go to standard error.

mod commands;
mod progress;
mod units;

use clap::{Parser, Subcommand};
use commands::db;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Run and diagnose a Seawall database; measure what a disk really does, keep the page cache honest, prove
/// durability.
#[derive(Debug, Parser)]
#[command(name = "seawall", version, max_term_width = 110, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Re-run classic I/O experiments on the disk under PATH; ends in a table, verdicts, settings and a
    /// report.
    Lab(Box<commands::lab::LabArgs>),
    /// Show what the disk, file system and kernel under PATH offer, and what each finding means.
    Probe(commands::probe::ProbeArgs),
    /// Show, drop or keep out what the page cache holds of any files.
    Cache(commands::cache::CacheArgs),
    /// Prove durability by pulling the plug, with another machine as the witness.
    Witness(commands::witness::WitnessArgs),
    /// Make a database.
    Init(db::trees::InitArgs),
    /// List the trees of a database.
    Trees(db::trees::TreesArgs),
    /// Print the value of a key.
    Get(db::rows::GetArgs),
    /// Give a key a value.
    Put(db::rows::PutArgs),
    /// Delete a key, or drop a tree.
    Del(db::rows::DelArgs),
    /// Print the entries of a tree, or of a range of it.
    Scan(db::rows::ScanArgs),
    /// Load rows from text into a tree: TSV, CSV or JSON lines.
    Import(db::import::ImportArgs),
    /// Write trees into one portable stream.
    Dump(db::dump::DumpArgs),
    /// Load a dump; makes the database when there is none.
    Load(db::load::LoadArgs),
    /// Make space for data in quiet hours.
    Grow(db::maintenance::GrowArgs),
    /// Bring the leaves of trees into the order of their keys, and fill them up.
    Compact(db::maintenance::CompactArgs),
    /// Show live rates and latencies of a database that another process has open.
    Stat(db::stat::StatArgs),
    /// Say where the I/O time of a database goes and what to change.
    Doctor(db::doctor::DoctorArgs),
    /// Copy a database, also one that is open, to be restored as it is when the copy ends.
    Backup(db::backup::BackupArgs),
    /// Make a database from a backup and the increments on it.
    Restore(db::backup::RestoreArgs),
    /// Verify every page, tree, map and undo record of a database.
    Check(db::maintenance::CheckArgs),
    /// List the options of a database, each a flag of the commands that open one.
    Options(db::options::OptionsArgs),
    /// Print the completion script of a shell.
    Completions(commands::manual::CompletionsArgs),
    /// Write the man pages.
    Man(commands::manual::ManArgs),
    /// Measure workloads on Seawall, on the disk alone, and on other stores.
    Bench(Box<commands::bench::BenchArgs>),
}

/// How a command ended.
enum Ended {
    /// Exit code 0.
    Well,
    /// Exit code 1: the command succeeded, and the answer is no.
    Short,
    /// Exit code 130.
    Interrupted,
}

type Failed = Box<dyn std::error::Error>;
type Outcome = Result<Ended, Failed>;

/// Set by the first Ctrl-C, SIGTERM or hang-up; the second one ends the process at once.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // Without a handler `ulimit -f` kills the run silently; with one, the write fails with an error that
    // names the file.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && hang_up_is_ignored() {
            continue;
        }
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Whether `nohup` started this process: then a lost terminal must not end the run.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// Whether standard output still has a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Listens,
    /// Closed, as after `| head`: no reason to fail, nor to skip the remaining work.
    Gone,
}

/// Prints to standard output.
fn print(text: &str) -> std::io::Result<Reader> {
    print_bytes(text.as_bytes())
}

/// As `print`, for bytes that are not text.
fn print_bytes(bytes: &[u8]) -> std::io::Result<Reader> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(std::io::Error::new(e.kind(), format!("cannot write to standard output: {e}"))),
    }
}

/// Prints a note to standard error; a closed one must not cause a panic in the middle of a run.
fn note(text: impl Display) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// The engine's log: warnings and errors go to standard error.
struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        note(format_args!("seawall: {}: {}", record.level().as_str().to_lowercase(), record.args()));
    }

    fn flush(&self) {}
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::set_logger(&Warnings).expect("no logger was set before");
    log::set_max_level(log::LevelFilter::Warn);
    let outcome = stop_on_signals().map_err(Into::into).and_then(|stop| match cli.command {
        Command::Lab(args) => commands::lab::run(*args, &stop),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Cache(args) => commands::cache::run(&args, &stop),
        Command::Witness(args) => commands::witness::run(args, &stop),
        Command::Init(args) => db::trees::init(&args),
        Command::Trees(args) => db::trees::trees(&args),
        Command::Get(args) => db::rows::get(&args),
        Command::Put(args) => db::rows::put(&args, &stop),
        Command::Del(args) => db::rows::del(&args),
        Command::Scan(args) => db::rows::scan(&args, &stop),
        Command::Import(args) => db::import::import(&args, &stop),
        Command::Dump(args) => db::dump::dump(&args, &stop),
        Command::Load(args) => db::load::load(&args, &stop),
        Command::Grow(args) => db::maintenance::grow(&args),
        Command::Compact(args) => db::maintenance::compact(&args, &stop),
        Command::Stat(args) => db::stat::stat(&args, &stop),
        Command::Doctor(args) => db::doctor::doctor(&args, &stop),
        Command::Backup(args) => db::backup::backup(&args, &stop),
        Command::Restore(args) => db::backup::restore(&args),
        Command::Check(args) => db::maintenance::check(&args),
        Command::Options(args) => db::options::options(&args),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Man(args) => commands::manual::man(&args),
        Command::Bench(args) => commands::bench::run(*args, &stop),
    });
    match outcome {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Short) => ExitCode::from(1),
        Ok(Ended::Interrupted) => ExitCode::from(130),
        Err(e) => {
            note(format_args!("seawall: {e}"));
            ExitCode::from(2)
        }
    }
}
