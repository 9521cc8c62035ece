//! `seawall lab`: run the experiments, compare two runs, or show a run again.

use crate::progress::Bar;
use crate::{Ended, Failed, Outcome, Reader, Stop, answer, cannot, interrupted, make_dir, note, pretty, print, units};
use clap::{Args, Subcommand};
use rustix::fs::{Access, access};
use seawall_bench::lab::EngineCells;
use seawall_io::Backend;
use seawall_io::probe::{Finding, block_device_of};
use seawall_lab::cell::Experiment;
use seawall_lab::require::{Requirement, metric_list};
use seawall_lab::results::{RESULTS, Results, WitnessOutcome};
use seawall_lab::run::{Lab, LabError, LabOptions, Observation, observe};
use seawall_lab::settings::{Server, Settings, recommend};
use seawall_lab::sql::{self, SqlOptions};
use seawall_lab::stats::ROUNDS_MIN;
use seawall_lab::{compare, mycnf, report, table};
use seawall_tools::witness::{self, Verification};
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = after_help())]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: Option<LabCommand>,
    /// Directory on the disk to measure; everything written there is removed
    #[arg(required_unless_present = "server")]
    path: Option<PathBuf>,
    /// Measure the MariaDB server on this socket instead of a disk
    ///
    /// Measures commit levels (E5) and range prefetch (E6) through SQL, in about 12 minutes. Of the other options,
    /// `--only`, `--rounds`, `--round`, `--size` (of a table; 4G unless given) and `--json` apply.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["path", "full", "reserve", "seed", "io_backend", "rate", "sustain", "observe", "force", "out", "html", "table", "my_cnf", "require", "witness"])]
    server: Option<PathBuf>,
    /// User for `--server`; a password is read from MYSQL_PWD
    ///
    /// The user must be able to create databases and to set global variables.
    #[arg(long, value_name = "NAME", default_value = "root", requires = "server")]
    server_user: String,
    /// Measure the whole grid, every cell repeatedly: about half an hour instead of 5 minutes
    #[arg(long)]
    full: bool,
    /// Run only these experiments, by name or number
    ///
    /// The experiments are baseline, direct-sync (E1), log-memory (E2), parallel-direct (E3), append-overwrite (E4),
    /// commit-levels (E5), range-prefetch (E6) and settings.
    #[arg(long, value_delimiter = ',', value_parser = experiment)]
    only: Vec<Experiment>,
    /// Size of the scratch file, at least 16M [default: 512M, with --full 1G]
    #[arg(long, value_parser = units::size)]
    size: Option<u64>,
    /// Free space to leave untouched, with K, M, G or T
    #[arg(long, default_value = "1G", value_parser = units::size)]
    reserve: u64,
    /// Seed for every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Backend for asynchronous I/O: auto, io_uring, threads or sync
    #[arg(long, default_value = "auto")]
    io_backend: Backend,
    /// Maximum operations per second in each cell [default: no limit]
    #[arg(long, value_parser = units::rate)]
    rate: Option<f64>,
    /// Rounds of each cell [default: 6, with --full 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: Option<u32>,
    /// Time of a round, with ms, s, m or h [default: 800ms, with --full 1100ms]
    #[arg(long, value_parser = units::duration)]
    round: Option<Duration>,
    /// Instead of cells, run constant load for this long, such as 30m, to find caps and spent burst credit
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with_all = ["full", "only", "rounds", "round"])]
    sustain: Option<Duration>,
    /// Watch the device without adding load, one line per second until Ctrl-C, or for DURATION (such as
    /// `--observe=1m`)
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["full", "only", "sustain", "out", "json", "html", "table", "my_cnf", "require", "witness"], num_args = 0..=1, require_equals = true, default_missing_value = "3650000h", value_parser = units::duration)]
    observe: Option<Duration>,
    /// Measure even when other processes keep the disk busy
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    outputs: Outputs,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Compare two runs cell by cell
    Diff {
        /// The run to compare from: its directory or results.json
        a: PathBuf,
        /// The run to compare to
        b: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an earlier run: the summary, all results with `--table`, or the report with `--html`
    Report {
        /// The run: its directory or results.json
        file: PathBuf,
        #[command(flatten)]
        outputs: Outputs,
    },
}

