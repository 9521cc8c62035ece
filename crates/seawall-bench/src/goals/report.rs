//! The results of a run: `goals.json` with every goal, `goals.md` with the tables that docs/benchmarks.md
//! includes. The measurements themselves are the files of [`super::records`].

use super::evaluate::{Outcome, tally};
use super::plan::{Plan, SUBJECT};
use super::records::{Record, Records};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Format of `goals.json`.
const VERSION: u32 = 2;

/// The whole result.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'r> {
    /// Format.
    pub version: u32,
    /// The command that repeats the run.
    pub command: String,
    /// The commit of the source.
    pub commit: String,
    /// The machine, and its disk.
    pub machine: Value,
    /// The goals.
    pub goals: &'r [Outcome],
    /// Version and settings by store; where cells differ, all values.
    pub stores: BTreeMap<String, Store>,
}

/// The configuration of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Store {
    /// Its version.
    pub version: String,
    /// Settings by its own names.
    pub settings: BTreeMap<String, Vec<String>>,
}

impl<'r> Report<'r> {
    /// Assembles the report.
    pub fn new(command: String, plan: &Plan, goals: &'r [Outcome], records: &Records) -> Self {
        let planned = |record: &&Record| plan.groups.iter().any(|group| group.id == record.group);
        let records: Vec<&Record> = records.all.iter().filter(planned).collect();
        let first =
            records.iter().filter_map(|record| record.result.as_ref()).find(|result| !result["machine"].is_null());
        Self {
            version: VERSION,
            command,
            commit: first.and_then(|result| result["commit"].as_str()).unwrap_or("unknown").to_owned(),
            machine: first.map(machine).unwrap_or_default(),
            goals,
            stores: stores(&records),
        }
    }

    /// As Markdown.
    pub fn to_markdown(&self) -> String {
        let (met, counted) = tally(self.goals);
        let mut lines = vec![format!("`{}`, commit {}: {met} of {counted} goals met.\n", self.command, self.commit)];
        if let Some(machine) = self.machine.as_object() {
            let words = machine.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), plain(value)));
            lines.push(format!("Machine: {}.\n", words.collect::<Vec<_>>().join(", ")));
        }
        lines.push("| goal | what | seawall | beside | ratio | must be | |\n|---|---|---|---|---|---|---|".into());
        for goal in self.goals {
            let Outcome { id, text, goal: threshold, verdict, .. } = goal;
            let [figure, peer, ratio] = goal.shown();
            let bold = if verdict.is_bad() { "**" } else { "" };
            let marked = if goal.disturbed { ", disturbed" } else { "" };
            let verdict = format!("{bold}{verdict}{bold}{marked}");
            lines.push(format!("| {id} | {text} | {figure} | {peer} | {ratio} | {threshold} | {verdict} |"));
        }
        lines.push("\n| store | version | settings |\n|---|---|---|".into());
        for (name, store) in &self.stores {
            let settings = store.settings.iter().map(|(name, values)| format!("{name} {}", values.join(" or ")));
            lines.push(format!("| {name} | {} | {} |", store.version, settings.collect::<Vec<_>>().join(", ")));
        }
        lines.join("\n") + "\n"
    }
}

/// The machine of a result, with its disk.
fn machine(result: &Value) -> Value {
    let mut machine = result["machine"].clone();
    machine["disk"] = result["disk"].clone();
    machine
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn stores(records: &[&Record]) -> BTreeMap<String, Store> {
    let mut stores: BTreeMap<String, Store> = BTreeMap::new();
    for record in records {
        let Some(result) = &record.result else { continue };
        let name = if record.cell.store.is_empty() { SUBJECT } else { &record.cell.store };
        let store = stores.entry(name.to_owned()).or_default();
        store.version = result["version"].as_str().unwrap_or("unknown").to_owned();
        for (name, value) in result["settings"].as_object().into_iter().flatten() {
            let (values, value) = (store.settings.entry(name.clone()).or_default(), plain(value));
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    stores
}
