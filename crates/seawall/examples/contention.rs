//! What threads on different rows still share: cache lines that both write, mutexes, allocations. `make
//! contention` runs it.
//!
//! Two threads do the same operations on rows of different leaves, alternately: both begin and change a row,
//! then both commit, so that both have an open transaction, as concurrent threads have. The same number of
//! operations runs before, uncounted. Background work is stopped meanwhile.
//!
//! - *Shared writes* come from the machine code, not from annotations: the run is repeated under valgrind's
//!   lackey, which names each store of the program. A cache line counts as shared when both threads write to
//!   it during their operations. Counted are such lines written per operation (each must come from the other
//!   processor), and the stores to them. So locks, reference counts, latches and data under a mutex all
//!   count, but a thread's own stripe, slot, leaf, undo page, stack or heap does not. Writes by the kernel
//!   are invisible. Below the table are the functions that write the shared lines.
//! - *Locks* are counted by the feature `contention` (`src/counted.rs`), *allocations* by this program's allocator.
//!
//! ```text
//! cargo run --release -p seawall --features contention --example contention
//! DETAIL=1 cargo run ...        # and each shared line, with the places in the code
//! ```
#![allow(unsafe_code)]

use seawall::{Background, Database, Durability, Env, Options, Result, Transaction, Tree, TxOptions, locks_taken};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Counted operations of each thread, after the same number of uncounted ones.
const OPS: usize = 32;
const THREADS: usize = 2;
const ROWS: u64 = 1000;
const VALUE: [u8; 100] = [7; 100];
/// Longer than a thread takes to fall asleep, under valgrind too.
const HANDOVER: Duration = Duration::from_millis(20);

/// The measured operations, each with its limits: shared lines, locks, allocations.
const KINDS: [(&str, [f64; 3]); 3] = [
    ("point read", [0.0, 0.0, 0.0]),
    ("one-row update and commit, deferred", [6.0, 4.0, 4.0]),
    ("one-row update and commit, flushed", [6.0, 4.0, 4.0]),
];

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

struct Counting;

// SAFETY: forwards to the system's allocator; the addition touches only a thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Written around the counted code: `[kind][thread][an operation begins, it stops, it goes on]`. Apart from
/// all other data.
#[repr(align(128))]
struct Marks([AtomicU64; KINDS.len() * THREADS * 3]);
static MARKS: Marks = Marks([const { AtomicU64::new(0) }; KINDS.len() * THREADS * 3]);
const BEGINS: usize = 0;
const STOPS: usize = 1;
const GOES_ON: usize = 2;

fn mark(kind: usize, thread: usize, what: usize) {
    MARKS.0[(kind * THREADS + thread) * 3 + what].store(1, Ordering::Relaxed);
}

fn key(thread: usize, i: usize) -> [u8; 8] {
    // Each thread has its half of the leaves, and cycles through them.
    (thread as u64 * (ROWS / 2) + (i as u64 * 37) % (ROWS / 2)).to_be_bytes()
}

/// The number of turns of an operation.
fn turns(kind: usize) -> usize {
    if kind == 0 { 1 } else { 2 }
}

/// One turn of an operation. `open` is the thread's transaction between its turns.
fn turn(
    db: &Database,
    tree: &Tree,
    kind: usize,
    key: &[u8],
    turn: usize,
    open: &mut Option<Transaction>,
) -> Result<()> {
    if kind == 0 {
        assert_eq!(db.get_with(tree, key, <[u8]>::len)?, Some(VALUE.len()));
        return Ok(());
    }
    if turn == 1 {
        return open.take().map_or(Ok(()), Transaction::commit);
    }
    let durability = if kind == 1 { Durability::Deferred } else { Durability::Flushed };
    let mut tx = db.begin_with(TxOptions { durability: Some(durability), ..TxOptions::default() })?;
    tx.put(tree, key, &VALUE)?;
    *open = Some(tx);
    Ok(())
}

/// The locks and allocations of one thread's operations. It does a turn for each message.
fn work(
    db: &Database,
    tree: &Tree,
    kind: usize,
    thread: usize,
    go: &Receiver<()>,
    done: &Sender<()>,
) -> Result<[u64; 2]> {
    let (mut sums, mut open) = ([0; 2], None);
    for i in 0..2 * OPS {
        let key = key(thread, i);
        for which in 0..turns(kind) {
            go.recv().expect("it is told to go on");
            // The thread that sent the message falls asleep meanwhile: its writes are not part of this
            // operation.
            std::thread::sleep(HANDOVER);
            let before = [locks_taken(), ALLOCATIONS.get()];
            if i >= OPS {
                mark(kind, thread, if which == 0 { BEGINS } else { GOES_ON });
            }
            let result = turn(db, tree, kind, &key, which, &mut open);
            if i >= OPS {
                mark(kind, thread, STOPS);
                sums = [sums[0] + locks_taken() - before[0], sums[1] + ALLOCATIONS.get() - before[1]];
            }
            result?;
            done.send(()).expect("the main thread waits for it");
        }
    }
    // The thread stays until all are done: otherwise another thread could reuse its resources.
    go.recv().expect("it is told to end");
    Ok(sums)
}

