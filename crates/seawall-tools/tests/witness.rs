//! The witness over loopback, against simulated power cuts: data kept by an honest disk is never reported as
//! lost, losses of a lying one are found and named, and no stranger on the network disturbs the witness.

use seawall_io::{Disk, Op, OpenHow, WriteHow};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use seawall_tools::witness::{
    Cut, DamageKind, NoProof, PROTOCOL_VERSION, RunId, RunOptions, RunSummary, Sector, ServeEvent, ServeOptions,
    StreamKind, Verdict, Verification, VerifyOptions, Witness, WitnessError, WriteMethod, cleanup, run, verify,
};
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const DIR: &str = "/db";

fn sim(seed: u64) -> Arc<SimDisk> {
    let disk = SimDisk::new(SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() });
    disk.sync_dir(DIR.as_ref()).unwrap();
    disk
}

fn path(file: &str) -> PathBuf {
    Path::new(DIR).join(file)
}

/// Sets the flag even when a test fails, because scopes wait for their servers.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves from `disk` while `body` runs with the address; returns the events too.
fn serving<T>(disk: &Arc<SimDisk>, options: &ServeOptions, body: impl FnOnce(&str) -> T) -> (T, Vec<ServeEvent>) {
    let disk: Arc<dyn Disk> = disk.clone();
    let witness = Witness::bind(&disk, DIR.as_ref(), options).unwrap();
    let addr = witness.local_addr().unwrap().to_string();
    let (stop, events) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let result = thread::scope(|scope| {
        let _raise = Raise(&stop);
        scope.spawn(|| witness.serve(&stop, &|event| events.lock().unwrap().push(event.clone())));
        body(&addr)
    });
    (result, events.into_inner().unwrap())
}

fn any_port() -> ServeOptions {
    ServeOptions { listen: "127.0.0.1:0".into(), ..ServeOptions::default() }
}

fn small(addr: &str, seed: u64) -> RunOptions {
    RunOptions {
        witness: addr.into(),
        run: RunId(1000 + seed),
        seed,
        boot_id: Some("before".into()),
        method: WriteMethod::DirectFdatasync,
        threads: 2,
        block_bytes: 2048,
        slots: 8,
        append_blocks: 16,
        reserve_bytes: 0,
        reconnect_time_max: Duration::from_secs(5),
        ..RunOptions::default()
    }
}

fn run_whole(disk: &SimDisk, options: &RunOptions) -> Result<RunSummary, WitnessError> {
    run(disk, DIR.as_ref(), options, &AtomicBool::new(false), &|_| ())
}

fn wait_for_operations(disk: &SimDisk, operations: u64, give_up: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while disk.trace().len() < operations && !give_up() && Instant::now() < deadline {
        thread::sleep(Duration::from_micros(200));
    }
}

/// Starts a run and, after `operations` of the disk, calls `what` on the disk from outside.
fn run_and(
    disk: &SimDisk,
    options: &RunOptions,
    operations: u64,
    what: impl Fn(&SimDisk),
) -> Result<RunSummary, WitnessError> {
    thread::scope(|scope| {
        let running = scope.spawn(|| run_whole(disk, options));
        wait_for_operations(disk, operations, || running.is_finished());
        what(disk);
        running.join().unwrap()
    })
}

/// Runs until, after `operations` of the disk, `how` kills the process.
fn run_until(disk: &Arc<SimDisk>, options: &RunOptions, operations: u64, how: impl FnOnce(&SimDisk)) -> WitnessError {
    let mortal = Process::new(disk);
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&mortal, DIR.as_ref(), options, &AtomicBool::new(false), &|_| ()));
        wait_for_operations(disk, operations, || running.is_finished());
        mortal.crash_by(how);
        running.join().unwrap().expect_err("it was not asked to stop")
    })
}

fn check(disk: &dyn Disk, addr: &str, run: RunId, boot: &str) -> Result<Verification, WitnessError> {
    let options = VerifyOptions {
        witness: addr.into(),
        run,
        boot_id: Some(boot.into()),
        verified: "2026-11-20T12:00:00Z".into(),
        ..VerifyOptions::default()
    };
    verify(disk, DIR.as_ref(), &options, &AtomicBool::new(false), &|_| ())
}

