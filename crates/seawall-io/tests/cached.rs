//! What the page cache holds: cachestat and mincore agree, and dropping removes only clean pages.

mod common;

use common::dir;
use common::skip::skipped;
use seawall_io::{Create, Disk, OpenHow, OsDisk, SyncHow, WriteHow};
use std::io::IoSlice;

const PAGE: u64 = 4096;
const LEN: u64 = 64 * PAGE;

/// A synced file of `LEN` bytes of which no page is resident; `None` where pages cannot be dropped.
fn cold_file(dir: &tempfile::TempDir, disk: &OsDisk) -> Option<seawall_io::Handle> {
    let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    let file = disk.open(&dir.path().join("f"), how).unwrap();
    disk.write_at(&file, 0, &[IoSlice::new(&[1; LEN as usize])], WriteHow::default()).unwrap();
    let dirty = disk.cached(&file, LEN).unwrap();
    if let Some(bytes) = dirty.dirty {
        assert_eq!(
            (dirty.resident, bytes + dirty.writeback.unwrap()),
            (LEN, LEN),
            "all of it, none of it written back"
        );
        // Dropping keeps dirty pages.
        disk.drop_cache(&file, 0, 0).unwrap();
        let after = disk.cached(&file, LEN).unwrap();
        assert!(after.resident >= after.dirty.unwrap());
    }
    disk.sync(&file, SyncHow::Data).unwrap();
    disk.drop_cache(&file, 0, 0).unwrap();
    if disk.cached(&file, LEN).unwrap().resident != 0 {
        skipped("this file system keeps its pages");
        return None;
    }
    Some(file)
}

#[test]
fn a_known_range_is_resident() {
    let (dir, disk) = (dir(), OsDisk::synchronous());
    let Some(file) = cold_file(&dir, &disk) else { return };
    // Writing whole pages makes exactly those pages resident: writes cause no read-ahead.
    for first in [3u64, 20, 63] {
        let pages = if first == 63 { 1 } else { 2 };
        let data = vec![2; (pages * PAGE) as usize];
        disk.write_at(&file, first * PAGE, &[IoSlice::new(&data)], WriteHow::default()).unwrap();
    }
    let cached = disk.cached(&file, LEN).unwrap();
    assert_eq!(cached.resident, 5 * PAGE);
    if let (Some(dirty), Some(writeback)) = (cached.dirty, cached.writeback) {
        assert_eq!(dirty + writeback, 5 * PAGE);
    }
    assert_eq!(disk.cached(&file, 4 * PAGE).unwrap().resident, PAGE, "of the first four pages one");
    assert_eq!(disk.cached(&file, 3 * PAGE + 1).unwrap().resident, PAGE, "a page touched counts whole");
    assert_eq!(disk.cached(&file, 0).unwrap().resident, 0);
    assert_eq!(disk.cached(&file, 1 << 30).unwrap().resident, 5 * PAGE, "there is nothing beyond the end");
    disk.sync(&file, SyncHow::Data).unwrap();
    assert!(disk.cached(&file, LEN).unwrap().dirty.is_none_or(|d| d == 0));
    // Both pages that were written together: they may be one folio, which goes whole or stays.
    disk.drop_cache(&file, 20 * PAGE, 2 * PAGE).unwrap();
    assert_eq!(disk.cached(&file, LEN).unwrap().resident, 3 * PAGE);
    disk.drop_cache(&file, 0, 0).unwrap();
    assert_eq!(disk.cached(&file, LEN).unwrap().resident, 0);
}

#[test]
fn uncached_writes_leave_no_pages() {
    let (dir, disk) = (dir(), OsDisk::synchronous());
    let Some(file) = cold_file(&dir, &disk) else { return };
    let how = WriteHow { dontcache: true, dsync: true, ..WriteHow::default() };
    // For overwrites of written extents there is no promise: on ext4 of Linux 6.18 their pages stay.
    let overwritten = disk.write_at(&file, 0, &[IoSlice::new(&[3; PAGE as usize])], how);
    eprintln!("overwritten: {overwritten:?}, {:?}", disk.cached(&file, LEN));
    disk.sync(&file, SyncHow::All).unwrap();
    disk.drop_cache(&file, 0, 0).unwrap();
    match disk.write_at(&file, LEN, &[IoSlice::new(&[3; 65536])], how) {
        Ok(n) => assert_eq!(n, 65536),
        Err(e) => {
            assert_eq!(e.errno(), Some(libc::EOPNOTSUPP), "{e}");
            return skipped(format_args!("RWF_DONTCACHE: {e}"));
        }
    }
    disk.sync(&file, SyncHow::Data).unwrap();
    // Pages leave the cache when their write-back has ended, which may be a moment after the sync.
    let gone = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        disk.cached(&file, 2 * LEN).unwrap().resident == 0
    });
    assert!(gone, "{:?}", disk.cached(&file, 2 * LEN));
}
