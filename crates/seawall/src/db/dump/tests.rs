use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Read, Write};

type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn dumped(model: &Model) -> Vec<u8> {
    let mut dump = DumpWriter::new(Vec::new()).unwrap();
    for (name, entries) in model {
        dump.tree(name).unwrap();
        for (i, (key, value)) in entries.iter().enumerate() {
            if i % 3 == 2 {
                dump.large(key, value.len() as u64).unwrap();
                for piece in value.chunks(7001) {
                    dump.piece(piece).unwrap();
                }
            } else {
                dump.entry(key, value).unwrap();
            }
        }
    }
    dump.finish().unwrap()
}

fn loaded(input: impl Read) -> Result<Model, DumpError> {
    let mut dump = DumpReader::new(input)?;
    let mut model = Model::new();
    let mut tree = String::new();
    loop {
        let large = match dump.read()? {
            None => break,
            Some(Item::Tree(name)) => {
                name.clone_into(&mut tree);
                model.insert(tree.clone(), BTreeMap::new());
                continue;
            }
            Some(Item::Entry { key, value }) => {
                model.get_mut(&tree).unwrap().insert(key.to_vec(), value.to_vec());
                continue;
            }
            Some(Item::TreeEnd(totals)) => {
                assert_eq!(totals.entries, model[&tree].len() as u64);
                continue;
            }
            Some(Item::Piece(_)) => panic!("pieces are taken by value()"),
            Some(Item::Large { key, value_bytes }) => (key.to_vec(), value_bytes),
        };
        let mut value = Vec::new();
        dump.value(&mut value)?;
        assert_eq!(value.len() as u64, large.1);
        model.get_mut(&tree).unwrap().insert(large.0, value);
    }
    assert_eq!(dump.totals().trees, model.len() as u64);
    assert!(dump.read().unwrap().is_none(), "the end stays the end");
    Ok(model)
}

fn model() -> impl Strategy<Value = Model> {
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (60_000usize..140_000, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
    ];
    let entries = prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..12), value, 0..12);
    prop::collection::btree_map("[a-zé]{0,5}", entries, 0..4)
}

/// A reader that returns a few bytes at a time, with occasional interrupts.
struct Drops<'a>(&'a [u8], usize);

impl Read for Drops<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 += 1;
        if self.1 % 5 == 0 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let n = into.len().min(self.0.len()).min(1 + self.1 % 1000);
        into[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_dumped_is_loaded(model in model()) {
        let bytes = dumped(&model);
        prop_assert_eq!(loaded(&bytes[..]).unwrap(), model.clone());
        prop_assert_eq!(loaded(Drops(&bytes, 0)).unwrap(), model);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_found(model in model(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let bytes = dumped(&model);
        let at = at.index(bytes.len());
        let cut = loaded(&bytes[..at]);
        prop_assert!(matches!(cut, Err(DumpError::Truncated { at_byte }) if at_byte == at as u64), "{cut:?}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        let error = loaded(&flipped[..]);
        prop_assert!(error.is_err(), "bit {bit} of byte {at}");
        if let Err(DumpError::Damaged { at_byte, .. }) = error {
            prop_assert!(at_byte <= at as u64, "the block is at or before the byte");
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        let error = loaded(&longer[..]);
        let named = matches!(error, Err(DumpError::Damaged { at_byte, .. }) if at_byte == bytes.len() as u64);
        prop_assert!(named, "{error:?}");
    }

    /// Bytes with correct checksums and wrong contents, which a checksum cannot find.
    #[test]
    fn forged_blocks_never_panic(
        blocks in prop::collection::vec((0u8..8, prop::collection::vec(any::<u8>(), 0..30)), 0..8),
    ) {
        let mut bytes = dumped(&Model::new())[..HEADER_BYTES].to_vec();
        for (ordinal, (kind, payload)) in blocks.iter().enumerate() {
            forge(&mut bytes, ordinal as u64, *kind, payload);
        }
        prop_assert!(loaded(&bytes[..]).is_err(), "an altered last block is found");
    }

    #[test]
    fn garbage_is_no_dump(bytes in prop::collection::vec(any::<u8>(), 0..100), begins_well in any::<bool>()) {
        let all = if begins_well { [&dumped(&Model::new())[..HEADER_BYTES], &bytes].concat() } else { bytes };
        prop_assert!(loaded(&all[..]).is_err());
    }
}

fn forge(bytes: &mut Vec<u8>, ordinal: u64, kind: u8, payload: &[u8]) {
    let begin = bytes.len();
    bytes.push(kind);
    bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(payload);
    let crc = block_crc(ordinal, &bytes[begin..]);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

/// Where each block of a dump begins and ends.
fn blocks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap()) as usize;
        found.push(at..at + BLOCK_HEAD_BYTES + len + 4);
        at += BLOCK_HEAD_BYTES + len + 4;
    }
    found
}

fn sample() -> Model {
    let tree = |n: u32, size: usize| (0..n).map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; size])).collect();
    [("a".to_owned(), tree(40, 30_000)), ("b".to_owned(), tree(3, 1)), ("c".to_owned(), tree(0, 0))].into()
}

