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

/// Declares the commands: the arguments and the function of each.
macro_rules! commands {
    ($($(#[$meta:meta])* $name:ident($args:ty) => $run:path;)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$meta])* $name($args),)*
        }

        impl Command {
            fn run(&self, stop: &Stop) -> Outcome {
                match self {
                    $(Self::$name(args) => $run(args, stop),)*
                }
            }
        }
    };
}

commands! {
    /// Run classic I/O experiments on the disk under PATH: a table, verdicts, settings and a report.
    Lab(Box<commands::lab::LabArgs>) => commands::lab::run;
    /// Show what the disk, file system and kernel under PATH support, and what each finding means.
    Probe(commands::probe::ProbeArgs) => commands::probe::run;
    /// Show or drop the cached pages of any files, or keep files out of the page cache.
    #[command(subcommand)]
    Cache(commands::cache::CacheCommand) => commands::cache::run;
    /// Prove durability by cutting the power, with another machine as the witness.
    #[command(subcommand)]
    Witness(commands::witness::WitnessCommand) => commands::witness::run;
    /// Create a database.
    Init(db::DatabaseArgs) => db::trees::init;
    /// List the trees of a database.
    Trees(db::trees::TreesArgs) => db::trees::trees;
    /// Print the value of a key.
    Get(db::rows::GetArgs) => db::rows::get;
    /// Set the value of a key.
    Put(db::rows::PutArgs) => db::rows::put;
    /// Delete a key, or drop a tree.
    Del(db::rows::DelArgs) => db::rows::del;
    /// Print the entries of a tree, or of a range of its keys.
    Scan(db::rows::ScanArgs) => db::rows::scan;
    /// Load rows from text (TSV, CSV or JSON lines) into a tree.
    Import(db::import::ImportArgs) => db::import::import;
    /// Write trees to one portable stream.
    Dump(db::dump::DumpArgs) => db::dump::dump;
    /// Load a dump; creates the database if there is none.
    Load(db::load::LoadArgs) => db::load::load;
    /// Grow the data file ahead of need, for example in quiet hours.
    Grow(db::maintenance::GrowArgs) => db::maintenance::grow;
    /// Put the leaves of trees into key order, fill them up, and give free space back.
    Compact(db::maintenance::CompactArgs) => db::maintenance::compact;
    /// Show live rates and latencies of a database that another process has open.
    Stat(db::stat::StatArgs) => db::stat::stat;
    /// Report where the I/O time of a database goes and what to change.
    Doctor(db::doctor::DoctorArgs) => db::doctor::doctor;
    /// Back up a database, even while it is open; a restore gives its state at the end of the backup.
    Backup(db::backup::BackupArgs) => db::backup::backup;
    /// Create a database from a full backup and its increments.
    Restore(db::backup::RestoreArgs) => db::backup::restore;
    /// Verify every page, tree, space map, undo record and older version of a row.
    Check(db::maintenance::CheckArgs) => db::maintenance::check;
    /// List the options of a database; each is a flag of the commands that open one.
    Options(db::options::OptionsArgs) => db::options::options;
    /// Print the completion script for a shell.
    Completions(commands::manual::CompletionsArgs) => commands::manual::completions;
    /// Write the man pages.
    Man(commands::manual::ManArgs) => commands::manual::man;
    /// Measure workloads on Seawall, on the disk alone, and on other stores.
    #[command(subcommand)]
    Bench(Box<commands::bench::BenchCommand>) => commands::bench::run;
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
    let outcome = Stop::on_signals(looks).map_err(Into::into).and_then(|stop| cli.command.run(&stop));
    match outcome {
        Ok(ended) => ExitCode::from(ended as u8),
        Err(e) => {
            note(format_args!("seawall: {e}"));
            ExitCode::from(2)
        }
    }
}
