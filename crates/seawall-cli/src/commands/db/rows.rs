//! `seawall get|put|del|scan DIR TREE`: rows. What `scan` prints, `import` loads.

use super::input::Input;
use super::{DatabaseArgs, Notation};
use crate::{Ended, Outcome, Reader, Stop, answer, interrupted, note, print};
use seawall::{Database, Tree, keys};
use serde_json::json;
use std::io::Read as _;
use std::ops::Bound;

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tree
    tree: String,
    /// The key
    key: String,
    #[command(flatten)]
    notation: Notation,
    /// Print the bytes of the value unchanged, without a line end
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    raw: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn get(args: &GetArgs, _: &Stop) -> Outcome {
    let key = args.notation.read(&args.key)?;
    let db = args.database.open_to_read()?;
    let value = db.begin()?.get(&db.open_tree(&args.tree)?, &key)?;
    db.close()?;
    let Some(value) = value else { return no_key(&args.tree, &args.key) };
    if args.raw {
        return answer(value);
    }
    let value = args.notation.show(&value);
    let value = if args.json { json!({ "key": args.key, "value": value }).to_string() } else { value };
    answer(value + "\n")
}

fn no_key(tree: &str, key: &str) -> Outcome {
    note(format_args!("seawall: tree {tree:?} has no key {key:?}"));
    Ok(Ended::Short)
}

#[derive(Debug, clap::Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tree
    tree: String,
    /// The key
    key: String,
    /// The value; `-` reads it from standard input, unchanged
    value: String,
    #[command(flatten)]
    notation: Notation,
    /// Create the tree if it does not exist
    #[arg(long)]
    create: bool,
    /// Fail if the key exists, instead of replacing its value
    #[arg(long)]
    new: bool,
}

pub(crate) fn put(args: &PutArgs, stop: &Stop) -> Outcome {
    let key = args.notation.read(&args.key)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        match (Input { stop }).read_to_end(&mut value) {
            Err(_) if stop.is_set() => return interrupted("interrupted: nothing was put"),
            read => read.map_err(|e| format!("cannot read standard input: {e}"))?,
        };
        value
    } else {
        args.notation.read(&args.value)?
    };
    let db = args.database.open()?;
    db.transact(|tx| {
        let tree = match tx.open_tree(&args.tree) {
            Err(seawall::Error::NoSuchTree { .. }) if args.create => tx.create_tree(&args.tree)?,
            opened => opened?,
        };
        if args.new { tx.insert(&tree, &key, &value) } else { tx.put(&tree, &key, &value) }
    })?;
    db.close()?;
    Ok(Ended::Well)
}

#[derive(Debug, clap::Args)]
pub(crate) struct DelArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tree
    tree: String,
    /// The key; not with `--drop-tree`
    #[arg(required_unless_present = "drop_tree")]
    key: Option<String>,
    /// Drop the tree with everything in it
    #[arg(long, conflicts_with = "key")]
    drop_tree: bool,
    #[command(flatten)]
    notation: Notation,
}

pub(crate) fn del(args: &DelArgs, _: &Stop) -> Outcome {
    let key = args.key.as_deref().map(|key| args.notation.read(key)).transpose()?;
    let db = args.database.open()?;
    let deleted = match &key {
        None => db.drop_tree(&args.tree).map(|()| true)?,
        Some(key) => {
            let tree = db.open_tree(&args.tree)?;
            db.transact(|tx| tx.delete(&tree, key))?
        }
    };
    db.close()?;
    if deleted { Ok(Ended::Well) } else { no_key(&args.tree, args.key.as_deref().unwrap_or_default()) }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tree
    tree: String,
    /// Start at this key
    #[arg(long)]
    from: Option<String>,
    /// Stop before this key
    #[arg(long)]
    to: Option<String>,
    /// Print only keys with this prefix
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Print from the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Stop after this many entries
    #[arg(long)]
    limit: Option<u64>,
    /// Print only the keys, not the values
    #[arg(long)]
    keys: bool,
    /// Print the number of entries instead of the entries
    #[arg(long, conflicts_with_all = ["limit", "json"])]
    count: bool,
    #[command(flatten)]
    notation: Notation,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl ScanArgs {
    fn range(&self) -> Result<Ends, String> {
        let read = |key: &Option<String>| key.as_deref().map(|key| self.notation.read(key)).transpose();
        if let Some(prefix) = read(&self.prefix)? {
            return Ok(keys::prefix_range(&prefix));
        }
        let (from, to) = (read(&self.from)?, read(&self.to)?);
        if to.is_some() && from > to {
            return Err("--from comes after --to: exchange them, and use --reverse to go down".into());
        }
        Ok((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded)))
    }

    fn line(&self, key: &[u8], value: &[u8]) -> String {
        let (key, value) = (self.notation.show(key), self.notation.show(value));
        match (self.json, self.keys) {
            (true, true) => format!("{}\n", json!({ "key": key })),
            (true, false) => format!("{}\n", json!({ "key": key, "value": value })),
            (false, true) => format!("{key}\n"),
            (false, false) => format!("{key}\t{value}\n"),
        }
    }
}

pub(crate) fn scan(args: &ScanArgs, stop: &Stop) -> Outcome {
    let range = args.range()?;
    let db = args.database.open_to_read()?;
    let ended = scan_tree(args, &db, &db.open_tree(&args.tree)?, range, stop)?;
    db.close()?;
    Ok(ended)
}

fn scan_tree(args: &ScanArgs, db: &Database, tree: &Tree, range: Ends, stop: &Stop) -> Outcome {
    /// Bytes of one write.
    const CHUNK: usize = 64 << 10;
    let tx = db.begin()?;
    let mut entries = tx.range(tree, range);
    let (mut seen, mut text) = (0u64, String::new());
    while args.limit.is_none_or(|limit| seen < limit) {
        if stop.is_set() {
            print(&text)?;
            return Ok(Ended::Interrupted);
        }
        let Some(entry) = (if args.reverse { entries.next_back() } else { entries.next() }) else { break };
        let (key, value) = entry?;
        seen += 1;
        if !args.count {
            text += &args.line(&key, &value);
        }
        if text.len() >= CHUNK {
            if print(&text)? == Reader::Gone {
                return Ok(Ended::Well);
            }
            text.clear();
        }
    }
    answer(if args.count { format!("{seen}\n") } else { text })
}
