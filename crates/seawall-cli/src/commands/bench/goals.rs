//! `seawall bench goals`: the goals, measured in one run.
//!
//! 1. Each goal is printed as soon as it is known; the last line says how many are met.
//! 2. Exit code 1 when a goal falls short or could not be measured; everything is written to `--out` in that
//!    case too.

use super::PEERS;
use crate::progress::bar;
use crate::{Ended, Outcome, Stop, answer, cannot, interrupted, make_dir, note, pretty, print, write_files};
use indicatif::ProgressBar;
use regex::Regex;
use seawall_bench::goals::measure::Bench;
use seawall_bench::goals::plan::{Cell, DiskKind, Group, Tool};
use seawall_bench::goals::report::Report;
use seawall_bench::goals::run::{Listener, run as measure_all};
use seawall_bench::goals::{Extent, GOALS, Overrides, Plan, Records, evaluate, measure};
use seawall_bench::process;
use seawall_bench::run::data_dir::given_or_temporary;
use std::path::{Path, PathBuf};

/// Maximum disk space that a run needs at one time, MiB: full and quick.
const SPACE_MIB: [u64; 2] = [40 << 10, 18 << 10];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    seawall bench goals --out goals\n  \
    seawall bench goals --quick --only '^commit' --out goals")]
pub(crate) struct GoalsArgs {
    /// Run the small variant of everything, in a quarter of the time
    #[arg(long)]
    quick: bool,
    /// Measure only goals whose name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    only: Option<Regex>,
    /// Rounds of each cell, instead of those in goals.toml
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// Extra arguments for every window, appended to those in goals.toml, such as '--duration 1s'
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    window: Option<String>,
    /// Directory for rows during the run [default: a temporary one below ./target or $TMPDIR]
    ///
    /// Files that a run leaves in a directory given here are kept for the next run.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write goals.json, goals.md and a file for each measurement (cells/) into this directory
    #[arg(long, value_name = "DIR", default_value = "target/goals")]
    out: PathBuf,
    /// Reuse the cells that an earlier run of the same binary left in `--out`
    #[arg(long)]
    resume: bool,
    /// Seed for the order of the cells
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Show what would be measured, without measuring
    #[arg(long)]
    list: bool,
}

impl GoalsArgs {
    fn plan(&self) -> Result<Plan, String> {
        let extent = if self.quick { Extent::Quick } else { Extent::Full };
        let window = self.window.iter().flat_map(|args| args.split_whitespace().map(String::from)).collect();
        let mut plan = Plan::read(GOALS, extent, &Overrides { rounds: self.rounds, window });
        if let Some(only) = &self.only {
            plan.retain(|id| only.is_match(id));
        }
        if plan.groups.is_empty() {
            return Err("--only matches no goal; `seawall bench goals --list` shows them".into());
        }
        Ok(plan)
    }

    /// Returns the command that repeats the run.
    fn command(&self) -> String {
        let given = [
            self.quick.then(|| " --quick".to_owned()),
            self.only.as_ref().map(|only| format!(" --only '{only}'")),
            self.rounds.map(|rounds| format!(" --rounds {rounds}")),
            self.window.as_ref().map(|window| format!(" --window '{window}'")),
        ];
        format!("seawall bench goals{} --seed {}", given.into_iter().flatten().collect::<String>(), self.seed)
    }
}

pub(crate) fn run(args: &GoalsArgs, stop: &Stop) -> Outcome {
    let plan = args.plan()?;
    if args.list {
        return answer(list(&plan));
    }
    let exe = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    check_tools(&plan, &exe)?;
    make_dir(&args.out, "--out")?;
    let (base, _temporary) = given_or_temporary(args.dir.as_deref())?;
    check_space(&base, args.quick)?;
    // Without --resume this removes an earlier run's records: only once this run can begin.
    let mut records = Records::open(&args.out, &exe, args.resume)?;
    if args.resume {
        note(format_args!("{} cells were measured before", records.all.len()));
    }
    let bench = Bench::new(&base, exe, stop)?;
    let mut lines = Lines(bar("{bar:30.cyan/dim} {pos}/{len}  {elapsed}  {wide_msg}"));
    print(format!("{}\n", evaluate::Outcome::HEADING))?;
    let (outcomes, is_interrupted) = measure_all(&plan, args.seed, bench, &mut records, &mut lines)?;
    lines.0.finish_and_clear();

    let report = Report::new(args.command(), &plan, &outcomes, &records);
    write_files(&args.out, [("goals.json", pretty(&report)?), ("goals.md", report.to_markdown())])?;
    let (met, counted) = evaluate::tally(&outcomes);
    if is_interrupted {
        return interrupted("interrupted: what was measured so far is kept, and --resume goes on from there");
    }
    print(format!("{met} of {counted} goals met\n"))?;
    Ok(if evaluate::all_well(&outcomes) { Ended::Well } else { Ended::Short })
}

