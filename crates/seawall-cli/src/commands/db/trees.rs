//! `seawall init|trees DIR`: creates a database; lists its trees and how their leaves lie in the file.

use super::{DatabaseArgs, Notation, is_database};
use crate::{Outcome, Stop, answer, units};
use seawall::{Database, Error, Fragmentation};
use serde_json::{Value, json};

pub(crate) fn init(args: &DatabaseArgs, _: &Stop) -> Outcome {
    let dir = args.dir.display();
    if is_database(&args.dir)? {
        return Err(format!("{dir} is a database already: nothing was changed").into());
    }
    let db = args.open_or_make()?;
    let (options, data) = (db.options(), db.stats().space.data_bytes);
    db.close()?;
    args.note_log_dir();
    let [page, data, log] = [options.page_size(), data, options.log_segment_size()].map(units::bytes);
    answer(format!("{dir}: pages of {page}, a data file of {data}, log files of {log}\n"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct TreesArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Show how the leaves of each tree lie in the file and how full they are; reads the branch pages and
    /// some leaves
    #[arg(long)]
    fragmentation: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn trees(args: &TreesArgs, _: &Stop) -> Outcome {
    let db = args.database.open_to_read()?;
    let mut text = String::new();
    let mut list = Vec::new();
    for name in db.trees()? {
        let tree = db.open_tree(&name)?;
        let bytes = db.tree_bytes(&tree);
        // Errors name a tree by its number.
        let (number, shown) = (format!("tree {}", tree.id()), Notation::default().show(name.as_bytes()));
        text += &format!("{:>12}  {number:<10}  {shown}", units::bytes(bytes));
        let mut entry = json!({ "name": name, "id": tree.id().0, "bytes": bytes });
        if args.fragmentation {
            let found = db.fragmentation(&tree)?;
            text += &format!(": {}", fragmentation_text(&found));
            entry["fragmentation"] = fragmentation_json(&found);
        }
        text.push('\n');
        list.push(entry);
    }
    db.close()?;
    answer(if args.json { format!("{}\n", Value::Array(list)) } else { text })
}

/// Returns the trees with these names, or all.
pub(super) fn trees_of(db: &Database, names: &[String]) -> seawall::Result<Vec<String>> {
    let mut all = db.trees()?;
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        return Err(Error::NoSuchTree { name: name.clone() });
    }
    all.retain(|name| names.is_empty() || names.contains(name));
    Ok(all)
}

/// Formats the fragmentation of a tree for people: "40 leaves, 63% of neighbours apart, leaves 71% full".
pub(super) fn fragmentation_text(tree: &Fragmentation) -> String {
    let (leaves, apart_percent, fill_percent) = (tree.leaves, 100.0 * tree.share(), tree.fill_percent);
    format!("{leaves} leaves, {apart_percent:.0}% of neighbours apart, leaves {fill_percent}% full")
}

/// Returns the fragmentation of a tree as JSON, for programs.
pub(super) fn fragmentation_json(tree: &Fragmentation) -> Value {
    json!({
        "leaves": tree.leaves, "apart": tree.apart, "apart_share": tree.share(), "fill_percent": tree.fill_percent,
        "branches_read": tree.branches, "leaves_sampled": tree.sampled,
    })
}