fn overwrite(disk: &SimDisk, file: &str, offset: u64, bytes: &[u8]) {
    let handle = disk.open(&path(file), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let written = disk.write_at(&handle, offset, &[IoSlice::new(bytes)], WriteHow::default()).unwrap();
    assert_eq!(written, bytes.len());
}

#[test]
fn an_honest_disk_loses_nothing_in_any_power_cut() {
    let records = sim(0);
    let methods =
        [WriteMethod::DirectFdatasync, WriteMethod::DirectDsync, WriteMethod::BufferedFdatasync, WriteMethod::ODsync];
    serving(&records, &any_port(), |addr| {
        let (mut cuts_felt, mut kept) = (0, 0);
        for seed in 0..24 {
            let disk = sim(seed);
            let options = RunOptions { method: methods[seed as usize % 4], ..small(addr, seed) };
            let ended = run_until(&disk, &options, 150 + 40 * seed, SimDisk::power_cut);
            assert!(matches!(ended, WitnessError::Io(_)), "seed {seed}: {ended}");
            let found = check(&*disk, addr, options.run, "after").unwrap();
            assert_eq!(found.main.broken(), 0, "seed {seed}: {}", found.text());
            assert_eq!((found.beyond_record, found.ended, found.cut), (0, false, Cut::Rebooted));
            assert_eq!(found.main.intact, found.main.checked);
            cuts_felt += u32::from(found.control.unwrap().broken() > 0);
            kept += u32::from(found.verdict() == Verdict::Kept);
        }
        assert!(cuts_felt > 12, "the control lost data in only {cuts_felt} of 24 cuts");
        assert!(kept > 12);
    });
}

#[test]
fn a_lying_flush_is_caught_and_named() {
    let records = sim(0);
    serving(&records, &any_port(), |addr| {
        let disk = sim(3);
        // From some point on a volatile cache holds everything the run acknowledged; one run, many outcomes
        // of the cut.
        let options = RunOptions { writes_max: Some(600), ..small(addr, 3) };
        run_and(&disk, &options, 300, |disk| disk.lying_flush(true)).unwrap();
        let (mut lost, mut torn, mut overtaking, mut caught) = (0, 0, 0, 0);
        for seed in 0..16 {
            let after = disk.fork(seed);
            after.power_cut();
            let found = check(&*after, addr, options.run, "after").unwrap();
            // A cut may spare a volatile cache; then the loss cannot be detected.
            if found.main.broken() == 0 {
                continue;
            }
            caught += 1;
            assert_eq!(found.verdict(), Verdict::Broken, "{}", found.text());
            lost += found.main.lost;
            torn += found.main.torn;
            overtaking += found.main.overtaking;
            let text = found.text();
            assert!(text.contains("does not keep its promise") && text.contains("power-loss protection"), "{text}");
            let outcome = found.proof().expect("a broken promise is a proof");
            assert_eq!(outcome.acknowledged, found.main.acknowledged);
            assert!(outcome.lost + outcome.torn > 0);
            let finding = found.findings.iter().find(|f| f.stream != StreamKind::Control).unwrap();
            assert!(finding.file.starts_with(&format!("witness-{}-", options.run)));
            assert!(text.contains(&finding.file));
        }
        assert!(caught >= 6, "caught in {caught} of 16 cuts");
        assert!(lost > 0 && torn > 0 && overtaking > 0, "{lost} {torn} {overtaking}");
    });
}

#[test]
fn writes_without_sync_are_lost_and_not_held_against_the_disk() {
    let records = sim(0);
    serving(&records, &any_port(), |addr| {
        for (seed, method) in [(5, WriteMethod::NoSync), (6, WriteMethod::DirectNoSync)] {
            let disk = sim(seed);
            let options = RunOptions { method, ..small(addr, seed) };
            // A power cut may spare a volatile cache; this one loses all that was not flushed.
            let mut stable = None;
            run_until(&disk, &options, 400, |disk| {
                stable = Some(disk.clone_stable());
                disk.power_cut();
            });
            let found = check(&*stable.unwrap(), addr, options.run, "after").unwrap();
            assert_eq!(found.verdict(), Verdict::Control { lost_data: true }, "{}", found.text());
            assert!(found.proof().is_none());
        }
    });
}

#[test]
fn one_lost_write_among_many_is_found_with_what_overtook_it() {
    let records = sim(0);
    serving(&records, &any_port(), |addr| {
        let disk = sim(8);
        // Direct writes: a buffered page that is dirtied again also carries bytes that an earlier write-back
        // lost.
        let options = RunOptions { writes_max: Some(400), ..small(addr, 8) };
        // Stream 2 is the first thread's appends. The newest file and the one before it exist at the end.
        let stop = AtomicBool::new(false);
        let append = path(&format!("witness-{}-append-2-1", options.run));
        disk.inject(Fault::lost_write().on(Op::Write).path(&append).nth(3).once());
        thread::scope(|scope| {
            let running = scope.spawn(|| run(&*disk, DIR.as_ref(), &options, &stop, &|_| ()));
            let deadline = Instant::now() + Duration::from_secs(10);
            while disk.seen(&append).is_none_or(|bytes| bytes.len() < 8 * 2048) && Instant::now() < deadline {
                thread::sleep(Duration::from_micros(100));
            }
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap().unwrap();
        });
        disk.power_cut();
        let found = check(&*disk, addr, options.run, "after").unwrap();
        let main: Vec<_> = found.findings.iter().filter(|f| f.stream != StreamKind::Control).collect();
        assert_eq!(main.len(), 1, "{}", found.text());
        assert_eq!((main[0].kind, main[0].write.stream, main[0].write.sequence), (DamageKind::Lost, 2, 16 + 3));
        assert!(main[0].overtaken_by.is_some() && found.main.overtaking > 0);
        assert!(found.text().contains("issued later, is there"));
    });
}

#[test]
fn torn_corrupted_and_misplaced_blocks_are_told_apart() {
    let records = sim(0);
    serving(&records, &any_port(), |addr| {
        let disk = sim(9);
        let options = RunOptions { writes_max: Some(700), control: false, ..small(addr, 9) };
        run_whole(&disk, &options).unwrap();
        let scratch = format!("witness-{}-scratch", options.run);
        let before = check(&*disk, addr, options.run, "after").unwrap();
        assert_eq!(before.main.broken(), 0, "{}", before.text());
        let main = before.main;
        let next = main.in_flight_whole + main.in_flight_torn + main.in_flight_absent;
        assert_eq!(next, 0, "a run that ended in order has nothing in flight");
        let bytes = disk.seen(path(&scratch)).unwrap();
        // Places of both threads: half zeroes, one bad bit, all garbage, another place's block, all zeroes.
        disk.flip_bit(path(&scratch), 11 * 2048 + 700, 3).unwrap();
        disk.power_cut();
        overwrite(&disk, &scratch, 10 * 2048 + 512, &[0; 1024]);
        overwrite(&disk, &scratch, 4 * 2048, &[0xa5; 2048]);
        overwrite(&disk, &scratch, 5 * 2048, &bytes[2048..4096]);
        overwrite(&disk, &scratch, 6 * 2048, &[0; 2048]);
        let found = check(&*disk, addr, options.run, "after").unwrap();
        let kinds: Vec<_> = found.findings.iter().map(|f| (f.offset / 2048, f.kind, f.found[0].held)).collect();
        let at = |place| *kinds.iter().find(|(at, ..)| *at == place).unwrap();
        assert!(matches!(at(10), (_, DamageKind::Torn, Sector::Version(_))));
        assert_eq!(at(4), (4, DamageKind::Corrupted, Sector::Damaged));
        assert_eq!(at(5), (5, DamageKind::Corrupted, Sector::Foreign));
        assert_eq!(at(6), (6, DamageKind::Lost, Sector::Zeroes));
        assert!(matches!(at(11), (_, DamageKind::Torn, Sector::Version(_))));
        assert_eq!(found.findings_total, 5, "{}", found.text());
        let found = Verification::from_json(&found.to_json()).unwrap();
        assert_eq!(found.outcome().lost, 3, "corrupted ones are gone too");
        // An unreadable block is also a finding, not an error.
        disk.inject(Fault::eio().on(Op::Read).path(path(&scratch)));
        let found = check(&*disk, addr, options.run, "after").unwrap();
        assert!(found.findings.iter().any(|f| f.found[0].held == Sector::Unreadable));
    });
}

#[test]
fn the_death_of_the_process_proves_nothing_and_says_so() {
    let records = sim(0);
    let ((), events) = serving(&records, &any_port(), |addr| {
        let disk = sim(11);
        let options = small(addr, 11);
        run_until(&disk, &options, 300, SimDisk::process_crash);
        let found = check(&*disk, addr, options.run, "before").unwrap();
        assert_eq!(found.main.broken() + found.control.unwrap().broken(), 0, "{}", found.text());
        assert_eq!(found.verdict(), Verdict::ProvesNothing(NoProof::SameBoot));
        assert!(found.text().contains("proves nothing about power loss"), "{}", found.text());
        assert!(found.proof().is_none());
        let names = disk.list(DIR.as_ref()).unwrap().len();
        assert_eq!(cleanup(&*disk, DIR.as_ref(), options.run).unwrap(), names);
        assert!(disk.list(DIR.as_ref()).unwrap().is_empty());
    });
    let vanished = |e: &ServeEvent| matches!(e, ServeEvent::Vanished { run: RunId(1011), acknowledged: 1.., .. });
    assert!(events.iter().any(vanished), "{events:?}");
}

#[test]
fn a_witness_that_is_restarted_is_found_again() {
    let records = sim(0);
    let disk = sim(12);
    let options = RunOptions { duration: Some(Duration::from_secs(8)), ..small("", 12) };
    let mut listen = String::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _raise = Raise(&stop);
        let mut running = None;
        serving(&records, &any_port(), |addr| {
            listen = addr.into();
            let options = RunOptions { witness: addr.into(), ..options.clone() };
            let (disk, stop) = (&disk, &stop);
            running = Some(scope.spawn(move || run(&**disk, DIR.as_ref(), &options, stop, &|_| ())));
            wait_for_operations(disk, 300, || false);
        });
        // The witness loses its power: reports it confirmed must be there when it is back.
        let again = records.fork(1);
        again.power_cut();
        let at_restart = disk.trace().len();
        let ((), events) = serving(&again, &ServeOptions { listen: listen.clone(), ..any_port() }, |addr| {
            wait_for_operations(&disk, at_restart + 300, || false);
            stop.store(true, Ordering::Relaxed);
            let summary = running.take().unwrap().join().unwrap().unwrap();
            disk.power_cut();
            let found = check(&*disk, addr, options.run, "after").unwrap();
            assert_eq!(found.main.broken(), 0, "{}", found.text());
            assert!(found.ended);
            assert_eq!(found.main.acknowledged + found.control.unwrap().acknowledged, summary.acknowledged);
        });
        assert!(events.iter().any(|e| matches!(e, ServeEvent::Resumed { acknowledged: 1.., .. })), "{events:?}");
    });
}

