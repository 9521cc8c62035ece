//! `seawall grow|compact|check DIR`: allocates space ahead, orders the leaves of trees, and verifies the
//! database.

use super::trees::{fragmentation_json, fragmentation_text, trees_of};
use super::{DatabaseArgs, Notation};
use crate::{Ended, Outcome, Stop, answer, note, pretty, print, units};
use seawall::{CompactOptions, Compacted, Database, Error};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct GrowArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Minimum size of the data file, such as 100G
    #[arg(value_parser = units::size)]
    size: u64,
}

pub(crate) fn grow(args: &GrowArgs, _: &Stop) -> Outcome {
    let db = args.database.open()?;
    let before = db.stats().space.data_bytes;
    let after = db.grow(args.size)?;
    let free = db.stats().space.free_bytes;
    db.close()?;
    let [before, after, free] = [before, after, free].map(units::bytes);
    answer(format!("the data file had {before} and has {after}, {free} of it free\n"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Trees to compact; all if none is named
    trees: Vec<String>,
    /// Target fill of the leaves, percent
    #[arg(long, default_value_t = CompactOptions::default().fill_percent, value_parser = clap::value_parser!(u32).range(50..=100))]
    fill: u32,
    /// Maximum leaves read and written per second; 0 for no limit
    #[arg(long, default_value_t = 0)]
    rate: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Interval between progress messages.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Compacts trees; when interrupted, keeps the work done so far.
pub(crate) fn compact(args: &CompactArgs, stop: &Stop) -> Outcome {
    let db = args.database.open()?;
    let (mut text, mut list) = (String::new(), Vec::new());
    let compacted = compact_all(&db, args, stop, &mut text, &mut list);
    // The work done so far stays, whatever stopped it.
    print(if args.json { format!("{}\n", Value::Array(list)) } else { text })?;
    let broken_off = compacted?;
    db.close()?;
    Ok(if broken_off { Ended::Interrupted } else { Ended::Well })
}

/// Compacts the trees and shrinks the data file. Returns whether it was interrupted.
fn compact_all(
    db: &Database,
    args: &CompactArgs,
    stop: &Stop,
    text: &mut String,
    list: &mut Vec<Value>,
) -> seawall::Result<bool> {
    let options = CompactOptions { fill_percent: args.fill, leaves_per_second: args.rate };
    for name in trees_of(db, &args.trees)? {
        let mut told = Instant::now();
        let compacted = db.compact_with(&db.open_tree(&name)?, options, |progress| {
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                let (looked, leaves, moved) = (progress.looked, progress.leaves, progress.moved);
                note(format_args!("{name}: {looked} of about {leaves} leaves, {moved} moved"));
            }
            stop.flow()
        })?;
        let Compacted { before, after, done, broken_off } = compacted;
        let shown = Notation::default().show(name.as_bytes());
        let [was, is] = [before, after].map(|tree| fragmentation_text(&tree));
        *text += &format!(
            "{shown}: {} leaves moved, {} merged, {} pages freed. Before: {was}. Now: {is}\n",
            done.moved, done.merged, done.freed
        );
        list.push(json!({
            "name": name, "before": fragmentation_json(&before), "after": fragmentation_json(&after),
            "moved": done.moved, "merged": done.merged, "freed": done.freed, "broken_off": broken_off,
        }));
        if broken_off {
            return Ok(true);
        }
    }
    let done = db.shrink_with(|_| stop.flow())?;
    let [before, after] = [done.before_bytes, done.after_bytes].map(units::bytes);
    *text += &format!("the data file had {before} and has {after}\n");
    Ok(done.broken_off)
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

fn lines(findings: &[seawall::Damage]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// Checks a database; exits with 1 if it finds damage.
pub(crate) fn check(args: &CheckArgs, _: &Stop) -> Outcome {
    let db = match args.database.open() {
        // Damage that prevents opening is the first finding; beyond that only the pages can be checked.
        Err(error) if error.is_damage() => {
            let mut all = vec![json!({ "part": "opening", "what": error.to_string() })];
            let (mut text, mut unseen) = (format!("opening: {error}\n"), "trees, undo and space");
            match seawall::check_pages(&args.database.dir) {
                Ok(pages) => {
                    all.extend(pages.iter().map(|finding| json!(finding)));
                    text += &lines(&pages);
                }
                Err(why) => {
                    all.push(json!({ "part": "page", "what": format!("not checked: {why}") }));
                    text += &format!("page: not checked: {why}\n");
                    unseen = "pages, trees, undo and space";
                }
            }
            print(if args.json { pretty(&all)? } else { text })?;
            note(format_args!("seawall: the database cannot be opened: {unseen} were not looked at"));
            return Ok(Ended::Short);
        }
        Err(Error::Locked { path, .. }) => {
            let why = "`seawall check` needs the database for itself. Close the other, or have it call Database::check";
            return Err(format!("{} is open in another process: {why}", path.display()).into());
        }
        opened => opened?,
    };
    let found = db.check()?;
    let data = units::bytes(db.stats().space.data_bytes);
    // A damaged database may fail to close; the findings matter more.
    if let (Err(error), true) = (db.close(), found.is_empty()) {
        return Err(error.into());
    }
    print(if args.json {
        pretty(&found)?
    } else if found.is_empty() {
        format!("{}: {data} checked, nothing found\n", args.database.dir.display())
    } else {
        lines(&found)
    })?;
    if found.is_empty() {
        return Ok(Ended::Well);
    }
    note(format_args!("seawall: {} findings", found.len()));
    Ok(Ended::Short)
}
