//! The evaluation, from fixed figures; the plan of the data file; records and the report.

use super::evaluate::{Figures, Outcome, Verdict, all_well, evaluate, tally};
use super::plan::{Cell, DiskKind, Extent, GOALS, Goal, Overrides, Plan, Source, Threshold, Tool};
use super::records::{DIR, Record, Records};
use super::report::Report;
use super::run::turns;
use seawall_lab::stats::median;
use serde_json::json;

fn plan(extent: Extent) -> Plan {
    Plan::read(GOALS, extent, &Overrides::default())
}

fn goal_named(id: &str) -> Goal {
    plan(Extent::Full).groups.into_iter().flat_map(|group| group.goals).find(|goal| goal.id == id).unwrap()
}

fn command(cell: &Cell) -> String {
    cell.command.join(" ")
}

fn outcome(id: &str, ours: &[f64], theirs: &[f64]) -> Outcome {
    let goal = goal_named(id);
    evaluate(&goal, |source| {
        let values = if *source == goal.ours { ours } else { theirs };
        Figures { values: values.to_vec(), failed: values.is_empty().then(|| "it broke".into()), ..Figures::default() }
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
    assert_eq!(
        outcome("scan-fragmented-queries/lmdb", &[100.0], &[100.0]).verdict,
        Verdict::Short,
        "faster is more than"
    );
    assert_eq!(outcome("scan-fragmented-queries/lmdb", &[100.1], &[100.0]).verdict, Verdict::Met);
    assert_eq!(outcome("instructions-read/rocksdb", &[50.0], &[100.0]).verdict, Verdict::Met);
    assert_eq!(outcome("instructions-read/rocksdb", &[51.0], &[100.0]).verdict, Verdict::Short);
    assert_eq!(outcome("update-cold/fjall", &[1.0], &[100.0]).verdict, Verdict::Reported);
    // Without slack.
    assert_eq!(outcome("restart/seawall", &[3.0], &[2.0]).verdict, Verdict::Met);
    assert_eq!(outcome("restart/seawall", &[3.1], &[2.0]).verdict, Verdict::Short);
    // At most 250 ms, or twice the disk's own longest gap.
    assert_eq!(outcome("stall/raw", &[250.0], &[10.0, 20.0]).verdict, Verdict::Met);
    assert_eq!(outcome("stall/raw", &[251.0], &[10.0, 20.0]).verdict, Verdict::Short);
    assert_eq!(outcome("stall/raw", &[100.0, 601.0], &[300.0, 20.0]).verdict, Verdict::Short);
}

#[test]
fn memory_of_the_bookkeeping_is_what_grows_beyond_the_pool() {
    let goal = goal_named("memory-metadata");
    let held = |beyond: f64| {
        evaluate(&goal, |source| {
            let pool = if source.cell == goal.ours.cell { 1000.0 } else { 200.0 };
            let rss = 77.0 + pool * (1.0 + beyond);
            Figures { values: vec![if source.figure == "pool_bytes" { pool } else { rss }], ..Figures::default() }
        })
    };
    assert_eq!((held(0.0099).verdict, held(0.0101).verdict), (Verdict::Met, Verdict::Short));
    assert!((held(0.005).ratio.unwrap() - 0.005).abs() < 1e-9);
}

#[test]
fn what_is_not_measured_is_not_met_and_what_is_not_offered_does_not_count() {
    let missing = outcome("commit-16/rocksdb", &[100.0], &[]);
    assert_eq!((missing.verdict, missing.why.as_deref()), (Verdict::NotMeasured, Some("it broke")));
    let missing = outcome("update-cold/fjall", &[], &[1.0]);
    assert_eq!(missing.verdict, Verdict::NotMeasured, "also what is only reported");
    assert_eq!(outcome("commit-16/rocksdb", &[1.0], &[0.0]).verdict, Verdict::NotMeasured, "no ratio to nothing");
    let goal = goal_named("commit-16/rocksdb");
    for failing in [true, false] {
        let some = evaluate(&goal, |source| Figures {
            values: vec![if *source == goal.ours { 200.0 } else { 100.0 }],
            failed: ((*source == goal.ours) == failing).then(|| "a round broke".into()),
            ..Figures::default()
        });
        assert_eq!((some.verdict, some.why.as_deref()), (Verdict::NotMeasured, Some("a round broke")));
    }
    let goal = goal_named("commit-16/redb");
    let lacks = crate::Error::Unsupported { store: "redb", what: "such commits" }.to_string();
    let lacks = evaluate(&goal, |source| {
        let ours = *source == goal.ours;
        Figures {
            values: if ours { vec![1.0] } else { vec![] },
            failed: (!ours).then(|| lacks.clone()),
            ..Figures::default()
        }
    });
    assert_eq!(lacks.verdict, Verdict::NotOffered);
    assert_eq!((tally(std::slice::from_ref(&lacks)), all_well(&[lacks])), ((0, 0), true));
}

#[test]
fn one_short_goal_fails_the_run() {
    let met = outcome("commit-16/rocksdb", &[150.0], &[100.0]);
    let short = outcome("commit-16/rocksdb", &[1.0], &[100.0]);
    let reported = outcome("update-cold/fjall", &[1.0], &[100.0]);
    let missing = outcome("update-cold/fjall", &[], &[]);
    assert!(all_well(&[met.clone(), reported.clone()]));
    assert!(!all_well(&[met.clone(), short.clone()]) && !all_well(&[met.clone(), missing.clone()]) && !all_well(&[]));
    assert_eq!(tally(&[met, short, reported, missing]), (1, 2), "what is only reported is not counted");
}

#[test]
fn another_figure_can_meet_a_goal() {
    let goal = goal_named("scan-ordered/fio");
    let held = |ours: f64, rows: &[f64]| {
        evaluate(&goal, |source| {
            let values = match source.figure.as_str() {
                "cpu_bound_rows_per_s" => rows.to_vec(),
                _ if *source == goal.ours => vec![ours; 3],
                _ => vec![1000.0],
            };
            Figures { values, ..Figures::default() }
        })
        .verdict
    };
    assert_eq!((held(850.0, &[]), held(849.0, &[])), (Verdict::Met, Verdict::Short));
    assert_eq!((held(500.0, &[4e6; 3]), held(500.0, &[3.9e6; 3])), (Verdict::Met, Verdict::Short));
    // Only one of three rounds was at the processor's limit.
    assert_eq!((held(500.0, &[4e6; 2]), held(500.0, &[4e6])), (Verdict::Met, Verdict::Short));
}

#[test]
fn a_line_has_everything() {
    let line = outcome("commit-16/rocksdb", &[51_132.0], &[20_000.0]).line();
    for part in ["commit-16/rocksdb", "51,132", "20,000", "2.56", ">= 1.5x", "met"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_data_file_that_says_nonsense_is_refused() {
    let broken = |from: &str, to: &str| {
        assert!(GOALS.contains(from), "{from}");
        let read = || Plan::read(&GOALS.replacen(from, to, 1), Extent::Full, &Overrides::default());
        let panic = std::panic::catch_unwind(read).unwrap_err();
        panic.downcast::<String>().map(|why| *why).unwrap()
    };
    assert!(broken("data = \"commit\"", "data = \"nowhere\"").contains("nowhere"));
    assert!(broken("window = \"read\"", "window = \"red\"").contains("slow-write"));
    assert!(broken("at_least = 0.9", "at_lest = 0.9").contains("at_lest"));
    assert!(broken("at_least = 0.9", "at_least = 0.9, at_most = 1.0").contains("at_most"));
    assert!(broken(", must = { at_least = 0.9 }", "").contains("must"));
    assert!(broken("store = \"raw\"", "store = \"raw\", fio = \"--rw=read\"").contains("store and fio"));
    assert!(broken("id = \"mixed\"\ntext", "id = \"update-cold\"\ntext").contains("two goals"));
}

#[test]
fn goals_are_there_on_every_disk_and_share_the_cells_they_can() {
    let plan = plan(Extent::Full);
    let ids: Vec<&str> = plan.groups.iter().flat_map(|group| &group.goals).map(|goal| goal.id.as_str()).collect();
    for id in ["commit-1/raw", "commit-16/rocksdb", "commit-64/fjall", "tpcc/rocksdb"] {
        for prefix in ["", "slow-flush-", "few-iops-"] {
            assert!(ids.contains(&format!("{prefix}{id}").as_str()), "{prefix}{id}");
        }
    }
    for id in [
        "few-iops-point-read-cold/fio",
        "slow-flush-scan-ordered/fio",
        "short-range/lmdb",
        "load-sequential/redb",
        "pop-first",
        "build-tree/put-many",
        "index-beside/alone",
        "commit-beside-backup/alone",
        "memory-metadata",
        "growth-update-16x-64/rocksdb",
    ] {
        assert!(ids.contains(&id), "{id}");
    }
    assert!(!ids.iter().any(|id| id.starts_with("few-iops-scan-short")), "only what holds on a limited disk");
    let commit = plan.groups.iter().find(|group| group.id == "commit").unwrap();
    let seawall = commit.cells().into_iter().filter(|cell| cell.store == "seawall").count();
    assert_eq!((commit.goals.len(), seawall), (9, 2), "16 and 64 threads, each once");
    for id in ["index-beside/alone", "restart/seawall"] {
        let goal = goal_named(id);
        assert_eq!(goal.ours.cell, goal.theirs.unwrap().cell, "both figures are of one run");
    }
    let stall = plan.groups.iter().find(|group| group.id == "stall").unwrap();
    let turns: Vec<_> = turns(1, stall).into_iter().map(|(turn, cell)| (turn, cell.store)).collect();
    assert_eq!((turns[0].0.as_str(), turns[0].1.as_str()), ("0 before", "raw"));
    assert_eq!(turns.last().map(|(turn, store)| (turn.as_str(), store.as_str())), Some(("0 after", "raw")));
    let mut few = plan.clone();
    few.retain(|id| id.starts_with("few-iops-tpcc/rocksdb"));
    assert_eq!((few.groups.len(), few.groups[0].goals.len()), (1, 1));
    assert!(matches!(few.groups[0].goals[0].threshold, Threshold::AtLeast(least) if least == 1.5));
}

#[test]
fn a_cell_becomes_a_command() {
    let goal = goal_named("slow-flush-commit-16/rocksdb");
    let theirs = goal.theirs.unwrap().cell;
    for part in
        ["bench kv --workload commit --threads 16 --keys 200000", "--store rocksdb", "--reuse", "--flush-delay 8ms"]
    {
        assert!(command(&theirs).contains(part), "{part} in {}", command(&theirs));
    }
    assert!(!command(&theirs).contains("--steady"), "charged on slow disks");
    assert!(command(&goal_named("commit-16/rocksdb").ours.cell).contains("--duration 20s --warm-up 2s --steady"));
    let load = goal_named("load-random/lmdb").ours.cell;
    assert!(load.prepare.is_empty() && !command(&load).contains("--reuse"));
    assert!(command(&load).contains("--memory-limit 208M"));
    let batched = goal_named("commit-client-batch/lmdb");
    assert!(command(&batched.theirs.unwrap().cell).contains("--client-batch 16"));
    assert!(!command(&batched.ours.cell).contains("--client-batch"));
    assert_eq!(goal_named("instructions-read/lmdb").ours.cell.tool, Tool::Callgrind);
    let probe = goal_named("instructions-probe").ours.cell;
    assert_eq!((probe.tool, command(&probe)), (Tool::Instructions, "count probe".into()));
    let raw = goal_named("stall/raw").theirs.unwrap().cell;
    assert!(
        command(&raw).ends_with("--duration 40s --json --reuse") && raw.disk == DiskKind::Plain,
        "{}",
        command(&raw)
    );
    let goal = goal_named("scan-fragmented-16/fio");
    let fio = goal.theirs.unwrap().cell;
    assert_eq!((&fio.rows, &fio.prepare), (&goal.ours.cell.rows, &goal.ours.cell.prepare), "it reads the same file");
    assert!(command(&fio).contains("--iodepth=32 --runtime=4s --ramp_time=1s"), "{}", command(&fio));
    assert!(command(&goal.ours.cell).contains("--no-fio") && fio.prepare.contains(&"--load-only".to_owned()));
    let overrides = Overrides { rounds: Some(2), window: vec!["--duration".into(), "9s".into()] };
    let plan = Plan::read(GOALS, Extent::Quick, &overrides);
    assert!(plan.groups.iter().all(|group| group.rounds == 2));
    assert!(command(&plan.groups[0].goals[0].ours.cell).contains("--duration 9s --json"));
}

/// The counting example, whose operations are also named in the data file.
#[test]
fn kinds_of_operations_are_those_of_the_example() {
    let example = include_str!("../../../seawall/examples/instructions.rs");
    let kinds = example.split_once("const KINDS").unwrap().1.split_once("];").unwrap().0;
    let cells = plan(Extent::Full).groups.into_iter().flat_map(|group| group.cells());
    for cell in cells.filter(|cell| cell.tool == Tool::Instructions) {
        assert!(kinds.contains(&format!("(\"{}\"", cell.command[1])), "{:?}", cell.command);
    }
}

fn record(cell: &Cell, group: &str, turn: &str, result: Option<serde_json::Value>) -> Record {
    let error = result.is_none().then(|| "why".to_owned());
    let (cell, group, turn) = (cell.clone(), group.into(), turn.into());
    Record { binary: String::new(), cell, group, turn, result, error, attempts: 1 }
}

#[test]
fn records_are_files_of_a_group_and_of_a_binary() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["a", "b"].map(|name| {
        let path = dir.path().join(name);
        std::fs::write(&path, name).unwrap();
        path
    });
    let out = dir.path().join("out");
    let cell = goal_named("commit-16/rocksdb").ours.cell;
    let source = Source { cell: cell.clone(), figure: "ops_per_s".into() };
    let mut records = Records::open(&out, &one, true).unwrap();
    for (group, turn, rate) in [("commit", "0", 5.0), ("commit", "1", 7.0), ("commit-more", "0", 9.0)] {
        let result =
            json!({ "ops_per_s": rate, "foreign_cpu_cores": 0.2, "pool_bytes": 1 << 20, "rss_peak_bytes": 3 << 20 });
        records.add(record(&cell, group, turn, Some(result))).unwrap();
    }
    records.add(record(&cell, "commit", "2", None)).unwrap();
    let figures = records.figures("commit", &source);
    assert_eq!((figures.values, figures.disturbed, figures.failed.as_deref()), (vec![5.0, 7.0], true, Some("why")));
    assert_eq!(records.all[0].figure("rss_beside_pool_mib"), Some(2.0));
    assert_eq!(records.all[0].figure("device_reads_per_s"), None, "unknown is not zero");
    let again = Records::open(&out, &one, true).unwrap();
    assert_eq!(again.all.len(), 3, "what failed is measured again");
    assert!(again.has("commit", "1", &cell) && !again.has("commit", "2", &cell));
    assert!(Records::open(&out, &other, true).unwrap_err().contains("another binary"));
    assert!(Records::open(&out, &other, false).unwrap().all.is_empty());
    assert!(Records::open(&out, &one, true).unwrap().all.is_empty(), "a new run has removed them");
    let cell = goal_named("commit-16/rocksdb").ours.cell;
    let again = Records::open(&out, &one, false).unwrap().add(record(&cell, "commit", "0", Some(json!({}))));
    again.unwrap();
    let foreign = out.join(DIR).join("diary.txt");
    std::fs::write(&foreign, "not a record").unwrap();
    assert!(Records::open(&out, &one, false).unwrap_err().contains("diary.txt is not a measured cell"));
    std::fs::remove_file(&foreign).unwrap();
    assert_eq!(Records::open(&out, &one, true).unwrap().all.len(), 1, "nothing is removed before it is refused");
}

#[test]
fn a_report_has_goals_and_settings() {
    let dir = tempfile::tempdir().unwrap();
    let exe = dir.path().join("exe");
    std::fs::write(&exe, "x").unwrap();
    let mut records = Records::open(dir.path(), &exe, false).unwrap();
    let cell = goal_named("commit-16/rocksdb").ours.cell;
    let result = json!({
        "version": "v1", "commit": "c0ffee", "machine": { "cpus": 2 }, "disk": "vda, ext4",
        "settings": { "pool_size": "1G" },
        "ops_per_s": 4321.0,
    });
    records.add(record(&cell, "commit", "0", Some(result))).unwrap();
    let outcomes = [outcome("commit-16/rocksdb", &[150.0], &[100.0]), outcome("commit-16/lmdb", &[1.0], &[])];
    let report = Report::new("make goals".into(), &plan(Extent::Full), &outcomes, &records);
    let text = report.to_markdown();
    for part in [
        "commit c0ffee: 1 of 2 goals met",
        "Machine: cpus 2, disk vda, ext4.",
        "| commit-16/rocksdb |",
        "**not measured**",
        "| seawall | v1 | pool_size 1G |",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["goals"][0]["verdict"], "met");
}