/// A run whose witness stops after a while; returns the witness's address, and the run's thread.
fn abandoned<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    records: &Arc<SimDisk>,
    disk: &Arc<SimDisk>,
    options: &RunOptions,
) -> (String, thread::ScopedJoinHandle<'scope, Result<RunSummary, WitnessError>>) {
    serving(records, &any_port(), |addr| {
        let (mine, options) = (disk.clone(), RunOptions { witness: addr.into(), ..options.clone() });
        let running = scope.spawn(move || run_whole(&mine, &options));
        wait_for_operations(disk, 300, || running.is_finished());
        (addr.to_owned(), running)
    })
    .0
}

#[test]
fn a_witness_that_stays_away_ends_the_run() {
    let (records, disk) = (sim(0), sim(13));
    let options = RunOptions { reconnect_time_max: Duration::from_millis(300), ..small("", 13) };
    thread::scope(|scope| {
        let (_, running) = abandoned(scope, &records, &disk, &options);
        let error = running.join().unwrap().unwrap_err();
        assert!(matches!(error, WitnessError::ConnectionLost { .. }), "{error}");
        assert!(error.to_string().contains("can be verified"));
    });
    disk.power_cut();
    serving(&records, &any_port(), |addr| {
        let found = check(&*disk, addr, options.run, "after").unwrap();
        assert!(found.main.acknowledged > 0);
        assert_eq!(found.main.broken(), 0, "{}", found.text());
    });
}

