//! A queue of jobs in a tree: each worker takes the first job that no other worker holds, and a job whose
//! worker fails becomes free again.
//!
//! A locking cursor with `LockWait::SkipLocked` skips jobs that other workers hold. Taking a job, working and
//! storing the result is one transaction: a worker that rolls back, or dies, releases its job. Run with
//! `cargo run --release --example queue`.

use seawall::{
    CursorOptions, Database, Error, Isolation, LockMode, LockWait, OnConflict, Result, Seek, Transaction, Tree,
    TxOptions,
};

const JOBS: u32 = 200;
const WORKERS: u32 = 4;

/// The first free job, locked.
fn take(tx: &Transaction, jobs: &Tree) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let options =
        CursorOptions { lock: Some(LockMode::Exclusive), wait: Some(LockWait::SkipLocked), ..CursorOptions::default() };
    let mut cursor = tx.cursor(jobs, options);
    if !cursor.seek(Seek::First)? {
        return Ok(None);
    }
    let key = cursor.key().to_vec();
    Ok(Some((key, cursor.value()?.to_vec())))
}

/// Does one job; false when no free job is left.
fn work(db: &Database, jobs: &Tree, done: &Tree, worker: u32, attempt: u32) -> Result<bool> {
    // Jobs finished by others must be visible at once: a queue needs the latest version, not a snapshot.
    let options =
        TxOptions { isolation: Isolation::ReadCommitted, on_conflict: OnConflict::Latest, ..TxOptions::default() };
    let mut tx = db.begin_with(options)?;
    let Some((job, task)) = take(&tx, jobs)? else { return Ok(false) };
    tx.delete(jobs, &job)?;
    if attempt % 10 == 9 {
        // This worker fails: the dropped transaction releases the job.
        return Ok(true);
    }
    let result = format!("{} by worker {worker}", String::from_utf8_lossy(&task));
    tx.insert(done, &job, result.as_bytes())?;
    tx.commit()?;
    Ok(true)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(dir.path())?;
    let (jobs, done) = (db.create_tree("jobs")?, db.create_tree("done")?);
    db.transact(|tx| (0..JOBS).try_for_each(|job| tx.put(&jobs, &job.to_be_bytes(), format!("job {job}").as_bytes())))?;

    std::thread::scope(|scope| {
        let (db, jobs, done) = (&db, &jobs, &done);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn(move || -> Result<()> {
                    let mut attempt = worker;
                    // A job may become free again when its worker fails: the work is over when no job is
                    // left, not when none is free.
                    while db.begin()?.iter(jobs).next().is_some() {
                        match work(db, jobs, done, worker, attempt) {
                            Ok(_) | Err(Error::Deadlock { .. }) => attempt += 1,
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;

    let tx = db.begin()?;
    let results: Vec<String> =
        tx.iter(&done).map(|entry| Ok(String::from_utf8_lossy(&entry?.1).into_owned())).collect::<Result<_>>()?;
    assert_eq!(results.len() as u32, JOBS, "every job was done");
    for (job, result) in results.iter().enumerate() {
        assert!(result.starts_with(&format!("job {job} by")), "each once, by one worker: {result}");
    }
    println!("{} jobs done once each, by {WORKERS} workers of whom each failed now and then", results.len());
    Ok(())
}
