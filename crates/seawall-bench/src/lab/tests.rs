//! Small real runs of the lab's engine experiments; and the engine accepts the settings that the lab writes.

use super::EngineCells;
use seawall::{Database, Options};
use seawall_lab::cell::{Access, Ahead, Experiment, KeyOrder, Level, Origin, Pattern};
use seawall_lab::results::Results;
use seawall_lab::run::files_below;
use seawall_lab::run::{Engine, EngineSizes, EngineWork, FILE_BYTES_MIN, Lab, LabError, LabOptions, Silent};
use seawall_lab::{plan, report, sample, settings, table};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A directory on the disk of the checkout: `/tmp` is often memory.
fn disk() -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    if target.is_dir() { tempfile::tempdir_in(target) } else { tempfile::tempdir() }.unwrap()
}

fn options(dir: &Path, only: &[Experiment]) -> LabOptions {
    LabOptions {
        only: only.into(),
        file_bytes: FILE_BYTES_MIN,
        round: Duration::from_millis(20),
        rounds: 1,
        reserve_bytes: 1 << 20,
        force: true,
        ..LabOptions::new(dir)
    }
}

fn ran(options: LabOptions) -> Results {
    let dir = options.path.clone();
    let planned = options.plan().len();
    let lab = Lab::new(options).unwrap();
    let results = lab.run_with(Some(&mut EngineCells::default()), &mut Silent, &AtomicBool::new(false)).unwrap();
    assert_eq!(results.cells.len() + results.skipped.len(), planned);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "nothing is left");
    assert!(results.complete);
    results
}

#[test]
fn commit_levels_run_and_say_what_they_issued() {
    let dir = disk();
    let results = ran(options(dir.path(), &[Experiment::CommitLevels]));
    for cell in results.cells_of(Experiment::CommitLevels) {
        let shape = cell.spec.engine.unwrap();
        let (operations, syncs) = (cell.operations(), cell.rounds[0].syncs_issued);
        assert!(operations > 0, "{}", cell.id);
        match (cell.spec.pattern, shape.level.unwrap()) {
            (Pattern::ReadOnly, _) => assert!(cell.rounds[0].writes_issued * 100 < operations, "{}", cell.id),
            (_, Level::Flushed) => assert!(syncs > 0, "{}: {operations} commits and nothing flushed", cell.id),
            _ => {}
        }
    }
    let text = table::table(&results);
    assert!(text.contains("over 40%") && text.contains("not measured") && text.contains("may lose"), "{text}");
    assert!(report::html(&results).contains("What a level gains over level 1"));
}

#[test]
fn range_queries_run_cold_and_are_held_against_the_disk() {
    let dir = disk();
    let results = ran(LabOptions { full: true, ..options(dir.path(), &[Experiment::RangePrefetch]) });
    assert!(results.cell(&plan::random_read(32)).is_some(), "the baseline comes along");
    for cell in results.cells_of(Experiment::RangePrefetch) {
        assert!(cell.operations() > 0, "{}", cell.id);
        let reads = cell.rounds[0].device.map(|d| d.reads);
        assert_ne!(reads, Some(0), "{}: answered without the disk", cell.id);
    }
    let adaptive = plan::range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, 1);
    assert!(results.cell(&adaptive).is_some());
    let text = table::table(&results);
    assert!(text.contains("of disk") && text.contains("pages/s"), "{text}");
}

#[test]
fn the_engine_runs_under_both_settings() {
    let dir = disk();
    let results = ran(options(dir.path(), &[Experiment::Settings]));
    for origin in [Origin::Default, Origin::Recommended] {
        for load in [Pattern::Update, Pattern::RangeQuery] {
            assert!(results.cell(&plan::under_settings(load, origin)).unwrap().operations() > 0);
        }
    }
    assert!(results.engine.unwrap().seawall_toml.contains("flush_method"));
}

/// The engine reads what the lab writes: through its own reader, from a database's directory, each value in
/// effect.
#[test]
fn the_engine_takes_the_settings_that_the_lab_writes() {
    for results in [sample::of_plan(&plan::decisive()), sample::of_plan(&plan::full()), sample::results(vec![])] {
        let advice = settings::recommend(&results);
        let text = advice.to_toml();
        let mut options = Options::default();
        options.merge_toml(&text, "seawall.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
        let dir = tempfile::tempdir().unwrap();
        let db_dir = dir.path().join("db");
        std::fs::create_dir(&db_dir).unwrap();
        std::fs::write(db_dir.join("seawall.toml"), &text).unwrap();
        let db = Database::open_with(&db_dir, Options::default().with_pool_size(8 << 20)).unwrap();
        for setting in &advice.seawall {
            let mut wanted = Options::default();
            wanted.set(&setting.key, &setting.default).unwrap();
            let default = Options::default().get(&setting.key).unwrap();
            assert_eq!(wanted.get(&setting.key).unwrap(), default, "the lab's idea of {}'s default", setting.key);
            wanted.set(&setting.key, &setting.value).unwrap();
            assert_eq!(db.options().get(&setting.key).unwrap(), wanted.get(&setting.key).unwrap(), "{}", setting.key);
        }
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn without_an_engine_its_cells_are_left_out_and_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let lab = Lab::new(options(dir.path(), &[Experiment::RangePrefetch])).unwrap();
    let results = lab.run(&mut Silent, &AtomicBool::new(false)).unwrap();
    assert_eq!(results.cells.len(), 2, "the disk's own reads");
    assert!(results.skipped.len() == 24 && results.skipped.iter().all(|s| s.reason.contains("without the engine")));
}

#[test]
fn ctrl_c_while_databases_are_made_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let specs = [plan::under_settings(Pattern::RangeQuery, Origin::Default)];
    let stop = AtomicBool::new(true);
    let sizes = EngineSizes::of(FILE_BYTES_MIN);
    let work = EngineWork { dir: dir.path(), specs: &specs, sizes, seed: 1, seawall_toml: "", stop: &stop };
    let error = EngineCells::default().make(&work, &mut Silent).unwrap_err();
    assert!(matches!(error, LabError::Interrupted));
}

/// The space checked before the run is enough for the files created.
#[test]
fn databases_stay_below_the_space_that_was_checked() {
    let dir = tempfile::tempdir().unwrap();
    let specs = plan::full();
    let sizes = EngineSizes::of(FILE_BYTES_MIN);
    let stop = AtomicBool::new(false);
    let work = EngineWork { dir: dir.path(), specs: &specs, sizes, seed: 1, seawall_toml: "", stop: &stop };
    EngineCells::default().make(&work, &mut Silent).unwrap();
    let sum: u64 = files_below(dir.path()).iter().map(|file| file.metadata().map_or(0, |m| m.len())).sum();
    assert!(sum < sizes.disk_bytes(), "{} MiB of {}", sum >> 20, sizes.disk_bytes() >> 20);
}
