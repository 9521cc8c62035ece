//! One attempt at a request by plain positioned system calls; shared by the thread pool and the synchronous
//! backend.

use crate::buf::IoBuf;
use crate::class::Op;
use crate::disk::{Completion, Request, RequestKind, SyncHow, WriteHow};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};

/// Returns a negative errno if the request is invalid and must not reach the kernel.
pub(super) fn refusal(request: &Request) -> Option<i64> {
    let errno = if request.file.fd(Op::Inspect).is_err() {
        libc::EBADF
    } else if i64::try_from(request.offset).is_err() {
        // io_uring would take the offset -1 for "the current position".
        libc::EINVAL
    } else {
        return None;
    };
    Some(-i64::from(errno))
}

/// The kernel takes at most this many buffers a call.
pub(super) const IOV_MAX: usize = 1024;

pub(super) fn flags(how: WriteHow) -> ReadWriteFlags {
    let mut flags = ReadWriteFlags::empty();
    flags.set(ReadWriteFlags::DSYNC, how.dsync);
    if how.dontcache {
        flags |= ReadWriteFlags::from_bits_retain(super::sys::RWF_DONTCACHE);
    }
    if how.atomic {
        flags |= ReadWriteFlags::from_bits_retain(super::sys::RWF_ATOMIC);
    }
    flags
}

pub(super) fn write(fd: BorrowedFd<'_>, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize, Errno> {
    match bufs {
        [one] if how == WriteHow::default() => rustix::io::pwrite(fd, one, offset),
        _ if how == WriteHow::default() => rustix::io::pwritev(fd, &bufs[..bufs.len().min(IOV_MAX)], offset),
        _ => rustix::io::pwritev2(fd, &bufs[..bufs.len().min(IOV_MAX)], offset, flags(how)),
    }
}

pub(super) fn sync(fd: BorrowedFd<'_>, how: SyncHow) -> Result<(), Errno> {
    match how {
        SyncHow::Data => rustix::fs::fdatasync(fd),
        SyncHow::All => rustix::fs::fsync(fd),
    }
}

/// Returns whether this process owns the file or may write to it.
pub(super) fn may_write(fd: BorrowedFd<'_>) -> bool {
    use rustix::fd::AsRawFd as _;
    use rustix::fs::{Access, AtFlags};
    let owner = rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    owner || rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Runs a request to its end on this thread.
pub(super) fn run(mut request: Request) -> Completion {
    loop {
        let answer = refusal(&request).unwrap_or_else(|| attempt(&mut request));
        if let Some(result) = request.attempt_ended(answer) {
            return Completion { result, bufs: request.bufs };
        }
    }
}

/// Makes one attempt at the rest of the request. Returns the bytes transferred, or a negative errno.
fn attempt(request: &mut Request) -> i64 {
    let handle = request.file.clone();
    let Ok(fd) = handle.fd(Op::Inspect) else { return -i64::from(libc::EBADF) };
    let offset = request.offset + request.done as u64;
    let answer = match request.kind {
        RequestKind::Read => {
            let mut skip = request.done;
            let mut rest: Vec<IoSliceMut<'_>> = Vec::with_capacity(request.bufs.len());
            for buf in &mut request.bufs {
                let here = skip.min(buf.len());
                skip -= here;
                if here < buf.len() {
                    rest.push(IoSliceMut::new(&mut buf[here..]));
                }
            }
            let most = rest.len().min(IOV_MAX);
            rustix::io::preadv(fd, &mut rest[..most], offset)
        }
        RequestKind::Write(how) => {
            let slices: Vec<IoSlice<'_>> = remaining(&request.bufs, request.done).map(IoSlice::new).collect();
            write(fd, offset, &slices, how)
        }
        RequestKind::Sync(how) => sync(fd, how).map(|()| 0),
    };
    match answer {
        Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}

/// Returns the parts of `bufs` after the first `done` bytes.
pub(super) fn remaining(bufs: &[IoBuf], done: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = done;
    bufs.iter().filter_map(move |buf| {
        let here = skip.min(buf.len());
        skip -= here;
        (here < buf.len()).then(|| &buf[here..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::AlignedBuf;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_remains_is_what_was_not_done(sizes in prop::collection::vec(1usize..50, 0..8), done in 0usize..400) {
            let mut next = 0u8;
            let mut bufs: Vec<IoBuf> = Vec::new();
            for size in sizes {
                let mut buf = AlignedBuf::zeroed(size);
                buf.fill_with(|| { next = next.wrapping_add(1); next });
                bufs.push(buf.into());
            }
            let all: Vec<u8> = bufs.iter().flat_map(|b| b.to_vec()).collect();
            let rest: Vec<u8> = remaining(&bufs, done).flat_map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&rest[..], &all[done.min(all.len())..]);
            prop_assert!(remaining(&bufs, done).all(|part| !part.is_empty()));
        }
    }
}
