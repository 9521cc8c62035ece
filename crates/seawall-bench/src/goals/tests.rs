//! The evaluation, from fixed figures; and that every cell of the data file can be measured.

use super::cell::{Cell, DiskKind, Tool};
use super::evaluate::{Figures, Outcome, Verdict, all_well, evaluate, median, number, tally};
use super::measure::Measured;
use super::report::Report;
use super::run::{Record, Records};
use super::spec::{Extent, GOALS, Goal, Overrides, Plan, Source, Threshold};
use std::collections::BTreeSet;
use std::path::Path;

const MANUAL: &str = include_str!("../../../../docs/goals.md");

fn plan(extent: Extent) -> Plan {
    Plan::read(GOALS, extent, Overrides::default()).unwrap()
}

fn goal_named(id: &str) -> Goal {
    plan(Extent::Full).groups.into_iter().flat_map(|group| group.goals).find(|goal| goal.id == id).unwrap()
}

fn outcome(id: &str, ours: &[f64], theirs: &[f64]) -> Outcome {
    let goal = goal_named(id);
    evaluate(&goal, |source| {
        let values = if *source == goal.ours { ours } else { theirs };
        Figures { values: values.to_vec(), disturbed: false, why: values.is_empty().then(|| "it broke".into()) }
    })
}

#[test]
fn the_middle_is_the_median() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
}

#[test]
fn a_goal_is_met_or_short_at_its_threshold() {
    let rocks = "commit-16/rocksdb";
    // Medians first: 150 and 100, whatever single rounds gave.
    let met = outcome(rocks, &[150.0, 10.0, 900.0], &[100.0, 90.0, 110.0]);
    assert_eq!((met.verdict, met.figure, met.peer, met.ratio), (Verdict::Met, Some(150.0), Some(100.0), Some(1.5)));
    assert_eq!(outcome(rocks, &[149.0], &[100.0]).verdict, Verdict::Short);
    assert_eq!(outcome("load-random/lmdb", &[100.0], &[100.0]).verdict, Verdict::Short, "faster is more than");
    assert_eq!(outcome("load-random/lmdb", &[100.1], &[100.0]).verdict, Verdict::Met);
    assert_eq!(outcome("instructions-read/rocksdb", &[50.0], &[100.0]).verdict, Verdict::Met);
    assert_eq!(outcome("instructions-read/rocksdb", &[51.0], &[100.0]).verdict, Verdict::Short);
    assert_eq!(outcome("update-cold/rocksdb", &[1.0], &[100.0]).verdict, Verdict::Reported);
}

#[test]
fn limits_slack_and_the_longest() {
    assert_eq!(outcome("memory-metadata", &[0.01], &[]).verdict, Verdict::Met);
    assert_eq!(outcome("memory-metadata", &[0.011], &[]).verdict, Verdict::Short);
    // 1.5 x 2 s + 1 s.
    assert_eq!(outcome("restart/seawall", &[4.0], &[2.0]).verdict, Verdict::Met);
    assert_eq!(outcome("restart/seawall", &[4.1], &[2.0]).verdict, Verdict::Short);
    // At most 250 ms, or twice the disk's own longest gap.
    assert_eq!(outcome("stall/raw", &[250.0], &[10.0, 20.0]).verdict, Verdict::Met);
    assert_eq!(outcome("stall/raw", &[251.0], &[10.0, 20.0]).verdict, Verdict::Short);
    assert_eq!(outcome("stall/raw", &[100.0, 600.0], &[300.0, 20.0]).verdict, Verdict::Met);
    assert_eq!(outcome("stall/raw", &[100.0, 601.0], &[300.0, 20.0]).verdict, Verdict::Short);
}

#[test]
fn what_is_not_measured_is_not_met() {
    let missing = outcome("commit-16/rocksdb", &[100.0], &[]);
    assert_eq!((missing.verdict, missing.why.as_deref()), (Verdict::NotMeasured, Some("it broke")));
    let missing = outcome("update-cold/rocksdb", &[], &[1.0]);
    assert_eq!(missing.verdict, Verdict::NotMeasured, "also what is only reported");
    assert_eq!(outcome("commit-16/rocksdb", &[1.0], &[0.0]).verdict, Verdict::NotMeasured, "no ratio to nothing");
}

