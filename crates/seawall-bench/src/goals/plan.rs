//! The data file of the goals, and its parsed form: groups of goals, each with its cells.
//!
//! 1. Anything unknown (a name of data or of a window, a field, a combination) is a mistake in this program: it panics
//!    and names it, which a test finds. The arguments of a command are checked by the command.
//! 2. Two goals that need the same figure share one [`Cell`]: equal cells are one cell, in whichever goals
//!    they occur.

use seawall_lab::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The goals themselves.
pub const GOALS: &str = include_str!("../../goals.toml");
/// The store that the goals are about.
pub const SUBJECT: &str = "seawall";
/// Added to every flush of [`DiskKind::SlowFlush`], ms.
pub const FLUSH_DELAY_MS: u64 = 8;
/// Reads a second, and writes a second, of [`DiskKind::FewIops`].
pub const IOPS_MAX: u64 = 3000;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// `make goals`.
    Full,
    /// `make bench`: only goals with a threshold.
    Quick,
}

/// One value, or one for each extent.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Either<T> {
    Same(T),
    Each([T; 2]),
}

impl<T: Clone> Either<T> {
    fn at(&self, extent: Extent) -> T {
        match (self, extent) {
            (Self::Same(value), _)
            | (Self::Each([value, _]), Extent::Full)
            | (Self::Each([_, value]), Extent::Quick) => value.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rounds: Either<u32>,
    window: BTreeMap<String, Either<String>>,
    data: BTreeMap<String, Data>,
    group: Vec<GroupEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    args: Either<String>,
    /// The limit of the memory cgroup, for rows beyond the pool.
    memory: Option<Either<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    id: String,
    rounds: Option<Either<u32>>,
    #[serde(default)]
    also_on: Vec<DiskKind>,
    goal: Vec<GoalEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GoalEntry {
    id: String,
    text: String,
    #[serde(default = "rate")]
    figure: String,
    #[serde(default)]
    take: Take,
    #[serde(default)]
    tool: Tool,
    cell: Either<String>,
    /// Numbers of threads, one goal for each; none for commands without threads.
    #[serde(default)]
    threads: Vec<u32>,
    data: Option<String>,
    window: Option<String>,
    /// The command creates its rows itself, anew each time.
    #[serde(default)]
    fresh: bool,
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

/// The other side, where it differs from the goal's own cell, and the threshold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Against {
    /// A store, or fio with these arguments.
    store: Option<String>,
    fio: Option<String>,
    /// Used in the goal's name where the store's name is not enough; empty: the goal has only its own name.
    name: Option<String>,
    cell: Option<Either<String>>,
    args: Option<Either<String>>,
    /// The window, where it is not the goal's.
    window: Option<String>,
    figure: Option<String>,
    must: Threshold,
    or_at_most: Option<f64>,
    or: Option<OtherFigure>,
    #[serde(default)]
    growth: bool,
}

/// Another figure of Seawall: if it reaches `at_least`, the goal is met regardless of the ratio.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherFigure {
    /// Its name in the result.
    pub figure: String,
    /// The minimum.
    pub at_least: f64,
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
    Reported,
}

/// The program that measures a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// `seawall bench`.
    #[default]
    Bench,
    /// fio, on the file of the goal's store.
    Fio,
    /// `seawall bench` under valgrind's callgrind, twice.
    Callgrind,
    /// The example `instructions` of the crate `seawall`, which counts with callgrind.
    Instructions,
}

words! {
    /// The disk under a cell.
    #[derive(Default)]
    pub enum DiskKind {
        /// Without a delay or limit.
        #[default]
        Plain = "plain",
        /// Every flush takes [`FLUSH_DELAY_MS`] longer.
        SlowFlush = "slow-flush",
        /// At most [`IOPS_MAX`] reads and writes a second.
        FewIops = "few-iops",
    }
}

impl DiskKind {
    /// Prefix of the names of goals on this disk.
    pub fn prefix(self) -> String {
        if self == Self::Plain { String::new() } else { format!("{self}-") }
    }
}

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The program that measures it.
    pub tool: Tool,
    /// The disk it uses.
    pub disk: DiskKind,
    /// Store; `fio` for fio.
    pub store: String,
    /// The directory of its rows.
    pub rows: String,
    /// The arguments that create its rows; empty: the command itself does.
    pub prepare: Vec<String>,
    /// The arguments that measure it.
    pub command: Vec<String>,
}

impl Cell {
    /// One line of text; different for different cells.
    pub fn name(&self) -> String {
        let tool = if self.tool == Tool::Bench { String::new() } else { format!("{:?} ", self.tool).to_lowercase() };
        format!("{}{tool}{}", self.disk.prefix(), self.command.join(" "))
    }

