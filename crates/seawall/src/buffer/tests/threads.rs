//! Many threads, few frames.

use super::*;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seawall_io::SystemClock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The expected values of each page's first cells; changed only under the page's exclusive latch.
type Model = Vec<Mutex<[u64; 4]>>;

/// Threads wait for each other in real time.
fn threaded(seed: u64, frames: u64, frames_max: u64) -> Machine {
    let (clock, patience) = (Arc::new(SystemClock::default()), Duration::from_secs(60));
    Machine { frames, frames_max, patience, clock, ..Machine::new(seed) }
}

fn filled(machine: &Machine, pages: u32) -> (Db, Model) {
    let db = machine.create();
    db.grow_file(pages).unwrap();
    for number in 0..pages {
        db.make(number, 1);
    }
    let model = (0..pages).map(|number| Mutex::new([made(number, 1); 4])).collect();
    (db, model)
}

/// Reads and changes pages at random, comparing with the model under the page's latch.
fn churn(db: &Db, model: &Model, seed: u64, rounds: usize) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..rounds {
        // Up to four pages, in ascending order, as trees latch theirs.
        let mut pages: Vec<u32> =
            (0..rng.random_range(1..=4)).map(|_| rng.random_range(0..model.len() as u32)).collect();
        pages.sort_unstable();
        pages.dedup();
        match rng.random_range(0..10) {
            0..4 => {
                let (at, value) = (rng.random_range(0..4), rng.random());
                db.change(|mtr| {
                    let held = pages.iter().map(|&page| mtr.latch(PageId(page))).collect::<Result<Vec<_>, _>>()?;
                    let pages = &pages;
                    Ok(move |mtr: &mut Mtr<'_>| {
                        for (&held, &page) in held.iter().zip(pages) {
                            let mut expected = model[page as usize].lock();
                            assert_eq!(cell(mtr.page(held), at), expected[at], "page {page}");
                            mtr.run(held, &Set { cell: at, value });
                            expected[at] = value;
                        }
                    })
                });
            }
            4..9 => {
                db.retry(|| {
                    let latched = pages.iter().map(|&page| db.shared(PageId(page))).collect::<Result<Vec<_>, _>>()?;
                    for (latched, &page) in latched.iter().zip(&pages) {
                        assert_eq!(page::number(latched), PageId(page));
                        let found: Vec<u64> = (0..4).map(|at| cell(latched, at)).collect();
                        assert_eq!(found, *model[page as usize].lock(), "page {page}");
                    }
                    Ok(())
                })
                .unwrap();
            }
            _ => db.prefetch(&pages.iter().map(|&page| PageId(page)).collect::<Vec<_>>()),
        }
    }
}

fn all_right(db: &Db, model: &Model) {
    for (number, expected) in (0..).zip(model) {
        let expected = *expected.lock();
        for (at, value) in expected.into_iter().enumerate() {
            assert_eq!(db.get(number, at), value, "page {number}");
        }
    }
}

#[test]
fn contents_stay_right_with_ten_times_the_pool() {
    let machine = threaded(1, 16, 16);
    let (db, model) = filled(&machine, 160);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (db, model) = (&db, &model);
            scope.spawn(move || churn(db, model, seed, 400));
        }
    });
    all_right(&db, &model);
    assert!(db.stats().evictions > 500, "{:?}", db.stats());
    let end = db.log().head();
    db.log().flush_to(end).unwrap();
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    all_right(&machine.open().unwrap(), &model);
}

#[test]
fn background_work_blocks_no_thread() {
    let machine = Machine { log_bytes: 1 << 20 | 256 << 10, ..threaded(2, 48, 48) };
    let (db, model) = filled(&machine, 200);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.clean_step().unwrap();
                db.checkpoint().unwrap();
                db.log().tend().unwrap();
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let (db, model) = (&db, &model);
                    move || churn(db, model, seed, 500)
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    all_right(&db, &model);
    db.close().unwrap();
}

#[test]
fn the_pool_grows_and_shrinks_under_load() {
    let machine = threaded(3, 64, 256);
    let (db, model) = filled(&machine, 300);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (db, model) = (&db, &model);
            scope.spawn(move || churn(db, model, seed, 500));
        }
        for frames in [256, 16, 100, 17, 16, 200, 64] {
            db.set_bytes(frames * PAGE_BYTES as u64).unwrap();
            assert_eq!(db.bytes(), frames * PAGE_BYTES as u64);
            let kept = frames - db.stats().frames;
            assert!(kept * 5 <= frames + 4, "{kept} of {frames} frames are kept for deferred changes");
        }
    });
    all_right(&db, &model);
    let stats = db.stats();
    assert!(stats.free <= stats.frames, "{stats:?}");
}

#[test]
fn one_reads_and_others_wait_for_it() {
    let machine = threaded(4, 64, 64);
    let (db, _) = filled(&machine, 60);
    db.drop_all();
    let before = db.stats().misses;
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for number in 0..40 {
                    assert_eq!(db.get(number, 0), made(number, 1));
                }
            });
        }
    });
    assert_eq!(db.stats().misses - before, 40);
}

/// Each thread needs nearly as many pages as there are frames: together they never fit.
#[test]
fn threads_that_want_nearly_the_whole_pool_each_get_it() {
    let machine = threaded(5, 16, 16);
    let (db, _) = filled(&machine, 64);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..20 {
                    let wanted: Vec<u32> = (0..12).map(|i| (thread * 16 + round + i) % 64).collect();
                    db.retry(|| {
                        let latched =
                            wanted.iter().map(|&page| db.shared(PageId(page))).collect::<Result<Vec<_>, _>>()?;
                        assert_eq!(latched.len(), 12);
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert!(db.stats().evictions > 0);
}

/// Several new pages in one mini-transaction, while all frames are dirty.
#[test]
fn frames_for_new_pages_are_found() {
    let machine = threaded(6, 16, 16);
    let (db, _) = filled(&machine, 200);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..12 {
                    let first = thread * 60 + round * 5;
                    db.change(|mtr| {
                        let held =
                            (first..first + 5).map(|page| mtr.fresh(PageId(page))).collect::<Result<Vec<_>, _>>()?;
                        Ok(move |mtr: &mut Mtr<'_>| {
                            for (held, page) in held.into_iter().zip(first..) {
                                mtr.run(held, &Make(made(page, 2)));
                            }
                        })
                    });
                }
            });
        }
    });
    for page in 0..180 {
        assert_eq!(db.get(page, 5), made(page, 2));
    }
}
