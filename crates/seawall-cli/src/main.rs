//! The `seawall` command.
//!
//! - Exit codes: 0 done; 1 the answer is no (a `--require` is not met, a witness found losses, `check` found
//!   damage, the key does not exist); 2 bad input or an error; 130 ended early by Ctrl-C, SIGTERM or hang-up.
//!   A command that only Ctrl-C ends (watching, serving) exits with 0.
//! - Results go to standard output; progress, notes and errors go to standard error.

mod commands;
mod progress;
mod stop;
mod units;

use clap::{Parser, Subcommand};
use commands::db;
use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use stop::Stop;

/// Manage and diagnose Seawall databases, measure disks, control the page cache, and prove durability.
#[derive(Debug, Parser)]
#[command(name = "seawall", version, max_term_width = 110, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run classic I/O experiments on the disk under PATH: a table, verdicts, settings and a report.
    Lab(Box<commands::lab::LabArgs>),
    /// Show what the disk, file system and kernel under PATH support, and what each finding means.
    Probe(commands::probe::ProbeArgs),
    /// Show or drop the cached pages of any files, or keep files out of the page cache.
    #[command(subcommand)]
    Cache(commands::cache::CacheCommand),
    /// Prove durability by cutting the power, with another machine as the witness.
    #[command(subcommand)]
    Witness(commands::witness::WitnessCommand),
    /// Create a database.
    Init(db::DatabaseArgs),
    /// List the trees of a database.
    Trees(db::trees::TreesArgs),
    /// Print the value of a key.
    Get(db::rows::GetArgs),
    /// Set the value of a key.
    Put(db::rows::PutArgs),
    /// Delete a key, or drop a tree.
    Del(db::rows::DelArgs),
    /// Print the entries of a tree, or of a range of its keys.
    Scan(db::rows::ScanArgs),
    /// Load rows from text (TSV, CSV or JSON lines) into a tree.
    Import(db::import::ImportArgs),
    /// Write trees to one portable stream.
    Dump(db::dump::DumpArgs),
    /// Load a dump; creates the database if there is none.
    Load(db::load::LoadArgs),
    /// Grow the data file ahead of need, for example in quiet hours.
    Grow(db::maintenance::GrowArgs),
    /// Put the leaves of trees into key order, fill them up, and give free space back.
    Compact(db::maintenance::CompactArgs),
    /// Show live rates and latencies of a database that another process has open.
    Stat(db::stat::StatArgs),
    /// Report where the I/O time of a database goes and what to change.
    Doctor(db::doctor::DoctorArgs),
    /// Back up a database, even while it is open; a restore gives its state at the end of the backup.
    Backup(db::backup::BackupArgs),
    /// Create a database from a full backup and its increments.
    Restore(db::backup::RestoreArgs),
    /// Verify every page, tree, space map, undo record and older version of a row.
    Check(db::maintenance::CheckArgs),
    /// List the options of a database; each is a flag of the commands that open one.
    Options(db::options::OptionsArgs),
    /// Print the completion script for a shell.
    Completions(commands::manual::CompletionsArgs),
    /// Write the man pages.
    Man(commands::manual::ManArgs),
    /// Measure workloads on Seawall, on the disk alone, and on other stores.
    #[command(subcommand)]
    Bench(Box<commands::bench::BenchCommand>),
}

/// How a command ended.
enum Ended {
    /// Exit code 0.
    Well = 0,
    /// Exit code 1: the command succeeded, and the answer is no.
    Short = 1,
    /// Exit code 130.
    Interrupted = 130,
}

type Failed = Box<dyn std::error::Error>;
type Outcome = Result<Ended, Failed>;

/// Whether standard output still has a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Listens,
    /// Closed, as after `| head`: the command neither fails nor skips its remaining work.
    Gone,
}

/// Prints text, or other bytes, to standard output.
fn print(text: impl AsRef<[u8]>) -> std::io::Result<Reader> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(std::io::Error::new(e.kind(), format!("cannot write to standard output: {e}"))),
    }
}

/// Prints a note to standard error. A closed standard error must not cause a panic in the middle of a run.
fn note(text: impl Display) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Prints the result of a command that succeeded.
fn answer(text: impl AsRef<[u8]>) -> Outcome {
    print(text)?;
    Ok(Ended::Well)
}

/// Notes why a command ended early.
fn interrupted(why: impl Display) -> Outcome {
    note(why);
    Ok(Ended::Interrupted)
}

/// Formats a value as JSON for standard output, over several lines.
fn pretty(value: &impl serde::Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Makes an error message for a failed operation on a path.
fn cannot<E: Display>(what: &str, path: &Path) -> impl Fn(E) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

/// Makes the directory that `flag` names.
fn make_dir(dir: &Path, flag: &str) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}; give another {flag}", cannot("make", dir)(e)))
}

/// Writes files into a directory, and notes each.
fn write_files(dir: &Path, files: [(&str, String); 2]) -> Result<(), String> {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(cannot("write", &path))?;
        note(format_args!("wrote {}", path.display()));
    }
    Ok(())
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
    let looks = !matches!(
        cli.command,
        Command::Init(_)
            | Command::Trees(_)
            | Command::Get(_)
            | Command::Del(_)
            | Command::Grow(_)
            | Command::Restore(_)
            | Command::Check(_)
    );
    let outcome = Stop::on_signals(looks).map_err(Into::into).and_then(|stop| match cli.command {
        Command::Lab(args) => commands::lab::run(*args, &stop),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Cache(command) => commands::cache::run(&command, &stop),
        Command::Witness(command) => commands::witness::run(command, &stop),
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
        Command::Bench(command) => commands::bench::run(&command, &stop),
    });
    match outcome {
        Ok(ended) => ExitCode::from(ended as u8),
        Err(e) => {
            note(format_args!("seawall: {e}"));
            ExitCode::from(2)
        }
    }
}
