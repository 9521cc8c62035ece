//! Fuzz targets: functions of arbitrary bytes that must not panic, loop, or take memory out of proportion to
//! the input.
//!
//! 1. One list, used twice: by the fuzz targets in `fuzz/`, and by `cargo test` with seeded random and
//!    mutated-valid inputs.
//! 2. A checksum that a fuzzer cannot guess is corrected first: the test is about the code behind it.
//! 3. Valid inputs must do more than not panic: accepted data reads back the same.

use seawall::dump::{DumpReader, DumpWriter, Item};
use seawall::internals::btree::{self, Node};
use seawall::internals::format::control::{ControlBlock, SLOT_BYTES, SLOT_STRIDE};
use seawall::internals::format::tag::{self, Layer};
use seawall::internals::format::{Lsn, page};
use seawall::internals::log::{LogConfig, LogReader, Record, Records, push_record};
use seawall::internals::{space, undo};
use seawall::keys::{DecodeKey, Key};
use seawall::{Background, Database, Env, FlushChoice, Options, PageId, Task, TxOptions};
use seawall_io::{Create, Disk, FlushMethod, OpenHow};
use seawall_sim::{Latency, SimDisk, SimOptions};
use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A name, and the function that takes the bytes.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const TARGETS: &[Target] = &[
    ("node", node),
    ("pages", pages),
    ("redo", redo),
    ("log", log),
    ("control", control),
    ("dump", dump),
    ("keys", keys),
    ("database", database),
];

/// The size of pages here, bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A page with these bytes, truncated or padded with zeroes.
fn page_of(data: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let len = data.len().min(PAGE_BYTES);
    page[..len].copy_from_slice(&data[..len]);
    page
}

/// A node of a tree: calls every query on it.
pub(crate) fn node(data: &[u8]) {
    let page = page_of(data);
    let Ok(node) = Node::open(&page) else { return };
    let valid = node.validate().is_ok();
    let mut key = Vec::new();
    for slot in 0..node.count() {
        let found = node.key_into(slot, &mut key);
        assert!(found.is_ok() || !valid, "a valid node has all its keys");
        let at = node.search(&key);
        if valid && node.is_leaf() {
            let at = at.expect("a valid leaf can be searched");
            assert!(at.found && at.slot == slot, "a valid leaf finds its own key {slot}");
        }
        let _of_slot = (node.suffix(slot), node.payload(slot), node.entry(slot), node.child(slot));
        let _range = (node.child_lower(slot), node.child_upper(slot), node.fits_replace(slot, 40));
    }
    for probe in [&b""[..], &data[..data.len().min(40)], node.lower(), node.upper().unwrap_or(b"\xff\xff")] {
        let _found = (node.search(probe), node.child_slot(probe), node.child_slot_below(probe), node.covers(probe));
        let _fits = node.fits_insert(probe.len(), 20);
    }
    let _sizes = (node.free_bytes(), node.used_bytes(), node.is_underfull());
}

/// Pages of undo, of its directory, space maps, and the header page.
pub(crate) fn pages(data: &[u8]) {
    let page = page_of(data);
    let _undo = undo::read_page(&page);
    let _space = space::read_page(&page);
    drop(page::verify(&page, PageId(1), Path::new("data")));
    if let Some((&kind, body)) = data.split_first() {
        if let Ok(record) = undo::UndoRecord::decode(kind, body) {
            let mut again = Vec::new();
            record.encode(&mut again);
            assert_eq!(undo::UndoRecord::decode(kind, &again), Ok(record), "what was accepted reads back the same");
        }
    }
}

fn apply(record: &Record<'_>, page: &mut [u8]) -> bool {
    match tag::layer(record.tag) {
        Some(Layer::Space) => space::redo(record.tag, record.body, page).is_ok(),
        Some(Layer::Btree) => btree::redo(record.tag, record.body, page).is_ok(),
        Some(Layer::Txn) => undo::redo(record.tag, record.body, page).is_ok(),
        None => false,
    }
}