/// Runs all kinds; returns locks and allocations per operation for each.
fn run(dir: &Path) -> Result<Vec<[f64; 2]>> {
    let env = Env { background: Background::Steps, ..Env::system(seawall_io::Backend::Sync)? };
    // Deferred commits wait for nothing: no commit is late enough to flush the others' log.
    let options = Options::default().with_pool_size(64 << 20).with_flush_interval(Duration::from_secs(600));
    let dir = dir.join("db");
    std::fs::create_dir(&dir).expect("a directory of our own");
    let db = Database::open_in(env, dir, options)?;
    let tree = db.create_tree("t")?;
    let rows: Vec<([u8; 8], [u8; 100])> = (0..ROWS).map(|i| (i.to_be_bytes(), VALUE)).collect();
    db.transact(|tx| tx.put_many(&tree, &rows))?;
    while db.step()? {}
    let mut all = Vec::new();
    for kind in 0..KINDS.len() {
        let sums = std::thread::scope(|scope| {
            let (db, tree) = (&db, &tree);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let ((go, told), (done, is_done)) = (channel(), channel());
                    let thread = scope.spawn(move || work(db, tree, kind, thread, &told, &done));
                    (thread, go, is_done)
                })
                .collect();
            for _ in 0..2 * OPS * turns(kind) {
                // A failed thread sends no message, and its result has the error.
                for (_, go, done) in &threads {
                    go.send(()).ok();
                    done.recv().ok();
                }
            }
            for (_, go, _) in &threads {
                go.send(()).ok();
            }
            threads
                .into_iter()
                .map(|(one, _, _)| one.join().expect("a thread does not panic"))
                .collect::<Result<Vec<_>>>()
        })?;
        let mean = |at: usize| sums.iter().map(|sum| sum[at]).sum::<u64>() as f64 / (THREADS * OPS) as f64;
        all.push([mean(0), mean(1)]);
    }
    db.close()?;
    Ok(all)
}

/// The load address of this program.
fn base() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let exe = std::env::current_exe().unwrap_or_default();
    let line = maps.lines().find(|line| line.ends_with(&*exe.to_string_lossy()));
    line.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok()).unwrap_or(0)
}

/// For one cache line: the stores by each thread, the operations of both that made one, and the instructions.
#[derive(Default)]
struct Line {
    stores: [usize; THREADS],
    ops: usize,
    by: BTreeMap<u64, usize>,
}

type Lines = HashMap<u64, Line>;

fn hex(bytes: &[u8]) -> Option<u64> {
    let end = bytes.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(bytes.len());
    u64::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()
}

/// Reads lackey's trace: `I  <address>,<bytes>` for an instruction, ` S`, ` L`, ` M <address>,<bytes>` for a
/// store, load, change.
fn read_trace(trace: impl BufRead, marks: &OnceLock<(u64, u64)>) -> std::io::Result<Vec<Lines>> {
    let mut kinds: Vec<Lines> = (0..KINDS.len()).map(|_| Lines::new()).collect();
    let (mut inside, mut at, mut touched) = (None, 0, [(); THREADS].map(|()| HashSet::new()));
    for line in trace.split(b'\n') {
        let line = line?;
        let (Some(&(first, _)), Some(what)) = (marks.get(), line.get(..3)) else { continue };
        if what == b"I  " {
            at = hex(&line[3..]).unwrap_or(0);
            continue;
        }
        if what != b" S " && what != b" M " {
            continue;
        }
        let Some(address) = hex(&line[3..]) else { continue };
        let index = address.wrapping_sub(first) / 8;
        if index < MARKS.0.len() as u64 {
            let index = index as usize;
            let (kind, thread) = (index / 3 / THREADS, index / 3 % THREADS);
            inside = (index % 3 != STOPS).then_some((kind, thread));
            if index % 3 == BEGINS {
                touched[thread].clear();
            }
        } else if let Some((kind, thread)) = inside {
            let line = kinds[kind].entry(address >> 6).or_default();
            line.stores[thread] += 1;
            line.ops += usize::from(touched[thread].insert(address >> 6));
            *line.by.entry(at).or_default() += 1;
        }
    }
    Ok(kinds)
}

/// The run under lackey: for each kind the lines that both threads write, and the load address of this
/// program.
fn traced() -> std::io::Result<(Vec<Lines>, u64)> {
    let mut child = Command::new("valgrind")
        .args(["-q", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(std::env::current_exe()?)
        .arg("traced")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (Some(out), Some(trace)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    let marks = Arc::new(OnceLock::new());
    let said = marks.clone();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
            let mut numbers = line.split(' ').filter_map(|number| number.parse().ok());
            if let (Some(marks), Some(base)) = (numbers.next(), numbers.next()) {
                said.get_or_init(|| (marks, base));
            }
        }
    });
    let mut kinds = read_trace(BufReader::with_capacity(1 << 20, trace), &marks)?;
    reader.join().expect("the reader does not panic");
    let status = child.wait()?;
    if !status.success() {
        return Err(std::io::Error::other(format!("the run under valgrind ended with {status}")));
    }
    for lines in &mut kinds {
        if lines.is_empty() {
            return Err(std::io::Error::other("the trace has no operation in it"));
        }
        lines.retain(|_, line| line.stores.iter().all(|&stores| stores > 0));
    }
    Ok((kinds, marks.get().map_or(0, |&(_, base)| base)))
}

