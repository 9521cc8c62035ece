//! While nothing crashes, the disk is a map from names to byte vectors; and the same seed is the same run.

mod common;

use common::*;
use proptest::prelude::*;
use seawall_io::{Allocate, Disk as _, OpenHow, SyncHow, WriteHow};
use seawall_sim::{Fault, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone)]
enum Step {
    Write { file: usize, offset: u64, len: usize, fill: u8, how: usize },
    Submit { file: usize, offset: u64, len: usize, fill: u8 },
    Read { file: usize, offset: u64, len: usize, direct: bool },
    SetLen { file: usize, len: u64 },
    Allocate { file: usize, how: usize, offset: u64, len: u64 },
    Sync { file: usize, all: bool },
    DropCache { file: usize },
    Rename { from: usize, to: usize },
    Remove { file: usize },
    SyncDir,
}

fn step() -> impl Strategy<Value = Step> {
    let (file, to) = (0..3usize, 0..3usize);
    let range = (0..20_000u64, 1..9_000usize);
    prop_oneof![
        4 => (file.clone(), range.clone(), 1..255u8, 0..5usize)
            .prop_map(|(file, (offset, len), fill, how)| Step::Write { file, offset, len, fill, how }),
        2 => (file.clone(), range.clone(), 1..255u8)
            .prop_map(|(file, (offset, len), fill)| Step::Submit { file, offset, len, fill }),
        3 => (file.clone(), range, any::<bool>())
            .prop_map(|(file, (offset, len), direct)| Step::Read { file, offset, len, direct }),
        1 => (file.clone(), 0..30_000u64).prop_map(|(file, len)| Step::SetLen { file, len }),
        1 => (file.clone(), 0..3usize, 0..20_000u64, 1..9_000u64)
            .prop_map(|(file, how, offset, len)| Step::Allocate { file, how, offset, len }),
        2 => (file.clone(), any::<bool>()).prop_map(|(file, all)| Step::Sync { file, all }),
        1 => file.clone().prop_map(|file| Step::DropCache { file }),
        1 => (file.clone(), to).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => file.prop_map(|file| Step::Remove { file }),
        1 => Just(Step::SyncDir),
    ]
}

fn put(content: &mut Vec<u8>, offset: u64, len: usize, fill: u8) {
    let end = offset as usize + len;
    content.resize(content.len().max(end), 0);
    content[offset as usize..end].fill(fill);
}

fn name(file: usize) -> PathBuf {
    format!("/db/{file}").into()
}

