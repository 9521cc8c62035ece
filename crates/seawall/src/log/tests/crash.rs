//! Power cuts and killed processes at every operation; what must be there afterwards.

use super::*;
use seawall_io::{AlignedBuf, OpenHow, SyncHow, WriteHow};
use seawall_sim::{Call, Fault};
use std::io::IoSlice;

/// One mini-transaction of a run.
#[derive(Debug, Clone)]
struct Sent {
    start: Lsn,
    end: Lsn,
    body: Vec<u8>,
    /// The level at which it was acknowledged.
    acknowledged: Option<Durability>,
}

/// What a run has done when it stops: by itself, or at a failed operation.
#[derive(Debug, Default)]
struct Run {
    sent: Vec<Sent>,
    checkpoint: Option<Lsn>,
    durable: Lsn,
}

impl Run {
    /// Does a little of everything: groups of several entries, all levels, background steps, a checkpoint, a segment
    /// change.
    fn go(&mut self, log: &Log) -> Result<()> {
        let levels = [Durability::Flushed, Durability::Written, Durability::Flushed, Durability::Deferred];
        for i in 0..14 {
            let first = self.sent.len();
            for k in 0..=i % 3 {
                let body = body(i * 3 + k, [40, 300, 9000][(i + k) % 3]);
                let credit = log.try_admit(body.len())?.expect("there is room");
                let reservation = log.reserve(credit, body.len());
                let (start, end) = (reservation.start, reservation.end);
                reservation.publish(&body);
                self.sent.push(Sent { start, end, body, acknowledged: None });
            }
            let last = self.sent.len() - 1;
            // All in one group, at the level of the last one.
            let level = levels[i % 4];
            log.wait(self.sent[last].end, level)?;
            for sent in &mut self.sent[first..] {
                sent.acknowledged = Some(level);
            }
            self.durable = log.durable();
            log.tend()?;
            if i == 8 {
                let checkpoint = self.sent[last - 1].start;
                log.flush_to(checkpoint)?;
                self.durable = log.durable();
                self.checkpoint = Some(checkpoint);
                log.release_before(checkpoint);
            }
        }
        Ok(())
    }

    /// Checks that `machine` holds a prefix with every entry that `must` be there; returns how many entries there are.
    fn check(&self, machine: &Machine, from: Lsn, must: impl Fn(&Sent) -> bool, about: &str) -> usize {
        let (process, log, bodies) = machine.reopen(from, 2).unwrap_or_else(|e| panic!("{about}: {e}"));
        let expected: Vec<_> = self.sent.iter().filter(|sent| sent.start >= from).collect();
        assert!(bodies.len() <= expected.len(), "{about}: more than was sent");
        for (found, sent) in bodies.iter().zip(&expected) {
            assert_eq!(*found, sent.body, "{about}: a prefix, in order");
        }
        if let Some(lost) = expected[bodies.len()..].iter().find(|sent| must(sent)) {
            panic!(
                "{about}: {} of {} entries, {:?} at {} is lost",
                bodies.len(),
                expected.len(),
                lost.acknowledged,
                lost.start
            );
        }
        // Then the log continues: what is committed now survives the next power cut, whatever lay beyond the end.
        let end = append(&log, &body(99, 5000));
        log.flush_to(end).unwrap();
        process.crash_by(SimDisk::power_cut);
        let (_, _, again) = machine.reopen(from, 3).unwrap_or_else(|e| panic!("{about}, again: {e}"));
        assert_eq!(again.len(), bodies.len() + 1, "{about}");
        assert_eq!(again[bodies.len()], body(99, 5000), "{about}");
        bodies.len()
    }
}

