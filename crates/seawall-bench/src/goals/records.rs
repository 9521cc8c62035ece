//! The measurements of a run: one JSON file for each, written when it is made. The evaluation reads nothing
//! else.
//!
//! 1. A later run uses a record only when the same binary made it (`--resume`).
//! 2. A figure missing in a result is missing, never zero.

use super::evaluate::Figures;
use super::plan::{Cell, Source};
use crate::observe::FOREIGN_CORES;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of records below `--out`.
pub const DIR: &str = "cells";

/// One cell, measured once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// A checksum of the binary.
    pub binary: String,
    /// The cell.
    pub cell: Cell,
    /// Its group.
    pub group: String,
    /// Which turn of the group, such as `2`, or `0 before`.
    pub turn: String,
    /// The result, as the command printed it.
    pub result: Option<Value>,
    /// Why there is no result.
    pub error: Option<String>,
    /// How often it was measured because of disturbances; the last attempt counts.
    pub attempts: u32,
}

impl Record {
    /// A number of the result, or a number derived from several.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let number = |name: &str| self.result.as_ref()?.get(name)?.as_f64();
        match name {
            "rss_beside_pool_mib" => Some((number("rss_peak_bytes")? - number("pool_bytes")?) / f64::from(1 << 20)),
            name => number(name),
        }
    }

    /// Whether work of other processes disturbed it.
    pub fn is_disturbed(&self) -> bool {
        self.figure("foreign_cpu_cores").is_some_and(|cores| cores > FOREIGN_CORES)
    }
}

/// All records of a run.
#[derive(Debug, Default)]
pub struct Records {
    dir: PathBuf,
    binary: String,
    /// In the order in which they were made.
    pub all: Vec<Record>,
}

impl Records {
    /// Opens the records below `out` for the binary at `exe`. With `resume`, takes over the successful records of an
    /// earlier run; otherwise removes them.
    ///
    /// # Errors
    /// When the directory or the binary cannot be used, or the records are those of another binary.
    pub fn open(out: &Path, exe: &Path, resume: bool) -> Result<Self, String> {
        let dir = out.join(DIR);
        let told = |path: &Path| {
            let path = path.display().to_string();
            move |e: std::io::Error| format!("cannot use {path}: {e}; give another --out")
        };
        let bytes = fs::read(exe).map_err(told(exe))?;
        let binary = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes));
        let mut records = Self { dir, binary, all: Vec::new() };
        fs::create_dir_all(&records.dir).map_err(told(&records.dir))?;
        let mut earlier = Vec::new();
        for path in seawall_lab::run::files_below(&records.dir) {
            let text = fs::read_to_string(&path).map_err(told(&path))?;
            let record: Record = serde_json::from_str(&text).map_err(|e| {
                format!("{} is not a measured cell: {e}; remove it or give another --out", path.display())
            })?;
            if !resume {
                earlier.push(path);
                continue;
            }
            if record.binary != records.binary {
                return Err(format!(
                    "{} was measured by another binary: figures of two versions make no comparison; leave --resume out",
                    path.display()
                ));
            }
            records.all.extend(Some(record).filter(|record| record.result.is_some()));
        }
        for path in earlier {
            fs::remove_file(&path).map_err(told(&path))?;
        }
        Ok(records)
    }

    /// Whether there is a record of this turn.
    pub fn has(&self, group: &str, turn: &str, cell: &Cell) -> bool {
        self.all.iter().any(|record| record.group == group && record.turn == turn && record.cell == *cell)
    }

    /// Adds a record and writes its file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, record: Record) -> Result<(), String> {
        let record = Record { binary: self.binary.clone(), ..record };
        let hash = xxhash_rust::xxh3::xxh3_64(record.cell.name().as_bytes());
        let name = format!("{}-{}-{hash:016x}.json", record.group, record.turn.replace(' ', "-"));
        let path = self.dir.join(name);
        let text = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())?;
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}; give another --out", path.display()))?;
        self.all.push(record);
        Ok(())
    }

    /// The figures of one cell in a group.
    pub fn figures(&self, group: &str, source: &Source) -> Figures {
        let mut figures = Figures::default();
        for record in self.all.iter().filter(|record| record.group == group && record.cell == source.cell) {
            figures.values.extend(record.figure(&source.figure));
            figures.disturbed |= record.is_disturbed();
            figures.failed = record.error.clone().or(figures.failed);
        }
        figures
    }
}