/// Redo records, each on a page that it creates itself or on the one created by the record before it.
pub(crate) fn redo(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let (mut page, records) = if how & 1 == 0 || rest.len() < PAGE_BYTES {
        (vec![0; PAGE_BYTES], rest)
    } else {
        (rest[..PAGE_BYTES].to_vec(), &rest[PAGE_BYTES..])
    };
    for record in Records::new(records) {
        let Ok(record) = record else { return };
        let _begun = undo::begun(record.tag, record.body);
        // Recovery stops at a refused record: the page may be half changed by then.
        if !apply(&record, &mut page) {
            return;
        }
    }
    node(&page);
    pages(&page);
}

const LOG_BYTES: usize = 64 << 10;
/// The log of a database begins with its second block: position 0 means "never".
const LOG_BEGIN: Lsn = Lsn(4096);

/// A segment of the log.
pub(crate) fn log(data: &[u8]) {
    let sim = quiet_disk(1);
    let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    let file = sim.open("/db/redo.0000000000000000".as_ref(), how).expect("the disk works");
    let mut bytes = vec![0; LOG_BYTES];
    let len = data.len().min(LOG_BYTES);
    bytes[..len].copy_from_slice(&data[..len]);
    sim.write_at(&file, 0, &[IoSlice::new(&bytes)], Default::default()).expect("the disk works");
    drop(file);
    let Ok(mut reader) = LogReader::open(sim, &log_config(), LOG_BEGIN, 3) else { return };
    let mut end = LOG_BEGIN;
    while let Ok(Some(entry)) = reader.next() {
        assert!(entry.start >= end && entry.end > entry.start, "entries follow one another");
        end = entry.end;
        for record in Records::new(entry.body) {
            let _tag = record.map(|record| record.tag);
        }
    }
    let _end = reader.finish().map(|tail| tail.end);
}

fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes: LOG_BYTES as u64,
        capacity_bytes: 4 << 20,
        buffer_bytes: 1 << 20,
        method: FlushMethod::Fsync,
        ..LogConfig::new("/db", example().database)
    }
}

/// A slot of the control file, with a corrected checksum.
pub(crate) fn control(data: &[u8]) {
    drop(ControlBlock::decode(data));
    let mut slot = vec![0; SLOT_BYTES];
    let len = data.len().min(SLOT_BYTES);
    slot[..len].copy_from_slice(&data[..len]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[..8]), &slot[12..]);
    slot[8..12].copy_from_slice(&crc.to_le_bytes());
    if let Ok((epoch, block)) = ControlBlock::decode(&slot) {
        let mut again = vec![0; SLOT_BYTES];
        block.encode(epoch, &mut again);
        assert_eq!(ControlBlock::decode(&again), Ok((epoch, block)), "what was accepted reads back the same");
    }
}

/// A dump.
pub(crate) fn dump(data: &[u8]) {
    read_dump(data);
    // As a damaged writer would produce it: entries of any bytes, in blocks whose checksums are right.
    let mut writer = DumpWriter::new(Vec::new()).expect("memory takes all");
    let mut names = data.split(|byte| *byte == 0);
    if let Some(name) = names.next().and_then(|name| std::str::from_utf8(name).ok()) {
        let written = writer.tree(name).is_ok()
            && names.all(|entry| {
                let (key, value) = entry.split_at(entry.len() / 2);
                writer.entry(key, value).is_ok()
            });
        if let (true, Ok(bytes)) = (written, writer.finish()) {
            assert!(read_dump(&bytes), "what was written is read");
        }
    }
}

fn read_dump(bytes: &[u8]) -> bool {
    let Ok(mut reader) = DumpReader::new(bytes) else { return false };
    let mut value = Vec::new();
    loop {
        match reader.read() {
            Ok(None) => return true,
            Err(_) => return reader.read().is_err(),
            Ok(Some(Item::Large { .. })) => {
                if reader.value(&mut value).is_err() {
                    return false;
                }
            }
            Ok(Some(_)) => {}
        }
    }
}

/// Keys of all shapes.
pub(crate) fn keys(data: &[u8]) {
    fn key<K: DecodeKey + Key>(data: &[u8]) {
        if let Ok(key) = K::decode(data) {
            assert_eq!(key.encode(), data, "an encoding is the only one of its value");
        }
        let mut rest = data;
        while !rest.is_empty() {
            let before = rest.len();
            if K::decode_from(&mut rest).is_err() || rest.len() == before {
                break;
            }
        }
    }
    key::<bool>(data);
    key::<u64>(data);
    key::<i32>(data);
    key::<f64>(data);
    key::<String>(data);
    key::<Vec<u8>>(data);
    key::<Option<String>>(data);
    key::<(u32, String)>(data);
    key::<(Option<i64>, Vec<u8>, bool)>(data);
    key::<[Option<u16>; 3]>(data);
}

