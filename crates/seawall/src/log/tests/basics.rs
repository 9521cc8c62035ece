//! Writing, reading back, continuing.

use super::*;
use seawall_io::Op;
use seawall_sim::{Call, Fault};

#[test]
fn what_is_committed_is_read_back_and_gone_on_with() {
    for method in FlushMethod::ALL {
        let machine = Machine { method, ..Machine::new(1) };
        let mut all: Vec<Vec<u8>> = Vec::new();
        let mut from = FIRST_LSN;
        for incarnation in 1..5 {
            let (process, log) = if incarnation == 1 {
                machine.create()
            } else {
                let (process, log, bodies) = machine.reopen(from, incarnation).unwrap();
                assert_eq!(bodies, all, "{method}");
                (process, log)
            };
            if incarnation == 3 {
                // Releases everything so far.
                from = log.head();
                log.release_before(from);
                all.clear();
            }
            for i in 0..60 {
                let body = body(i, i * 97);
                let end = append(&log, &body);
                log.flush_to(end).unwrap();
                assert!(log.durable() >= end && log.reached(end, Durability::Flushed));
                all.push(body);
            }
            process.crash_by(SimDisk::power_cut);
        }
    }
}

#[test]
fn a_log_larger_than_its_capacity_goes_round_and_no_commit_grows_or_reads_anything() {
    for method in [FlushMethod::ODirect, FlushMethod::Fsync] {
        goes_round(method);
    }
}

fn goes_round(method: FlushMethod) {
    let machine = Machine::with(SimOptions { trace_entries_max: 16, ..SimOptions::default() });
    let machine = Machine { method, ..machine };
    let (_process, log) = machine.create();
    while log.tend().unwrap() {}
    let mut last = FIRST_LSN;
    for i in 0..700 {
        // Background work keeps ahead of the log, and time passes, so that paced fills advance.
        machine.clock.advance(Duration::from_millis(10));
        while log.tend().unwrap() {}
        let before = machine.disk.trace().len();
        let end = append(&log, &body(i, 3000));
        log.flush_to(end).unwrap();
        let trace = machine.disk.trace();
        for entry in trace.since(before) {
            assert_eq!((entry.grew, entry.device_read), (0, 0), "{entry:?}");
            assert!(matches!(entry.call, Call::Write | Call::Sync | Call::DurableWrite), "{entry:?}");
            assert!(i < 40 || entry.allocated == 0, "{entry:?}");
        }
        if i % 50 == 0 {
            log.release_before(last);
            last = end;
        }
    }
    let stats = log.stats();
    assert!(stats.segments_recycled > 15, "{stats:?}");
    assert_eq!((stats.waits_for_segment, stats.entries), (0, 700));
    let (spares, files) = log.segments.numbers();
    assert_eq!(machine.disk.list(DIR.as_ref()).unwrap().len(), spares.len() + files.len());
    assert!((spares.len() + files.len()) as u64 <= log.capacity() / log.config().segment_bytes);
}

#[test]
fn the_capacity_grows_and_shrinks_while_the_log_is_in_use() {
    let machine = Machine { segment_bytes: 256 << 10, ..Machine::new(6) };
    let (process, log) = machine.create();
    let files = || machine.disk.list(DIR.as_ref()).unwrap().len() as u64;
    let mut all = Vec::new();
    let mut from = FIRST_LSN;
    for capacity in [2 << 20, 6 << 20, (256 << 10) + 4 * MTR_BYTES_MAX as u64, 3 << 20] {
        log.set_capacity(capacity).unwrap();
        // Fills the log, then rotates through its files again.
        for i in 0..15 {
            let body = body(i, 200_000);
            let admitted = loop {
                match log.try_admit(body.len()).unwrap() {
                    Ok(credit) => break credit,
                    Err(NoRoom::Buffer) => log.make_room(body.len()).unwrap(),
                    Err(NoRoom::Checkpoint(lsn)) => {
                        assert!(log.head() >= lsn && lsn > from);
                        log.flush_to(log.head()).unwrap();
                        from = lsn;
                        log.release_before(from);
                        all.retain(|(start, _)| *start >= from);
                        while log.tend().unwrap() {}
                    }
                }
            };
            let reservation = log.reserve(admitted, body.len());
            let (start, end) = (reservation.start, reservation.end);
            reservation.publish(&body);
            log.flush_to(end).unwrap();
            all.push((start, body));
            assert!(end.0 - from.0 <= log.capacity(), "no more is kept");
        }
        log.release_before(log.head());
        from = log.head();
        all.clear();
        while log.tend().unwrap() {}
        assert!(files() <= capacity / log.config().segment_bytes, "{} files for {capacity} bytes", files());
    }
    assert!(log.set_capacity(3 * (64 << 10)).is_err());
    let end = append(&log, &body(7, 70));
    log.flush_to(end).unwrap();
    process.crash_by(SimDisk::power_cut);
    assert_eq!(machine.reopen(from, 2).unwrap().2, [body(7, 70)]);
}

