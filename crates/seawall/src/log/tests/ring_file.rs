//! The ring in a file, and what an opening finds there.

use super::*;
use seawall_io::{Create, Op, OpenHow, WriteHow};
use seawall_sim::{Fault, FaultKind};
use std::io::IoSlice;

/// The ring of the first opening.
const RING: &str = "/shm/seawall-09090909090909090909090909090909-1.ring";
/// The ring of the second opening.
const RING_2: &str = "/shm/seawall-09090909090909090909090909090909-2.ring";

fn machine(seed: u64) -> Machine {
    Machine { ring_dir: Some("/shm".into()), ..Machine::new(seed) }
}

fn written(log: &Log, bodies: std::ops::Range<usize>) {
    for i in bodies {
        log.wait(append(log, &body(i, 60)), Durability::Written).unwrap();
    }
}

/// Commits bodies of this length until the buffer is full.
fn fill(log: &Log, bodies: &mut Vec<Vec<u8>>, len: usize) {
    while let Ok(credit) = log.try_admit(len).unwrap() {
        bodies.push(vec![bodies.len() as u8; len]);
        let reservation = log.reserve(credit, len);
        let end = reservation.end;
        reservation.publish(bodies.last().unwrap());
        log.wait(end, Durability::Written).unwrap();
    }
}

