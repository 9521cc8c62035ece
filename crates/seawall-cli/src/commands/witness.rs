//! `seawall witness`: serve on another machine, run on this one, cut the power, verify.

use crate::{Ended, Outcome, Stop, cannot, interrupted, note, print, units};
use clap::Subcommand;
use seawall_io::{Disk, OsDisk};
use seawall_tools::witness::{
    self, RunId, RunOptions, ServeOptions, Verdict, VerifyOptions, Witness, WitnessError, WriteMethod,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WitnessCommand {
    /// On another machine: record the acknowledged writes, until Ctrl-C
    Serve {
        /// Address and port to listen on; the default can be reached only from this machine
        #[arg(long, default_value = "127.0.0.1:7440")]
        listen: String,
        /// Directory for the records
        #[arg(long, default_value = "seawall-witness")]
        state: PathBuf,
        /// Shared secret; it is sent unencrypted
        #[arg(long, default_value = "")]
        token: String,
    },
    /// On this machine: write to PATH and report each acknowledged write, until the power is cut
    Run {
        /// Directory on the disk to test
        path: PathBuf,
        /// Host and port of the witness
        #[arg(long)]
        witness: String,
        /// Shared secret of the witness
        #[arg(long, default_value = "")]
        token: String,
        /// How writes are made durable
        #[arg(long, default_value_t = WriteMethod::default())]
        method: WriteMethod,
        /// Number of writing threads
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
        threads: u32,
        /// Size of one write, bytes, with K or M
        #[arg(long, default_value = "16K", value_parser = units::size)]
        block: u64,
        /// Omit the control: a stream without syncs, which should lose data when the power is cut
        #[arg(long)]
        no_control: bool,
        /// Stop after this long, such as 10m [default: never]
        #[arg(long, value_parser = units::duration)]
        duration: Option<Duration>,
        /// Seed for content and placement
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Free space to leave untouched, with K, M, G or T
        #[arg(long, default_value = "1G", value_parser = units::size)]
        reserve: u64,
    },
    /// On this machine, after the power cut: compare the disk with the witness's record
    Verify {
        /// Directory that `run` wrote to
        path: PathBuf,
        /// Host and port of the witness
        #[arg(long)]
        witness: String,
        /// Id of the run, as `run` printed it
        #[arg(long)]
        run: RunId,
        /// Shared secret of the witness
        #[arg(long, default_value = "")]
        token: String,
        /// Write the findings to FILE, for `seawall lab --witness FILE`
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Remove the run's files afterwards
        #[arg(long)]
        cleanup: bool,
    },
}

pub(crate) fn run(command: &WitnessCommand, stop: &Stop) -> Outcome {
    match command.clone() {
        WitnessCommand::Serve { listen, state, token } => {
            std::fs::create_dir_all(&state).map_err(cannot("make", &state))?;
            let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
            let options = ServeOptions { listen, token, ..ServeOptions::default() };
            let witness = Witness::bind(&disk, &state, &options)?;
            print(format!("listening on {}, records in {}\n", witness.local_addr()?, state.display()))?;
            witness.serve(stop, &|event| note(event));
            Ok(Ended::Well)
        }
        WitnessCommand::Run { path, witness, token, method, threads, block, no_control, duration, seed, reserve } => {
            let options = RunOptions {
                witness,
                token,
                method,
                threads,
                seed,
                duration,
                block_bytes: u32::try_from(block).unwrap_or(u32::MAX),
                control: !no_control,
                reserve_bytes: reserve,
                ..RunOptions::default()
            };
            // The record of the run contains the directory: it must be valid wherever verify is called.
            write(&std::path::absolute(&path)?, &options, stop)
        }
        WitnessCommand::Verify { path, witness, run, token, json, cleanup } => {
            let options = VerifyOptions { witness, run, token, ..VerifyOptions::default() };
            verify(&path, &options, json.as_deref(), cleanup, stop)
        }
    }
}

/// Writes until the power is cut, `stop` is set, or the duration ends.
fn write(path: &Path, options: &RunOptions, stop: &Stop) -> Outcome {
    let (run, place, witness) = (options.run, path.display(), &options.witness);
    let token = if options.token.is_empty() { "" } else { " --token ..." };
    let invitation = format!(
        "run {run}: pull the plug whenever you like; after the restart:\n  seawall witness verify {place} --witness \
         {witness} --run {run}{token}\n"
    );
    let said: Mutex<Option<Instant>> = Mutex::new(None);
    let progress = |p: &witness::Progress| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        // Say it only when there is something to lose: without a witness or a writable directory a power cut
        // proves nothing.
        if said.is_none() && p.acknowledged > 0 {
            *said = Some(Instant::now());
            if let Err(e) = print(&invitation) {
                note(format_args!("{e}\n{invitation}"));
            }
        }
        if said.is_some_and(|at| at.elapsed() >= Duration::from_secs(5)) {
            *said = Some(Instant::now());
            let state = if p.connected { "" } else { ", waiting for the witness" };
            note(format_args!("{:>6.0}s  {} writes acknowledged{state}", p.elapsed.as_secs_f64(), p.acknowledged));
        }
    };
    let summary = witness::run(&OsDisk::synchronous(), path, options, stop, &progress)?;
    let (writes, seconds) = (summary.acknowledged, summary.elapsed.as_secs_f64());
    print(format!(
        "run {run} ended without a power cut after {writes} acknowledged writes in {seconds:.0} s: nothing is proven \
         yet\n"
    ))?;
    Ok(if stop.is_set() { Ended::Interrupted } else { Ended::Well })
}

/// Compares the disk with the witness's record; exits with 1 if the disk broke its promise.
fn verify(path: &Path, options: &VerifyOptions, json: Option<&Path>, cleanup: bool, stop: &Stop) -> Outcome {
    let disk = OsDisk::synchronous();
    let found = match witness::verify(&disk, path, options, stop, &|_| ()) {
        Err(e @ WitnessError::Stopped) => return interrupted(format_args!("seawall: {e}")),
        found => found?,
    };
    print(found.text())?;
    if let Some(file) = json {
        std::fs::write(file, found.to_json()).map_err(cannot("write", file))?;
    }
    if cleanup {
        let removed = witness::cleanup(&disk, path, options.run)?;
        note(format_args!("removed {removed} files of run {}", options.run));
    }
    Ok(if found.verdict() == Verdict::Broken { Ended::Short } else { Ended::Well })
}