fn list(plan: &Plan) -> String {
    let mut text = String::new();
    for group in &plan.groups {
        text += &format!("{}, {} rounds:\n", group.id, group.rounds);
        for goal in &group.goals {
            text += &format!("  {:<34} {:<16} {}\n", goal.id, goal.in_words(), goal.text);
        }
        for cell in group.cells() {
            text += &format!("    {}\n", cell.name());
        }
    }
    text
}

/// Checks, before any measurement, that the tools that the plan needs are installed.
fn check_tools(plan: &Plan, exe: &Path) -> Result<(), String> {
    let cells: Vec<Cell> = plan.groups.iter().flat_map(Group::cells).collect();
    let peer = cells.iter().find(|cell| PEERS.contains(&cell.store.as_str()));
    if let (Some(cell), false) = (peer, cfg!(feature = "peers")) {
        let hint = "cargo build --release -p seawall-cli --features peers, or choose goals with --only";
        return Err(format!("{} is to be measured and this build has no peers: {hint}", cell.store));
    }
    let mut needed = Vec::new();
    for cell in &cells {
        needed.extend(match cell.tool {
            Tool::Fio => Some(("fio", "fio")),
            Tool::Callgrind | Tool::Instructions => Some(("valgrind", "valgrind")),
            Tool::Bench => cell.command.iter().any(|word| word == "restart").then_some(("fio", "fio")),
        });
        needed.extend((cell.disk == DiskKind::SlowFlush).then_some(("cc", "gcc libc6-dev")));
        needed.extend((cell.disk == DiskKind::FewIops).then_some(("mkfs.ext4", "e2fsprogs")));
    }
    let counter = measure::instructions_beside(exe);
    if cells.iter().any(|cell| cell.tool == Tool::Instructions) && !counter.is_file() {
        let hint = "(make goals-build): cargo build --release -p seawall --example instructions";
        return Err(format!("{} is missing: build it with the command {hint}", counter.display()));
    }
    match needed.iter().find(|(program, _)| !process::is_installed(program)) {
        Some((program, package)) => Err(format!("{program} is needed: scripts/apt-install {package}")),
        None => Ok(()),
    }
}

fn check_space(base: &Path, quick: bool) -> Result<(), String> {
    let stat = rustix::fs::statvfs(base).map_err(cannot("look at", base))?;
    let (free, needed) = (stat.f_bavail.saturating_mul(stat.f_frsize) >> 20, SPACE_MIB[usize::from(quick)]);
    if free >= needed {
        return Ok(());
    }
    Err(format!("{} has {free} MiB free and the run may need {needed}: give another --dir", base.display()))
}

/// One line for each goal on standard output, a progress bar on standard error.
struct Lines(ProgressBar);

impl Listener for Lines {
    fn at(&mut self, name: &str, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
        self.0.set_message(name.to_owned());
    }

    fn outcome(&mut self, outcome: &evaluate::Outcome) {
        // A closed standard output must not end the run: the files must still be written.
        self.0.suspend(|| print(format!("{}\n", outcome.line())).map_or((), drop));
    }

    fn note(&mut self, text: &str) {
        self.0.suspend(|| note(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn every_command_of_the_goals_is_understood() {
        for extent in [Extent::Full, Extent::Quick] {
            let plan = Plan::read(GOALS, extent, &Overrides::default());
            for cell in plan.groups.iter().flat_map(Group::cells) {
                let ours = matches!(cell.tool, Tool::Bench | Tool::Callgrind);
                for words in [&cell.command, &cell.prepare].into_iter().filter(|words| ours && !words.is_empty()) {
                    // A build without peers knows their names and refuses them.
                    let words = words.iter().map(|word| if PEERS.contains(&word.as_str()) { "seawall" } else { word });
                    let words = ["seawall"].into_iter().chain(words).chain(["--dir", "d"]);
                    if let Err(error) = crate::Cli::try_parse_from(words) {
                        panic!("{}: {error}", cell.name());
                    }
                }
                let known =
                    ["seawall", "raw", "fio"].contains(&cell.store.as_str()) || PEERS.contains(&cell.store.as_str());
                assert!(known, "{}", cell.store);
            }
        }
    }
}