#[test]
fn one_short_goal_fails_the_run() {
    let met = outcome("commit-16/rocksdb", &[150.0], &[100.0]);
    let short = outcome("commit-16/rocksdb", &[1.0], &[100.0]);
    let reported = outcome("update-cold/rocksdb", &[1.0], &[100.0]);
    let missing = outcome("update-cold/rocksdb", &[], &[]);
    assert!(all_well(&[met.clone(), reported.clone()]));
    assert!(!all_well(&[met.clone(), short.clone()]) && !all_well(&[met.clone(), missing.clone()]) && !all_well(&[]));
    assert_eq!(tally(&[met, short, reported, missing]), (1, 2), "what is only reported is not counted");
}

#[test]
fn a_line_has_everything() {
    let line = outcome("commit-16/rocksdb", &[51_132.0], &[20_000.0]).line();
    for part in ["commit-16/rocksdb", "51,132", "20,000", "2.56", ">= 1.5x", "met"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(number(1_234_567.8), "1,234,568");
    assert_eq!((number(0.0123), number(12.345), number(345.6)), ("0.0123".into(), "12.35".into(), "346".into()));
}

#[test]
fn the_manual_lists_every_goal() {
    let named: BTreeSet<&str> = MANUAL.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for extent in [Extent::Full, Extent::Quick] {
        let plan = plan(extent);
        let goals = plan.groups.iter().flat_map(|group| &group.goals).map(|goal| goal.id.as_str());
        let all: BTreeSet<&str> = goals.chain(plan.curves.iter().map(|curve| curve.id.as_str())).collect();
        let missing: Vec<_> = all.difference(&named).collect();
        assert!(missing.is_empty(), "docs/goals.md lacks {missing:?}");
        let gone: Vec<_> = named.difference(&all).filter(|id| !id.starts_with("growth-")).collect();
        assert!(gone.is_empty(), "docs/goals.md has {gone:?}, which goals.toml lacks");
    }
}

#[test]
fn a_data_file_that_says_nonsense_is_refused() {
    let broken = |from: &str, to: &str| {
        assert!(GOALS.contains(from), "{from}");
        Plan::read(&GOALS.replacen(from, to, 1), Extent::Full, Overrides::default()).unwrap_err()
    };
    assert!(broken("workload = \"commit\"", "workload = \"comit\"").contains("comit"));
    assert!(broken("store = \"rocksdb\"", "store = \"rockdb\"").contains("rockdb"));
    assert!(broken("data = \"commit\"", "data = \"nowhere\"").contains("nowhere"));
    assert!(broken("workload = \"range-30000\"", "workload = \"range-x\"").contains("range-x"));
    assert!(broken("workload = \"random-read-32\"", "workload = \"random-read-x\"").contains("random-read-x"));
    assert!(broken("order = \"ordered\"\n", "").contains("order"));
    assert!(broken("at_least = 0.9", "at_lest = 0.9").contains("at_lest"));
    assert!(broken("at_least = 0.9", "at_least = 0.9, at_most = 1.0").contains("one of"));
    assert!(broken("durability = \"written\"", "durability = \"wrote\"").contains("wrote"));
    assert!(broken("id = \"mixed\"\ntext", "id = \"update-cold\"\ntext").contains("two goals"));
    assert!(Plan::read(GOALS, Extent::Full, Overrides { rounds: Some(0), seconds: None }).is_err());
}

#[test]
fn slow_disks_have_the_goals_of_the_plain_one() {
    let plan = plan(Extent::Full);
    let ids: Vec<&str> = plan.groups.iter().flat_map(|group| &group.goals).map(|goal| goal.id.as_str()).collect();
    for id in ["commit-1/raw", "commit-16/rocksdb", "commit-64/sqlite", "tpcc/rocksdb"] {
        for prefix in ["", "slow-flush-", "few-iops-"] {
            assert!(ids.contains(&format!("{prefix}{id}").as_str()), "{prefix}{id}");
        }
    }
    assert!(ids.contains(&"few-iops-point-read-cold/fio"));
    assert_eq!(goal_named("commit-16/rocksdb").threshold, goal_named("slow-flush-commit-16/rocksdb").threshold);
}

#[test]
fn goals_share_the_cells_they_can() {
    let plan = plan(Extent::Full);
    let commit = &plan.groups[0];
    let seawall = commit.cells().into_iter().filter(|cell| cell.store == "seawall").count();
    assert_eq!((commit.goals.len(), seawall), (9, 3), "1, 16 and 64 threads, each once");
    let restart = plan.groups.iter().find(|group| group.id == "restart").unwrap();
    assert_eq!(restart.cells().len(), 1, "the figure and its bound come from one cell");
    let stall = plan.groups.iter().find(|group| group.id == "stall").unwrap();
    assert_eq!(stall.around()[0].store, "raw");
}

#[test]
fn a_cell_becomes_a_command() {
    let goal = goal_named("slow-flush-commit-16/rocksdb");
    let theirs = goal.theirs.unwrap().cell;
    let words = theirs.arguments(Path::new("/d"), None).join(" ");
    for part in [
        "bench kv --json",
        "--workload commit",
        "--store rocksdb",
        "--threads 16",
        "--dir /d",
        "--reuse",
        "--flush-delay 8ms",
        "--duration 4000ms",
    ] {
        assert!(words.contains(part), "{part} in {words}");
    }
    let load = goal_named("load-random/lmdb").ours.cell;
    let words = load.arguments(Path::new("/d"), None).join(" ");
    assert!(
        load.preparation(Path::new("/d")).is_none() && !words.contains("--reuse") && words.contains("--memory-limit")
    );
    let wiredtiger = goal_named("load-random/wiredtiger").theirs.unwrap().cell;
    assert!(wiredtiger.memory_mib > load.memory_mib && load.memory_mib == Some(128 + 64 + 16));
    let folded = goal_named("commit-folded/lmdb").theirs.unwrap().cell;
    assert!(folded.arguments(Path::new("/d"), None).join(" ").contains("--fold 16"));
    assert_eq!(goal_named("commit-folded/lmdb").ours.cell.fold, 1);
    let read = goal_named("instructions-read/lmdb").ours.cell;
    let words = read.arguments(Path::new("/d"), Some(5)).join(" ");
    assert!(words.contains("--ops 5") && !words.contains("--duration") && words.contains("io_backend=sync"), "{words}");
    let restart = goal_named("restart/seawall").ours.cell;
    assert_eq!(restart.tool, Tool::Restart);
    assert!(restart.arguments(Path::new("/d"), None).join(" ").starts_with("bench restart --json --log 1024M"));
}

#[test]
fn what_only_seawall_is_asked_becomes_a_command() {
    let build = goal_named("build-tree/put-many");
    let words = |cell: &Cell| cell.arguments(Path::new("/d"), None).join(" ");
    let [ours, theirs] = [build.ours.cell, build.theirs.unwrap().cell];
    for (cell, task) in [(&ours, "build-tree"), (&theirs, "put-many")] {
        let text = words(cell);
        assert!(text.starts_with(&format!("bench bulk --json --task {task} --keys 1000000")), "{text}");
        assert!(cell.loads() && cell.preparation(Path::new("/d")).is_none(), "made anew each time");
    }
    let index = goal_named("index-beside/alone");
    assert_eq!(index.ours.cell, index.theirs.unwrap().cell, "both rates are of one run");
    assert!(words(&index.ours.cell).contains("--threads 16"));
    let probe = goal_named("instructions-probe").ours.cell;
    assert_eq!((probe.tool, words(&probe)), (Tool::Instructions, "count probe".into()));
}

/// The counting example, whose operation kinds are also named here.
#[test]
fn kinds_of_operations_are_those_of_the_example() {
    let example = include_str!("../../../seawall/examples/instructions.rs");
    let kinds = example.split_once("const KINDS").unwrap().1.split_once("];").unwrap().0;
    let named: Vec<&str> =
        kinds.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split('"').next()).collect();
    assert_eq!(named, super::cell::KINDS);
}

