//! For any sequence of answers: no byte is lost or moved twice, and no rate is exceeded.

mod common;

use proptest::prelude::*;
use seawall_io::{
    AlignedBuf, Cause, FileClass, Handle, IoErrorKind, IoStats, Op, Pace, Request, RequestKind, SyncHow, WriteHow,
};
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
enum Answer {
    Moved(usize),
    Again(i32),
    Error(i32),
    End,
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let again = prop::sample::select(vec![libc::EINTR, libc::EAGAIN, libc::ECANCELED]);
    let error = prop::sample::select(vec![libc::EIO, libc::ENOSPC, libc::EINVAL, libc::EBADF]);
    prop::collection::vec(
        prop_oneof![
            8 => (1usize..6000).prop_map(Answer::Moved),
            3 => again.prop_map(Answer::Again),
            1 => error.prop_map(Answer::Error),
            1 => Just(Answer::End),
        ],
        0..30,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_or_repeated(sizes in prop::collection::vec(1usize..9000, 0..8), answers in answers(), write: bool) {
        let file = Handle::simulated(Path::new("f"), 0);
        let bufs: Vec<_> = sizes.iter().map(|&n| AlignedBuf::zeroed(n).into()).collect();
        let total: usize = sizes.iter().sum();
        let kind = if write { RequestKind::Write(WriteHow::default()) } else { RequestKind::Read };
        let mut request = Request { file, kind, offset: 12345, bufs, done: 0 };
        prop_assert_eq!((request.len(), request.is_empty()), (total, total == 0));
        let mut moved = 0;
        for answer in answers {
            let (raw, expected_done) = match answer {
                // A kernel never transfers more than what is left.
                Answer::Moved(n) => (n.min(total - moved) as i64, moved + n.min(total - moved)),
                Answer::Again(e) | Answer::Error(e) => (-i64::from(e), moved),
                Answer::End => (0, moved),
            };
            let ended = request.attempt_ended(raw);
            prop_assert_eq!(request.done, expected_done, "exactly what the kernel moved");
            moved = expected_done;
            match ended {
                None => prop_assert!(moved < total || matches!(answer, Answer::Again(_))),
                Some(Ok(())) => {
                    prop_assert_eq!(moved, total);
                    break;
                }
                Some(Err(e)) => {
                    prop_assert_eq!((e.offset, e.len), (Some(12345), Some(total as u64)));
                    match e.kind {
                        IoErrorKind::Os(errno) => prop_assert!(matches!(answer, Answer::Error(n) if n == errno)),
                        IoErrorKind::UnexpectedEof { got } => {
                            prop_assert!(!write);
                            prop_assert_eq!(got, moved as u64);
                        }
                        IoErrorKind::NoProgress => prop_assert!(write && moved < total),
                        other => prop_assert!(false, "{:?}", other),
                    }
                    break;
                }
            }
        }
    }

    #[test]
    fn a_sync_ends_with_its_first_true_answer(answers in answers()) {
        let mut request = Request::sync(&Handle::simulated(Path::new("f"), 0), SyncHow::Data);
        for answer in answers {
            match answer {
                Answer::Again(e) => prop_assert!(request.attempt_ended(-i64::from(e)).is_none()),
                Answer::Error(e) => {
                    let ended = request.attempt_ended(-i64::from(e)).unwrap().unwrap_err();
                    prop_assert_eq!((ended.errno(), ended.op), (Some(e), Op::Sync));
                    break;
                }
                Answer::Moved(_) | Answer::End => {
                    prop_assert!(request.attempt_ended(0).unwrap().is_ok());
                    break;
                }
            }
        }
    }

    #[test]
    fn a_pace_is_never_exceeded(rate in 0.001f64..1e9, steps in prop::collection::vec((0u64..2_000_000, 0.0f64..1e6), 1..50)) {
        let mut pace = Pace::new(rate);
        let (mut now, mut begun): (Duration, Option<(Duration, f64)>) = (Duration::ZERO, None);
        for (idle_us, units) in steps {
            now += Duration::from_micros(idle_us);
            now += pace.delay(now, units);
            // Since the first unit of work, the work begun before this step fits the rate.
            let (first, done) = *begun.get_or_insert((now, 0.0));
            let allowed = (now - first).as_secs_f64() * rate;
            prop_assert!(done <= allowed * (1.0 + 1e-9) + rate * 1e-6, "{} of {}", done, allowed);
            begun = Some((first, done + units));
        }
    }

    #[test]
    fn any_pace_is_safe_to_ask(rate in prop::num::f64::ANY, units in 0.0f64..1e300, times in prop::collection::vec(any::<u32>(), 1..10)) {
        let mut pace = Pace::new(rate);
        for secs in times {
            pace.delay(Duration::from_secs(secs.into()), units);
        }
    }

    #[test]
    fn counters_of_parts_add_up_to_the_whole(
        events in prop::collection::vec((0usize..5, 0usize..8, 0usize..8, 0u64..u64::MAX / 1000, 0u64..1 << 40, any::<bool>()), 0..40),
        cut in 0usize..40,
    ) {
        let record = |stats: &IoStats, events: &[(usize, usize, usize, u64, u64, bool)]| {
            for &(class, op, cause, ns, bytes, failed) in events {
                let (class, op, cause) = (FileClass::ALL[class], Op::ALL[op], Cause::ALL[cause]);
                if failed {
                    stats.record_error(class, op, cause);
                } else {
                    stats.record(class, op, cause, Duration::from_nanos(ns), bytes);
                }
            }
        };
        let (whole, left, right) = (IoStats::new(), IoStats::new(), IoStats::new());
        let cut = cut.min(events.len());
        record(&whole, &events);
        record(&left, &events[..cut]);
        record(&right, &events[cut..]);
        prop_assert_eq!(left.snapshot().merged(&right.snapshot()), whole.snapshot());
        prop_assert_eq!(right.snapshot().merged(&left.snapshot()), whole.snapshot());
        let ok = events.iter().filter(|e| !e.5).count() as u64;
        let cells = whole.snapshot().cells;
        prop_assert_eq!(cells.iter().map(seawall_io::CellSnapshot::count).sum::<u64>(), ok);
        prop_assert_eq!(cells.iter().map(|c| c.errors).sum::<u64>(), events.len() as u64 - ok);
    }
}
