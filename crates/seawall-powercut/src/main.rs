//! Power cuts below a real file system. See the README beside it.

#![cfg(target_os = "linux")]

mod daemon;
mod drive;
mod engine;
mod fuse;
mod machine;
mod model;
mod plan;
mod recorder;
mod rng;

use drive::Request;
use machine::Fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const HELP: &str = "\
seawall-powercut [--rounds N] [--seed S] [--fs ext4|xfs|btrfs] [--keep DIR]
                 [--mutant NAME | --mutants | --lie] [--must-fail]

  --rounds N     rounds, each a power cut under load and up to two during recovery (20)
  --seed S       what is drawn at random follows from it (from the time)
  --fs FS        only this file system
  --keep DIR     where the disks of a failure are kept (target/powercut)
  --mutant NAME  plants a defect in the engine, by its name in crates/seawall/src/mutants.rs; needs a build with
                 --features mutants
  --mutants      each defect that reaches the disk in turn: how many rounds it takes to find it, N at the most
  --lie          the disk acknowledges flushes and does nothing
  --must-fail    the exit code is 0 when a failure was found, 1 when none was";

/// Set in the process that has its own mount namespace.
const INSIDE: &str = "SEAWALL_POWERCUT_INSIDE";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["disks", dir] => daemon::run(Path::new(dir)).map(|()| true),
        ["work", ..] => engine::Orders::from_args(&args[1..]).and_then(|orders| engine::work(&orders)).map(|()| true),
        ["look", dump, end, ..] => engine::Orders::from_args(&args[3..])
            .and_then(|orders| engine::look(&orders, Path::new(dump), end == "close"))
            .map(|()| true),
        _ => run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("seawall-powercut: {error}");
            ExitCode::from(2)
        }
    }
}

/// Reports what cannot run here, also in the file from which `make` counts skips.
fn skipped(why: &str) -> Result<()> {
    println!("skipped: power cuts: {why}");
    if let Some(path) = std::env::var_os("SEAWALL_SKIPPED") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "power cuts: {why}")?;
    }
    Ok(())
}

/// Returns true if the run ended as expected.
fn run(args: &[String]) -> Result<bool> {
    let mut request = Request { rounds: 20, keep: PathBuf::from("target/powercut"), ..Request::default() };
    request.seed = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let (mut must_fail, mut mutants) = (false, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n\n{HELP}"));
        match word.as_str() {
            "--rounds" => request.rounds = value()?.parse()?,
            "--seed" => request.seed = value()?.parse()?,
            "--fs" => {
                let name = value()?;
                let fs = Fs::ALL.into_iter().find(|fs| fs.name() == name);
                request.fs = Some(fs.ok_or_else(|| format!("{name} is not ext4, xfs or btrfs"))?);
            }
            "--keep" => request.keep = value()?.into(),
            "--mutant" => request.mutant = Some(value()?.clone()),
            "--mutants" => mutants = true,
            "--lie" => request.lie = true,
            "--must-fail" => must_fail = true,
            _ => return Err(HELP.into()),
        }
    }
    if let Some(why) = machine::missing() {
        skipped(&why)?;
        return Ok(true);
    }
    if std::env::var_os(INSIDE).is_none() {
        let status = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe()?)
            .args(args)
            .env(INSIDE, "1")
            .status()?;
        return match status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(format!("ended with {status}").into()),
        };
    }
    let mut systems = Vec::new();
    for fs in Fs::ALL.into_iter().filter(|fs| request.fs.is_none_or(|only| only == *fs)) {
        match fs.missing() {
            Some(why) => skipped(&format!("{}: {why}", fs.name()))?,
            None => systems.push(fs),
        }
    }
    if systems.is_empty() {
        return Ok(true);
    }
    if mutants {
        return find_mutants(&request, &systems);
    }
    println!("seed {}, {} rounds", request.seed, request.rounds);
    let outcome = drive::run(&request, &systems)?;
    let by_fs: Vec<String> = outcome.rounds_by_fs.iter().map(|(fs, rounds)| format!("{fs} {rounds}")).collect();
    println!(
        "{} rounds ({}), {} power cuts of which {} during recovery, {} commits acknowledged, {} times btrfs could not \
         be mounted, {}",
        outcome.rounds,
        by_fs.join(", "),
        outcome.cuts,
        outcome.cuts_in_recovery,
        outcome.acks,
        outcome.refused,
        if outcome.failure.is_some() { "1 failure" } else { "no failure" }
    );
    if let Some(why) = &outcome.failure {
        println!("FAILED: {why}");
    }
    Ok(outcome.failure.is_some() == must_fail)
}

/// Runs each planted defect and prints a table; returns true if every defect was found.
#[cfg(feature = "mutants")]
fn find_mutants(request: &Request, systems: &[Fs]) -> Result<bool> {
    println!("seed {}, at most {} rounds each", request.seed, request.rounds);
    println!("| planted defect | rounds | power cuts | found by |\n|---|---|---|---|");
    let mut all = true;
    for mutant in engine::MUTANTS {
        let keep = tempfile::tempdir()?;
        // Any flush of the data file's disk, even one for the log, hides a missing flush of the data file.
        let apart = mutant == seawall::mutants::Mutant::DoublewriteReused;
        let mutant = Some(format!("{mutant:?}"));
        let planted = Request { mutant, apart, quiet: true, keep: keep.path().into(), ..request.clone() };
        let outcome = drive::run(&planted, systems)?;
        let name = planted.mutant.unwrap_or_default();
        let found = outcome.failure.as_deref().and_then(|why| why.lines().next()?.split_once(": ")).map(|(_, why)| why);
        println!("| {name} | {} | {} | {} |", outcome.rounds, outcome.cuts, found.unwrap_or("NOT FOUND"));
        all &= found.is_some();
    }
    Ok(all)
}

#[cfg(not(feature = "mutants"))]
fn find_mutants(_: &Request, _: &[Fs]) -> Result<bool> {
    Err("this build has no defects to plant: build it with --features mutants".into())
}
