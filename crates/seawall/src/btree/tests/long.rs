//! Values in overflow pages.

use super::rig::{Model, Rig};
use crate::btree::{
    Entry, OVERFLOW, OverflowRef, OverflowWriter, check_overflow, free_overflow_body, free_overflow_head,
    read_overflow, read_overflow_into,
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
    free_overflow_body(&rig.space, rig.tree.id, reference.head).unwrap();
    // Again does nothing.
    free_overflow_body(&rig.space, rig.tree.id, reference.head).unwrap();
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
    // The pages reached are those owned: lists and data included.
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

/// What a page that cannot be read would have held is unknown: `check` names that page, and does not say that the value is too short.
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