#[test]
fn a_scan_becomes_a_command_and_fio_reads_the_same_file() {
    let words = |cell: &Cell| cell.arguments(Path::new("/d"), None).join(" ");
    let goal = goal_named("scan-fragmented-16/fio");
    let text = words(&goal.ours.cell);
    for part in
        ["bench scan --json", "--tree fragmented", "--rows-per-range 30000", "--threads 16", "--no-fio", "--reuse"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let fio = goal.theirs.unwrap().cell;
    assert_eq!((fio.data(), fio.threads, fio.memory_mib), (goal.ours.cell.data(), 1, None));
    let made = [&fio, &goal.ours.cell].map(|cell| cell.preparation(Path::new("/d")).unwrap().join(" "));
    assert!(made.iter().all(|made| made.contains("--store seawall") && made.contains("--load-only")), "{made:?}");
    let read = fio.fio_arguments(Path::new("/d/data")).join(" ");
    assert!(read.contains("--iodepth=32") && read.contains("--readonly") && !read.contains("--size"), "{read}");
    let beside = goal_named("scan-points/alone");
    let [both, alone] = [beside.ours.cell, beside.theirs.unwrap().cell].map(|cell| words(&cell));
    assert!(both.contains("--threads 1 --point-readers 4 --rows-per-range 30000"), "{both}");
    assert!(alone.contains("--threads 0 --point-readers 4"), "{alone}");
    let gets = goal_named("multi-get-queries/gets").theirs.unwrap().cell;
    assert!(words(&gets).contains("--gets 100") && !words(&gets).contains("--multi-get"));
    let without = goal_named("scan-short/no-prefetch").theirs.unwrap().cell;
    assert!(words(&without).contains("--set prefetch_depth=0") && without.store == "seawall");
    let plan = plan(Extent::Full);
    let ids: Vec<&str> = plan.groups.iter().flat_map(|group| &group.goals).map(|goal| goal.id.as_str()).collect();
    assert!(ids.contains(&"few-iops-scan-fragmented-1/fio") && ids.contains(&"slow-flush-scan-ordered/fio"));
    assert!(!ids.iter().any(|id| id.starts_with("few-iops-scan-short")), "only what holds on a limited disk");
}

#[test]
fn another_figure_can_meet_a_goal() {
    let goal = goal_named("scan-ordered/fio");
    let held = |ours: f64, rows: &[f64]| {
        evaluate(&goal, |source| {
            let values = match source.figure.as_str() {
                "cpu_bound_rows_per_s" => rows.to_vec(),
                _ if *source == goal.ours => vec![ours],
                _ => vec![1000.0],
            };
            Figures { values, disturbed: false, why: None }
        })
        .verdict
    };
    assert_eq!((held(850.0, &[]), held(849.0, &[])), (Verdict::Met, Verdict::Short));
    assert_eq!((held(500.0, &[4e6]), held(500.0, &[3.9e6])), (Verdict::Met, Verdict::Short));
}

fn record(cell: &Cell, turn: &str, ops_per_s: f64) -> Record {
    let figures = [("ops_per_s".to_owned(), ops_per_s)].into();
    let measured = Measured { figures, version: "v1".into(), ..Measured::default() };
    Record { cell: cell.clone(), turn: turn.into(), measured: Some(measured), error: None, attempts: 1 }
}

#[test]
fn records_are_of_a_group_and_of_a_binary() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cells.json");
    let cell = goal_named("commit-16/rocksdb").ours.cell;
    let source = Source { cell: cell.clone(), figure: "ops_per_s".into() };
    let mut records = Records { binary: "a".into(), records: Vec::new() };
    assert_eq!(records.resume(&file), Ok(0));
    records.records.push(record(&cell, "commit 0", 5.0));
    records.records.push(record(&cell, "commit 1", 7.0));
    records.records.push(record(&cell, "commit-more 0", 9.0));
    records.records.push(Record { measured: None, error: Some("why".into()), ..record(&cell, "commit 2", 0.0) });
    assert_eq!(records.figures("commit", &source).values, [5.0, 7.0]);
    assert_eq!(records.figures("commit", &source).why.as_deref(), Some("why"));
    std::fs::write(&file, serde_json::to_string(&records).unwrap()).unwrap();
    let mut again = Records { binary: "a".into(), records: Vec::new() };
    assert_eq!(again.resume(&file), Ok(3), "what failed is measured again");
    let mut other = Records { binary: "b".into(), records: Vec::new() };
    assert!(other.resume(&file).unwrap_err().contains("another binary"));
    std::fs::write(&file, "{").unwrap();
    assert!(again.resume(&file).unwrap_err().contains("cells.json"));
}