#[test]
fn a_witness_that_forgets_is_named() {
    let (records, disk) = (sim(0), sim(14));
    let options = small("", 14);
    thread::scope(|scope| {
        let (listen, running) = abandoned(scope, &records, &disk, &options);
        // The record without its last entries, as a disk that lies to the witness would leave it.
        let record =
            records.open(&path(&format!("{}.witness", options.run)), OpenHow { write: true, ..OpenHow::default() });
        let record = record.unwrap();
        let len = records.len(&record).unwrap();
        records.set_len(&record, len - 16 * 60).unwrap();
        serving(&records, &ServeOptions { listen, ..any_port() }, |addr| {
            let error = running.join().unwrap().unwrap_err();
            assert!(matches!(error, WitnessError::WitnessForgot { .. }), "{error}");
            let found = check(&*disk, addr, options.run, "before").unwrap();
            assert!(found.beyond_record > 0 && found.text().contains("lower bounds"), "{}", found.text());
        });
    });
}

#[test]
fn what_keeps_two_sides_apart_is_said() {
    let records = sim(0);
    let locked = ServeOptions { token: "tide".into(), ..any_port() };
    let (addr, _) = serving(&records, &locked, |addr| {
        let disk = sim(14);
        let with = |token: &str| RunOptions { token: token.into(), writes_max: Some(20), ..small(addr, 14) };
        for token in ["", "tid", "tidy", "tide "] {
            let error = run_whole(&disk, &with(token)).unwrap_err();
            assert!(matches!(error, WitnessError::WrongToken), "{error}");
        }
        assert!(disk.list(DIR.as_ref()).unwrap().is_empty(), "nothing is written before the witness agrees");
        assert_eq!(run_whole(&disk, &with("tide")).unwrap().acknowledged, 20);
        // The same id again: neither files nor record are changed.
        let error = run_whole(&disk, &with("tide")).unwrap_err();
        assert!(matches!(&error, WitnessError::Io(e) if e.op == Op::Open), "{error}");
        let other = sim(15);
        let error = run_whole(&other, &with("tide")).unwrap_err();
        assert!(matches!(error, WitnessError::RunExists { .. }), "{error}");
        assert!(other.list(DIR.as_ref()).unwrap().is_empty(), "a run that never began leaves no files");
        let options =
            VerifyOptions { witness: addr.into(), token: "tide".into(), run: RunId(77), ..VerifyOptions::default() };
        let error = verify(&*disk, DIR.as_ref(), &options, &AtomicBool::new(false), &|_| ()).unwrap_err();
        assert!(error.to_string().contains("knows no run 000000000000004d; it knows 00000000000003f6"), "{error}");
        let disk: Arc<dyn Disk> = disk;
        let taken = ServeOptions { listen: addr.into(), ..any_port() };
        let error = Witness::bind(&disk, DIR.as_ref(), &taken).unwrap_err();
        assert!(matches!(error, WitnessError::AddressInUse { .. }), "{error}");
        addr.to_owned()
    });
    let error = run_whole(&sim(1), &small(&addr, 1)).unwrap_err();
    assert!(matches!(error, WitnessError::CannotReach { .. }), "{error}");
    assert!(error.to_string().contains("seawall witness serve"));
    for broken in [
        RunOptions { threads: 0, ..small(&addr, 1) },
        RunOptions { block_bytes: 1000, ..small(&addr, 1) },
        RunOptions { token: "x".repeat(300), ..small(&addr, 1) },
    ] {
        assert!(matches!(run_whole(&sim(1), &broken), Err(WitnessError::BadOption { .. })));
    }
}

