//! The checks that every measured store must pass: a benchmark of a wrong store compares nothing.

use seawall_bench::store::Visit;
use seawall_bench::{Error, Result, Session, Store};

/// Opens the store, which keeps its data between openings.
pub(crate) type Open<'a> = dyn Fn() -> Result<Box<dyn Store>> + 'a;

/// Calls every operation of a store that is empty and has two tables.
///
/// # Panics
/// When the store gives a wrong result.
pub(crate) fn check(open: &Open<'_>) {
    let store = open().unwrap();
    assert!(!store.about().version.is_empty() && !store.about().settings.is_empty());
    let mut session = store.session().unwrap();
    let value_of = |session: &mut dyn Session, key: &[u8]| {
        let mut value = None;
        let found = session.get(key, &mut |bytes| value = Some(bytes.to_vec())).unwrap();
        assert_eq!(found, value.is_some());
        value
    };
    assert_eq!(value_of(&mut *session, b"k1"), None);
    session.put(b"k1", b"one").unwrap();
    assert_eq!(value_of(&mut *session, b"k1").as_deref(), Some(&b"one"[..]));
    session.put(b"k1", b"uno").unwrap();
    session.read_modify_write(b"k1", &mut |value| value.extend_from_slice(b"!")).unwrap();
    session.read_modify_write(b"k2", &mut |value| value.extend_from_slice(b"new")).unwrap();
    assert_eq!(value_of(&mut *session, b"k1").as_deref(), Some(&b"uno!"[..]));
    assert_eq!(value_of(&mut *session, b"k2").as_deref(), Some(&b"new"[..]));

    let row = |i: u32| (format!("r{i:06}").into_bytes(), format!("value {i}").into_bytes());
    for durable in [false, true] {
        let rows: Vec<_> = (0..500).map(|i| row(i * 2 + u32::from(durable))).collect();
        session.load(&rows, durable).unwrap();
    }
    let seen = visited(|visit| session.scan(&row(10).0, 100, visit));
    assert_eq!(seen, (10..110).map(row).collect::<Vec<_>>());
    assert_eq!(session.scan(&row(995).0, 100, &mut |_, _| ()).unwrap(), 5);
    let mut ranged = |from: u32, to: Option<u32>| {
        let (from, to) = (row(from).0, to.map(|to| row(to).0));
        visited(|visit| session.range(&from, to.as_deref(), visit))
    };
    assert_eq!(ranged(10, Some(110)), (10..110).map(row).collect::<Vec<_>>(), "the end is excluded");
    assert_eq!(
        (ranged(995, None), ranged(990, Some(2000))),
        ((995..1000).map(row).collect(), (990..1000).map(row).collect())
    );
    assert_eq!((ranged(10, Some(10)).len(), ranged(20, Some(10)).len(), ranged(5000, None).len()), (0, 0, 0));
    let keys: Vec<_> = [3, 999, 5000, 7].map(|i| row(i).0).to_vec();
    let mut seen = visited(|visit| session.multi_get(&keys, visit));
    seen.sort();
    assert_eq!(seen, [3, 7, 999].map(row));
    check_transactions(&*store, &mut *session);
    drop(session);
    // Concurrent threads lose no change.
    at_once(&*store, |session| session.read_modify_write(b"count", &mut |value| value.push(b'x')));
    assert_eq!(value_of(&mut *store.session().unwrap(), b"count").map(|value| value.len()), Some(200));
    store.settle().unwrap();
    store.close().unwrap();

    let store = open().unwrap();
    let mut session = store.session().unwrap();
    assert_eq!(value_of(&mut *session, b"k1").as_deref(), Some(&b"uno!"[..]), "kept over a close");
    assert_eq!(session.range(&[], None, &mut |_, _| ()).unwrap(), 1003, "all of it, with k1, k2 and count");
    assert_eq!(session.scan(&row(0).0, 5000, &mut |_, _| ()).unwrap(), 1000, "loads are kept over a close");
    drop(session);
    store.close().unwrap();
}

/// Returns the rows that `read` visits, after checking their number against its result.
fn visited(read: impl FnOnce(&mut Visit<'_>) -> Result<u64>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    let count = read(&mut |key, value| seen.push((key.to_vec(), value.to_vec()))).unwrap();
    assert_eq!(count, seen.len() as u64);
    seen
}

/// Two threads each do `change` a hundred times, retrying after a conflict.
fn at_once(store: &dyn Store, change: impl Fn(&mut dyn Session) -> Result<()> + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = store.session().unwrap();
                let mut done = 0;
                while done < 100 {
                    match change(&mut *session) {
                        Ok(()) => done += 1,
                        Err(Error::Conflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

fn check_transactions(store: &dyn Store, session: &mut dyn Session) {
    let mut tx = session.begin().unwrap();
    for i in 0..10u8 {
        tx.put(1, &[b'a', i], &[i]).unwrap();
    }
    assert_eq!(tx.get(0, &[b'a', 1]).unwrap(), None, "tables are apart");
    assert_eq!(tx.get_for_update(1, &[b'a', 1]).unwrap(), Some(vec![1]));
    tx.delete(1, &[b'a', 3]).unwrap();
    tx.commit().unwrap();

    let mut tx = session.begin().unwrap();
    tx.put(1, &[b'a', 5], &[50]).unwrap();
    tx.delete(1, &[b'a', 6]).unwrap();
    let mut seen = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        seen.push((key[1], value[0]));
        true
    };
    tx.scan(1, &[b'a', 2], &[b'a', 8], false, visit).unwrap();
    assert_eq!(seen, [(2, 2), (4, 4), (5, 50), (7, 7)], "its own changes are seen");
    seen.clear();
    let visit = &mut |key: &[u8], value: &[u8]| {
        seen.push((key[1], value[0]));
        seen.len() < 3
    };
    tx.scan(1, &[b'a', 2], &[b'a', 8], true, visit).unwrap();
    assert_eq!(seen, [(7, 7), (5, 50), (4, 4)]);
    drop(tx);
    let mut tx = session.begin().unwrap();
    assert_eq!(tx.get(1, &[b'a', 5]).unwrap(), Some(vec![5]), "dropped is rolled back");
    assert_eq!(tx.get(1, &[b'a', 6]).unwrap(), Some(vec![6]));
    drop(tx);
    // Two threads add to the same row: the value that get_for_update read is still current when it is
    // written.
    at_once(store, |session| {
        let mut tx = session.begin()?;
        let old = tx.get_for_update(1, b"sum")?.map_or(0, |v| u32::from_le_bytes(v.try_into().unwrap()));
        tx.put(1, b"sum", &(old + 1).to_le_bytes())?;
        tx.commit()
    });
    let mut tx = session.begin().unwrap();
    assert_eq!(tx.get(1, b"sum").unwrap(), Some(200u32.to_le_bytes().to_vec()));
}