/// Overwrites the beginning of a file with these bytes.
fn overwrite(disk: &SimDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(path.as_ref(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let done = disk.write_at(&file, 0, &[IoSlice::new(bytes)], WriteHow::default()).unwrap();
    assert_eq!(done, bytes.len());
}

#[test]
fn a_commit_at_written_writes_nothing_and_outlives_the_process() {
    let machine = machine(1);
    let (process, log) = machine.create();
    written(&log, 0..1);
    let operations = machine.disk.trace().len();
    written(&log, 1..500);
    assert_eq!(machine.disk.trace().len(), operations, "operations of the disk");
    assert_eq!(log.written(), FIRST_LSN);
    process.crash_by(SimDisk::process_crash);
    let (_process, log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
    assert_eq!(bodies, (0..500).map(|i| body(i, 60)).collect::<Vec<_>>());
    assert_eq!(log.durable(), log.head(), "what the ring had is durable now");
}

/// The ring has more than the reader holds at a time (1).
#[test]
fn a_whole_ring_outlives_the_process() {
    let machine = Machine { segment_bytes: 1 << 20, buffer_bytes: 16 << 20, ..machine(9) };
    let (process, log) = machine.create();
    let mut bodies = Vec::new();
    fill(&log, &mut bodies, 60_000);
    log.write_group(false).unwrap();
    assert!(log.head().0 - log.written().0 > 13 << 20, "{} of {}", log.written(), log.head());
    process.crash_by(SimDisk::process_crash);
    let (_process, _log, found) = machine.reopen(FIRST_LSN, 2).unwrap();
    assert_eq!((found.len(), found == bodies), (bodies.len(), true));
}

/// A segment ends within an entry: the entry's first part is in that segment alone, because its place in the ring is
/// used again.
#[test]
fn an_entry_is_put_together_from_the_segments_and_the_ring() {
    for len in [1_000, 50_000, 200_000] {
        let machine = machine(10);
        let (process, log) = machine.create();
        let mut bodies = Vec::new();
        for writes in [0, 1, 2, 3] {
            if writes > 0 {
                assert!(log.write_group(false).unwrap());
            }
            fill(&log, &mut bodies, len);
            let machine = machine.fork(writes);
            machine.disk.process_crash();
            let (_process, _log, found) = machine.reopen(FIRST_LSN, 2).unwrap();
            assert_eq!((found.len(), found == bodies), (bodies.len(), true), "{writes} writes of bodies of {len}");
        }
        process.crash_by(SimDisk::process_crash);
    }
}

#[test]
fn an_opening_without_a_ring_or_with_another_finds_it_and_removes_it() {
    for (seed, then) in [(1, None), (2, Some("/elsewhere"))] {
        let mut machine = machine(seed);
        let (process, log) = machine.create();
        written(&log, 0..40);
        process.crash_by(SimDisk::process_crash);
        machine.ring_dir = then.map(PathBuf::from);
        let (process, log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
        assert_eq!(bodies.len(), 40);
        assert_eq!(machine.disk.seen(RING), None);
        written(&log, 40..60);
        process.crash_by(SimDisk::process_crash);
        machine.ring_dir = None;
        let (_process, log, bodies) = machine.reopen(FIRST_LSN, 3).unwrap();
        assert_eq!(bodies.len(), 60);
        log.forget_ring();
        assert_eq!(machine.disk.seen(format!("{DIR}/ring")), None);
    }
}

#[test]
fn a_log_that_has_ended_leaves_no_ring() {
    let machine = machine(3);
    let (_process, log) = machine.create();
    written(&log, 0..3);
    log.flush_to(log.head()).unwrap();
    assert!(machine.disk.seen(RING).is_some() && machine.disk.seen(format!("{DIR}/ring")).is_some());
    log.forget_ring();
    assert!(machine.disk.seen(RING).is_none() && machine.disk.seen(format!("{DIR}/ring")).is_none());
}

/// A process is killed again and again while it copies the ring to the segments: no entry is lost in the end.
#[test]
fn a_crash_while_the_ring_is_taken_up_loses_nothing() {
    let machine = machine(4);
    let (process, log) = machine.create();
    // The log crosses the end of a segment, and the written part ends inside a block.
    let first = append(&log, &body(0, 60_000));
    log.flush_to(first).unwrap();
    written(&log, 1..300);
    process.crash_by(SimDisk::process_crash);
    let config = machine.config(2);
    for died_at in 0..60 {
        let machine = machine.fork(died_at);
        let faulty = Arc::new(Process::new(&machine.disk));
        machine.disk.inject(Fault::eio().nth(died_at + 1).once());
        let attempt = || -> Result<Log> {
            let (_, tail) = machine.read(faulty.clone(), FIRST_LSN, 1)?;
            Log::open(faulty.clone(), config.clone(), Arc::default(), tail)
        };
        drop(attempt());
        faulty.crash_by(SimDisk::process_crash);
        machine.disk.clear_faults();
        let (_process, _log, bodies) = machine.reopen(FIRST_LSN, 3).unwrap();
        assert_eq!(bodies.len(), 300, "an error at operation {died_at}");
    }
}

/// An entry that an earlier opening left in the ring begins exactly where the log of a later one ends (3).
#[test]
fn nothing_of_an_earlier_opening_is_taken() {
    let machine = machine(5);
    let (process, log) = machine.create();
    let filled = append(&log, &body(0, 60));
    log.flush_to(filled).unwrap();
    // This entry is as long as the one with which an opening begins.
    append(&log, &[]);
    written(&log, 1..2);
    process.crash_by(SimDisk::process_crash);
    let old = machine.disk.seen(RING).unwrap();
    // First a power cut leaves nothing of the ring; after the next opening, the old ring is back.
    overwrite(&machine.disk, RING, &vec![0; old.len()]);
    let (process, log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
    assert_eq!((bodies.len(), log.head().0), (1, filled.0 + HEADER_BYTES as u64));
    process.crash_by(SimDisk::process_crash);
    overwrite(&machine.disk, RING_2, &old);
    let (_process, _log, bodies) = machine.reopen(FIRST_LSN, 3).unwrap();
    assert_eq!(bodies.len(), 1, "the second body is of an opening whose end was decided before");
}

#[test]
fn what_is_no_ring_is_nothing() {
    let machine = machine(6);
    let (process, log) = machine.create();
    log.flush_to(append(&log, &body(0, 60))).unwrap();
    process.crash_by(SimDisk::process_crash);
    for garbage in [&b""[..], b"x", b"/shm/other", b"0:1 zz /shm/other.ring", b"0:1 1 /shm/other.ring", &[0xff; 300]] {
        let machine = machine.fork(7);
        let pointer = machine.disk.open(format!("{DIR}/ring").as_ref(), OpenHow { write: true, ..OpenHow::default() });
        machine.disk.set_len(&pointer.unwrap(), 0).unwrap();
        overwrite(&machine.disk, &format!("{DIR}/ring"), garbage);
        assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 1);
    }
    // A ring that is too short, and no ring at all.
    let file = machine.disk.open(RING.as_ref(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    machine.disk.set_len(&file, 5).unwrap();
    assert_eq!(machine.fork(8).reopen(FIRST_LSN, 2).unwrap().2.len(), 1);
    machine.disk.remove(RING.as_ref()).unwrap();
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 1);
}

#[test]
fn a_directory_that_cannot_have_it_is_refused_with_what_to_do() {
    let machine = machine(7);
    let create = || Log::create(Arc::new(Process::new(&machine.disk)), machine.config(1), Arc::default());
    // The first inspection asks for the file's length.
    machine.disk.inject(Fault::new(FaultKind::Errno(95)).on(Op::Inspect).path(RING).nth(2).once());
    let refused = create().unwrap_err();
    assert!(matches!(&refused, Error::InvalidOption { name, .. } if name == "log_ring_dir"), "{refused}");
    assert!(refused.to_string().contains("/dev/shm"), "{refused}");
    assert_eq!(machine.disk.seen(RING), None, "what was begun is gone");
}

/// Copies the files of the log's directory to another.
fn copy_to(dir: &str, disk: &SimDisk) {
    for path in disk.list(DIR.as_ref()).unwrap() {
        let bytes = disk.seen(&path).unwrap();
        let new = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
        let file = disk.open(&Path::new(dir).join(path.file_name().unwrap()), new).unwrap();
        assert_eq!(disk.write_at(&file, 0, &[IoSlice::new(&bytes)], WriteHow::default()).unwrap(), bytes.len());
    }
}

/// Reads the log in another process. Returns how many bodies were found, in the segments and in the ring.
fn read(disk: &Arc<dyn Disk>, config: &LogConfig) -> (usize, LogReader) {
    let mut reader = LogReader::open(disk.clone(), config, FIRST_LSN, 1).unwrap();
    reader.with_ring(disk, config).unwrap();
    let mut bodies = 0;
    while let Some(entry) = reader.next().unwrap() {
        bodies += usize::from(!entry.body.is_empty());
    }
    (bodies, reader)
}

/// Like `read`, and opens the log.
fn take_up(machine: &Machine, config: LogConfig) -> (usize, Log) {
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&machine.disk));
    let (bodies, reader) = read(&disk, &config);
    (bodies, Log::open(disk, config, Arc::default(), reader.finish().unwrap()).unwrap())
}

/// A copy of a running database does not use its ring; a copy of a killed database takes the ring's entries and leaves
/// the ring (5).
#[test]
fn a_copy_leaves_the_ring_to_the_original() {
    let machine = machine(11);
    let (process, log) = machine.create();
    log.flush_to(append(&log, &body(0, 60))).unwrap();
    written(&log, 1..20);
    copy_to("/live", &machine.disk);
    let open = |dir: &str| take_up(&machine, LogConfig { dir: dir.into(), ..machine.config(2) });
    let (bodies, live) = open("/live");
    assert_eq!(bodies, 1);
    written(&live, 20..30);
    process.crash_by(SimDisk::process_crash);
    copy_to("/killed", &machine.disk);
    let (bodies, killed) = open("/killed");
    assert_eq!(bodies, 20);
    written(&killed, 30..40);
    assert_eq!(machine.disk.list("/shm".as_ref()).unwrap().len(), 3);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2, (0..20).map(|i| body(i, 60)).collect::<Vec<_>>());
}

/// The directory of the ring was moved, and the option with it.
#[test]
fn a_ring_is_found_where_it_was_moved_to() {
    let machine = machine(17);
    let (process, log) = machine.create();
    log.flush_to(append(&log, &body(0, 60))).unwrap();
    written(&log, 1..20);
    process.crash_by(SimDisk::process_crash);
    let moved = Path::new("/moved").join(Path::new(RING).file_name().unwrap());
    machine.disk.rename(RING.as_ref(), &moved).unwrap();
    let (bodies, _log) = take_up(&machine, LogConfig { ring_dir: Some("/moved".into()), ..machine.config(2) });
    assert_eq!(bodies, 20);
    assert_eq!(machine.disk.list("/moved".as_ref()).unwrap().len(), 1, "the old one is gone, and the new one is there");
}

/// Files older than what the ring says was written: later log is not in them, and the ring's entries are not taken
/// either (7).
#[test]
fn files_put_back_from_an_older_copy_do_not_get_what_came_after_them() {
    let machine = machine(16);
    let (process, log) = machine.create();
    written(&log, 0..10);
    log.flush_to(log.head()).unwrap();
    copy_to("/old", &machine.disk);
    written(&log, 10..20);
    log.flush_to(log.head()).unwrap();
    written(&log, 20..30);
    process.crash_by(SimDisk::process_crash);
    let open = |dir: &str| {
        let disk: Arc<dyn Disk> = Arc::new(Process::new(&machine.disk));
        read(&disk, &LogConfig { dir: dir.into(), ..machine.config(2) }).0
    };
    assert_eq!(open("/old"), 10);
    assert_eq!(open(DIR), 30);
}

/// A killed process of an earlier version left the ring.
#[test]
fn a_ring_without_a_mark_is_taken_up() {
    let machine = machine(18);
    let (process, log) = machine.create();
    written(&log, 0..30);
    process.crash_by(SimDisk::process_crash);
    let file = machine.disk.open(RING.as_ref(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    machine.disk.set_len(&file, machine.buffer_bytes as u64).unwrap();
    drop(file);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 30);
}

/// A power cut right after an opening leaves no ring that no opening knows.
#[test]
fn a_power_cut_leaves_no_ring_behind() {
    let machine = Machine { ring_dir: Some(DIR.into()), ..machine(17) };
    let (process, log) = machine.create();
    written(&log, 0..10);
    process.crash_by(SimDisk::process_crash);
    for seed in 0..20 {
        let machine = machine.fork(seed);
        let (process, log, _) = machine.reopen(FIRST_LSN, 2).unwrap();
        drop(log);
        process.crash_by(SimDisk::power_cut);
        let (_process, _log, _) = machine.reopen(FIRST_LSN, 3).unwrap();
        let rings = machine.disk.list(DIR.as_ref()).unwrap();
        let rings: Vec<_> = rings.iter().filter(|path| path.extension().is_some_and(|e| e == "ring")).collect();
        assert_eq!(rings.len(), 1, "{rings:?}");
    }
}

/// Another file has the name of the ring: it is neither taken nor removed (5).
#[test]
fn a_file_of_the_same_name_is_not_the_ring() {
    let machine = machine(14);
    let (process, log) = machine.create();
    log.flush_to(append(&log, &body(0, 60))).unwrap();
    written(&log, 1..20);
    process.crash_by(SimDisk::process_crash);
    let ring = machine.disk.seen(RING).unwrap();
    machine.disk.remove(RING.as_ref()).unwrap();
    let new = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    drop(machine.disk.open(RING.as_ref(), new).unwrap());
    overwrite(&machine.disk, RING, &ring);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 1);
    assert_eq!(machine.disk.seen(RING), Some(ring));
}

/// Whichever read of the segments fails, once or always: the opening returns the disk's error or every entry.
#[test]
fn an_unreadable_segment_beside_the_ring_loses_nothing() {
    let machine = machine(15);
    let (process, log) = machine.create();
    let checkpoint = append(&log, &body(0, 60));
    log.flush_to(append(&log, &body(1, 60))).unwrap();
    written(&log, 2..200);
    process.crash_by(SimDisk::process_crash);
    for nth in 1..12 {
        let machine = machine.fork(nth);
        let fault = Fault::eio().on(Op::Read).path("redo.");
        machine.disk.inject(if nth == 1 { fault } else { fault.nth(nth - 1).once() });
        match machine.reopen(checkpoint, 2) {
            Ok((_, _, bodies)) => assert_eq!(bodies.len(), 199, "read {nth}"),
            Err(error) => assert!(matches!(error, Error::Io(_)), "read {nth}: {error}"),
        }
        machine.disk.clear_faults();
        machine.disk.process_crash();
        assert_eq!(machine.reopen(checkpoint, 3).unwrap().2.len(), 199, "after read {nth}");
    }
}

/// The file loses its name while it is mapped (8).
#[test]
fn a_ring_that_was_removed_is_not_relied_on() {
    let machine = machine(12);
    let (process, log) = machine.create();
    written(&log, 0..10);
    machine.disk.remove(RING.as_ref()).unwrap();
    machine.clock.advance(Duration::from_secs(1));
    // Another thread flushes meanwhile, so that nothing unflushed is old.
    log.flush_to(log.head()).unwrap();
    log.tend().unwrap();
    written(&log, 10..20);
    assert_eq!(log.written(), log.head());
    process.crash_by(SimDisk::process_crash);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 20);
}

/// Log that is published after the database was poisoned may build on a broken page.
#[test]
fn nothing_that_is_published_after_an_error_is_taken() {
    let machine = machine(13);
    let (process, log) = machine.create();
    written(&log, 0..10);
    // More mini-transactions than can be between reservation and publication at a time.
    let admitted: Vec<_> = (0..100).map(|_| log.try_admit(100).unwrap().unwrap()).collect();
    drop(log.health.poison(Error::Usage("a page is broken".into())));
    for credit in admitted {
        let reservation = log.reserve(credit, 100);
        let end = reservation.end;
        reservation.publish(&[7; 100]);
        assert!(log.wait(end, Durability::Written).is_err());
    }
    process.crash_by(SimDisk::process_crash);
    assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 10);
}

/// A database on a full disk opens without the ring's file.
#[test]
fn without_room_the_ring_is_memory_of_the_process() {
    for full in ["/other".to_owned(), format!("{DIR}/ring.new")] {
        let machine = machine(8);
        let (process, log) = machine.create();
        written(&log, 0..30);
        process.crash_by(SimDisk::process_crash);
        let machine = Machine { ring_dir: Some("/other".into()), ..machine };
        machine.disk.inject(Fault::enospc().on(Op::Write).path(full));
        let (process, log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
        assert_eq!(bodies.len(), 30);
        written(&log, 30..40);
        assert_eq!(log.written(), log.head(), "each was written");
        assert_eq!(machine.disk.list("/other".as_ref()).unwrap_or_default(), Vec::<PathBuf>::new());
        process.crash_by(SimDisk::process_crash);
        machine.disk.clear_faults();
        assert_eq!(machine.reopen(FIRST_LSN, 3).unwrap().2.len(), 40);
    }
}
