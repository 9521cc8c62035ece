//! The results of a run: `goals.json` with everything, `goals.md` with the tables that docs/benchmarks.md
//! includes.

use super::evaluate::{Outcome, Verdict, median, number, tally};
use super::measure::Measured;
use super::run::Records;
use super::spec::Plan;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Format of `goals.json`.
const VERSION: u32 = 1;

/// A curve with its measurements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveResult {
    /// Its name.
    pub id: String,
    /// What was measured.
    pub text: String,
    /// Points.
    pub points: Vec<CurvePoint>,
}

/// One point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Store.
    pub store: String,
    /// Data, in pools.
    pub pools_of_data: u64,
    /// Threads.
    pub threads: u32,
    /// Operations a second; `null` when it could not be measured.
    pub ops_per_s: Option<f64>,
    /// Reads of the device a second.
    pub device_reads_per_s: Option<f64>,
    /// Writes of the device a second.
    pub device_writes_per_s: Option<f64>,
    /// 99th percentile, us.
    pub p99_us: Option<f64>,
}

/// The whole result.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'r> {
    /// Format.
    pub version: u32,
    /// The command that repeats the run.
    pub command: String,
    /// The commit of the source.
    pub commit: String,
    /// The machine.
    pub machine: Value,
    /// The goals.
    pub goals: &'r [Outcome],
    /// The curves.
    pub curves: Vec<CurveResult>,
    /// Version and settings by store and pool.
    pub stores: BTreeMap<String, Store>,
    /// All measurements.
    pub cells: &'r Records,
}

/// The configuration of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Store {
    /// Its version.
    pub version: String,
    /// Settings by its own names; where cells differ, all values.
    pub settings: BTreeMap<String, Vec<String>>,
}

impl<'r> Report<'r> {
    /// Assembles the report.
    #[must_use]
    pub fn new(command: String, plan: &Plan, goals: &'r [Outcome], records: &'r Records) -> Self {
        let measured = || records.records.iter().filter_map(|record| record.measured.as_ref());
        let first = measured().find(|measured| !measured.machine.is_null());
        Self {
            version: VERSION,
            command,
            commit: first.map(|measured| measured.commit.clone()).unwrap_or_default(),
            machine: first.map(|measured| measured.machine.clone()).unwrap_or_default(),
            goals,
            curves: curves(plan, records),
            stores: stores(records),
            cells: records,
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Text keys and finite numbers: this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// As Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        let (met, counted) = tally(self.goals);
        let mut line = |words: String| {
            text.push_str(&words);
            text.push('\n');
        };
        line(format!("`{}`, commit {}: {met} of {counted} goals met.\n", self.command, self.commit));
        if let Some(machine) = self.machine.as_object() {
            let words = machine.iter().map(|(name, value)| {
                format!(
                    "{} {}",
                    name.replace('_', " "),
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                )
            });
            line(format!("Machine: {}.\n", words.collect::<Vec<_>>().join(", ")));
        }
        line("| goal | what | seawall | beside | ratio | must be | |\n|---|---|---|---|---|---|---|".into());
        for goal in self.goals {
            let show = |value: Option<f64>| value.map_or("-".into(), number);
            let verdict = match goal.verdict {
                Verdict::Met => "met",
                Verdict::Short => "**short**",
                Verdict::Reported => "reported",
                Verdict::NotMeasured => "**not measured**",
            };
            let (figure, peer, ratio) = (show(goal.figure), show(goal.peer), show(goal.ratio));
            let marked = if goal.disturbed { ", disturbed" } else { "" };
            line(format!(
                "| {} | {} | {figure} | {peer} | {ratio} | {} | {verdict}{marked} |",
                goal.id, goal.text, goal.goal
            ));
        }
        for curve in &self.curves {
            line(curve.to_markdown());
        }
        line("\n| store | version | settings |\n|---|---|---|".into());
        for (name, store) in &self.stores {
            let settings = store.settings.iter().map(|(name, values)| format!("{name} {}", values.join(" or ")));
            line(format!("| {name} | {} | {} |", store.version, settings.collect::<Vec<_>>().join(", ")));
        }
        text
    }
}

impl CurveResult {
    fn to_markdown(&self) -> String {
        let mut threads: Vec<u32> = self.points.iter().map(|point| point.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let heading: String = threads.iter().map(|threads| format!(" {threads} |")).collect();
        let mut text = format!("\n{}, {}: operations a second by threads.\n\n", self.id, self.text);
        // Writing to a String does not fail.
        let mut line = |words: String| writeln!(text, "{words}").unwrap_or(());
        line(format!("| store | data, x pool |{heading}"));
        line(format!("|---|---|{}", "---|".repeat(threads.len())));
        let mut rows: Vec<(&str, u64)> = self.points.iter().map(|p| (p.store.as_str(), p.pools_of_data)).collect();
        rows.dedup();
        for (store, pools) in rows {
            let figures: String = threads
                .iter()
                .map(|threads| {
                    let here =
                        |p: &&CurvePoint| (p.store.as_str(), p.pools_of_data, p.threads) == (store, pools, *threads);
                    let rate = self.points.iter().find(here).and_then(|point| point.ops_per_s);
                    format!(" {} |", rate.map_or("-".into(), number))
                })
                .collect();
            line(format!("| {store} | {pools} |{figures}"));
        }
        text
    }
}

fn curves(plan: &Plan, records: &Records) -> Vec<CurveResult> {
    let curve = |curve: &super::spec::Curve| CurveResult {
        id: curve.id.clone(),
        text: curve.text.clone(),
        points: curve
            .points
            .iter()
            .map(|(pools, cell)| {
                let figure = |name: &str| {
                    let of = |measured: &Measured| measured.figures.get(name).copied();
                    let all = records.of_cell(&curve.id, cell).filter_map(|record| of(record.measured.as_ref()?));
                    median(&all.collect::<Vec<_>>())
                };
                CurvePoint {
                    store: cell.store.clone(),
                    pools_of_data: *pools,
                    threads: cell.threads,
                    ops_per_s: figure("ops_per_s"),
                    device_reads_per_s: figure("device_reads_per_s"),
                    device_writes_per_s: figure("device_writes_per_s"),
                    p99_us: figure("p99_us"),
                }
            })
            .collect(),
    };
    plan.curves.iter().map(curve).collect()
}

fn stores(records: &Records) -> BTreeMap<String, Store> {
    let mut stores: BTreeMap<String, Store> = BTreeMap::new();
    for record in &records.records {
        let Some(measured) = &record.measured else { continue };
        let store = stores.entry(record.cell.store.clone()).or_default();
        store.version.clone_from(&measured.version);
        for (name, value) in &measured.settings {
            let values = store.settings.entry(name.clone()).or_default();
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    stores
}