/// The functions that contain these instructions.
fn functions(instructions: &BTreeSet<u64>, base: u64) -> BTreeMap<u64, String> {
    let exe = std::env::current_exe().unwrap_or_default();
    let addresses = instructions.iter().map(|at| format!("{:#x}", at.wrapping_sub(base)));
    let names = Command::new("addr2line").arg("-fC").arg("-e").arg(&exe).args(addresses).output();
    let names = names.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let names = names.lines().step_by(2).map(|name| match name {
        "??" => "the C library".to_owned(),
        name => name.replace("seawall::", ""),
    });
    instructions.iter().copied().zip(names).collect()
}

/// The functions that write the shared lines, the most frequent first.
fn breakdown(lines: &Lines, base: u64) {
    let instructions = lines.values().flat_map(|line| line.by.keys().copied()).collect();
    let names = functions(&instructions, base);
    let mut groups: BTreeMap<Vec<&str>, (usize, usize, usize)> = BTreeMap::new();
    for line in lines.values() {
        let mut by: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, times) in &line.by {
            *by.entry(names.get(at).map_or("?", String::as_str)).or_default() += times;
        }
        let mut most: Vec<_> = by.into_iter().collect();
        most.sort_by_key(|&(_, times)| std::cmp::Reverse(times));
        most.truncate(4);
        let group = groups.entry(most.into_iter().map(|(name, _)| name).collect()).or_default();
        *group = (group.0 + 1, group.1 + line.ops, group.2 + line.stores.iter().sum::<usize>());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|&(_, (_, ops, _))| std::cmp::Reverse(ops));
    println!("| shared lines written | stores | different lines | by |\n|---|---|---|---|");
    let per_op = |sum: usize| sum as f64 / (THREADS * OPS) as f64;
    for (names, (count, ops, stores)) in groups.iter().take(20) {
        println!("| {:.2} | {:.2} | {count} | {} |", per_op(*ops), per_op(*stores), names.join(", "));
    }
}

/// Where shared lines are written, the most written first.
fn detail(lines: &Lines, base: u64) {
    let mut sorted: Vec<_> = lines.iter().collect();
    sorted.sort_by_key(|(_, line)| std::cmp::Reverse(line.stores.iter().sum::<usize>()));
    let exe = std::env::current_exe().unwrap_or_default();
    for (at, line) in sorted.into_iter().take(24) {
        let per_op = line.stores.iter().sum::<usize>() as f64 / (THREADS * OPS) as f64;
        println!("  line {:#x}: {per_op:.2} stores an operation", at << 6);
        for (instruction, times) in &line.by {
            let place = Command::new("addr2line")
                .arg("-pfiCs")
                .arg("-e")
                .arg(&exe)
                .arg(format!("{:#x}", instruction.wrapping_sub(base)))
                .output();
            let place = place
                .map(|out| String::from_utf8_lossy(&out.stdout).replace("\n (inlined by)", " <").trim().to_owned());
            println!("    {times:4} x {}", place.unwrap_or_default());
        }
    }
}

fn main() -> ExitCode {
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => {
            eprintln!("no directory to work in: {error}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::args().nth(1).as_deref() == Some("traced") {
        println!("{} {}", MARKS.0.as_ptr() as usize, base());
    }
    let counted = match run(dir.path()) {
        Ok(counted) => counted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::args().nth(1).as_deref() == Some("traced") {
        return ExitCode::SUCCESS;
    }
    let (kinds, base) = match traced() {
        Ok(traced) => traced,
        Err(error) => {
            eprintln!("the run under valgrind: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "| operation | shared lines written | stores to them | locks taken | allocations |\n|---|---|---|---|---|"
    );
    for ((name, goals), (lines, [locks, allocations])) in KINDS.iter().zip(kinds.iter().zip(&counted)) {
        let per_op = |sum: usize| sum as f64 / (THREADS * OPS) as f64;
        let written = per_op(lines.values().map(|line| line.ops).sum());
        let stores = per_op(lines.values().flat_map(|line| line.stores).sum());
        let [a, b, c] = goals;
        println!(
            "| {name} | {written:.2} (goal {a}) | {stores:.2} | {locks:.2} (goal {b}) | {allocations:.2} (goal {c}) |"
        );
    }
    for ((name, _), lines) in KINDS.iter().zip(&kinds).filter(|(_, lines)| !lines.is_empty()) {
        println!("\n{name}: who writes the shared lines\n");
        breakdown(lines, base);
    }
    if std::env::var_os("DETAIL").is_some() {
        for ((name, _), lines) in KINDS.iter().zip(&kinds) {
            println!("\n{name}");
            detail(lines, base);
        }
    }
    ExitCode::SUCCESS
}
