//! Many committers at once, on the simulated disk and on a real one.

use super::*;
use seawall_io::OsDisk;
use std::sync::atomic::AtomicBool;

const THREADS: usize = 8;
const COMMITS: usize = 150;

/// Runs committers at all levels beside background work. Returns all committed bodies, in the order of their ends.
fn hammer(log: &Log) -> Vec<(Lsn, Vec<u8>)> {
    let stop = AtomicBool::new(false);
    let committed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if !log.tend().unwrap() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let committers: Vec<_> = (0..THREADS)
            .map(|t| {
                let committed = &committed;
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for i in 0..COMMITS {
                        let body = body(t * COMMITS + i, (t * 37 + i * 11) % 900);
                        let end = append(log, &body);
                        let level = match i % 10 {
                            0 => Durability::Written,
                            1 => Durability::Deferred,
                            _ => Durability::Flushed,
                        };
                        log.wait(end, level).unwrap();
                        assert!(level != Durability::Flushed || log.durable() >= end);
                        mine.push((end, body));
                    }
                    committed.lock().unwrap().extend(mine);
                })
            })
            .collect();
        for committer in committers {
            committer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        background.join().unwrap();
    });
    log.flush_to(log.head()).unwrap();
    let mut all = committed.into_inner().unwrap();
    all.sort_by_key(|(end, _)| *end);
    all
}

fn bodies(commits: &[(Lsn, Vec<u8>)]) -> Vec<Vec<u8>> {
    commits.iter().map(|(_, body)| body.clone()).collect()
}

#[test]
fn all_that_threads_commit_is_there_in_the_order_of_its_positions() {
    let machine = Machine::new(21);
    let (process, log) = machine.create();
    let committed = hammer(&log);
    let stats = log.stats();
    assert_eq!(stats.entries, (THREADS * COMMITS) as u64);
    assert!(stats.groups <= stats.entries, "{stats:?}");
    assert_eq!(stats.bytes, log.head().0 - FIRST_LSN.0);
    process.crash_by(SimDisk::power_cut);
    let (_, _, found) = machine.reopen(FIRST_LSN, 2).unwrap();
    assert_eq!(found, bodies(&committed));
}

#[test]
fn a_real_directory_does_the_same() {
    let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let disk = Arc::new(OsDisk::synchronous());
    let config = LogConfig {
        segment_bytes: 256 << 10,
        capacity_bytes: 4 << 20,
        buffer_bytes: 4 * MTR_BYTES_MAX,
        ..LogConfig::new(dir.path(), [3; 16])
    };
    let log = Log::create(disk.clone(), config.clone(), Arc::default()).unwrap();
    let mut all = bodies(&hammer(&log));
    drop(log);
    for incarnation in 2..4 {
        let config = LogConfig { incarnation, ..config.clone() };
        let mut reader = LogReader::open(disk.clone(), &config, FIRST_LSN, incarnation - 1).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            if !entry.body.is_empty() {
                found.push(entry.body.to_vec());
            }
        }
        assert_eq!(found, all);
        let log = Log::open(disk.clone(), config, Arc::default(), reader.finish().unwrap()).unwrap();
        all.extend(bodies(&hammer(&log)));
    }
}

#[test]
fn everybody_learns_of_the_failure() {
    let machine = Machine::new(22);
    let (_process, log) = machine.create();
    machine.disk.inject(seawall_sim::Fault::eio().on(seawall_io::Op::Sync).nth(25));
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                let error = loop {
                    let Ok(admitted) = log.try_admit(50) else { break log.health.check().unwrap_err() };
                    let reservation = log.reserve(admitted.unwrap(), 50);
                    let end = reservation.end;
                    reservation.publish(&[t as u8; 50]);
                    if let Err(error) = log.flush_to(end) {
                        assert!(log.durable() < end);
                        break error;
                    }
                };
                assert!(matches!(error, Error::Poisoned { .. }));
            });
        }
    });
}

/// All space is promised, and nothing can be written: the buffer is full, or the segments that may be open.
#[test]
fn a_thread_that_waits_for_promised_room_sleeps() {
    for buffer_bytes in [4 * MTR_BYTES_MAX, 32 * MTR_BYTES_MAX] {
        waits_for_promised_room(buffer_bytes);
    }
}

fn waits_for_promised_room(buffer_bytes: usize) {
    let (_process, log) = Machine { buffer_bytes, ..Machine::new(9) }.create();
    log.flush_to(log.head()).unwrap();
    let mut credits = Vec::new();
    while let Ok(credit) = log.try_admit(MTR_BYTES_MAX).unwrap() {
        credits.push(credit);
    }
    assert!((3..=6).contains(&credits.len()), "{}", credits.len());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let (began, mut asked) = (std::time::Instant::now(), 0_u128);
            while log.try_admit(MTR_BYTES_MAX).unwrap().is_err() {
                asked += 1;
                log.make_room(MTR_BYTES_MAX).unwrap();
            }
            (asked, began.elapsed().as_millis())
        });
        while log.stats().waits_for_buffer < 50 {
            std::thread::yield_now();
        }
        drop(credits);
        let (asked, millis) = waiter.join().unwrap();
        // A spinning thread asks thousands of times a millisecond, however slow the machine is.
        assert!(asked >= 48 && asked <= 10 + 2 * millis, "asked {asked} times in {millis} ms");
    });
}
