//! Values in overflow pages.

use super::super::overflow::{free_overflow_head, read_overflow};
use super::rig::{Model, Rig};
use crate::btree::{
    Entry, OVERFLOW, OverflowRef, OverflowWriter, check_overflow, free_overflow_some, one_page_value_max,
    read_overflow_into, read_overflow_many, write_one_page,
};
use crate::buffer::{Mtr, MtrSize};
use crate::error::Error;
use crate::format::{TreeId, TxnId, UndoPtr};
use crate::space::Purpose;
use std::ops::ControlFlow;

fn begin_long(rig: &Rig) -> OverflowWriter {
    begin_long_for(rig, Purpose::Grow)
}

pub(super) fn begin_long_for(rig: &Rig, purpose: Purpose) -> OverflowWriter {
    let mut reserved = rig.space.reserve(rig.tree.id, rig.tree.root, 1, purpose).unwrap();
    rig.pool
        .retry(|| {
            let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
            let writer = OverflowWriter::begin(rig.tree.id, &mut mtr, &mut reserved)?;
            mtr.commit();
            Ok(writer)
        })
        .unwrap()
}

pub(super) fn write_long(rig: &Rig, value: &[u8]) -> OverflowRef {
    let mut writer = begin_long(rig);
    // In pieces of odd sizes.
    for piece in value.chunks(value.len() / 3 + 1) {
        writer.append(&rig.space, piece, Purpose::Grow).unwrap();
    }
    writer.finish(&rig.space, Purpose::Grow).unwrap()
}

pub(super) fn free_long(rig: &Rig, reference: OverflowRef) {
    let mut budget = usize::MAX;
    assert!(free_overflow_some(&rig.space, rig.tree.id, reference.head, &mut budget).unwrap());
    // A second call does nothing.
    let left = budget;
    assert!(free_overflow_some(&rig.space, rig.tree.id, reference.head, &mut budget).unwrap() && budget == left);
    rig.pool
        .retry(|| {
            let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
            free_overflow_head(&rig.space, &mut mtr, rig.tree.id, reference.head)?;
            mtr.commit();
            Ok(())
        })
        .unwrap();
}