/// Runs the steps on disk and model, comparing all the way.
fn run(disk: &SimDisk, steps: &[Step]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut model: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for step in steps {
        let handle = |file: usize, how: OpenHow| open(disk, name(file).to_str().unwrap(), how);
        match *step {
            Step::Write { file, offset, len, fill, how } => {
                let (direct, dsync, dontcache) = (how == 1 || how == 2, how == 2 || how == 3, how == 4);
                let unit = if direct { 512 } else { 1 };
                let (offset, len) = (offset / unit * unit, len.next_multiple_of(unit as usize));
                let handle = handle(file, OpenHow { direct, ..RW });
                write(disk, &handle, offset, &vec![fill; len], WriteHow { dsync, dontcache, ..PLAIN });
                put(model.entry(name(file)).or_default(), offset, len, fill);
            }
            Step::Submit { file, offset, len, fill } => {
                let handle = handle(file, RW);
                let ticket = disk.submit(vec![write_request(&handle, offset, &vec![fill; len], PLAIN)]).remove(0);
                disk.wait(&ticket).result.unwrap();
                put(model.entry(name(file)).or_default(), offset, len, fill);
            }
            Step::Read { file, offset, len, direct } => {
                let unit = if direct { 512 } else { 1 };
                let (offset, len) = (offset / unit * unit, len.next_multiple_of(unit as usize));
                let found = read(disk, &handle(file, OpenHow { direct, ..RW }), offset, len);
                let content = model.entry(name(file)).or_default();
                let start = content.len().min(offset as usize);
                assert_eq!(found, content[start..content.len().min(start + len)]);
            }
            Step::SetLen { file, len } => {
                disk.set_len(&handle(file, RW), len).unwrap();
                model.entry(name(file)).or_default().resize(len as usize, 0);
            }
            Step::Allocate { file, how, offset, len } => {
                let ways = [Allocate::Unwritten, Allocate::KeepSize, Allocate::WriteZeroes];
                disk.allocate(&handle(file, RW), ways[how], offset, len).unwrap();
                let content = model.entry(name(file)).or_default();
                match ways[how] {
                    Allocate::KeepSize => {}
                    Allocate::Unwritten => content.resize(content.len().max((offset + len) as usize), 0),
                    Allocate::WriteZeroes => put(content, offset, len as usize, 0),
                }
            }
            Step::Sync { file, all } => {
                let handle = handle(file, RW);
                disk.sync(&handle, if all { SyncHow::All } else { SyncHow::Data }).unwrap();
                model.entry(name(file)).or_default();
            }
            Step::DropCache { file } => {
                disk.drop_cache(&handle(file, RW), 0, 0).unwrap();
                model.entry(name(file)).or_default();
            }
            Step::Rename { from, to } => {
                let renamed = disk.rename(&name(from), &name(to)).is_ok();
                assert_eq!(renamed, model.contains_key(&name(from)));
                if let Some(content) = model.remove(&name(from)) {
                    model.insert(name(to), content);
                }
            }
            Step::Remove { file } => {
                assert_eq!(disk.remove(&name(file)).is_ok(), model.remove(&name(file)).is_some());
            }
            Step::SyncDir => sync_dir(disk, "/db"),
        }
        assert_eq!(disk.list("/db".as_ref()).unwrap(), model.keys().cloned().collect::<Vec<_>>());
    }
    for (path, content) in &model {
        assert_eq!(disk.seen(path).as_ref(), Some(content));
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_crashes_the_disk_is_a_map_of_vectors(seed: u64, steps in prop::collection::vec(step(), 1..40)) {
        let disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        let model = run(&disk, &steps);
        // A process crash changes nothing that was complete, and a power cut leaves exactly what was synced.
        disk.process_crash();
        for path in model.keys() {
            let file = disk.open(path, RW).unwrap();
            disk.sync(&file, SyncHow::All).unwrap();
        }
        sync_dir(&disk, "/db");
        disk.power_cut();
        prop_assert_eq!(disk.list("/db".as_ref()).unwrap(), model.keys().cloned().collect::<Vec<_>>());
        for (path, content) in &model {
            prop_assert_eq!(disk.seen(path), Some(content.clone()));
        }
    }

    #[test]
    fn nothing_appears_that_was_never_written(seed: u64, steps in prop::collection::vec(step(), 1..40)) {
        let disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        run(&disk, &steps);
        let mut fills: Vec<u8> = vec![0];
        fills.extend(steps.iter().filter_map(|step| match step {
            Step::Write { fill, .. } | Step::Submit { fill, .. } => Some(*fill),
            _ => None,
        }));
        for seed in 0..4 {
            let crashed = disk.fork(seed);
            crashed.power_cut();
            for path in crashed.list("/db".as_ref()).unwrap() {
                prop_assert!(crashed.seen(path).unwrap().iter().all(|byte| fills.contains(byte)));
            }
        }
    }

    #[test]
    fn the_same_seed_and_calls_are_the_same_run(seed: u64, steps in prop::collection::vec(step(), 1..30)) {
        let once = || {
            let disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
            disk.inject(Fault::slow(std::time::Duration::from_millis(3)).probability(0.1));
            run(&disk, &steps);
            disk.power_cut();
            let bytes: Vec<_> = (0..3).map(|file| disk.seen(name(file))).collect();
            (disk.trace(), disk.now(), bytes)
        };
        prop_assert_eq!(once(), once());
    }
}

#[test]
fn another_seed_is_another_run() {
    let hash = |seed| {
        let disk = disk(seed);
        settled(&disk, "/f", RW, 1, 4096);
        disk.trace().hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn the_trace_forgets_details_but_not_tallies() {
    let disk = SimDisk::new(SimOptions { trace_entries_max: 5, ..SimOptions::default() });
    let file = open(&disk, "/f", RW);
    for _ in 0..20 {
        write(&disk, &file, 0, &[1; 10], PLAIN);
    }
    let trace = disk.trace();
    assert_eq!((trace.entries().count(), trace.len(), trace.is_empty()), (5, 21, false));
    let tally = trace.tally("/f", seawall_sim::Call::Write);
    assert_eq!((tally.calls, tally.bytes, tally.grew, tally.allocated, tally.errors), (20, 200, 10, 4096, 0));
}