/// The outputs, and what the results are compared with.
#[derive(Debug, Args)]
struct Outputs {
    /// Directory for results.json, report.html and the settings [default for a run without `--json` and `--html`: a
    /// new seawall-lab-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the results to FILE; `-` prints them instead of the summary
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to FILE; `-` prints it instead of the summary
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print every cell, table, conclusion and setting instead of a summary
    #[arg(long)]
    table: bool,
    /// Show the settings as a diff against your own my.cnf
    #[arg(long, value_name = "FILE")]
    my_cnf: Option<PathBuf>,
    /// Server that `--my-cnf` is for: mariadb-10.11, mariadb-11, mysql-8.0 or mysql-8.4
    #[arg(long, value_name = "SERVER", default_value = "mariadb-10.11", value_parser = server)]
    my_cnf_for: Server,
    /// Exit with 1 unless this is met, such as 'flush.p99<10ms'; may be repeated
    #[arg(long, value_name = "METRIC.STAT<LIMIT")]
    require: Vec<String>,
    /// File written by `seawall witness verify --json`, to include in the report
    #[arg(long, value_name = "FILE")]
    witness: Option<PathBuf>,
}

fn experiment(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text).ok_or_else(|| {
        "use baseline, direct-sync (E1), log-memory (E2), parallel-direct (E3), append-overwrite (E4), \
         commit-levels (E5), range-prefetch (E6) or settings"
            .into()
    })
}

fn server(text: &str) -> Result<Server, String> {
    Server::parse(text).ok_or_else(|| "use mariadb-10.11, mariadb-11, mysql-8.0 or mysql-8.4".into())
}

fn after_help() -> String {
    format!("Metrics for --require (with .p50 .p90 .p99 .p999 .max .median .rate):\n{}\n", metric_list())
}

pub(crate) fn run(args: &LabArgs, stop: &Stop) -> Outcome {
    match &args.command {
        Some(LabCommand::Diff { a, b, json }) => return diff(a, b, *json),
        Some(LabCommand::Report { file, outputs }) => {
            let checked = outputs.check(false)?;
            return outputs.show(Results::read(file)?, &checked, Run::Earlier);
        }
        None => {}
    }
    if let Some(socket) = &args.server {
        let base = SqlOptions::new(socket);
        let options = SqlOptions {
            user: args.server_user.clone(),
            only: args.only.clone(),
            rounds: args.rounds.unwrap_or(base.rounds),
            round: args.round.unwrap_or(base.round),
            table_bytes_max: args.size.unwrap_or(base.table_bytes_max),
            ..base
        };
        return through_sql(&options, &args.outputs, stop);
    }
    let path = args.path.as_deref().ok_or("give a directory on the disk to measure")?;
    if let Some(duration) = args.observe {
        return watch(path, duration, stop);
    }
    // For the record, with invalid UTF-8 replaced.
    let command: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let base = if args.full { LabOptions::full(path) } else { LabOptions::new(path) };
    let options = LabOptions {
        only: args.only.clone(),
        file_bytes: args.size.unwrap_or(base.file_bytes),
        round: args.round.unwrap_or(base.round),
        rounds: args.rounds.unwrap_or(base.rounds),
        seed: args.seed,
        backend: args.io_backend,
        rate: args.rate,
        reserve_bytes: args.reserve,
        force: args.force,
        sustain: args.sustain,
        command: command.join(" "),
        ..base
    };
    measure(options, &args.outputs, stop)
}