#[test]
fn another_protocol_is_named_on_both_sides() {
    let records = sim(0);
    let future = b"SEAWITNS\x63\x00\x00\x00";
    serving(&records, &any_port(), |addr| {
        let mut socket = TcpStream::connect(addr).unwrap();
        socket.write_all(future).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[..8], *b"SEAWITNS");
        assert_eq!(u16::from_le_bytes([answer[8], answer[9]]), PROTOCOL_VERSION);
    });
    let answers: [(&[u8], &str); 3] = [
        (future, "protocol 1 and the other side 99"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a seawall witness"),
        (b"", "not a seawall witness"),
    ];
    for (answer, expected) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut preamble = [0; 12];
                socket.read_exact(&mut preamble).unwrap();
                socket.write_all(answer).unwrap();
            });
            let error = run_whole(&sim(1), &small(&addr, 1)).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        });
    }
}

#[test]
fn strangers_and_their_garbage_do_not_disturb_a_run() {
    let records = sim(0);
    let ((), events) = serving(&records, &ServeOptions { connections_max: 8, ..any_port() }, |addr| {
        let disk = sim(16);
        let options = RunOptions { writes_max: Some(300), ..small(addr, 16) };
        thread::scope(|scope| {
            let running = scope.spawn(|| run_whole(&disk, &options));
            // So that the strangers cannot take the run's own slot among the eight.
            wait_for_operations(&disk, 60, || running.is_finished());
            let auth = {
                let crc = crc32c::crc32c(&[1]).to_le_bytes();
                [1, 0, 0, 0, crc[0], crc[1], crc[2], crc[3], 1]
            };
            let mut noise = 1_u64;
            for round in 0..30 {
                let Ok(mut socket) = TcpStream::connect(addr) else { continue };
                let mut bytes = Vec::new();
                if round % 3 > 0 {
                    bytes.extend_from_slice(b"SEAWITNS\x01\x00\x00\x00");
                }
                if round % 3 > 1 {
                    bytes.extend_from_slice(&auth);
                }
                if round % 2 == 0 {
                    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
                }
                for _ in 0..(12 + round * 40) {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    bytes.push((noise >> 56) as u8);
                }
                // The witness may already have closed the connection.
                drop(socket.write_all(&bytes));
            }
            assert_eq!(running.join().unwrap().unwrap().acknowledged, 300);
        });
        disk.power_cut();
        thread::sleep(Duration::from_millis(200));
        assert_eq!(check(&*disk, addr, options.run, "after").unwrap().main.broken(), 0);
        // Silent ones hold slots, never more than there are, and the witness closes the other connections.
        let silent: Vec<_> = (0..12).map(|_| TcpStream::connect(addr).unwrap()).collect();
        thread::sleep(Duration::from_millis(300));
        let error = check(&*disk, addr, options.run, "after").unwrap_err();
        assert!(matches!(error, WitnessError::NotAWitness { .. } | WitnessError::CannotReach { .. }), "{error}");
        drop(silent);
        thread::sleep(Duration::from_millis(300));
        check(&*disk, addr, options.run, "after").unwrap();
    });
    let refused = |word: &str| {
        events.iter().any(|event| matches!(event, ServeEvent::Refused { reason, .. } if reason.contains(word)))
    };
    assert!(refused("too many") && refused("impossible length") && refused("preamble"), "{events:?}");
}