#[test]
fn long_values_of_all_lengths_come_back_and_go() {
    let rig = Rig::new(4096, 64);
    let per_page = 4096 - 40;
    let lengths = [0, 1, per_page - 1, per_page, per_page + 1, 7 * per_page, 100_000, 1014 * per_page + 5, 9_000_000];
    let mut kept = Vec::new();
    let mut model = Model::new();
    for (i, len) in lengths.into_iter().enumerate() {
        let value: Vec<u8> = (0..len).map(|at| (at / 251 + at + i) as u8).collect();
        let reference = write_long(&rig, &value);
        assert_eq!(reference.len as usize, len);
        let mut payload = Vec::new();
        let entry = Entry { flags: OVERFLOW, writer: TxnId::NONE, undo: UndoPtr::NONE, value: &reference.encode() };
        entry.encode_into(&mut payload);
        rig.put(&[i as u8], &payload);
        model.insert(vec![i as u8], payload);
        kept.push((value, reference));
    }
    // The check reaches exactly the pages that the tree owns, lists and data included.
    rig.verify(&model);
    let mut read = Vec::new();
    for (value, reference) in &kept {
        read_overflow_into(&rig.pool, rig.tree.id, *reference, &mut read).unwrap();
        assert!(read == *value, "{} bytes", value.len());
        let mut pieces = 0;
        read_overflow(&rig.pool, rig.tree.id, *reference, |_| {
            pieces += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert!(pieces <= 1);
        let mut pages = 0;
        check_overflow(&rig.pool, rig.tree.id, reference.head, |_| pages += 1).unwrap();
        assert!(pages > value.len() / 4096);
    }
    for (i, (_, reference)) in kept.iter().enumerate() {
        rig.delete(&[i as u8]);
        free_long(&rig, *reference);
    }
    rig.verify(&Model::new());
}

#[test]
fn what_was_written_of_a_long_value_is_freed_by_its_head() {
    let rig = Rig::new(4096, 64);
    for written in [0, 10_000, 50_000, 5_000_000] {
        let mut writer = begin_long(&rig);
        writer.append(&rig.space, &vec![1; written], Purpose::Grow).unwrap();
        let head = writer.head();
        drop(writer);
        free_long(&rig, OverflowRef { head, len: 1 });
    }
    rig.verify(&Model::new());
}

/// The length of an unreadable page is unknown: `check` reports that page, and does not report that the value
/// is too short.
#[test]
fn a_page_of_a_long_value_that_cannot_be_read_is_all_that_is_found() {
    let rig = Rig::new(4096, 64);
    // Longer than the pool: each check reads most of it.
    let reference = write_long(&rig, &vec![1; 800_000]);
    let entry = Entry { flags: OVERFLOW, writer: TxnId::NONE, undo: UndoPtr::NONE, value: &reference.encode() };
    let mut payload = Vec::new();
    entry.encode_into(&mut payload);
    rig.put(b"key", &payload);
    assert_eq!(rig.check().0, []);
    rig.pool.flush_all().unwrap();
    let mut of_data = 0;
    for _ in 0..10 {
        rig.disk.inject(seawall_sim::Fault::eio().on(seawall_io::Op::Read).probability(0.2));
        let (found, _) = rig.check();
        rig.disk.clear_faults();
        for finding in found {
            assert!(finding.why.contains("os error 5"), "{finding}");
            of_data += u32::from(finding.page != rig.tree.root && finding.page != reference.head);
        }
        assert_eq!(rig.check().0, [], "the next time it can be read");
    }
    assert!(of_data > 0, "one of the pages was of data");
}

#[test]
fn a_reference_that_lies_is_an_error() {
    let rig = Rig::new(4096, 64);
    let reference = write_long(&rig, &vec![1; 10_000]);
    let mut out = Vec::new();
    for wrong in [
        OverflowRef { len: 20_000, ..reference },
        OverflowRef { len: 9_000, ..reference },
        OverflowRef { head: rig.tree.root, ..reference },
    ] {
        let error = read_overflow_into(&rig.pool, rig.tree.id, wrong, &mut out).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
    let error = read_overflow_into(&rig.pool, TreeId(99), reference, &mut out).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

fn write_one(rig: &Rig, value: &[u8]) -> OverflowRef {
    let mut reserved = rig.space.reserve(rig.tree.id, rig.tree.root, 1, Purpose::Grow).unwrap();
    rig.pool
        .retry(|| {
            let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
            let reference = write_one_page(rig.tree.id, &mut mtr, &mut reserved, value)?;
            mtr.commit();
            Ok(reference)
        })
        .unwrap()
}

fn owned(rig: &Rig) -> usize {
    let mut pages = 0;
    let visit = |_| {
        pages += 1;
        Ok(())
    };
    rig.space.for_each_owned(rig.tree.id, visit).unwrap();
    pages
}

/// Databases of format 3 have short values with lists of their own.
#[test]
fn a_value_that_fits_a_page_takes_one_page_and_is_read_beside_those_with_lists() {
    for page_bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10] {
        let rig = Rig::new(page_bytes, 64);
        let most = one_page_value_max(page_bytes);
        let (mut model, mut kept) = (Model::new(), Vec::new());
        for (i, len) in [1, 100, page_bytes / 2, most - 1, most, 50, most + 1, 3 * most, 7].into_iter().enumerate() {
            let value: Vec<u8> = (0..len).map(|at| (at / 251 + at + i) as u8).collect();
            let before = owned(&rig);
            let has_list = i >= 5;
            let reference = if has_list { write_long(&rig, &value) } else { write_one(&rig, &value) };
            assert_eq!(owned(&rig) - before, if has_list { 1 + len.div_ceil(most) } else { 1 }, "{len} bytes");
            let entry = Entry { flags: OVERFLOW, writer: TxnId::NONE, undo: UndoPtr::NONE, value: &reference.encode() };
            let mut payload = Vec::new();
            entry.encode_into(&mut payload);
            rig.put(&[i as u8], &payload);
            model.insert(vec![i as u8], payload);
            kept.push((value, reference));
        }
        rig.verify(&model);
        let mut read = Vec::new();
        for (i, (value, reference)) in kept.iter().enumerate() {
            read_overflow_into(&rig.pool, rig.tree.id, *reference, &mut read).unwrap();
            assert!(read == *value, "{} bytes", value.len());
            let mut pages = Vec::new();
            check_overflow(&rig.pool, rig.tree.id, reference.head, |page| pages.push(page)).unwrap();
            assert_eq!(pages[0], reference.head);
            for wrong in [reference.len - 1, reference.len + 1].into_iter().filter(|_| i < 5) {
                let error =
                    read_overflow_into(&rig.pool, rig.tree.id, OverflowRef { len: wrong, ..*reference }, &mut read);
                assert!(matches!(error, Err(Error::Corrupt(_))), "{error:?}");
            }
            assert!(read_overflow_into(&rig.pool, TreeId(99), *reference, &mut read).is_err());
        }
        let (references, mut next) = (kept.iter().map(|(_, reference)| *reference).collect::<Vec<_>>(), kept.iter());
        read_overflow_many(&rig.pool, rig.tree.id, &references, |read| {
            assert!(next.next().is_some_and(|(value, _)| read == *value), "in order");
        })
        .unwrap();
        assert!(next.next().is_none());
        for (i, (_, reference)) in kept.iter().enumerate() {
            rig.delete(&[i as u8]);
            free_long(&rig, *reference);
        }
        rig.verify(&Model::new());
    }
}

#[test]
fn a_page_of_a_long_value_is_refused_where_the_entry_says_another_length() {
    let rig = Rig::new(4096, 64);
    let reference = write_one(&rig, &[3; 2000]);
    let entry = Entry {
        flags: OVERFLOW,
        writer: TxnId::NONE,
        undo: UndoPtr::NONE,
        value: &OverflowRef { len: 1999, ..reference }.encode(),
    };
    let mut payload = Vec::new();
    entry.encode_into(&mut payload);
    rig.put(b"key", &payload);
    let (found, reached) = rig.check();
    assert!(found.len() == 1 && found[0].page == reference.head, "{found:?}");
    assert!(reached.contains(&reference.head));
}
