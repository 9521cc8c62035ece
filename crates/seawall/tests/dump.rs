//! A dump of a damaged database contains every readable entry, and names the missing ranges: leaves,
//! branches, roots, pages of long values.

use seawall::dump::{DumpError, DumpOptions, DumpReader, Dumped, Item, Skipped};
use seawall::internals::btree::Node;
use seawall::internals::format::page::{self, PageKind};
use seawall::{Database, Error, Options, PageId, TreeId};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::default()
        .with_page_size(PAGE as u64)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

fn rows() -> Rows {
    let value = |i: u32| if i % 4000 == 77 { vec![i as u8; 9000] } else { i.to_le_bytes().to_vec() };
    (0..40_000u32).map(|i| (format!("{i:05}-{:08x}", i.wrapping_mul(2_654_435_761)).into_bytes(), value(i))).collect()
}

/// A closed database with a tree of three levels and a small one, and the id of the first.
fn made(dir: &Path) -> (PathBuf, TreeId) {
    let path = dir.join("db");
    let db = Database::open_with(&path, options()).unwrap();
    let (large, small) = (db.create_tree("large").unwrap(), db.create_tree("small").unwrap());
    let rows: Vec<_> = rows().into_iter().collect();
    for batch in rows.chunks(500) {
        db.transact(|tx| tx.put_many(&large, batch)).unwrap();
    }
    db.transact(|tx| tx.put(&small, "k", b"v")).unwrap();
    let id = large.id();
    db.close().unwrap();
    (path, id)
}

/// A page of a tree: kind, level, and its range of keys.
struct Found {
    id: PageId,
    kind: PageKind,
    level: u8,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

fn pages(bytes: &[u8], tree: TreeId) -> Vec<Found> {
    let of_tree = bytes.chunks_exact(PAGE).filter(|bytes| page::tree(bytes) == tree);
    let found = of_tree.filter_map(|bytes| {
        let (id, kind) = (page::number(bytes), page::kind(bytes)?);
        let (level, lower, upper) = match kind {
            PageKind::Leaf | PageKind::Branch => {
                let node = Node::open(bytes).ok()?;
                (node.level(), node.lower().to_vec(), node.upper().map(<[u8]>::to_vec))
            }
            PageKind::Overflow => (0, Vec::new(), None),
            _ => return None,
        };
        Some(Found { id, kind, level, lower, upper })
    });
    found.collect()
}

fn flip(path: &Path, whole: &[u8], victims: &[PageId]) {
    let mut bytes = whole.to_vec();
    for victim in victims {
        bytes[victim.0 as usize * PAGE + 2000] ^= 4;
    }
    std::fs::write(path.join("data"), bytes).unwrap();
}

/// The contents of a dump, tree by tree.
fn read(dump: &[u8]) -> BTreeMap<String, Rows> {
    let mut reader = DumpReader::new(dump).unwrap();
    let (mut all, mut name, mut long) = (BTreeMap::<String, Rows>::new(), String::new(), None);
    loop {
        match reader.read().unwrap() {
            None => return all,
            Some(Item::Tree(tree)) => {
                tree.clone_into(&mut name);
                all.insert(name.clone(), Rows::new());
            }
            Some(Item::Entry { key, value }) => {
                all.get_mut(&name).unwrap().insert(key.to_vec(), value.to_vec());
            }
            Some(Item::Large { key, .. }) => long = Some(key.to_vec()),
            Some(Item::Piece(bytes)) => {
                let key = long.clone().unwrap();
                all.get_mut(&name).unwrap().entry(key).or_default().extend_from_slice(bytes);
            }
            Some(Item::TreeEnd(_)) => {}
        }
    }
}

fn dump(db: &Database, skip_damaged: bool) -> Result<(Dumped, BTreeMap<String, Rows>), DumpError> {
    let mut out = Vec::new();
    let options = DumpOptions { skip_damaged, ..DumpOptions::default() };
    let dumped = db.dump_with(&mut out, &options, |_| ControlFlow::Continue(()))?.unwrap();
    Ok((dumped, read(&out)))
}

fn covers(skipped: &Skipped, key: &[u8]) -> bool {
    skipped.from.as_slice() <= key && skipped.to.as_deref().is_none_or(|to| key < to)
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_dumped() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tree) = made(dir.path());
    let whole = std::fs::read(path.join("data")).unwrap();
    let model = rows();
    let all = pages(&whole, tree);
    let of = |kind: PageKind, level: u8| all.iter().filter(move |page| page.kind == kind && page.level == level);
    let leaves: Vec<_> = of(PageKind::Leaf, 0).collect();
    let branches: Vec<_> = of(PageKind::Branch, 1).collect();
    let long: Vec<_> = of(PageKind::Overflow, 0).collect();
    let root = of(PageKind::Branch, 2).next().expect("three levels");
    assert!(leaves.len() > 100 && branches.len() > 1 && long.len() >= 20, "{} {}", leaves.len(), long.len());
    let by_key = |found: &[&Found], place: usize| {
        let mut sorted: Vec<_> = found.iter().collect();
        sorted.sort_by_key(|page| page.lower.clone());
        sorted[place].id
    };
    let last = leaves.len() - 1;
    let cases: Vec<(&str, Vec<PageId>)> = vec![
        ("a leaf", vec![by_key(&leaves, 50)]),
        ("the first and the last leaf, and two neighbours", [0, last, 70, 71].map(|at| by_key(&leaves, at)).to_vec()),
        ("a branch", vec![by_key(&branches, 0)]),
        ("a page of a long value", vec![long[long.len() / 2].id]),
        ("one of each", vec![by_key(&leaves, last - 3), by_key(&branches, 0), long[0].id, long[long.len() - 1].id]),
        ("the root", vec![root.id]),
    ];
    for (what, victims) in cases {
        flip(&path, &whole, &victims);
        let db = Database::open_with(&path, options()).unwrap();
        match dump(&db, false) {
            Err(DumpError::Database(error)) => assert!(error.is_damage(), "{what}: {error}"),
            other => panic!("{what}: {other:?}"),
        }
        let (dumped, found) = dump(&db, true).unwrap();
        assert_eq!(found["small"], Rows::from([(b"k".to_vec(), b"v".to_vec())]), "{what}");
        let found = &found["large"];
        for skipped in &dumped.skipped {
            let page = skipped.page.unwrap_or_else(|| panic!("{what}: {skipped}"));
            assert!(victims.contains(&page) && skipped.tree == "large", "{what}: {skipped}");
            let at = all.iter().find(|page| Some(page.id) == skipped.page).unwrap();
            if at.kind == PageKind::Overflow {
                let keys: Vec<_> = model.keys().filter(|key| covers(skipped, key)).collect();
                assert_eq!((keys.len(), model[keys[0]].len()), (1, 9000), "{what}: {skipped}");
            } else {
                assert_eq!((&skipped.from, &skipped.to), (&at.lower, &at.upper), "{what}: {skipped}");
            }
        }
        // Entries below a damaged branch are not searched for.
        assert!(
            dumped.skipped.len() == victims.len() || what == "one of each" && dumped.skipped.len() > 1,
            "{what}: {dumped:?}"
        );
        let mut lost = 0;
        for (key, value) in &model {
            match found.get(key) {
                Some(there) => {
                    assert!(there == value, "{what}");
                    assert!(
                        !dumped.skipped.iter().any(|skipped| covers(skipped, key)),
                        "{what}: {}",
                        key.escape_ascii()
                    );
                }
                None => {
                    lost += 1;
                    let named = dumped.skipped.iter().filter(|skipped| covers(skipped, key)).count();
                    assert_eq!(named, 1, "{what}: {} is neither in the dump nor named once", key.escape_ascii());
                }
            }
        }
        assert!(lost > 0 && found.len() + lost == model.len(), "{what}");
        assert_eq!((dumped.totals.entries, dumped.totals.trees), (found.len() as u64 + 1, 2), "{what}");
        db.close().unwrap();
    }
}