/// Runs until operation `at_op` fails (or to the end), then cuts the power or kills the process in several ways.
/// Returns the number of operations of the run.
fn crash_at(method: FlushMethod, at_op: u64, forks: u64) -> u64 {
    let machine = Machine { method, ..Machine::new(at_op) };
    machine.disk.inject(Fault::eio().at_op(at_op));
    let process: Arc<Process> = Arc::new(Process::new(&machine.disk));
    let mut run = Run::default();
    // The database exists only when its control block is written, after this.
    let Ok(log) = Log::create(process.clone(), machine.config(1), Arc::default()) else { return u64::MAX };
    // The run ends with the failure, if that affects the log at all.
    drop(run.go(&log).err());
    let operations = machine.disk.trace().len();
    // A device that fails a flush may lose what was only written.
    let lost = machine.disk.trace().entries().any(|entry| entry.fault.is_some() && entry.call == Call::Sync);
    let from = run.checkpoint.unwrap_or(FIRST_LSN);
    drop(log);
    for fork in 0..forks {
        let power = fork % 2 == 0;
        let crashed = machine.fork(fork);
        if power {
            crashed.disk.power_cut();
        } else {
            crashed.disk.process_crash();
        }
        let must = |sent: &Sent| match sent.acknowledged {
            Some(Durability::Flushed) => true,
            Some(Durability::Written) if !power && !lost => true,
            _ => sent.end <= run.durable,
        };
        run.check(&crashed, from, must, &format!("{method}, operation {at_op}, fork {fork}"));
    }
    operations
}

#[test]
fn a_crash_at_any_operation_keeps_what_was_acknowledged_and_a_prefix() {
    for (method, step, forks) in [
        (FlushMethod::ODirect, 1, 2),
        (FlushMethod::ODirectDsync, 5, 2),
        (FlushMethod::Fsync, 5, 2),
        (FlushMethod::ODsync, 7, 2),
    ] {
        let operations = crash_at(method, u64::MAX, 12);
        assert!(operations > 50, "{method}: {operations} operations");
        for at_op in (1..=operations).step_by(step) {
            crash_at(method, at_op, forks);
        }
    }
}

/// Everything before `durable()` survives every power cut, whatever was only written (trap 10).
#[test]
fn durable_means_stable_under_every_method() {
    for method in FlushMethod::ALL {
        let machine = Machine { method, ..Machine::new(7) };
        let (_process, log) = machine.create();
        let mut rng = rand_pcg::Pcg32::new(7, method as u64);
        let mut sent = Vec::new();
        for i in 0..40 {
            let body = body(i, rand::Rng::random_range(&mut rng, 0..6000));
            let end = append(&log, &body);
            sent.push((end, body));
            let flush = match rand::Rng::random_range(&mut rng, 0..5) {
                0 => continue,
                1 | 2 => false,
                _ => true,
            };
            let (written, durable) = (log.written(), log.durable());
            log.write_group(flush).unwrap();
            assert!(log.written() > written, "there was something to write");
            if !flush {
                assert_eq!(log.durable(), durable, "written is not flushed");
            }
            let stable = machine.on(machine.disk.clone_stable());
            let (bodies, _) = stable.read(stable.disk.clone(), FIRST_LSN, 1).unwrap();
            let durable = sent.iter().filter(|(end, _)| *end <= log.durable()).count();
            assert!(bodies.len() >= durable, "{method}: {} of {durable} durable entries are stable", bodies.len());
            assert!(bodies.iter().zip(&sent).all(|(found, (_, body))| found == body));
        }
    }
}

/// Small commits rewrite one block over and over; a torn write of it must keep the earlier ones (trap 6).
#[test]
fn a_torn_tail_block_keeps_what_was_in_it() {
    for seed in 0..40 {
        let machine = Machine::new(seed);
        let (process, log) = machine.create();
        let mut acknowledged = 0;
        for i in 0..(20 + seed as usize % 30) {
            log.flush_to(append(&log, &body(i, 30))).unwrap();
            acknowledged += 1;
        }
        append(&log, &body(200, 1200));
        log.write_group(false).unwrap();
        process.crash_by(SimDisk::power_cut);
        let (_, _, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
        assert!(bodies.len() >= acknowledged, "seed {seed}: {} of {acknowledged}", bodies.len());
    }
}

/// Reads a block of a segment, or durably replaces it, behind the log's back.
fn block(disk: &SimDisk, lsn: Lsn, segment_bytes: u64, with: Option<&[u8]>) -> Vec<u8> {
    let path = segment_file::path_of(DIR.as_ref(), lsn.0 / segment_bytes);
    let offset = lsn.0 % segment_bytes;
    let file = disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).unwrap();
    if let Some(bytes) = with {
        disk.write_at(&file, offset, &[IoSlice::new(bytes)], WriteHow::default()).unwrap();
        disk.sync(&file, SyncHow::All).unwrap();
    }
    let mut out = AlignedBuf::zeroed(4096);
    disk.read_at(&file, offset, &mut out).unwrap();
    out.to_vec()
}

