//! Damage that the log cannot survive is reported with its position.

use super::*;
use crate::error::Corruption;
use proptest::prelude::*;
use seawall_io::{OpenHow, SyncHow, WriteHow};
use std::io::IoSlice;

/// Makes a machine whose log has these entries, each flushed by itself, and is not open.
fn with_commits(commits: &[Vec<u8>]) -> (Machine, Vec<Lsn>) {
    let machine = Machine::new(11);
    let (process, log) = machine.create();
    let mut ends = Vec::new();
    for body in commits {
        let end = append(&log, body);
        log.flush_to(end).unwrap();
        ends.push(end);
    }
    process.crash_by(SimDisk::process_crash);
    (machine, ends)
}

#[test]
fn a_bit_that_flips_in_flushed_log_is_named() {
    let bodies: Vec<_> = (0..12).map(|i| body(i, 900 * i)).collect();
    for k in 0..40 {
        let (machine, ends) = with_commits(&bodies);
        // Anywhere before the last entry, which alone proves that the others were flushed.
        let last = ends[ends.len() - 2].0;
        let at = FIRST_LSN.0 + (last - FIRST_LSN.0) * k / 40;
        machine
            .disk
            .flip_bit(
                segment_file::path_of(DIR.as_ref(), at / machine.segment_bytes),
                at % machine.segment_bytes,
                (k % 8) as u8,
            )
            .unwrap();
        let broken = ends.iter().copied().find(|end| end.0 > at).unwrap();
        match machine.read(machine.disk.clone(), FIRST_LSN, 1) {
            Err(Error::Corrupt(corruption)) => match *corruption {
                Corruption::Log { at, .. } => assert!(at < broken, "flip {k}: the entry that is broken is named"),
                other => panic!("flip {k}: {other}"),
            },
            other => panic!("flip {k}: {:?}", other.map(|(bodies, _)| bodies.len())),
        }
    }
}

#[test]
fn the_last_group_may_be_torn_and_is_no_damage() {
    let (machine, ends) = with_commits(&[body(1, 100), body(2, 100)]);
    let at = ends[1].0 - 5;
    machine.disk.flip_bit(segment_file::path_of(DIR.as_ref(), 0), at, 1).unwrap();
    let (bodies, tail) = machine.read(machine.disk.clone(), FIRST_LSN, 1).unwrap();
    assert_eq!((bodies.len(), tail.end), (1, ends[0]));
}

#[test]
fn a_log_that_was_closed_in_order_ends_where_it_was_closed() {
    let (machine, ends) = with_commits(&[body(1, 100), body(2, 100)]);
    let reader = |closed_at: Lsn| {
        let mut reader = LogReader::open(machine.disk.clone(), &machine.config(2), FIRST_LSN, 1).unwrap();
        reader.closed_at(closed_at);
        reader.finish()
    };
    assert_eq!(reader(ends[1]).unwrap().end, ends[1]);
    // Only the closed end reveals damage in the last group.
    machine.disk.flip_bit(segment_file::path_of(DIR.as_ref(), 0), ends[1].0 - 5, 1).unwrap();
    let error = reader(ends[1]).unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt(c) if matches!(**c, Corruption::Log { at, .. } if at == ends[0])),
        "{error}"
    );
}

#[test]
fn segments_that_are_missing_short_or_of_another_kind_are_named() {
    let bodies: Vec<_> = (0..12).map(|i| body(i, 30_000)).collect();
    let named = |machine: &Machine, from: Lsn| match machine.read(machine.disk.clone(), from, 1) {
        Err(Error::Corrupt(corruption)) => match *corruption {
            Corruption::File { path, why } => (path, why),
            other => panic!("{other}"),
        },
        other => panic!("{:?}", other.map(|(bodies, _)| bodies.len())),
    };
    for number in [0, 1, 2] {
        let (machine, ends) = with_commits(&bodies);
        let path = segment_file::path_of(DIR.as_ref(), number);
        machine.disk.remove(&path).unwrap();
        assert_eq!(named(&machine, FIRST_LSN).0, path);
        // A missing segment before the checkpoint does not matter.
        let from = ends.iter().find(|end| end.0 >= (number + 1) * machine.segment_bytes).unwrap();
        machine.read(machine.disk.clone(), *from, 1).unwrap();
    }
    let (machine, _) = with_commits(&bodies);
    let path = segment_file::path_of(DIR.as_ref(), 1);
    let file = machine.disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).unwrap();
    machine.disk.set_len(&file, 4096).unwrap();
    let (short, why) = named(&machine, FIRST_LSN);
    assert!(short == path && why.contains("4096 bytes where 65536 were expected"), "{why}");
    // Without any segment, it is another directory that has the log.
    for number in 0..64 {
        drop(machine.disk.remove(&segment_file::path_of(DIR.as_ref(), number)));
    }
    let (dir, why) = named(&machine, FIRST_LSN);
    assert!(dir == std::path::Path::new(DIR) && why.contains("--log-dir"), "{}: {why}", dir.display());
    // Files with other names are left alone.
    assert_eq!(segment_file::number_of("redo.00".as_ref()), None);
    assert_eq!(segment_file::number_of("redo.0000000000000001.filling".as_ref()), None);
    assert_eq!(segment_file::number_of("/db/redo.000000000000001f".as_ref()), Some(31));
}