fn quiet_disk(seed: u64) -> Arc<SimDisk> {
    let latency = Latency { spikes_per_million: 0, ..Latency::default() };
    SimDisk::new(SimOptions { seed, latency, trace_entries_max: 0, ..SimOptions::default() })
}

fn options() -> Options {
    Options::default()
        .with_page_size(PAGE_BYTES as u64)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(1200 << 10)
        .with_log_buffer_size(1 << 20)
        .with_log_flush_method(FlushChoice::Method(FlushMethod::Fsync))
        .with_data_flush_method(FlushChoice::Method(FlushMethod::Fsync))
}

fn open(disk: Arc<SimDisk>) -> seawall::Result<Database> {
    let clock = disk.clone();
    let env = Env { disk, clock, seed: 1, background: Background::Steps };
    Database::open_in(env, "/db", options())
}

fn control_of(disk: &SimDisk) -> Option<ControlBlock> {
    let control = disk.seen("/db/control")?;
    let slots =
        control.chunks(SLOT_STRIDE as usize).filter_map(|slot| ControlBlock::decode(slot.get(..SLOT_BYTES)?).ok());
    slots.max_by_key(|(epoch, _)| *epoch).map(|(_, block)| block)
}

/// A small database with every kind of content: leaves and branches, long values, unpurged undo, a prepared
/// transaction, a dropped tree.
struct Example {
    /// All pages are written back; the checkpoint covers the log.
    written: Arc<SimDisk>,
    /// No page is written back; everything is in the log.
    logged: Arc<SimDisk>,
    /// The database id that the log's checksums include.
    database: [u8; 16],
}

fn example() -> &'static Example {
    static MADE: OnceLock<Example> = OnceLock::new();
    MADE.get_or_init(|| {
        let disk = quiet_disk(2);
        let db = open(disk.clone()).expect("it opens");
        let tree = db.create_tree("t").expect("it works");
        let dropped = db.create_tree("dropped").expect("it works");
        for round in 0..30u32 {
            db.transact(|tx| {
                for i in 0..12u32 {
                    let key = ((i * 37 + round * 11) % 160).to_be_bytes();
                    let len = if i == 7 && round % 10 == 3 { 9000 } else { 20 + (i * 9) as usize };
                    tx.put(&tree, &key, &vec![round as u8; len])?;
                    tx.put(&dropped, &key, b"value")?;
                }
                tx.delete(&tree, &(round * 3 % 160).to_be_bytes()).map(drop)
            })
            .expect("it works");
        }
        db.drop_tree("dropped").expect("it works");
        let mut prepared = db.begin().expect("it works");
        prepared.put(&tree, b"prepared", b"value").expect("it works");
        prepared.prepare(&seawall::Xid(b"xid".to_vec())).expect("it works");
        let mut open = db.begin().expect("it works");
        open.put(&tree, b"open", b"value").expect("it works");
        let crashed = || {
            let image = disk.fork(3);
            image.process_crash();
            image
        };
        // The commit makes the changes of the open transaction durable.
        db.transact(|tx| tx.put(&tree, b"last", b"value")).expect("it works");
        let logged = crashed();
        db.checkpoint().expect("it works");
        let written = crashed();
        drop(open);
        drop(db);
        let database = control_of(&written).expect("a control block").database;
        Example { written, logged, database }
    })
}

/// A database with edited pages and corrected checksums: it is opened, read, changed, purged. The bytes are
/// edits: page u8, offset u16, the new byte.
pub(crate) fn database(data: &[u8]) {
    let image = if data.len() % 2 == 0 { example().written.fork(4) } else { example().logged.fork(4) };
    let Some(mut bytes) = image.seen("/db/data") else { return };
    let pages = bytes.chunks(PAGE_BYTES).take_while(|page| page.iter().any(|byte| *byte != 0)).count().max(1);
    for edit in data.chunks_exact(4).take(16) {
        let number = usize::from(edit[0]) % pages;
        let at = number * PAGE_BYTES + usize::from(u16::from_le_bytes([edit[1], edit[2]])) % PAGE_BYTES;
        bytes[at] = edit[3];
        let page = &mut bytes[number * PAGE_BYTES..][..PAGE_BYTES];
        // A page with another page's number is refused at once: that is tested elsewhere.
        let claims = page::number(page) == PageId(number as u32);
        if claims {
            page::seal(page, PageId(number as u32));
        }
    }
    let how = OpenHow { write: true, ..OpenHow::default() };
    let file = image.open("/db/data".as_ref(), how).expect("the disk works");
    image.write_at(&file, 0, &[IoSlice::new(&bytes)], Default::default()).expect("the disk works");
    drop(file);
    use_it(image);
}

