//! Complete transfers: finishes short transfers of the disk, or fails.

use seawall_io::{Disk, Handle, IoError, IoErrorKind, Op, Result, WriteHow};
use std::io::IoSlice;

/// Writes all of `bytes`.
pub(super) fn write(disk: &dyn Disk, file: &Handle, offset: u64, bytes: &[u8], how: WriteHow) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let n = disk.write_at(file, offset + done as u64, &[IoSlice::new(&bytes[done..])], how)?;
        if n == 0 {
            let op = if how.dsync { Op::DurableWrite } else { Op::Write };
            return Err(IoError::new(op, file.path(), IoErrorKind::NoProgress).at(offset, bytes.len() as u64));
        }
        done += n;
    }
    Ok(())
}

/// Fills `buf` up to the end of the file; returns the number of bytes read.
pub(super) fn read(disk: &dyn Disk, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match disk.read_at(file, offset + done as u64, &mut buf[done..])? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}
