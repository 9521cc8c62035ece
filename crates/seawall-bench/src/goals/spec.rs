//! The data file of the goals, and its parsed form: groups of goals, each with its cells.
//!
//! 1. Anything unknown (a name, a store, a combination) is an error with its location, never ignored.
//! 2. Two goals that need the same figure share one [`Cell`]: equal cells are one cell, in whichever goals
//!    they occur.

use super::cell::{Cell, DiskKind, KINDS, Tool};
use crate::bulk::Task;
use crate::scan::Order;
use crate::scan::fio::Pattern;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The goals themselves.
pub const GOALS: &str = include_str!("../../goals.toml");

/// Workloads of `bench kv`.
const WORKLOADS: [&str; 10] = [
    "load-sequential",
    "load-random",
    "point-read",
    "point-read-cold",
    "update",
    "read-modify-write",
    "commit",
    "commit-beside-backup",
    "mixed",
    "short-range",
];
/// Stores that can be measured.
pub const STORES: [&str; 8] = ["seawall", "raw", "rocksdb", "lmdb", "sqlite", "wiredtiger", "redb", "fjall"];
/// The store that the goals are about.
pub const SUBJECT: &str = "seawall";
const DURABILITIES: [&str; 3] = ["flushed", "written", "deferred"];

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// `make goals`.
    Full,
    /// `make bench`.
    Quick,
}

/// One value, or one for each extent.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Either<T> {
    Same(T),
    Each([T; 2]),
}

impl<T: Copy> Either<T> {
    fn at(self, extent: Extent) -> T {
        match (self, extent) {
            (Self::Same(value), _)
            | (Self::Each([value, _]), Extent::Full)
            | (Self::Each([_, value]), Extent::Quick) => value,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    run: Run,
    data: BTreeMap<String, Data>,
    group: Vec<WrittenGroup>,
    #[serde(default)]
    curve: Vec<WrittenCurve>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    rounds: Either<u32>,
    seconds: Either<f64>,
    warm_up_seconds: Either<f64>,
    beside_pool_mib: u64,
    process_mib: u64,
    #[serde(default)]
    more_mib: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    keys: Either<u64>,
    value_size: Either<u64>,
    pool_mib: Either<u64>,
    #[serde(default)]
    bounded: bool,
    /// For scans: in which order rows are inserted.
    order: Option<Order>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGroup {
    id: String,
    rounds: Option<Either<u32>>,
    #[serde(default)]
    also_on: Vec<DiskKind>,
    goal: Vec<WrittenGoal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGoal {
    id: String,
    text: String,
    #[serde(default = "rate")]
    figure: String,
    #[serde(default)]
    take: Take,
    cell: WrittenCell,
    #[serde(default)]
    against: Vec<Against>,
    limits: Option<Threshold>,
    #[serde(default)]
    around: bool,
    /// Measured on the plain disk only, even if its group is measured on other disks too.
    #[serde(default)]
    plain: bool,
}

fn rate() -> String {
    "ops_per_s".into()
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCell {
    #[serde(default)]
    tool: Tool,
    workload: String,
    threads: Vec<u32>,
    data: String,
    #[serde(default = "flushed")]
    durability: String,
    seconds: Option<Either<f64>>,
    log_mib: Option<Either<u64>>,
}

fn flushed() -> String {
    "flushed".into()
}

/// The other side, where it differs from the goal's own cell, and the threshold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Against {
    store: String,
    /// Used in the goal's name where the store's name is not enough.
    name: Option<String>,
    threads: Option<u32>,
    tool: Option<Tool>,
    workload: Option<String>,
    figure: Option<String>,
    fold: Option<u32>,
    #[serde(default)]
    set: BTreeMap<String, String>,
    seconds: Option<Either<f64>>,
    at_least: Option<f64>,
    more_than: Option<f64>,
    at_most: Option<f64>,
    or_at_most: Option<f64>,
    or: Option<Other>,
    #[serde(default)]
    slack: f64,
    #[serde(default)]
    reported: bool,
}

/// Another figure of Seawall: if it reaches `at_least`, the goal is met regardless of the ratio.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// Its name in the result.
    pub figure: String,
    /// The minimum.
    pub at_least: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCurve {
    id: String,
    text: String,
    workload: String,
    stores: Vec<String>,
    threads: Vec<u32>,
    pools_of_data: Vec<u64>,
    pool_mib: u64,
    value_size: u64,
    seconds: f64,
}

/// Which of the rounds' figures counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// The median.
    #[default]
    Median,
    /// The maximum: for events that must never happen.
    Max,
}

/// The threshold for a figure, or for its ratio to the other side's.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// At least.
    AtLeast(f64),
    /// More than.
    MoreThan(f64),
    /// At most.
    AtMost(f64),
    /// Only reported.
    #[serde(skip)]
    Reported,
}

/// One figure of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// The cell that measures it.
    pub cell: Cell,
    /// The name of the figure in the cell's result.
    pub figure: String,
}

/// One goal: a line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// Its name, such as `commit-16/rocksdb`.
    pub id: String,
    /// Description of the measurement.
    pub text: String,
    /// Seawall's figure.
    pub ours: Source,
    /// The other side's; `None`: the figure itself is compared with the threshold.
    pub theirs: Option<Source>,
    /// How the rounds are combined.
    pub take: Take,
    /// For the ratio ours / theirs, or for ours.
    pub threshold: Threshold,
    /// The goal is also met when ours is at most this, regardless of the ratio.
    pub or_at_most: Option<f64>,
    /// The goal is also met when this figure reaches its minimum.
    pub or: Option<Other>,
    /// Subtracted from ours before the ratio is computed.
    pub slack: f64,
    /// The other side is measured before and after ours, not alternately with it.
    pub around: bool,
}

