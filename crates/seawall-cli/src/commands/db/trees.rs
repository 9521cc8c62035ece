//! `seawall init|trees DIR`: makes a database; lists its trees and how their leaves lie in the file.

use super::{DatabaseArgs, Notation, is_database};
use crate::{Ended, Outcome, print, units};
use clap::Args;
use seawall::{Database, Error, Fragmentation};

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(crate) fn init(args: &InitArgs) -> Outcome {
    let dir = &args.database.dir;
    if is_database(dir) {
        return Err(format!("{} is a database already: nothing was changed", dir.display()).into());
    }
    let db = args.database.open_or_make()?;
    let options = db.options();
    let data = db.stats().space.data_bytes;
    db.close()?;
    print(&format!(
        "{}: pages of {}, a data file of {}, log files of {}\n",
        dir.display(),
        units::bytes(options.page_size()),
        units::bytes(data),
        units::bytes(options.log_segment_size())
    ))?;
    Ok(Ended::Well)
}

#[derive(Debug, Args)]
pub(crate) struct TreesArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Show for each tree how its leaves lie in the file and how full they are; reads the branch pages and
    /// some leaves
    #[arg(long)]
    fragmentation: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn trees(args: &TreesArgs) -> Outcome {
    let db = args.database.open_to_read()?;
    let mut text = String::new();
    let mut list = Vec::new();
    for name in db.trees()? {
        let tree = db.open_tree(&name)?;
        let bytes = db.tree_bytes(&tree);
        text += &format!("{:>12}  {}", units::bytes(bytes), Notation::default().show(name.as_bytes()));
        let mut entry = serde_json::json!({ "name": name, "id": tree.id().0, "bytes": bytes });
        if args.fragmentation {
            let found = db.fragmentation(&tree)?;
            text += &format!(": {} leaves, {}", found.leaves, fragmentation_text(&found));
            entry["fragmentation"] = fragmentation_json(&found);
        }
        text.push('\n');
        list.push(entry);
    }
    db.close()?;
    print(&if args.json { format!("{}\n", serde_json::Value::Array(list)) } else { text })?;
    Ok(Ended::Well)
}

/// The trees of these names, or all.
pub(super) fn trees_of(db: &Database, names: &[String]) -> seawall::Result<Vec<String>> {
    let mut all = db.trees()?;
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        return Err(Error::NoSuchTree { name: name.clone() });
    }
    all.retain(|name| names.is_empty() || names.contains(name));
    Ok(all)
}

/// The fragmentation of a tree, for people: "63% of neighbours apart, leaves 71% full".
pub(super) fn fragmentation_text(tree: &Fragmentation) -> String {
    format!("{:.0}% of neighbours apart, leaves {}% full", 100.0 * tree.share(), tree.fill_percent)
}

/// The same for programs.
pub(super) fn fragmentation_json(tree: &Fragmentation) -> serde_json::Value {
    serde_json::json!({
        "leaves": tree.leaves, "apart": tree.apart, "apart_share": tree.share(), "fill_percent": tree.fill_percent,
        "branches_read": tree.branches, "leaves_sampled": tree.sampled,
    })
}