#[test]
fn the_flush_method_changes_while_the_log_is_in_use() {
    let machine = Machine::new(7);
    let (process, log) = machine.create();
    let mut all = Vec::new();
    for (i, method) in FlushMethod::ALL.into_iter().cycle().take(15).enumerate() {
        // Written with the old method, flushed with the new one.
        let body = body(i, 12_000);
        log.wait(append(&log, &body), Durability::Written).unwrap();
        all.push(body);
        log.set_method(method).unwrap();
        log.flush_to(log.head()).unwrap();
        assert_eq!(log.mode().requested, method);
        let stable = machine.on(machine.disk.clone_stable());
        assert_eq!(stable.read(stable.disk.clone(), FIRST_LSN, 1).unwrap().0, all, "{method}");
    }
    process.crash_by(SimDisk::power_cut);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2, all);
}

#[test]
fn the_first_failed_write_or_flush_is_the_end() {
    for op in [Op::Write, Op::Sync] {
        let machine = Machine::new(3);
        let (_process, log) = machine.create();
        let safe = append(&log, &body(1, 100));
        log.flush_to(safe).unwrap();
        machine.disk.inject(Fault::eio().on(op).once());
        let lost = append(&log, &body(2, 100));
        let first = log.flush_to(lost).unwrap_err().to_string();
        assert!(first.contains("first failed write"), "{first}");
        // The disk works again, but the database stays poisoned.
        assert_eq!(log.flush_to(lost).unwrap_err().to_string(), first);
        assert_eq!(log.wait(lost, Durability::Deferred).unwrap_err().to_string(), first);
        assert!(log.try_admit(1).is_err() && log.tend().is_err() && log.write_group(true).is_err());
        log.flush_to(safe).unwrap();
        assert!(log.reached(safe, Durability::Flushed) && !log.reached(lost, Durability::Deferred));
    }
}

#[test]
fn waiting_for_what_does_not_exist_is_an_error() {
    let (_process, log) = Machine::new(4).create();
    assert!(matches!(log.flush_to(Lsn(log.head().0 + 1)), Err(Error::Usage(_))));
    log.flush_to(log.head()).unwrap();
    log.make_room(1).unwrap();
}

#[test]
fn an_abandoned_reservation_stops_the_database() {
    let (_process, log) = Machine::new(5).create();
    let credit = log.try_admit(10).unwrap().unwrap();
    drop(log.reserve(credit, 10));
    assert!(log.flush_to(log.head()).unwrap_err().to_string().contains("given up"));
}

/// A clock that, when a write in progress reads it, publishes a change that builds on a broken page.
#[derive(Debug, Default)]
struct Meanwhile(Mutex<Option<Arc<Log>>>);

impl Clock for Meanwhile {
    fn now(&self) -> Duration {
        let log = self.0.lock().unwrap().take();
        if let Some(log) = log {
            let reservation = log.reserve(log.try_admit(100).unwrap().unwrap(), 100);
            drop(log.health.poison(Error::Usage("a page is broken".into())));
            reservation.publish(&[7; 100]);
        }
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) {}
}

#[test]
fn nothing_that_is_published_after_an_error_is_written() {
    let machine = Machine::new(4);
    let (process, clock) = (Arc::new(Process::new(&machine.disk)), Arc::new(Meanwhile::default()));
    let config = LogConfig { clock: clock.clone(), ..machine.config(1) };
    let log = Arc::new(Log::create(process.clone(), config, Arc::default()).unwrap());
    let end = append(&log, &body(1, 100));
    *clock.0.lock().unwrap() = Some(log.clone());
    drop(log.flush_to(end));
    assert!(log.health.check().is_err(), "it was published");
    process.crash_by(SimDisk::process_crash);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2, [body(1, 100)]);
}