/// Goals whose cells are measured alternately, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub id: String,
    /// The disk it uses.
    pub disk: DiskKind,
    /// How often each cell is measured.
    pub rounds: u32,
    /// The goals.
    pub goals: Vec<Goal>,
}

impl Group {
    /// Its cells, each once; cells measured around the others come first and last.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for goal in &self.goals {
            for source in std::iter::once(&goal.ours).chain(&goal.theirs) {
                if !cells.contains(&source.cell) {
                    cells.push(source.cell.clone());
                }
            }
        }
        cells
    }

    /// The cells that are measured before and after the others.
    #[must_use]
    pub fn around(&self) -> Vec<&Cell> {
        self.goals.iter().filter(|goal| goal.around).filter_map(|goal| Some(&goal.theirs.as_ref()?.cell)).collect()
    }
}

/// A workload over sizes and threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name.
    pub id: String,
    /// Description of the measurement.
    pub text: String,
    /// Data, in pools, and the cell.
    pub points: Vec<(u64, Cell)>,
}

/// All measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Groups in the order in which they are measured: disk by disk.
    pub groups: Vec<Group>,
    /// Curves, measured last.
    pub curves: Vec<Curve>,
}

/// Overrides of the data file from the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overrides {
    /// Rounds of every group.
    pub rounds: Option<u32>,
    /// Seconds of cells that have no length of their own.
    pub seconds: Option<f64>,
}

impl Plan {
    /// Reads goals as [`GOALS`] has them.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn read(text: &str, extent: Extent, overrides: Overrides) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|e| format!("goals.toml: {e}"))?;
        let maker = Maker { written: &written, extent, overrides };
        let mut groups = Vec::new();
        for disk in [DiskKind::Plain, DiskKind::SlowFlush, DiskKind::FewIops] {
            for group in &written.group {
                if disk == DiskKind::Plain || group.also_on.contains(&disk) {
                    groups.push(maker.group(group, disk)?);
                }
            }
        }
        let curves = match extent {
            Extent::Full => written.curve.iter().map(|curve| maker.curve(curve)).collect::<Result<_, _>>()?,
            // A curve has 24 cells: more than ten minutes allow.
            Extent::Quick => Vec::new(),
        };
        let mut ids: Vec<&str> = groups.iter().flat_map(|group| &group.goals).map(|goal| goal.id.as_str()).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("goals.toml: two goals are called {:?}", pair[0]));
        }
        Ok(Self { groups, curves })
    }

    /// Keeps the goals and curves for which `wanted` returns true.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        for group in &mut self.groups {
            group.goals.retain(|goal| wanted(&goal.id));
        }
        self.groups.retain(|group| !group.goals.is_empty());
        self.curves.retain(|curve| wanted(&curve.id));
    }
}