#[test]
fn lost_doubled_and_exchanged_blocks_are_found() {
    let bytes = dumped(&sample());
    let ranges = blocks(&bytes);
    assert!(ranges.len() > 10);
    for (i, range) in ranges.iter().enumerate() {
        let lost = [&bytes[..range.start], &bytes[range.end..]].concat();
        assert!(loaded(&lost[..]).is_err(), "without block {i}");
        let doubled = [&bytes[..range.end], &bytes[range.start..]].concat();
        assert!(loaded(&doubled[..]).is_err(), "block {i} twice");
        if let Some(next) = ranges.get(i + 1) {
            let exchanged =
                [&bytes[..range.start], &bytes[next.clone()], &bytes[range.clone()], &bytes[next.end..]].concat();
            assert!(loaded(&exchanged[..]).is_err(), "blocks {i} and {}", i + 1);
        }
    }
}

#[test]
fn a_block_of_another_dump_at_the_same_place_is_found() {
    let mut other = sample();
    // Same lengths, other bytes: the block's own checksum and all counts still hold.
    other.get_mut("b").unwrap().values_mut().for_each(|v| v[0] ^= 0xff);
    let (bytes, mut mixed) = (dumped(&other), dumped(&sample()));
    let range = blocks(&bytes).into_iter().find(|r| bytes[r.clone()] != mixed[r.clone()]).unwrap();
    mixed[range.clone()].copy_from_slice(&bytes[range]);
    let error = loaded(&mixed[..]).unwrap_err().to_string();
    assert!(error.contains("blocks of another dump"), "{error}");
}

#[test]
fn forged_lengths_order_and_counts_are_found() {
    let header = dumped(&Model::new())[..HEADER_BYTES].to_vec();
    let says = |blocks: &[(u8, &[u8])]| {
        let mut bytes = header.clone();
        for (ordinal, (kind, payload)) in blocks.iter().enumerate() {
            forge(&mut bytes, ordinal as u64, *kind, payload);
        }
        loaded(&bytes[..]).unwrap_err().to_string()
    };
    let tree: (u8, &[u8]) = (kind::TREE, b"t");
    assert!(says(&[tree, (kind::ENTRIES, b"\x01b\x00\x01a\x00")]).contains("\"a\" does not come after"));
    assert!(says(&[tree, (kind::ENTRIES, b"\xff\xff\xff\xff\x0fb")]).contains("malformed"));
    assert!(says(&[tree, (kind::LARGE, &u64::MAX.to_le_bytes())]).contains("longer than any"));
    assert!(says(&[tree, (kind::LARGE, b"123")]).contains("malformed"));
    assert!(says(&[tree, (kind::TREE_END, &[0; 32])]).contains("another number"));
    assert!(says(&[tree, tree]).contains("is invalid in a tree"));
    assert!(says(&[tree, (kind::LARGE, b"\x02\0\0\0\0\0\0\0k"), (kind::PIECE, b"123")]).contains("in a large value"));
    assert!(says(&[(kind::TREE, b"\xff")]).contains("UTF-8"));
    assert!(says(&[(kind::END, &[0; 36])]).contains("checksum over all"));
    assert!(says(&[(99, b"")]).contains("kind 99"));

    let mut huge = header.clone();
    huge.extend_from_slice(&[kind::ENTRIES, 0xff, 0xff, 0xff, 0xff]);
    assert!(loaded(&huge[..]).unwrap_err().to_string().contains("a block of 4294967295 bytes"));
}