fn measure(options: LabOptions, outputs: &Outputs, stop: &Stop) -> Outcome {
    // Paths that cannot be used later are refused now, not after some minutes.
    let checked = outputs.check(true)?;
    let planned = if options.sustain.is_some() { Vec::new() } else { options.plan() };
    if let Some(missing) = checked.requirements.iter().find(|r| !planned.iter().any(|cell| cell.id() == r.cell)) {
        let hint = "leave --only and --sustain out, or give --full for the whole grid";
        return Err(format!("{}: this run does not measure {}; {hint}", missing.text, missing.cell).into());
    }
    let (rounds, sustains) = (options.rounds, options.sustain.is_some());
    let lab = Lab::new(options)?;
    if !sustains && (rounds as usize) < ROUNDS_MIN {
        let why = format!("every comparison will be \"cannot tell\" (a verdict needs {ROUNDS_MIN})");
        note(format_args!("{rounds} rounds decide nothing: {why}"));
    }
    let ran = lab.run_with(Some(&mut EngineCells::default()), &mut Bar::new(), stop);
    match ran {
        Ok(results) => outputs.show(results, &checked, Run::Fresh),
        Err(LabError::Interrupted) => interrupted("interrupted before anything was measured; nothing is left behind"),
        Err(LabError::Cut { results, cause }) => {
            outputs.show(*results, &checked, Run::Cut)?;
            Err(format!("the run went no further, what was measured before stands above: {cause}").into())
        }
        Err(e) => Err(e.into()),
    }
}

fn through_sql(options: &SqlOptions, outputs: &Outputs, stop: &Stop) -> Outcome {
    let json_file = file(&outputs.json);
    json_file.map_or(Ok(()), can_write)?;
    let measured = sql::measure(options, &mut Bar::new(), stop);
    if let Err(LabError::Interrupted) = measured {
        return interrupted("interrupted before anything was measured; nothing is left on the server");
    }
    let (results, error) = measured?;
    if let Some(path) = json_file {
        std::fs::write(path, results.to_json() + "\n").map_err(cannot("write", path))?;
        note(format_args!("wrote {}", path.display()));
    }
    print(if is_stdout(&outputs.json) { results.to_json() + "\n" } else { results.to_text() })?;
    match error {
        None => Ok(Ended::Well),
        Some(LabError::Interrupted) => {
            interrupted("interrupted: what was measured stands above, and nothing is left on the server")
        }
        Some(error) => Err(format!("the run went no further, what was measured before stands above: {error}").into()),
    }
}

/// The origin of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// Measured now; always saved.
    Fresh,
    /// Measured now, until an error; always saved.
    Cut,
    /// Read from a file.
    Earlier,
}

/// Inputs read before the measurement.
struct Checked {
    requirements: Vec<Requirement>,
    witness: Option<Verification>,
}

/// The report of a run in `--out`.
const REPORT: &str = "report.html";

impl Outputs {
    /// Reads the inputs and checks the output paths. The results of a `fresh` run will be saved.
    fn check(&self, fresh: bool) -> Result<Checked, Failed> {
        let requirements = self.require.iter().map(|r| Requirement::parse(r)).collect::<Result<Vec<_>, _>>()?;
        if let Some(path) = &self.my_cnf {
            mycnf::MyCnf::read(path)?;
        }
        let witness = self.witness.as_deref().map(verification).transpose()?;
        if is_stdout(&self.json) && is_stdout(&self.html) {
            return Err("standard output holds one thing: give --json or --html a file".into());
        }
        for path in [&self.json, &self.html].into_iter().filter_map(file) {
            can_write(path)?;
        }
        if let Some(dir) = &self.out {
            self.check_out(dir)?;
        } else if fresh && self.json.is_none() && self.html.is_none() {
            can_make_files_in(Path::new("."))?;
        }
        Ok(Checked { requirements, witness })
    }