struct Maker<'w> {
    written: &'w Written,
    extent: Extent,
    overrides: Overrides,
}

impl Maker<'_> {
    fn group(&self, group: &WrittenGroup, disk: DiskKind) -> Result<Group, String> {
        let rounds = self.overrides.rounds.unwrap_or(group.rounds.unwrap_or(self.written.run.rounds).at(self.extent));
        if rounds == 0 {
            return Err(format!("group {}: no rounds: nothing would be measured; give at least 1", group.id));
        }
        let mut goals = Vec::new();
        for goal in group.goal.iter().filter(|goal| disk == DiskKind::Plain || !goal.plain) {
            for &threads in &goal.cell.threads {
                self.goals(goal, threads, disk, &mut goals)?;
            }
        }
        Ok(Group { id: format!("{}{}", disk.prefix(), group.id), disk, rounds, goals })
    }

    fn goals(&self, goal: &WrittenGoal, threads: u32, disk: DiskKind, out: &mut Vec<Goal>) -> Result<(), String> {
        let many = self.written.group.iter().flat_map(|group| &group.goal).filter(|other| other.id == goal.id);
        let numbered = many.map(|goal| goal.cell.threads.len()).sum::<usize>() > 1;
        let name = if numbered { format!("{}-{threads}", goal.id) } else { goal.id.clone() };
        let name = format!("{}{name}", disk.prefix());
        let told = |why: String| format!("goals.toml, {name}: {why}");
        let ours = Source { cell: self.cell(&goal.cell, threads, disk).map_err(told)?, figure: goal.figure.clone() };
        check(&ours.cell).map_err(told)?;
        let base = Goal {
            id: name.clone(),
            text: goal.text.clone(),
            ours,
            theirs: None,
            take: goal.take,
            threshold: Threshold::Reported,
            or_at_most: None,
            or: None,
            slack: 0.0,
            around: false,
        };
        if let Some(threshold) = goal.limits {
            out.push(Goal { threshold, ..base.clone() });
        } else if goal.against.is_empty() {
            return Err(told("nothing to hold it against: give `against` or `limits`".into()));
        }
        for against in &goal.against {
            let mut cell = WrittenCell {
                tool: against.tool.unwrap_or(goal.cell.tool),
                workload: against.workload.clone().unwrap_or_else(|| goal.cell.workload.clone()),
                ..goal.cell.clone()
            };
            cell.seconds = against.seconds.or(cell.seconds);
            let mut cell = self.cell(&cell, against.threads.unwrap_or(threads), disk).map_err(told)?;
            cell.store.clone_from(&against.store);
            cell.fold = against.fold.unwrap_or(1);
            cell.set.extend(against.set.clone());
            if matches!(cell.store.as_str(), "raw" | "fio") {
                // These have no cache that could be bounded.
                cell.memory_mib = None;
            }
            let more = self.written.run.more_mib.get(&cell.store).copied().unwrap_or(0);
            cell.memory_mib = cell.memory_mib.map(|memory| memory + more);
            check(&cell).map_err(told)?;
            out.push(Goal {
                id: format!("{name}/{}", against.name.as_ref().unwrap_or(&against.store)),
                theirs: Some(Source { cell, figure: against.figure.clone().unwrap_or_else(|| goal.figure.clone()) }),
                threshold: against.threshold().map_err(told)?,
                or_at_most: against.or_at_most,
                or: against.or.clone(),
                slack: against.slack,
                around: goal.around,
                ..base.clone()
            });
        }
        Ok(())
    }

    fn cell(&self, cell: &WrittenCell, threads: u32, disk: DiskKind) -> Result<Cell, String> {
        let run = &self.written.run;
        let data = self.written.data.get(&cell.data).ok_or_else(|| {
            let known: Vec<_> = self.written.data.keys().map(String::as_str).collect();
            format!("no data is called {:?}; there are {}", cell.data, known.join(", "))
        })?;
        let pool_mib = data.pool_mib.at(self.extent);
        let usual = self.overrides.seconds.unwrap_or(run.seconds.at(self.extent));
        Ok(Cell {
            tool: cell.tool,
            disk,
            workload: cell.workload.clone(),
            order: data.order,
            store: SUBJECT.into(),
            threads,
            keys: data.keys.at(self.extent),
            value_size: data.value_size.at(self.extent),
            pool_mib,
            durability: cell.durability.clone(),
            fold: 1,
            set: BTreeMap::new(),
            seconds: cell.seconds.map_or(usual, |seconds| seconds.at(self.extent)),
            warm_up_seconds: run.warm_up_seconds.at(self.extent),
            memory_mib: data.bounded.then_some(pool_mib + run.beside_pool_mib + run.process_mib),
            log_mib: cell.log_mib.map_or(0, |log| log.at(self.extent)),
        })
    }

    fn curve(&self, curve: &WrittenCurve) -> Result<Curve, String> {
        let run = &self.written.run;
        let mut points = Vec::new();
        for &pools in &curve.pools_of_data {
            for store in &curve.stores {
                for &threads in &curve.threads {
                    let cell = Cell {
                        tool: Tool::Kv,
                        disk: DiskKind::Plain,
                        workload: curve.workload.clone(),
                        order: None,
                        store: store.clone(),
                        threads,
                        keys: pools * (curve.pool_mib << 20) / curve.value_size.max(1),
                        value_size: curve.value_size,
                        pool_mib: curve.pool_mib,
                        durability: flushed(),
                        fold: 1,
                        set: BTreeMap::new(),
                        seconds: curve.seconds,
                        warm_up_seconds: run.warm_up_seconds.at(self.extent),
                        memory_mib: Some(
                            curve.pool_mib
                                + run.beside_pool_mib
                                + run.process_mib
                                + run.more_mib.get(store).copied().unwrap_or(0),
                        ),
                        log_mib: 0,
                    };
                    check(&cell).map_err(|why| format!("goals.toml, {}: {why}", curve.id))?;
                    points.push((pools, cell));
                }
            }
        }
        Ok(Curve { id: curve.id.clone(), text: curve.text.clone(), points })
    }
}

