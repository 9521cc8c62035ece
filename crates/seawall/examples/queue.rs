//! A queue of jobs in a tree: workers take the first job that nobody else is at, and a job whose worker fails is there again.
//!
//! A locking cursor with `LockWait::SkipLocked` steps over jobs that others hold. Taking, working and noting the result is one transaction: a
//! worker that gives up, or dies, gives its job back. Run with `cargo run --release --example queue`.

use seawall::{
    CursorOptions, Database, Error, Isolation, LockMode, LockWait, OnConflict, Result, Seek, Transaction, Tree,
    TxOptions,
};

const JOBS: u32 = 200;
const WORKERS: u32 = 4;

/// The first job that is free, locked.
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

/// Does one job; false when there is none left that is free.
fn work(db: &Database, jobs: &Tree, done: &Tree, worker: u32, attempt: u32) -> Result<bool> {
    // What others have finished is to be seen at once: a queue wants the latest, not a snapshot.
    let options =
        TxOptions { isolation: Isolation::ReadCommitted, on_conflict: OnConflict::Latest, ..TxOptions::default() };
    let mut tx = db.begin_with(options)?;
    let Some((job, task)) = take(&tx, jobs)? else { return Ok(false) };
    tx.delete(jobs, &job)?;
    if attempt % 10 == 9 {
        // This worker fails: the transaction is dropped, and so the job is back.
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
                    // A job may come back after its worker failed: it is over when none is left, not when none is free.
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
