//! Shared by the measuring examples: settings from the environment, a description of the run, a directory for
//! it.

#![allow(dead_code)] // each example uses a part of it

use seawall::{Database, Options};
use std::path::{Path, PathBuf};

/// A number from the environment, or the default.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name).map(|text| text.parse()) {
        Ok(Ok(number)) => number,
        Ok(Err(error)) => panic!("{name} is not a number: {error}"),
        Err(_) => otherwise,
    }
}

/// The next of a sequence of random numbers (a linear congruence by Knuth; its high bits are good).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 24
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn first_line(path: &str, of: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(of)).unwrap_or_default();
    line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
}

/// Machine, commit, build and the options that are not the default.
pub(crate) fn describe(options: &Options) {
    let git = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = git.ok().map(|git| String::from_utf8_lossy(&git.stdout).trim().to_owned()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { "DEBUG BUILD" } else { "release" };
    println!(
        "{}, {cores} cores, Linux {}",
        first_line("/proc/cpuinfo", "model name"),
        first_line("/proc/sys/kernel/osrelease", "")
    );
    println!("commit {commit}, {build}");
    let set: Vec<String> = options
        .list()
        .into_iter()
        .filter(|(_, _, source)| *source != seawall::Source::Default)
        .map(|(name, value, _)| format!("{name}={value}"))
        .collect();
    println!("{}", set.join(" "));
}

/// The directory of a run, removed when the run is over.
pub(crate) struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}

/// A new database in a directory below `dir`.
pub(crate) fn scratch(dir: &Path, options: Options) -> seawall::Result<(Scratch, Database)> {
    let number = (0u32..).find(|number| !dir.join(format!("run-{number}")).exists()).unwrap_or(0);
    let path = dir.join(format!("run-{number}"));
    let db = Database::open_with(&path, options)?;
    Ok((Scratch(path), db))
}