impl Against {
    fn threshold(&self) -> Result<Threshold, String> {
        let given = [
            self.at_least.map(Threshold::AtLeast),
            self.more_than.map(Threshold::MoreThan),
            self.at_most.map(Threshold::AtMost),
            self.reported.then_some(Threshold::Reported),
        ];
        match given.into_iter().flatten().collect::<Vec<_>>()[..] {
            [threshold] => Ok(threshold),
            _ => Err(format!("against {}: give one of at_least, more_than, at_most and reported", self.store)),
        }
    }
}

/// Checks that a cell asks for existing names and combinations.
fn check(cell: &Cell) -> Result<(), String> {
    let one_of = |what: &str, name: &str, known: &[&str]| {
        let found = known.contains(&name);
        if found { Ok(()) } else { Err(format!("no {what} is called {name:?}; there are {}", known.join(", "))) }
    };
    match cell.tool {
        Tool::Kv | Tool::Callgrind => one_of("workload", &cell.workload, &WORKLOADS)?,
        Tool::Tpcc => one_of("workload", &cell.workload, &["tpcc"])?,
        Tool::Fio if cell.order.is_some() => cell.workload.parse::<Pattern>().map(drop)?,
        Tool::Fio => one_of("workload", &cell.workload, &["random-read"])?,
        Tool::Restart => one_of("workload", &cell.workload, &["restart"])?,
        Tool::Scan => cell.check_scan()?,
        Tool::Bulk => cell.workload.parse::<Task>().map(drop)?,
        Tool::Instructions => one_of("kind of operation", &cell.workload, &KINDS)?,
    }
    match cell.tool {
        Tool::Fio => one_of("store", &cell.store, &["fio"])?,
        Tool::Restart | Tool::Bulk | Tool::Instructions => one_of("store", &cell.store, &[SUBJECT])?,
        Tool::Kv | Tool::Callgrind | Tool::Tpcc | Tool::Scan => one_of("store", &cell.store, &STORES)?,
    }
    one_of("durability", &cell.durability, &DURABILITIES)?;
    let positive = cell.threads > 0 && cell.keys > 0 && cell.pool_mib > 0 && cell.seconds > 0.0 && cell.fold > 0;
    if positive {
        Ok(())
    } else {
        Err(format!("threads, keys, pool, seconds and fold are at least 1: {}", cell.name()))
    }
}