#[test]
fn a_report_has_goals_curves_and_settings() {
    let plan = plan(Extent::Full);
    let curve = &plan.curves[0];
    let mut records = Records::default();
    records.records.push(record(&curve.points[0].1, &format!("{} 0", curve.id), 4321.0));
    let outcomes = [outcome("commit-16/rocksdb", &[150.0], &[100.0]), outcome("commit-16/lmdb", &[1.0], &[])];
    let report = Report::new("make goals".into(), &plan, &outcomes, &records);
    let text = report.to_markdown();
    for part in ["1 of 2 goals met", "| commit-16/rocksdb |", "**not measured**", "4,321", "| seawall | v1 |"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["goals"][0]["verdict"], "met");
    assert_eq!(json["curves"][0]["points"][0]["ops_per_s"], 4321.0);
}

#[test]
fn what_is_not_wanted_is_not_measured() {
    let mut plan = plan(Extent::Quick);
    plan.retain(|id| id.starts_with("few-iops-tpcc"));
    assert_eq!((plan.groups.len(), plan.groups[0].goals.len(), plan.curves.len()), (1, 1, 0));
    assert_eq!(plan.groups[0].disk, DiskKind::FewIops);
    assert!(matches!(plan.groups[0].goals[0].threshold, Threshold::AtLeast(least) if least == 1.5));
}