    /// Returns whether the cell measures a library of another project.
    pub fn is_peer(&self) -> bool {
        !matches!(self.store.as_str(), "seawall" | "raw" | "fio")
    }
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
    pub or: Option<OtherFigure>,
    /// Compares how much more the figure grows than the pool, from theirs to ours, as a share.
    pub growth: bool,
    /// The other side is measured before and after ours, not alternately with it.
    pub around: bool,
}

/// Goals whose cells are measured alternately, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub id: String,
    /// How often each cell is measured.
    pub rounds: u32,
    /// The goals.
    pub goals: Vec<Goal>,
}

impl Group {
    /// Its cells, each once.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for source in self.goals.iter().flat_map(|goal| std::iter::once(&goal.ours).chain(&goal.theirs)) {
            if !cells.contains(&source.cell) {
                cells.push(source.cell.clone());
            }
        }
        cells
    }

    /// Whether the cell is measured before and after the others.
    pub fn is_around(&self, cell: &Cell) -> bool {
        self.goals.iter().any(|goal| goal.around && goal.theirs.as_ref().is_some_and(|theirs| theirs.cell == *cell))
    }
}

/// All measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Groups in the order in which they are measured: disk by disk.
    pub groups: Vec<Group>,
}

/// Overrides of the data file from the command line.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Rounds of every group.
    pub rounds: Option<u32>,
    /// Arguments of every window, after those of the file.
    pub window: Vec<String>,
}

impl Plan {
    /// Parses goals in the form of [`GOALS`].
    ///
    /// # Panics
    /// When something is wrong in them: says what.
    pub fn read(text: &str, extent: Extent, overrides: &Overrides) -> Self {
        let file: File = toml::from_str(text).unwrap_or_else(|e| panic!("goals.toml: {e}"));
        let maker = Maker { file: &file, extent, overrides };
        let mut groups = Vec::new();
        for disk in DiskKind::ALL {
            for group in &file.group {
                if disk == DiskKind::Plain || group.also_on.contains(&disk) {
                    groups.push(maker.group(group, disk));
                }
            }
        }
        groups.retain(|group| !group.goals.is_empty());
        let mut ids: Vec<&str> = groups.iter().flat_map(|group| &group.goals).map(|goal| goal.id.as_str()).collect();
        ids.sort_unstable();
        ids.windows(2).for_each(|pair| assert!(pair[0] != pair[1], "two goals are called {:?}", pair[0]));
        Self { groups }
    }

    /// Keeps the goals for which `wanted` returns true.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        for group in &mut self.groups {
            group.goals.retain(|goal| wanted(&goal.id));
        }
        self.groups.retain(|group| !group.goals.is_empty());
    }
}

struct Maker<'w> {
    file: &'w File,
    extent: Extent,
    overrides: &'w Overrides,
}