#[test]
fn runs_do_not_disturb_each_other_and_limits_hold() {
    let records = sim(0);
    serving(&records, &ServeOptions { runs_max: 4, record_bytes_max: 8 << 10, ..any_port() }, |addr| {
        thread::scope(|scope| {
            let options = |seed| RunOptions { writes_max: Some(100), ..small(addr, seed) };
            let runs: Vec<_> =
                (20..23).map(|seed| scope.spawn(move || run_whole(&sim(seed), &options(seed)))).collect();
            for run in runs {
                assert_eq!(run.join().unwrap().unwrap().acknowledged, 100);
            }
        });
        // The fourth fills its record, the fifth is one too many.
        for seed in [23, 24] {
            let error = run_whole(&sim(seed), &small(addr, seed)).unwrap_err();
            assert!(matches!(error, WitnessError::Refused { .. }), "{error}");
            assert!(error.to_string().contains("limit of runs"), "{error}");
        }
    });
}

#[test]
fn the_real_disk_under_every_method() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(seawall_io::OsDisk::synchronous());
    let records = sim(0);
    serving(&records, &any_port(), |addr| {
        for (seed, method) in (30..).zip(WriteMethod::ALL) {
            let options = RunOptions { method, block_bytes: 4096, writes_max: Some(120), ..small(addr, seed) };
            match run(&*disk, dir.path(), &options, &AtomicBool::new(false), &|_| ()) {
                Ok(summary) => assert_eq!(summary.acknowledged, 120),
                // A directory without direct I/O (tmpfs): refused, and nothing left behind.
                Err(WitnessError::Io(error)) => {
                    assert!(error.errno() == Some(22) && method.name().starts_with("direct"), "{error}");
                    assert_eq!(disk.list(dir.path()).unwrap(), Vec::<PathBuf>::new());
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            let options = VerifyOptions {
                witness: addr.into(),
                run: options.run,
                boot_id: Some("before".into()),
                ..VerifyOptions::default()
            };
            let found = verify(&*disk, dir.path(), &options, &AtomicBool::new(false), &|_| ()).unwrap();
            assert_eq!((found.main.broken(), found.main.intact), (0, found.main.checked), "{}", found.text());
            // How many streams came to write is the scheduler's choice.
            assert!(cleanup(&*disk, dir.path(), options.run).unwrap() > 0);
            assert_eq!(disk.list(dir.path()).unwrap(), Vec::<PathBuf>::new());
        }
    });
}