#[test]
fn other_files_and_newer_dumps_are_named() {
    assert!(matches!(loaded(&b"-- SQL dump 10.19"[..]), Err(DumpError::NotADump)));
    assert!(matches!(loaded(&b""[..]), Err(DumpError::Truncated { at_byte: 0 })));
    let mut newer = dumped(&Model::new());
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..16]);
    newer[16..20].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(loaded(&newer[..]), Err(DumpError::NewerVersion { found: 2, supported: 1 })));
    let error = DumpError::Truncated { at_byte: 7 }.of_file(Path::new("/tmp/x"), Op::Read).to_string();
    assert!(error.contains("/tmp/x") && error.contains("byte 7"), "{error}");
}

#[test]
fn after_an_error_nothing_is_given_out() {
    let mut bytes = dumped(&sample());
    let range = blocks(&bytes).remove(1);
    bytes[range.start + 100] ^= 1;
    let mut dump = DumpReader::new(&bytes[..]).unwrap();
    assert_eq!(dump.read().unwrap(), Some(Item::Tree("a")));
    assert!(dump.read().is_err());
    assert!(matches!(dump.read(), Err(DumpError::Misuse(_))));
}

#[test]
fn a_writer_refuses_what_a_reader_would() {
    let mut dump = DumpWriter::new(Vec::new()).unwrap();
    assert!(dump.entry(b"k", b"v").is_err(), "no tree");
    dump.tree("b").unwrap();
    dump.entry(b"k", b"v").unwrap();
    assert!(dump.entry(b"k", b"v").is_err() && dump.entry(b"a", b"v").is_err(), "order");
    assert!(dump.entry(&vec![b'x'; DUMP_KEY_BYTES_MAX + 1], b"").is_err(), "length");
    assert!(dump.large(b"l", DUMP_VALUE_BYTES_MAX + 1).is_err(), "length");
    assert!(dump.piece(b"x").is_err(), "no value");
    dump.large(b"l", 3).unwrap();
    assert!(dump.entry(b"m", b"").is_err() && dump.tree("c").is_err(), "inside a value");
    assert!(dump.piece(b"1234").is_err(), "too much");
    dump.piece(b"12").unwrap();
    dump.piece(b"").unwrap();
    dump.piece(b"3").unwrap();
    assert!(dump.tree("a").is_err(), "order of names");
    dump.tree("c").unwrap();
    let model = loaded(&dump.finish().unwrap()[..]).unwrap();
    assert_eq!(model["b"].len(), 2);
    assert_eq!(model["b"][&b"l"[..]], b"123");

    let mut dump = DumpWriter::new(Vec::new()).unwrap();
    dump.tree("a").unwrap();
    dump.large(b"k", 3).unwrap();
    assert!(dump.finish().is_err(), "a value is not complete");
}

#[test]
fn a_full_disk_leaves_no_dump_that_looks_complete() {
    struct Full(Vec<u8>, usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let n = bytes.len().min(self.1 - self.0.len());
            if n == 0 {
                return Err(std::io::Error::from_raw_os_error(28));
            }
            self.0.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut dump = DumpWriter::new(Full(Vec::new(), 100_000)).unwrap();
    dump.tree("a").unwrap();
    let failed = (0u32..100_000).find_map(|i| dump.entry(&i.to_be_bytes(), &[0; 1000]).err()).unwrap();
    assert!(matches!(failed, DumpError::Io { .. }));
    assert!(matches!(dump.entry(b"\xff\xff\xff\xff\xff", b""), Err(DumpError::Misuse(_))));
    assert!(dump.finish().is_err());
    assert!(matches!(failed.of_file(Path::new("/d"), Op::Write), Error::Io(e) if e.errno() == Some(28)));
}
