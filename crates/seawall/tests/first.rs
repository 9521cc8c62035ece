//! The first steps of a user.

use seawall::{Background, Database, Env, Error, Options, Task};
use seawall_sim::{Process, SimDisk, SimOptions};
use std::sync::Arc;

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

#[test]
fn what_is_committed_is_there_after_closing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("accounts.db");
    {
        let db = Database::open(&path).unwrap();
        let users = db.create_tree("users").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&users, b"ada", b"1815").unwrap();
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&users, b"bob", b"1900").unwrap();
        drop(tx);
        assert_eq!(db.begin().unwrap().get(&users, b"ada").unwrap().as_deref(), Some(&b"1815"[..]));
        assert!(matches!(Database::open(&path), Err(Error::Locked { in_this_process: true, .. })));
        db.close().unwrap();
    }
    let db = Database::open(&path).unwrap();
    let users = db.open_tree("users").unwrap();
    let all: Vec<_> = db.begin().unwrap().iter(&users).map(Result::unwrap).collect();
    assert_eq!(all, [(b"ada".to_vec(), b"1815".to_vec())]);
}

/// Any sequence of bytes is a key.
#[test]
fn keys_are_given_as_they_are_at_hand() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let owned = b"c".to_vec();
    let mut tx = db.begin().unwrap();
    tx.insert(&tree, "a", b"1").unwrap();
    tx.put(&tree, &String::from("b"), b"2").unwrap();
    tx.put(&tree, &owned, b"3").unwrap();
    tx.put(&tree, &7u32.to_be_bytes(), b"4").unwrap();
    assert!(tx.update(&tree, &owned[..], b"5").unwrap());
    assert_eq!(tx.get(&tree, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(tx.get(&tree, &b"b"[..]).unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(tx.get_for_update(&tree, "c").unwrap().as_deref(), Some(&b"5"[..]));
    assert_eq!(tx.get_for_share(&tree, owned.as_slice()).unwrap().as_deref(), Some(&b"5"[..]));
    assert!(tx.contains(&tree, &[0, 0, 0, 7]).unwrap() && !tx.contains(&tree, "").unwrap());
    assert!(tx.delete(&tree, "a").unwrap() && !tx.delete(&tree, "a").unwrap());
    tx.commit().unwrap();
    assert_eq!(db.get(&tree, "b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(db.get_with(&tree, &owned, <[u8]>::len).unwrap(), Some(1));
}

#[test]
fn a_power_cut_keeps_what_was_committed() {
    let sim = SimDisk::new(SimOptions { seed: 7, ..SimOptions::default() });
    let open = |process: &Arc<Process>| {
        let env = Env {
            disk: process.clone(),
            clock: Arc::new(seawall_io::SystemClock::default()),
            seed: 1,
            background: Background::Steps,
        };
        Database::open_in(env, "/db", small()).unwrap()
    };
    let mut rounds = Vec::new();
    for round in 0u32..6 {
        let process = Arc::new(Process::new(&sim));
        let db = open(&process);
        let tree = db.create_tree("t").unwrap();
        for &(key, value) in &rounds {
            let key: u32 = key;
            let found = db.begin().unwrap().get(&tree, &key.to_be_bytes()).unwrap();
            assert_eq!(found.map(|v| v.len()), Some(value), "key {key} in round {round}");
        }
        for i in 0..300u32 {
            let key = round * 1000 + i;
            let len = if i % 50 == 0 { 20_000 } else { 100 };
            let mut tx = db.begin().unwrap();
            tx.put(&tree, &key.to_be_bytes(), &vec![7; len]).unwrap();
            tx.commit().unwrap();
            rounds.push((key, len));
            if i % 7 == 0 {
                for &task in Task::ALL {
                    db.step_task(task).unwrap();
                }
            }
        }
        let mut loser = db.begin().unwrap();
        for i in 0..100u32 {
            loser.put(&tree, &(1_000_000 + i).to_be_bytes(), b"lost").unwrap();
        }
        process.crash_by(SimDisk::power_cut);
        drop(loser);
    }
    let db = open(&Arc::new(Process::new(&sim)));
    while db.step().unwrap() {}
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.begin().unwrap().iter(&tree).count(), rounds.len());
}