    /// Checks that nothing would be overwritten, above all an earlier run, which cannot be measured again.
    fn check_out(&self, dir: &Path) -> Result<(), Failed> {
        make_dir(dir, "--out")?;
        can_make_files_in(dir)?;
        let names = [RESULTS, REPORT].map(String::from).into_iter().chain(Settings::names());
        let mut paths = names.map(|name| dir.join(name));
        paths.find(|path| path.exists()).map_or(Ok(()), |path| {
            Err(format!("{} exists: give another --out, nothing is overwritten", path.display()).into())
        })
    }

    /// Creates the directory for a run without `--out`.
    fn fresh_dir(results: &Results) -> Result<PathBuf, Failed> {
        let time = results.started.replace(':', "").replace(' ', "T");
        let mut n = 1;
        loop {
            let suffix = if n == 1 { String::new() } else { format!("-{n}") };
            let dir = PathBuf::from(format!("seawall-lab-{time}{suffix}"));
            match std::fs::create_dir(&dir) {
                Ok(()) => return Ok(dir),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => n += 1,
                Err(e) => return Err(format!("cannot make {}: {e}; give --out", dir.display()).into()),
            }
        }
    }

    /// Writes the files, the results first: they cannot be computed again. Adds each to `written`.
    fn save(&self, results: &Results, fresh: bool, written: &mut Vec<PathBuf>) -> Result<(), Failed> {
        let mut write = |path: PathBuf, text: &str| {
            std::fs::write(&path, text).map_err(cannot("write", &path))?;
            written.push(path);
            Ok::<_, Failed>(())
        };
        let dir = match &self.out {
            None if fresh && self.json.is_none() && self.html.is_none() => Some(Self::fresh_dir(results)?),
            given => given.clone(),
        };
        let [json, html]: [fn(&Results) -> String; 2] = [Results::to_json, report::html];
        for (given, name, text) in [(&self.json, RESULTS, json), (&self.html, REPORT, html)] {
            for path in file(given).map(PathBuf::from).into_iter().chain(dir.as_ref().map(|dir| dir.join(name))) {
                write(path, &text(results))?;
            }
        }
        if let Some(dir) = dir {
            for (name, text) in recommend(results).files() {
                write(dir.join(name), &text)?;
            }
        }
        Ok(())
    }

    /// Returns the settings as a change to the user's own option file.
    fn proposal(&self, results: &Results) -> Result<String, Failed> {
        let Some(path) = &self.my_cnf else { return Ok(String::new()) };
        let proposal = mycnf::propose(path, self.my_cnf_for, &recommend(results))?;
        let mut text = if proposal.diff.is_empty() {
            format!("{}: nothing to change for {}\n", path.display(), self.my_cnf_for.words())
        } else {
            format!("for {}:\n{}\n", self.my_cnf_for.words(), proposal.diff)
        };
        for line in &proposal.notes {
            text += &format!("note: {line}\n");
        }
        Ok(text)
    }

    /// Formats the results for people: all of them, or a summary.
    fn text(&self, results: &Results) -> String {
        if !self.table {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            return table::screen(results, if colour { table::COLOUR } else { table::PLAIN });
        }
        let settings = indent(&recommend(results).to_toml());
        format!("{}\n{}\nseawall.toml:\n{settings}\n", table::table(results), table::conclusions(results))
    }

