//! Instructions per operation, in memory, by valgrind's callgrind: the same for every run of one build. `make
//! instructions` runs it.
//!
//! Counts the instructions of the operations' thread while they run: not opening, loading and closing, and
//! not background work, which is stopped.
//!
//! ```text
//! cargo run --release -p seawall --example instructions                 # all kinds, and their limits
//! cargo run --release -p seawall --example instructions -- update       # one kind
//! cargo run --release -p seawall --example instructions -- count update # its number alone, for `seawall bench goals`
//! valgrind --tool=callgrind target/release/examples/instructions work update 10000   # the operations themselves, for a profile
//! ```

use seawall::{
    Background, CursorOptions, Database, Env, Isolation, LockMode, Options, OwnedCursor, Result, Seek, Transaction,
    Tree, TxOptions,
};
use std::process::{Command, ExitCode};

/// Rows of the table, and bytes of a value.
const ROWS: u64 = 20_000;
const VALUE_BYTES: usize = 100;
/// Operations of a run.
const OPS: u64 = 10_000;
/// Rows of a short range.
const RANGE: u64 = 10;
/// Rows of a transaction that inserts.
const BATCH: u64 = 1_000;

/// The measured operations, with the instruction limit of each: a few percent above the count when the limit
/// was set.
const KINDS: [(&str, &str, u64); 9] = [
    ("empty", "begin and commit of a transaction that does nothing", 800),
    ("read", "point read", 2_150),
    ("probe", "seek of a kept cursor and its row, as the inner side of a join does", 3_450),
    ("range", "range of 10 rows by a kept cursor and transaction", 8_800),
    ("update", "one-row update and commit, flushed", 12_000),
    ("locked-update", "locked read of a row, its update, and commit", 16_900),
    ("locked-scan", "row of a scan that locks", 3_000),
    ("pop", "row taken from the front, 1000 a transaction", 12_700),
    ("append", "insertion in key order, 1000 a transaction", 5_600),
];

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let mut rest = n;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Keys in pseudorandom order.
fn scattered(i: u64) -> [u8; 16] {
    key(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ROWS)
}

fn single(db: &Database) -> Result<Transaction> {
    db.begin_with(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() })
}

/// The inner side of a nested-loop join: one cursor, reused for all seeks.
fn probe(db: &Database, tree: &Tree, ops: u64) -> Result<()> {
    let tx = db.begin()?;
    let mut cursor = OwnedCursor::new();
    cursor.reset(tree, CursorOptions { limit: Some(1), ..CursorOptions::default() }, ..);
    for i in 0..ops {
        assert!(cursor.seek(&tx, Seek::AtLeast(&scattered(i)))?, "every key is there");
        std::hint::black_box(cursor.value(&tx)?);
    }
    tx.commit()
}

/// Short ranges, each of what is committed when it begins.
fn ranges(db: &Database, tree: &Tree, ops: u64) -> Result<()> {
    let mut tx = db.begin()?;
    let mut cursor = OwnedCursor::new();
    for i in 0..ops {
        let options = CursorOptions { limit: Some(RANGE), ..CursorOptions::default() };
        cursor.reset(tree, options, &scattered(i)[..]..);
        if cursor.seek(&tx, Seek::First)? {
            std::hint::black_box(cursor.entry(&tx)?);
            let mut rows = 1;
            cursor.next_while(&tx, |key, value| {
                std::hint::black_box((key, value));
                rows += 1;
                rows < RANGE
            })?;
        }
        tx.commit_in_place()?;
    }
    tx.commit()
}

fn locked_scan(db: &Database, tree: &Tree, rows: u64) -> Result<()> {
    let mut left = rows;
    while left > 0 {
        let tx = db.begin()?;
        let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
        let mut cursor = tx.cursor(tree, options);
        let mut there = cursor.seek(Seek::First)?;
        while there && left > 0 {
            std::hint::black_box(cursor.value()?);
            left -= 1;
            there = cursor.next()?;
        }
        drop(cursor);
        tx.commit()?;
    }
    Ok(())
}

/// The operations. Callgrind counts only inside this function, by its name.
#[inline(never)]
fn operations(db: &Database, tree: &Tree, kind: &str, ops: u64) -> Result<()> {
    let value = [7; VALUE_BYTES];
    match kind {
        "empty" => (0..ops).try_for_each(|_| single(db)?.commit()),
        "read" => {
            for i in 0..ops {
                db.get_with(tree, &scattered(i), <[u8]>::len)?;
            }
            Ok(())
        }
        "update" | "locked-update" => {
            for i in 0..ops {
                let mut tx = single(db)?;
                if kind == "locked-update" {
                    tx.get_for_update(tree, &scattered(i))?;
                }
                tx.put(tree, &scattered(i), &value)?;
                tx.commit()?;
            }
            Ok(())
        }
        "probe" => probe(db, tree, ops),
        "range" => ranges(db, tree, ops),
        "locked-scan" => locked_scan(db, tree, ops),
        "pop" => {
            for _ in 0..ops / BATCH {
                let mut tx = db.begin()?;
                for _ in 0..BATCH {
                    assert!(tx.pop_first(tree)?.is_some(), "there are more rows");
                }
                tx.commit()?;
            }
            Ok(())
        }
        "append" => {
            for batch in 0..ops / BATCH {
                let mut tx = single(db)?;
                for n in 0..BATCH {
                    tx.insert(tree, &key(ROWS + batch * BATCH + n), &value)?;
                }
                tx.commit()?;
            }
            Ok(())
        }
        _ => panic!("no kind of operation: {kind}"),
    }
}

/// The part that runs under callgrind.
fn work(kind: &str, ops: u64) -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let env = Env { background: Background::Steps, ..Env::system(seawall_io::Backend::Sync)? };
    let db = Database::open_in(env, dir.path(), Options::default().with_pool_size(64 << 20))?;
    let tree = db.create_tree("t")?;
    let rows: Vec<_> = (0..ROWS).map(|n| (key(n), [7; VALUE_BYTES])).collect();
    db.transact(|tx| tx.put_many(&tree, &rows))?;
    while db.step()? {}
    operations(&db, &tree, kind, ops)?;
    drop(tree);
    db.close()
}

/// Instructions of one operation.
fn measure(kind: &str) -> std::io::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=instructions::operations"]);
    let said = valgrind.arg(std::env::current_exe()?).args(["work", kind, &OPS.to_string()]).output()?;
    let text = String::from_utf8_lossy(&said.stderr);
    let count = text.lines().rev().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    let count = count.filter(|&count| said.status.success() && count > OPS);
    Ok(count.ok_or_else(|| std::io::Error::other(format!("valgrind failed: {text}")))? / OPS)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let ("work", [_, kind, ops]) = (args.first().map_or("", String::as_str), &args[..]) {
        work(kind, ops.parse().expect("a number of operations")).expect("the operations succeed");
        return ExitCode::SUCCESS;
    }
    if let Some(kind) = args.get(1).filter(|_| args[0] == "count") {
        return match measure(kind) {
            Ok(count) => {
                println!("{count}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{kind}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut within = true;
    for (kind, text, at_most) in KINDS.iter().filter(|(kind, ..)| args.is_empty() || args.iter().any(|arg| arg == kind))
    {
        match measure(kind) {
            Ok(count) => {
                println!("{kind:14} {count:7}  at most {at_most:6}  {text}");
                within &= count <= *at_most;
            }
            Err(error) => {
                eprintln!("{kind}: {error}");
                within = false;
            }
        }
    }
    if within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
