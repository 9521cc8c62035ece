//! What each level promises: how much a killed process or a power cut can lose.

use super::*;
use rand::Rng as _;

/// Commits at one level, at random moments, with background work as seldom as permitted; then crashes.
fn lost_at_most_the_interval(level: Durability, power: bool, seed: u64, ring: bool) {
    let ring_dir = ring.then(|| PathBuf::from("/shm"));
    let machine = Machine { ring_dir, ..Machine::new(seed) };
    let (process, log) = machine.create();
    let mut rng = rand_pcg::Pcg32::new(seed, 1);
    let interval = log.config().flush_interval;
    let mut acknowledged: Vec<Duration> = Vec::new();
    let mut next_tend = Duration::ZERO;
    for i in 0..rng.random_range(20..200) {
        // Now and then nothing happens for a long time.
        let pause = if rng.random_ratio(1, 30) { 5000 } else { rng.random_range(0..120) };
        let until = machine.clock.now() + Duration::from_millis(pause);
        while next_tend <= until {
            let now = machine.clock.now();
            machine.clock.advance(next_tend.saturating_sub(now));
            while log.tend().unwrap() {}
            next_tend += interval / 4;
        }
        machine.clock.advance(until.saturating_sub(machine.clock.now()));
        let end = append(&log, &body(i, 50));
        log.wait(end, level).unwrap();
        assert!(log.reached(end, level));
        acknowledged.push(machine.clock.now());
    }
    let died = machine.clock.now();
    if power {
        process.crash_by(SimDisk::power_cut);
    } else {
        process.crash_by(SimDisk::process_crash);
    }
    let (_, _, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
    for (i, at) in acknowledged.iter().enumerate().skip(bodies.len()) {
        assert!(died - *at < interval, "{level:?}, seed {seed}: commit {i} of {:?} was lost", died - *at);
        assert!(level == Durability::Deferred || power && level == Durability::Written, "{level:?} survives this");
    }
}

#[test]
fn nothing_older_than_the_interval_is_lost_and_written_survives_the_process() {
    for seed in 0..14 {
        for level in [Durability::Deferred, Durability::Written, Durability::Flushed] {
            for (power, ring) in [(false, false), (false, true), (true, false), (true, true)] {
                lost_at_most_the_interval(level, power, seed, ring);
            }
        }
    }
}

#[test]
fn a_commit_waits_when_what_is_unflushed_is_too_old() {
    for level in [Durability::Deferred, Durability::Written] {
        let machine = Machine::new(1);
        let (_process, log) = machine.create();
        let flushes = || log.stats().flushes;
        log.wait(append(&log, &body(1, 10)), level).unwrap();
        assert_eq!(flushes(), 0, "{level:?}: young enough");
        assert!(log.durable() < log.head());
        assert_eq!(log.written() < log.head(), level == Durability::Deferred);
        // Background work does not run and the interval has passed: the next commit flushes.
        machine.clock.advance(Duration::from_millis(1001));
        let end = append(&log, &body(2, 10));
        assert!(!log.reached(end, level));
        log.wait(end, level).unwrap();
        assert_eq!((flushes(), log.durable()), (1, log.head()));
        // After a long silence with nothing unflushed, the next commit need not flush.
        machine.clock.advance(Duration::from_secs(3600));
        log.wait(append(&log, &body(3, 10)), level).unwrap();
        assert_eq!(flushes(), 1, "{level:?}");
    }
}

#[test]
fn an_unpublished_neighbour_makes_nothing_look_younger() {
    let machine = Machine::new(2);
    let (_process, log) = machine.create();
    let credit = log.try_admit(10).unwrap().unwrap();
    let early = append(&log, &body(1, 10));
    let slow = log.reserve(credit, 10);
    let deferred = append(&log, &body(2, 10));
    log.wait(deferred, Durability::Deferred).unwrap();
    machine.clock.advance(Duration::from_millis(900));
    // This flush cannot cover what lies after the unpublished neighbour, and must not count as if it did.
    log.flush_to(early).unwrap();
    machine.clock.advance(Duration::from_millis(200));
    assert!(!log.reached(deferred, Durability::Deferred), "1.1 s old and not durable");
    slow.publish(&[0; 10]);
    log.wait(deferred, Durability::Deferred).unwrap();
    assert!(log.durable() >= deferred);
}

#[test]
fn unflushed_log_is_bounded_by_bytes_too() {
    let machine = Machine { segment_bytes: 1 << 20, ..Machine::new(3) };
    let machine = Machine { method: FlushMethod::ODirectDsync, ..machine };
    let process = Arc::new(Process::new(&machine.disk));
    let config = LogConfig { capacity_bytes: 16 << 20, ..machine.config(1) };
    let log = Log::create(process, config, Arc::default()).unwrap();
    for i in 0..100 {
        log.wait(append(&log, &body(i, 100_000)), Durability::Written).unwrap();
        assert!(log.head().0 - log.durable().0 <= log.config().buffer_bytes as u64 / 2);
    }
    assert!((10..40).contains(&log.stats().flushes), "{:?}", log.stats());
}

#[test]
fn a_changed_flush_interval_is_in_effect_at_once() {
    let machine = Machine::new(9);
    let (_process, log) = machine.create();
    let before = log.flush_interval();
    for interval in [before / 10, 4 * before] {
        log.set_flush_interval(interval);
        let end = append(&log, &body(1, 50));
        log.wait(end, Durability::Deferred).unwrap();
        machine.clock.advance(interval / 4);
        while log.tend().unwrap() {}
        assert!(log.durable() < end, "{interval:?}: younger than half of it");
        machine.clock.advance(interval / 2);
        while log.tend().unwrap() {}
        assert!(log.durable() >= end, "{interval:?}");
    }
}