    /// Prints and writes all output derived from the results.
    fn show(&self, mut results: Results, checked: &Checked, run: Run) -> Outcome {
        if let Some(verification) = &checked.witness {
            results.witness =
                verification.proof().map(|witness::Outcome { acknowledged, lost, torn, reordered, verified }| {
                    WitnessOutcome { acknowledged, lost, torn, reordered, verified }
                });
            if results.witness.is_none() {
                note("seawall: the witness file proves nothing about power loss, so the report does not count it");
            }
        }
        let mut written = Vec::new();
        let saved = self.save(&results, run != Run::Earlier, &mut written);
        if is_stdout(&self.json) || is_stdout(&self.html) {
            print(if is_stdout(&self.json) { results.to_json() + "\n" } else { report::html(&results) })?;
            note(self.proposal(&results)?.trim_end());
        } else {
            print(self.text(&results) + &self.proposal(&results)?)?;
        }
        for path in &written {
            note(format_args!("wrote {}", path.display()));
        }
        saved?;
        if run != Run::Earlier && !results.complete {
            if run == Run::Fresh {
                note("interrupted: what was measured so far stands above, and nothing is left on the measured disk");
            }
            if !checked.requirements.is_empty() {
                note("a run that did not come to its end is not held against --require");
            }
            return Ok(Ended::Interrupted);
        }
        let mut short = false;
        for requirement in &checked.requirements {
            let outcome = requirement.evaluate(&results)?;
            note(&outcome.sentence);
            short |= !outcome.met;
        }
        Ok(if short { Ended::Short } else { Ended::Well })
    }
}

fn is_stdout(given: &Option<PathBuf>) -> bool {
    given.as_deref() == Some(Path::new("-"))
}

/// Returns the given file, if it is not standard output.
fn file(given: &Option<PathBuf>) -> Option<&Path> {
    given.as_deref().filter(|path| *path != Path::new("-"))
}

/// Reads a file that `seawall witness verify --json` has written.
fn verification(path: &Path) -> Result<Verification, Failed> {
    let text = std::fs::read_to_string(path).map_err(cannot("read", path))?;
    let wrong = |e| format!("{} is not what `seawall witness verify --json` writes: {e}", path.display());
    Ok(Verification::from_json(&text).map_err(wrong)?)
}

/// Checks that a file can be written at `path`, without creating it.
fn can_write(path: &Path) -> Result<(), Failed> {
    if path.is_dir() {
        return Err(format!("{} is a directory: give a file in it, or --out for a directory", path.display()).into());
    }
    if path.exists() {
        let opened = std::fs::OpenOptions::new().append(true).open(path);
        return Ok(opened.map(drop).map_err(|e| format!("cannot write {}: {e}; give another file", path.display()))?);
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    can_make_files_in(parent.unwrap_or(Path::new(".")))
}

fn can_make_files_in(dir: &Path) -> Result<(), Failed> {
    if !dir.is_dir() {
        return Err(format!("{} is not a directory: make it first, or give another place", dir.display()).into());
    }
    access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| {
        let shown = if dir == Path::new(".") { "the current directory".into() } else { dir.display().to_string() };
        format!("no files can be made in {shown}: {e}; say where results shall go with --out, --json or --html").into()
    })
}

fn indent(text: &str) -> String {
    text.lines().map(|l| if l.is_empty() { "\n".into() } else { format!("  {l}\n") }).collect()
}

fn diff(a: &Path, b: &Path, json: bool) -> Outcome {
    let difference = compare::compare(&Results::read(a)?, &Results::read(b)?);
    answer(if json { pretty(&difference)? } else { difference.to_text() })
}

fn watch(path: &Path, duration: Duration, stop: &Stop) -> Outcome {
    let missing = |e| format!("{}: {e}; check that the path exists", path.display());
    let path = std::fs::canonicalize(path).map_err(missing)?;
    let device = match block_device_of(&path) {
        Finding::Known(device) => device.name,
        Finding::Unknown(reason) => {
            return Err(format!("there is no device to watch under {}: {reason}", path.display()).into());
        }
    };
    print(format!("{device}, no load added; Ctrl-C ends it\n{}\n", Observation::HEADER))?;
    let mut lines = 0u32;
    let watched = observe(&device, Duration::from_secs(1), Some(duration), stop, |o| {
        lines += 1;
        let header = if lines % 30 == 0 { format!("{}\n", Observation::HEADER) } else { String::new() };
        // A closed standard output ends the watching.
        matches!(print(format!("{header}{}\n", o.line())), Ok(Reader::Listens))
    });
    if watched { Ok(Ended::Well) } else { Err(format!("/proc/diskstats has no row for {device}").into()) }
}