impl Maker<'_> {
    fn group(&self, group: &GroupEntry, disk: DiskKind) -> Group {
        let rounds = group.rounds.as_ref().unwrap_or(&self.file.rounds).at(self.extent);
        let rounds = self.overrides.rounds.unwrap_or(rounds).max(1);
        let mut goals = Vec::new();
        for goal in group.goal.iter().filter(|goal| disk == DiskKind::Plain || !goal.plain) {
            let threads = if goal.threads.is_empty() { &[1][..] } else { &goal.threads };
            for &threads in threads {
                self.goals(goal, threads, disk, &mut goals);
            }
        }
        Group { id: format!("{}{}", disk.prefix(), group.id), rounds, goals }
    }

    fn goals(&self, goal: &GoalEntry, threads: u32, disk: DiskKind, out: &mut Vec<Goal>) {
        let same = self.file.group.iter().flat_map(|group| &group.goal).filter(|other| other.id == goal.id);
        let numbered = same.map(|goal| goal.threads.len()).sum::<usize>() > 1;
        let name = if numbered { format!("{}-{threads}", goal.id) } else { goal.id.clone() };
        let name = format!("{}{name}", disk.prefix());
        let ours = Source { cell: self.cell(goal, None, threads, disk), figure: goal.figure.clone() };
        assert!(goal.limits.is_some() || !goal.against.is_empty(), "{name}: give `against` or `limits`");
        let base = |id: String, theirs, threshold| {
            let (text, ours, take, around) = (goal.text.clone(), ours.clone(), goal.take, goal.around);
            Goal { id, text, ours, theirs, take, threshold, or_at_most: None, or: None, growth: false, around }
        };
        out.extend(goal.limits.map(|threshold| base(name.clone(), None, threshold)));
        for against in
            goal.against.iter().filter(|against| self.extent == Extent::Full || against.must != Threshold::Reported)
        {
            let cell = self.cell(goal, Some(against), threads, disk);
            let beside = against.name.as_ref().or(against.store.as_ref()).map_or("fio", String::as_str);
            let id = if beside.is_empty() { name.clone() } else { format!("{name}/{beside}") };
            let theirs = Source { cell, figure: against.figure.clone().unwrap_or_else(|| goal.figure.clone()) };
            let Against { or_at_most, growth, must, .. } = *against;
            let or = against.or.clone();
            out.push(Goal { or_at_most, or, growth, ..base(id, Some(theirs), must) });
        }
    }

    /// The cell of a goal, or of what it is compared with.
    fn cell(&self, goal: &GoalEntry, against: Option<&Against>, n: u32, disk: DiskKind) -> Cell {
        let (store, fio) = match against.map(|against| (against.store.as_deref(), against.fio.as_deref())) {
            None => (SUBJECT, None),
            Some((Some(store), None)) => (store, None),
            Some((None, fio @ Some(_))) => ("fio", fio),
            Some(_) => panic!("{}: `against` has one of store and fio", goal.id),
        };
        let tool = if fio.is_some() { Tool::Fio } else { goal.tool };
        let numbered = |text: &str| text.replace("{n}", &n.to_string());
        let text = numbered(&against.and_then(|against| against.cell.as_ref()).unwrap_or(&goal.cell).at(self.extent));
        if tool == Tool::Instructions {
            let (store, rows) = (store.into(), format!("instructions-{text}"));
            return Cell { tool, store, rows, command: vec!["count".into(), text], ..Cell::default() };
        }
        let name = goal.data.as_deref().unwrap_or_default();
        let data = known("data", name, &self.file.data);
        let window = against.and_then(|against| against.window.as_deref()).or(goal.window.as_deref());
        // On these disks every write is slow, and there are many rows.
        let slow = |name| disk != DiskKind::Plain && matches!(name, "write" | "brief");
        let window =
            window.map(|name| known("window", if slow(name) { "slow-write" } else { name }, &self.file.window));
        let window = window.map(|window| window.at(self.extent)).unwrap_or_default();
        // fio reads what Seawall reads.
        let with_rows = if tool == Tool::Fio { SUBJECT } else { store };
        let kind = text.split_whitespace().next().unwrap_or_default();
        let mut made = format!("bench {text} {}", data.args.at(self.extent));
        // Only these commands can use other stores.
        if matches!(kind, "kv" | "scan" | "tpcc") {
            made += &format!(" --store {with_rows}");
        }
        let prepare = if goal.fresh { String::new() } else { format!("{made} --load-only --reuse --json") };
        let command = if let Some(fio) = fio {
            numbered(fio) + &fio_window(&window)
        } else {
            let args =
                against.and_then(|against| against.args.as_ref()).map_or(String::new(), |args| args.at(self.extent));
            let overrides = if goal.window.is_some() { self.overrides.window.join(" ") } else { String::new() };
            let mut command = format!("{made} {window} {args} {overrides} --json");
            command += if goal.fresh { "" } else { " --reuse" };
            // fio is measured as a separate cell.
            command += if kind == "scan" { " --no-fio" } else { "" };
            if let Some(memory) = data.memory.as_ref().filter(|_| store != "raw") {
                command += &format!(" --memory-limit {}", memory.at(self.extent));
            }
            if disk == DiskKind::SlowFlush {
                // Peers get the delay from a preloaded library; their flag is only for the record.
                command += &format!(" --flush-delay {FLUSH_DELAY_MS}ms");
            }
            command
        };
        let words = |text: String| text.split_whitespace().map(String::from).collect();
        let rows = format!("{kind}-{with_rows}-{name}");
        Cell { tool, disk, store: store.into(), rows, prepare: words(prepare), command: words(command) }
    }
}

/// A window of `seawall bench` as fio's arguments.
fn fio_window(window: &str) -> String {
    let value = |flag: &str| window.split_whitespace().skip_while(|word| *word != flag).nth(1);
    let flags = [("--duration", "--runtime"), ("--warm-up", "--ramp_time")];
    flags.iter().filter_map(|(ours, fios)| Some(format!(" {fios}={}", value(ours)?))).collect()
}

/// Finds the entry called `name` in `all`.
fn known<'a, T>(what: &str, name: &str, all: &'a BTreeMap<String, T>) -> &'a T {
    all.get(name).unwrap_or_else(|| panic!("no {what} is called {name:?}; there are {:?}", all.keys()))
}