#[test]
fn a_whole_database_is_dumped_as_one_moment_and_can_be_broken_off() {
    let db = Database::in_memory().unwrap();
    let (a, b) = (db.create_tree("a").unwrap(), db.create_tree("b").unwrap());
    db.transact(|tx| tx.put(&a, "1", &[7; 200_000]).and_then(|()| tx.put(&b, "2", b"x"))).unwrap();
    let mut out = Vec::new();
    let mut changed = false;
    let done = db
        .dump_with(&mut out, &DumpOptions::default(), |_| {
            if !changed {
                db.transact(|tx| tx.put(&b, "3", b"too late")).unwrap();
                changed = true;
            }
            ControlFlow::Continue(())
        })
        .unwrap()
        .unwrap();
    assert_eq!((done.totals.entries, done.totals.trees, done.skipped), (2, 2, vec![]));
    let found = read(&out);
    assert_eq!(found["a"], Rows::from([(b"1".to_vec(), vec![7; 200_000])]));
    assert_eq!(found["b"], Rows::from([(b"2".to_vec(), b"x".to_vec())]));

    let only = DumpOptions { trees: vec!["b".into()], skip_damaged: true };
    let mut out = Vec::new();
    db.dump_with(&mut out, &only, |_| ControlFlow::Continue(())).unwrap().unwrap();
    assert_eq!(read(&out).len(), 1);
    let none = DumpOptions { trees: vec!["c".into()], ..only };
    let refused = db.dump_with(Vec::new(), &none, |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(DumpError::Database(Error::NoSuchTree { .. }))), "{refused:?}");

    let mut out = Vec::new();
    assert_eq!(db.dump_with(&mut out, &DumpOptions::default(), |_| ControlFlow::Break(())).unwrap(), None);
    let mut reader = DumpReader::new(&out[..]).unwrap();
    let end =
        std::iter::from_fn(|| Some(reader.read().map(|item| item.is_some()))).find(|item| !matches!(item, Ok(true)));
    assert!(matches!(end, Some(Err(DumpError::Truncated { .. }))), "{end:?}");
}

#[test]
fn a_range_that_is_left_out_is_told_in_a_line() {
    let skipped = |from: &[u8], to: Option<&[u8]>, page| Skipped {
        tree: "users".into(),
        from: from.into(),
        to: to.map(Into::into),
        page,
        why: "torn".into(),
    };
    for (skipped, line) in [
        (skipped(b"a", Some(b"a\0"), Some(PageId(7))), "tree \"users\": key \"a\" left out, page 7: torn"),
        (skipped(b"", Some(b"b\xff"), None), "tree \"users\": keys from \"\" to before \"b\\xff\" left out: torn"),
        (skipped(b"x", None, Some(PageId(9))), "tree \"users\": keys from \"x\" to the end left out, page 9: torn"),
    ] {
        assert_eq!(skipped.to_string(), line);
    }
}
