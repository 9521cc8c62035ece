//! `seawall grow|check DIR`: making space ahead, and looking whether everything is as it should be.

use super::{Place, must_be_database};
use crate::{Ended, Outcome, note, print, units};
use clap::Args;
use seawall::Error;

#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    #[command(flatten)]
    place: Place,
    /// How large the data file shall be at least, such as 100G
    #[arg(value_parser = units::size)]
    size: u64,
}

pub(crate) fn grow(args: &GrowArgs) -> Outcome {
    let db = args.place.open()?;
    let before = db.stats().space.data_bytes;
    let after = db.grow(args.size)?;
    let free = db.stats().space.free_bytes;
    db.close()?;
    let (before, after, free) = (units::bytes(before), units::bytes(after), units::bytes(free));
    print(&format!("the data file had {before} and has {after}, {free} of it free\n"))?;
    Ok(Ended::Well)
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    place: Place,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Exits with 1 when something is found.
pub(crate) fn check(args: &CheckArgs) -> Outcome {
    must_be_database(&args.place.dir)?;
    let found = match args.place.open_or_make() {
        // What keeps a database from being opened is the first finding; of the rest only the pages can be looked at.
        Err(error @ Error::Corrupt(_)) => {
            let pages = seawall::check_pages(&args.place.dir).unwrap_or_default();
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
        Err(Error::Locked { path }) => {
            let why = "`seawall check` needs the database for itself. Close the other, or have it call Database::check";
            return Err(format!("{} is open in another process: {why}", path.display()).into());
        }
        opened => {
            let db = opened?;
            let found = db.check()?;
            let pages = db.stats().space.data_bytes;
            // A damaged database may not close well; what was found is what counts.
            if let (Err(error), true) = (db.close(), found.is_empty()) {
                return Err(error.into());
            }
            if found.is_empty() && !args.json {
                print(&format!("{}: {} checked, nothing found\n", args.place.dir.display(), units::bytes(pages)))?;
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