/// Trap 1: of a group's blocks 1, 2 and 3, block 2 does not persist. The next opening overwrites block 2, and then the
/// old block 3 fits again.
#[test]
fn a_ghost_of_an_earlier_opening_is_refused_and_erased() {
    let machine = Machine::new(8);
    let segment = machine.segment_bytes;
    let (process, log) = machine.create();
    // Entries that end exactly at the ends of blocks: three of them, in one group.
    let of = |tag: u8, bytes: u64| {
        let mut body = vec![tag; bytes as usize - HEADER_BYTES];
        body[1..5].fill(0);
        body
    };
    let first = FIRST_LSN.0;
    for tag in [1, 2, 3] {
        append(&log, &of(tag, 4096));
    }
    log.write_group(true).unwrap();
    assert_eq!(log.head().0, first + 3 * 4096);
    process.crash_by(SimDisk::process_crash);
    let ghost = block(&machine.disk, Lsn(first + 2 * 4096), segment, None);
    block(&machine.disk, Lsn(first + 4096), segment, Some(&[0; 4096]));

    // The group was not durable, so no entry records that it was, and the log ends before the gap.
    let (process, log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
    assert_eq!(bodies, [of(1, 4096)]);
    assert_eq!(log.head().0, first + 4096 + HEADER_BYTES as u64, "the opening's own entry");
    let erased = block(&machine.disk, Lsn(first + 2 * 4096), segment, None);
    assert!(erased.iter().all(|&b| b == 0), "what lay behind the gap is gone before anything is appended");

    // The new block 2 ends exactly where the old block 3 began. If that were still there, ...
    append(&log, &of(22, 4096 - HEADER_BYTES as u64));
    log.flush_to(log.head()).unwrap();
    assert_eq!(log.head().0, first + 2 * 4096);
    process.crash_by(SimDisk::power_cut);
    block(&machine.disk, Lsn(first + 2 * 4096), segment, Some(&ghost));
    let (_, _, bodies) = machine.reopen(FIRST_LSN, 3).unwrap();
    // ... with its CRC and LSN right, only its incarnation would show that it is old.
    assert_eq!(bodies, [of(1, 4096), of(22, 4096 - HEADER_BYTES as u64)]);
}

/// An opening with a small buffer follows one with a large buffer: the old buffer bounds how far ghosts can lie beyond
/// the end.
#[test]
fn ghosts_are_erased_as_far_as_the_buffer_that_wrote_them_reached() {
    const BEFORE: u64 = 8 << 20;
    let machine = Machine { segment_bytes: 1 << 20, ..Machine::new(21) };
    let process = Arc::new(Process::new(&machine.disk));
    let config = |incarnation, buffer_bytes: u64| LogConfig {
        capacity_bytes: 16 << 20,
        buffer_bytes: buffer_bytes as usize,
        ..machine.config(incarnation)
    };
    let log = Log::create(process.clone(), config(1, BEFORE), Arc::default()).unwrap();
    let mut ends = vec![FIRST_LSN];
    for i in 0..20 {
        while log.tend().unwrap() {}
        ends.push(append(&log, &body(i + 1, 150_000)));
        // Written but not flushed: at most half the buffer.
        log.write_group(false).unwrap();
        assert_eq!(log.durable(), FIRST_LSN);
    }
    let ghost = ends[19];
    process.crash_by(SimDisk::process_crash);
    drop(log);
    // The log's second block was lost.
    block(&machine.disk, Lsn(FIRST_LSN.0 + 4096), machine.segment_bytes, Some(&[0; 4096]));
    let small = config(2, 4 * MTR_BYTES_MAX as u64);
    assert!(ghost.0 > search_bytes_of(small.buffer_bytes), "beyond what the new buffer alone would say");
    let process = Arc::new(Process::new(&machine.disk));
    let mut reader = LogReader::open(process.clone(), &small, FIRST_LSN, 1).unwrap();
    reader.written_by(1, BEFORE);
    let tail = reader.finish().unwrap();
    assert_eq!(tail.end, FIRST_LSN);
    let log = Log::open(process, small, Arc::default(), tail).unwrap();
    drop(log);
    let left = block(&machine.disk, Lsn(ghost.0 & !4095), machine.segment_bytes, None);
    assert!(left.iter().all(|&b| b == 0), "the last ghost is gone");
}

fn search_bytes_of(buffer_bytes: usize) -> u64 {
    (buffer_bytes + buffer_bytes / 2 + MTR_BYTES_MAX + (64 << 10)) as u64
}

/// The first entry after a checkpoint has no predecessor that bounds its incarnation: the control block does.
#[test]
fn a_ghost_at_the_checkpoint_is_refused_by_its_incarnation() {
    let machine = Machine::new(22);
    let (process, log) = machine.create();
    let end = append(&log, &body(1, 500));
    log.flush_to(end).unwrap();
    process.crash_by(SimDisk::process_crash);
    drop(log);
    let read = |least| {
        let mut reader = LogReader::open(machine.disk.clone(), &machine.config(7), FIRST_LSN, 6).unwrap();
        reader.written_by(least, 1 << 20);
        let again = reader.again();
        drop(again);
        let found = reader.next().unwrap().is_some();
        (found, reader.again().next().unwrap().is_some())
    };
    assert_eq!(read(1), (true, true));
    assert_eq!(read(2), (false, false), "written by incarnation 1, where the log is of incarnation 2 and later");
}

/// A process that is killed while the log rotates leaves files in any stage of being made.
#[test]
fn half_made_segments_do_no_harm() {
    for at_op in (40..400).step_by(29) {
        let machine = Machine::new(at_op);
        let (process, log) = machine.create();
        machine.disk.inject(Fault::eio().at_op(at_op));
        let mut from = FIRST_LSN;
        let mut sent: Vec<(Lsn, Vec<u8>)> = Vec::new();
        let mut work = || -> Result<()> {
            for i in 0..150 {
                machine.clock.advance(Duration::from_millis(10));
                while log.tend()? {}
                let body = body(i, 20_000);
                let credit = log.try_admit(body.len())?.expect("there is room");
                let reservation = log.reserve(credit, body.len());
                let (start, end) = (reservation.start, reservation.end);
                reservation.publish(&body);
                log.flush_to(end)?;
                sent.push((start, body));
                if i % 9 == 8 {
                    from = start;
                    log.release_before(from);
                }
            }
            Ok(())
        };
        // In production, background work that cannot prepare a segment does not stop anything; here it ends
        // the run.
        drop(work().err());
        if at_op % 2 == 0 {
            process.crash_by(SimDisk::power_cut);
        } else {
            process.crash_by(SimDisk::process_crash);
        }
        drop(log);
        let (_, log, bodies) = machine.reopen(from, 2).unwrap_or_else(|e| panic!("operation {at_op}: {e}"));
        let expected: Vec<_> = sent.iter().filter(|(start, _)| *start >= from).map(|(_, body)| body.clone()).collect();
        assert!(bodies.starts_with(&expected), "operation {at_op}");
        assert!(bodies.len() <= expected.len() + 1, "operation {at_op}");
        let end = append(&log, &body(77, 100_000));
        log.flush_to(end).unwrap();
        let left = machine.disk.list(DIR.as_ref()).unwrap();
        assert!(left.iter().filter(|path| path.extension().is_some_and(|e| e == "filling")).count() <= 1, "{left:?}");
    }
}