#[test]
fn a_log_that_is_open_elsewhere_is_locked() {
    let machine = Machine::new(12);
    let (_process, log) = machine.create();
    let refused = LogReader::open(machine.disk.clone(), &machine.config(2), FIRST_LSN, 1);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    drop(log);
    let (_, tail) = machine.read(machine.disk.clone(), FIRST_LSN, 1).unwrap();
    // A reader holds the lock.
    assert!(matches!(machine.read(machine.disk.clone(), FIRST_LSN, 1), Err(Error::Locked { .. })));
    // A used incarnation is refused.
    let tail_used = LogTail { last_incarnation: 2, ..tail };
    let refused = Log::open(machine.disk.clone(), machine.config(2), Arc::default(), tail_used);
    assert!(matches!(refused, Err(Error::Usage(_))));
    let refused = Log::create(machine.disk.clone(), machine.config(1), Arc::default());
    assert!(matches!(refused, Err(Error::NotADatabase { .. })));
    Log::discard(&*machine.disk, DIR.as_ref()).unwrap();
    Log::create(machine.disk.clone(), machine.config(1), Arc::default()).unwrap();
}

#[test]
fn another_databases_log_is_an_empty_one() {
    let (machine, _) = with_commits(&[body(1, 100)]);
    let config = LogConfig { database: [1; 16], ..machine.config(2) };
    let mut reader = LogReader::open(machine.disk.clone(), &config, FIRST_LSN, 1).unwrap();
    assert_eq!(reader.next().unwrap(), None);
}

#[test]
fn options_out_of_range_are_refused_with_a_reason() {
    let machine = Machine::new(13);
    let good = machine.config(1);
    let bad = [
        LogConfig { block_bytes: 1000, ..good.clone() },
        LogConfig { segment_bytes: 4096 + 512, ..good.clone() },
        LogConfig { capacity_bytes: 2 * good.segment_bytes, ..good.clone() },
        LogConfig { buffer_bytes: 3 << 20, ..good.clone() },
        LogConfig { incarnation: 0, ..good.clone() },
    ];
    for config in bad {
        let refused = Log::create(machine.disk.clone(), config, Arc::default());
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
    // Blocks smaller than the device's sectors cannot be written directly.
    let machine = Machine::with(SimOptions { sector_bytes: 4096, ..SimOptions::default() });
    let config = LogConfig { block_bytes: 512, ..machine.config(1) };
    // The simulated disk does not report its alignment, so 4096 is assumed.
    assert!(matches!(Log::create(machine.disk.clone(), config, Arc::default()), Err(Error::InvalidOption { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever the segments contain, the reader ends normally or with an error, and returns only entries that were
    /// once written there.
    #[test]
    fn garbage_never_makes_a_entry(
        at in 0u64..200_000,
        garbage in proptest::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 1..2000),
    ) {
        let bodies: Vec<_> = (0..12).map(|i| body(i, 17_000)).collect();
        let (machine, ends) = with_commits(&bodies);
        let segment = machine.segment_bytes;
        let path = segment_file::path_of(DIR.as_ref(), at / segment);
        let file = machine.disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).unwrap();
        let offset = (at % segment).min(segment - garbage.len() as u64);
        machine.disk.write_at(&file, offset, &[IoSlice::new(&garbage)], WriteHow::default()).unwrap();
        machine.disk.sync(&file, SyncHow::All).unwrap();
        match machine.read(machine.disk.clone(), FIRST_LSN, 1) {
            Ok((found, _)) => {
                prop_assert!(bodies.starts_with(&found));
                // A whole entry after the garbage would have revealed it.
                let garbage_end = at - at % segment + offset + garbage.len() as u64;
                let starts = std::iter::once(FIRST_LSN).chain(ends.iter().copied()).take(bodies.len());
                let whole_behind = starts.filter(|start| start.0 >= garbage_end).count();
                prop_assert!(found.len() == bodies.len() || whole_behind == 0);
            }
            Err(Error::Corrupt(_)) => {}
            Err(e) => return Err(TestCaseError::fail(e.to_string())),
        }
    }
}

#[test]
fn a_full_disk_is_met_at_admission_and_the_log_goes_round_in_what_it_has() {
    let machine = Machine::with(SimOptions { capacity_bytes: (64 << 20) + 6 * (64 << 10), ..SimOptions::default() });
    let (process, log) = machine.create();
    let mut refused = 0;
    let mut ends = vec![FIRST_LSN];
    let mut from = FIRST_LSN;
    for i in 0..200 {
        drop(log.tend());
        let body = body(i, 30_000);
        let credit = loop {
            match log.try_admit(body.len()).unwrap() {
                Ok(credit) => break credit,
                Err(NoRoom::Buffer) => log.make_room(body.len()).unwrap(),
                Err(NoRoom::Checkpoint(lsn)) => {
                    refused += 1;
                    log.flush_to(lsn).unwrap();
                    from = *ends.iter().find(|end| **end >= lsn).unwrap();
                    log.release_before(from);
                }
            }
        };
        let reservation = log.reserve(credit, body.len());
        let end = reservation.end;
        reservation.publish(&body);
        log.flush_to(end).unwrap();
        ends.push(end);
    }
    assert!(refused > 20, "{refused}");
    assert!(machine.disk.list(DIR.as_ref()).unwrap().len() <= 6);
    process.crash_by(SimDisk::power_cut);
    // The log opens again on the full disk.
    let (_, log, bodies) = machine.reopen(from, 2).unwrap();
    assert_eq!(bodies.last(), Some(&body(199, 30_000)));
    drop(log);
    // A disk that is too small even for that: a named error, and the database is not poisoned. Two files are too few
    // for the log to rotate.
    let machine = Machine::with(SimOptions { capacity_bytes: 2 * (64 << 10), ..SimOptions::default() });
    let (_process, log) = machine.create();
    let error = loop {
        match log.try_admit(30_000) {
            Ok(Ok(credit)) => log.reserve(credit, 3).publish(b"abc"),
            Ok(Err(no_room)) => panic!("{no_room:?}"),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    log.flush_to(log.head()).unwrap();
}
