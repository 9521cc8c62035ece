//! `seawall import DIR TREE`: imports rows from text with two columns or members, the key and the value.
//!
//! 1. The import is one transaction: after any failure nothing was imported. It may be larger than memory.
//! 2. `--tsv` reads what `seawall scan` prints, `--jsonl` what `seawall scan --json` prints.

use super::load::open_input;
use super::{DatabaseArgs, Notation, STDIN, file_name};
use crate::{Ended, Failed, Outcome, Stop, interrupted, note};
use clap::{ArgGroup, Args};
use seawall::{Error, Transaction};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("format").required(true).args(["tsv", "csv", "jsonl"])))]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tree; created if it does not exist
    tree: String,
    /// File to read; `-` is standard input
    #[arg(long = "in", short, default_value = "-")]
    input: PathBuf,
    /// One row per line: the key, a tab, the value
    #[arg(long)]
    tsv: bool,
    /// Comma-separated values: the key, the value; a backslash begins an escape (\\ is a backslash)
    #[arg(long)]
    csv: bool,
    /// One JSON object per line, with "key" and "value"; in both, a backslash begins an escape
    #[arg(long)]
    jsonl: bool,
    /// Skip the first line, which holds column names
    #[arg(long, conflicts_with = "jsonl")]
    header: bool,
    /// Replace the values of existing keys; otherwise an existing key is an error
    #[arg(long)]
    merge: bool,
    #[command(flatten)]
    notation: Notation,
}

pub(crate) fn import(args: &ImportArgs, stop: &Stop) -> Outcome {
    let input = open_input(&args.input, stop)?;
    let db = args.database.open()?;
    let mut tx = db.begin()?;
    let imported = rows(args, input, stop, &mut tx);
    if stop.is_set() {
        return interrupted("interrupted: nothing was imported");
    }
    let name = file_name(&args.input, STDIN).display();
    let imported = imported.map_err(|e| format!("{name}: {e}. Nothing was imported"))?;
    tx.commit()?;
    db.close()?;
    note(format_args!("{imported} rows imported into tree {:?}", args.tree));
    Ok(Ended::Well)
}

/// A line of `--jsonl`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    key: String,
    value: String,
}

/// Tracks whether a quoted value is open, because the CSV reader accepts the end of the input as the end
/// of the value.
struct Quotes<R> {
    input: R,
    open: bool,
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buf)?;
        // A quotation mark within a quoted value is doubled.
        self.open ^= buf[..read].iter().filter(|&&byte| byte == b'"').count() % 2 == 1;
        Ok(read)
    }
}

/// Puts the rows into the tree; returns the number of rows.
fn rows(args: &ImportArgs, input: impl Read, stop: &Stop, tx: &mut Transaction) -> Result<u64, Failed> {
    let tree = match tx.open_tree(&args.tree) {
        Err(Error::NoSuchTree { .. }) => tx.create_tree(&args.tree)?,
        opened => opened?,
    };
    let mut done = 0;
    let mut row = |line: u64, columns: &[&str]| -> Result<(), Failed> {
        let at = |e: String| format!("line {line}: {e}");
        let &[key, value] = columns else {
            return Err(format!("line {line} has {} columns: a key and a value are wanted", columns.len()).into());
        };
        let (key, value) = (args.notation.read(key).map_err(at)?, args.notation.read(value).map_err(at)?);
        let put = if args.merge { tx.put(&tree, &key, &value) } else { tx.insert(&tree, &key, &value) };
        put.map_err(|e| at(e.to_string()))?;
        done += 1;
        Ok(())
    };
    if args.csv {
        let input = Quotes { input, open: false };
        let mut reader = csv::ReaderBuilder::new().has_headers(args.header).flexible(true).from_reader(input);
        for record in reader.records().take_while(|_| !stop.is_set()) {
            let record = record?;
            row(record.position().map_or(0, csv::Position::line), &record.iter().collect::<Vec<_>>())?;
        }
        if reader.get_ref().open && !stop.is_set() {
            return Err(
                "a quotation mark is not closed: is the file cut off? One within a value is written twice".into()
            );
        }
        return Ok(done);
    }
    for (line, text) in (1..).zip(BufReader::new(input).lines()).take_while(|_| !stop.is_set()) {
        let text = text.map_err(|e| format!("line {line}: {e}"))?;
        let text = text.strip_suffix('\r').unwrap_or(&text);
        if args.header && line == 1 {
            continue;
        }
        if args.jsonl {
            let Row { key, value } = serde_json::from_str(text).map_err(|e| format!("line {line}: {e}"))?;
            row(line, &[&key, &value])?;
        } else {
            row(line, &text.split('\t').collect::<Vec<_>>())?;
        }
    }
    Ok(done)
}
