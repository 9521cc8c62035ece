//! `seawall grow|compact|check DIR`: allocates space ahead, orders the leaves of trees, and verifies the
//! database.

use super::trees::{fragmentation_json, fragmentation_text, trees_of};
use super::{DatabaseArgs, Notation, must_be_database};
use crate::{Ended, Outcome, note, print, units};
use clap::Args;
use seawall::{CompactOptions, Compacted, Database, Error};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// How large the data file shall be at least, such as 100G
    #[arg(value_parser = units::size)]
    size: u64,
}

pub(crate) fn grow(args: &GrowArgs) -> Outcome {
    let db = args.database.open()?;
    let before = db.stats().space.data_bytes;
    let after = db.grow(args.size)?;
    let free = db.stats().space.free_bytes;
    db.close()?;
    let (before, after, free) = (units::bytes(before), units::bytes(after), units::bytes(free));
    print(&format!("the data file had {before} and has {after}, {free} of it free\n"))?;
    Ok(Ended::Well)
}

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only these trees; all when none is named
    trees: Vec<String>,
    /// How full leaves are made, percent
    #[arg(long, default_value_t = CompactOptions::default().fill_percent, value_parser = clap::value_parser!(u32).range(50..=100))]
    fill: u32,
    /// Leaves a second that are read and written at most; 0 is as many as the disk gives
    #[arg(long, default_value_t = 0)]
    rate: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Interval between progress messages.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// When interrupted, it keeps the work done so far.
pub(crate) fn compact(args: &CompactArgs, stop: &AtomicBool) -> Outcome {
    let db = args.database.open()?;
    let (mut text, mut list, mut broken_off) = (String::new(), Vec::new(), false);
    let compacted = trees_of(&db, &args.trees)?.into_iter().try_for_each(|name| {
        if broken_off {
            return Ok(());
        }
        let done = compact_one(&db, &name, args, stop)?;
        broken_off |= done.broken_off;
        let shown = Notation::default().show(name.as_bytes());
        text += &format!(
            "{shown}: {} leaves moved, {} merged, {} pages freed. Before: {} leaves, {}. Now: {} leaves, {}\n",
            done.done.moved,
            done.done.merged,
            done.done.freed,
            done.before.leaves,
            fragmentation_text(&done.before),
            done.after.leaves,
            fragmentation_text(&done.after),
        );
        list.push(serde_json::json!({
            "name": name, "before": fragmentation_json(&done.before), "after": fragmentation_json(&done.after), "moved": done.done.moved,
            "merged": done.done.merged, "freed": done.done.freed, "broken_off": done.broken_off,
        }));
        Ok::<_, Error>(())
    });
    if compacted.is_ok() && !broken_off {
        let go_on = |_: &seawall::ShrinkProgress| {
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let done = db.shrink_with(go_on)?;
        broken_off = done.broken_off;
        let (before, after) = (units::bytes(done.before_bytes), units::bytes(done.after_bytes));
        text += &format!("the data file had {before} and has {after}\n");
    }
    // The work done so far stays, whatever stopped it.
    print(&if args.json { format!("{}\n", serde_json::Value::Array(list)) } else { text })?;
    compacted?;
    db.close()?;
    Ok(if broken_off { Ended::Interrupted } else { Ended::Well })
}

fn compact_one(db: &Database, name: &str, args: &CompactArgs, stop: &AtomicBool) -> seawall::Result<Compacted> {
    let tree = db.open_tree(name)?;
    let options = CompactOptions { fill_percent: args.fill, leaves_per_second: args.rate };
    let mut told = Instant::now();
    db.compact_with(&tree, options, |progress| {
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            note(format_args!(
                "{name}: {} of about {} leaves, {} moved",
                progress.looked, progress.leaves, progress.moved
            ));
        }
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Exits with 1 when it finds damage.
pub(crate) fn check(args: &CheckArgs) -> Outcome {
    must_be_database(&args.database.dir)?;
    let found = match args.database.open_or_make() {
        // Damage that prevents opening is the first finding; beyond that only the pages can be checked.
        Err(error @ Error::Corrupt(_)) => {
            let pages = seawall::check_pages(&args.database.dir).unwrap_or_default();
            if args.json {
                let opening = serde_json::json!({ "part": "opening", "what": error.to_string() });
                let pages = pages.iter().map(serde_json::to_value);
                let all: Vec<_> = std::iter::once(Ok(opening)).chain(pages).collect::<Result<_, _>>()?;
                print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
            } else {
                let pages: String = pages.iter().map(|finding| format!("{finding}\n")).collect();
                print(&format!("opening: {error}\n{pages}"))?;
            }
            note(format_args!("seawall: the database cannot be opened: trees, undo and space were not looked at"));
            return Ok(Ended::Short);
        }
        Err(Error::Locked { path, .. }) => {
            let why = "`seawall check` needs the database for itself. Close the other, or have it call Database::check";
            return Err(format!("{} is open in another process: {why}", path.display()).into());
        }
        opened => {
            let db = opened?;
            let found = db.check()?;
            let pages = db.stats().space.data_bytes;
            // A damaged database may fail to close; the findings matter more.
            if let (Err(error), true) = (db.close(), found.is_empty()) {
                return Err(error.into());
            }
            if found.is_empty() && !args.json {
                print(&format!("{}: {} checked, nothing found\n", args.database.dir.display(), units::bytes(pages)))?;
            }
            found
        }
    };
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&found)?))?;
    } else {
        print(&found.iter().map(|finding| format!("{finding}\n")).collect::<String>())?;
    }
    if found.is_empty() {
        return Ok(Ended::Well);
    }
    note(format_args!("seawall: {} findings", found.len()));
    Ok(Ended::Short)
}
