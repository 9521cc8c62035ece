//! The `seawall` command.
//!
//! - Exit codes: 0 done; 1 measured, and a `--require` is short, or a witness found losses; 2 bad input or an error; 130 Ctrl-C.
//! - What was asked for goes to standard output; progress, notes and errors go to standard error.

mod commands;
mod progress;
mod units;

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Measure what a disk really does, keep the page cache honest, and prove durability.
#[derive(Debug, Parser)]
#[command(name = "seawall", version, max_term_width = 110, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the disk under PATH as six classic publications did; ends in a table, verdicts, settings and a report.
    Lab(commands::lab::LabArgs),
    /// Show what the disk, file system and kernel under PATH offer, and what each finding means.
    Probe(commands::probe::ProbeArgs),
    /// Show, drop or keep out what the page cache holds of any files.
    Cache(commands::cache::CacheArgs),
    /// Prove durability by pulling the plug, with another machine as the witness.
    Witness(commands::witness::WitnessArgs),
}

/// How a command ended.
enum Ended {
    /// Exit code 0.
    Well,
    /// Exit code 1: it measured, and the answer is no.
    Short,
    /// Exit code 130.
    Interrupted,
}

type Outcome = Result<Ended, Box<dyn std::error::Error>>;

/// Raised by the first Ctrl-C or SIGTERM; the second one ends the process at once.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Prints to standard output; a reader that has gone away (`| head`) ends the program quietly.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written,
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = stop_on_signals().map_err(Into::into).and_then(|stop| match cli.command {
        Command::Lab(args) => commands::lab::run(args, &stop),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Cache(args) => commands::cache::run(&args, &stop),
        Command::Witness(args) => commands::witness::run(args, &stop),
    });
    match outcome {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Short) => ExitCode::from(1),
        Ok(Ended::Interrupted) => ExitCode::from(130),
        Err(e) => {
            eprintln!("seawall: {e}");
            ExitCode::from(2)
        }
    }
}
