//! Helpers for the tests of the simulated disk.
#![allow(dead_code)] // each test binary uses some of them

use seawall_io::{AlignedBuf, Create, Disk, Handle, OpenHow, Request, Result, SyncHow, WriteHow};
use seawall_sim::{SimDisk, SimOptions};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

pub(crate) const RW: OpenHow = OpenHow { write: true, create: Create::IfMissing, direct: false, dsync: false };
pub(crate) const DIRECT: OpenHow = OpenHow { direct: true, ..RW };
pub(crate) const PLAIN: WriteHow = WriteHow { dsync: false, dontcache: false, atomic: false };
pub(crate) const DSYNC: WriteHow = WriteHow { dsync: true, ..PLAIN };

pub(crate) fn disk(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed, ..SimOptions::default() })
}

pub(crate) fn open(disk: &SimDisk, path: &str, how: OpenHow) -> Handle {
    disk.open(path.as_ref(), how).unwrap()
}

pub(crate) fn try_write(disk: &SimDisk, file: &Handle, offset: u64, bytes: &[u8], how: WriteHow) -> Result<usize> {
    disk.write_at(file, offset, &[IoSlice::new(bytes)], how)
}

pub(crate) fn write(disk: &SimDisk, file: &Handle, offset: u64, bytes: &[u8], how: WriteHow) {
    assert_eq!(try_write(disk, file, offset, bytes, how).unwrap(), bytes.len());
}

pub(crate) fn read(disk: &SimDisk, file: &Handle, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    let moved = disk.read_at(file, offset, &mut buf).unwrap();
    buf.truncate(moved);
    buf
}

pub(crate) fn sync(disk: &SimDisk, file: &Handle) {
    disk.sync(file, SyncHow::Data).unwrap();
}

pub(crate) fn sync_dir(disk: &SimDisk, path: &str) {
    disk.sync_dir(Path::new(path)).unwrap();
}

pub(crate) fn write_request(file: &Handle, offset: u64, bytes: &[u8], how: WriteHow) -> Request {
    Request::write(file, offset, vec![AlignedBuf::copy_of(bytes).into()], how)
}

/// A file of `len` bytes of `fill`, stable with its name.
pub(crate) fn settled(disk: &SimDisk, path: &str, how: OpenHow, fill: u8, len: usize) -> Handle {
    let file = open(disk, path, how);
    write(disk, &file, 0, &vec![fill; len], PLAIN);
    disk.sync(&file, SyncHow::All).unwrap();
    sync_dir(disk, "/");
    file
}