/// Every call may fail, but none may panic or loop forever.
fn use_it(disk: Arc<SimDisk>) {
    let Ok(db) = open(disk) else { return };
    let names = db.trees().unwrap_or_default();
    for name in names {
        let Ok(tree) = db.open_tree(&name) else { continue };
        if let Ok(tx) = db.begin() {
            let _forwards = tx.iter(&tree).take(2000).filter(Result::is_err).count();
            let _backwards = tx.iter(&tree).rev().take(2000).filter(Result::is_err).count();
        }
        if let Ok(mut tx) = db.begin_with(TxOptions::default()) {
            for key in 0..40u32 {
                drop((tx.put(&tree, &(key * 5).to_be_bytes(), &[9; 300]), tx.delete(&tree, &key.to_be_bytes())));
            }
            drop(tx.commit());
        }
    }
    for xid in db.prepared() {
        drop(db.rollback_prepared(&xid));
    }
    for _ in 0..200 {
        let mut busy = false;
        for &task in Task::ALL {
            busy |= db.step_task(task).unwrap_or(false);
        }
        if !busy {
            break;
        }
    }
    drop(db.close());
}

/// Valid initial inputs of one target.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let of = |path: &str| example().written.seen(path).unwrap_or_default();
    match target {
        "node" | "pages" => {
            let data = of("/db/data");
            data.chunks_exact(PAGE_BYTES)
                .filter(|page| page.iter().any(|byte| *byte != 0))
                .map(<[u8]>::to_vec)
                .collect()
        }
        "redo" => redo_seeds(&of("/db/data")),
        "log" => vec![example().logged.seen("/db/redo.0000000000000000").unwrap_or_default()],
        "control" => {
            of("/db/control").chunks(SLOT_STRIDE as usize).filter_map(|s| Some(s.get(..SLOT_BYTES)?.to_vec())).collect()
        }
        "dump" => {
            let mut writer = DumpWriter::new(Vec::new()).expect("memory takes all");
            writer.tree("t").expect("memory takes all");
            (0..50u32).for_each(|i| writer.entry(&i.to_be_bytes(), &[7; 90]).expect("memory takes all"));
            writer.large(b"\xff", 70_000).expect("memory takes all");
            writer.piece(&[1; 70_000]).expect("memory takes all");
            vec![writer.finish().expect("memory takes all"), b"name\0key value\0ley walue".to_vec()]
        }
        "keys" => vec![
            (7u32, "a name".to_owned()).encode(),
            (Some(-5i64), b"\0\xff\0".to_vec(), true).encode(),
            [Some(1u16), None, Some(9)].encode(),
            1.5f64.encode(),
        ],
        "database" => vec![vec![3, 40, 0, 1], vec![0; 16], vec![5, 44, 0, 255, 9]],
        _ => Vec::new(),
    }
}

/// All records of the log, each on the page it finds and on none.
fn redo_seeds(data: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let Ok(mut reader) = LogReader::open(example().logged.fork(5), &log_config(), LOG_BEGIN, 3) else { return out };
    while let Ok(Some(entry)) = reader.next() {
        for record in Records::new(entry.body).flatten() {
            let mut one = vec![0];
            push_record(&mut one, record.tag, record.page, |body| body.extend_from_slice(record.body));
            let page = data.get(record.page.0 as usize * PAGE_BYTES..).and_then(|rest| rest.get(..PAGE_BYTES));
            if let Some(page) = page.filter(|_| !tag::initialises(record.tag)) {
                one[0] = 1;
                one.splice(1..1, page.iter().copied());
            }
            out.push(one);
        }
    }
    out
}
