//! The rig of the crash tests and the histories on a naive engine: it must pass as it is, and fail with any
//! of its promises broken.

mod support {
    pub(crate) mod checker;
    pub(crate) mod damage;
    pub(crate) mod dice;
    pub(crate) mod dying_process;
    pub(crate) mod histories;
    pub(crate) mod model;
    pub(crate) mod reference;
    pub(crate) mod rig;
    pub(crate) mod tally;
    pub(crate) mod workload;
}
use support::reference as api;

use api::{Background, Database, Env, Mutant, Options};
use std::sync::Arc;
use support::checker::{Level, check};
use support::histories::{Load, record};
use support::rig::{Mode, Size, run};

const SIZE: Size = Size { rounds: 4, steps: 1000, compactions: 0, bursts: 0, kept: false, newer: true, wider: false };

#[test]
fn a_right_engine_passes() {
    for mode in [Mode::Crashes, Mode::Faults] {
        for seed in 0..40 {
            if let Err(why) = run(seed, mode, SIZE, &Options::default(), false) {
                panic!("{why}");
            }
        }
    }
}

#[test]
fn every_broken_promise_is_found() {
    for mutant in [
        Mutant::NoSync,
        Mutant::Half,
        Mutant::ForgetsPrepared,
        Mutant::Hole,
        Mutant::NoSnapshot,
        Mutant::NoLocks,
        Mutant::NoSavepoint,
        Mutant::ShortScan,
        Mutant::NoReadLocks,
        Mutant::LostUpdate,
        Mutant::TellsEarly,
        Mutant::ShortCopy,
        Mutant::KeepsChanges,
        Mutant::LooksPast,
        Mutant::OrderedUnlogged,
        Mutant::KeepsInterrupted,
        Mutant::NotInterrupted,
    ] {
        let found = (0..400).find(|seed| run(*seed, Mode::Crashes, SIZE, &Options { mutant }, false).is_err());
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}

fn keeps_its_promise(level: Level, mutant: Mutant, seed: u64) -> bool {
    let disk = seawall_sim::SimDisk::new(seawall_sim::SimOptions::default());
    let clock = Arc::new(seawall_io::SystemClock::default());
    let env = Env { disk, clock, seed, background: Background::Threads };
    let db = Database::open_in(env, "/db", Options { mutant }).unwrap();
    check(&record(&db, level, Load { threads: 4, txns: 100, keys: 4, padding: 0 }, seed)).is_empty()
}

#[test]
fn histories_of_a_right_engine_pass() {
    for level in [Level::ReadCommitted, Level::RepeatableLatest, Level::RepeatableFail, Level::Serializable] {
        assert!((0..4).all(|seed| keeps_its_promise(level, Mutant::None, seed)), "{level:?}");
    }
}

#[test]
fn histories_show_broken_isolation() {
    for (level, mutant) in [
        (Level::ReadCommitted, Mutant::NoLocks),
        (Level::RepeatableLatest, Mutant::NoLocks),
        (Level::RepeatableLatest, Mutant::NoSnapshot),
        (Level::RepeatableLatest, Mutant::NoSavepoint),
        (Level::RepeatableFail, Mutant::NoSnapshot),
        (Level::RepeatableFail, Mutant::LostUpdate),
        (Level::Serializable, Mutant::NoReadLocks),
        (Level::Serializable, Mutant::ShortScan),
    ] {
        // A key that appears despite a lock already causes a panic.
        let keeps = |seed| std::panic::catch_unwind(|| keeps_its_promise(level, mutant, seed)).unwrap_or(false);
        let found = (0..40).any(|seed| !keeps(seed));
        assert!(found, "{level:?}: {mutant:?} is not found");
    }
}
