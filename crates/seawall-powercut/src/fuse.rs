//! The part of the FUSE protocol that a directory of disks needs:
//! <https://docs.kernel.org/filesystems/fuse/index.html>, `linux/fuse.h`.
//!
//! 1. Files are opened with `FOPEN_DIRECT_IO`: the kernel caches none of their pages, and each read and write
//!    of the loop device arrives here.
//! 2. An unknown request is answered with `ENOSYS`: the kernel understands this as "not supported" and does
//!    not send the request again.

use std::io;

pub(crate) const ROOT: u64 = 1;
/// Maximum bytes of one write.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// A buffer of this size holds any request.
pub(crate) const REQUEST_BYTES_MAX: usize = WRITE_BYTES_MAX + 8192;
const HEADER_BYTES: usize = 40;

const FOPEN_DIRECT_IO: u32 = 1;
/// Writes of one file may be in flight at the same time.
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;

pub(crate) const ENOENT: i32 = 2;
pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSYS: i32 = 38;

/// A request of the kernel.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub id: u64,
    pub node: u64,
    pub what: What<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Init {
        minor: u32,
        flags: u32,
    },
    Lookup(&'a [u8]),
    GetAttr,
    Open,
    Read {
        offset: u64,
        len: usize,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Sync,
    /// Release, flush or destroy: nothing to do.
    Close,
    StatFs,
    /// Needs no answer.
    Silent,
    Other(u32),
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Parses a request; returns `None` if the bytes are not one.
pub(crate) fn parse(bytes: &[u8]) -> Option<Request<'_>> {
    let (opcode, id, node) = (u32_at(bytes, 4)?, u64_at(bytes, 8)?, u64_at(bytes, 16)?);
    let body = bytes.get(HEADER_BYTES..)?;
    let what = match opcode {
        1 => What::Lookup(body.strip_suffix(&[0])?),
        3 => What::GetAttr,
        14 => What::Open,
        15 => What::Read { offset: u64_at(body, 8)?, len: u32_at(body, 16)? as usize },
        16 => {
            let len = u32_at(body, 16)? as usize;
            What::Write { offset: u64_at(body, 8)?, data: body.get(40..40 + len)? }
        }
        17 => What::StatFs,
        20 => What::Sync,
        // RELEASE, FLUSH, DESTROY.
        18 | 25 | 38 => What::Close,
        26 => What::Init { minor: u32_at(body, 4)?, flags: u32_at(body, 12)? },
        // FORGET, INTERRUPT, BATCH_FORGET.
        2 | 36 | 42 => What::Silent,
        other => What::Other(other),
    };
    Some(Request { id, node, what })
}

/// Returns an answer: 0 or an errno, and a body.
pub(crate) fn answer(id: u64, errno: i32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + body.len());
    out.extend(((16 + body.len()) as u32).to_le_bytes());
    out.extend((-errno).to_le_bytes());
    out.extend(id.to_le_bytes());
    out.extend(body);
    out
}

/// The answer to INIT.
pub(crate) fn init(minor: u32, flags: u32) -> io::Result<Vec<u8>> {
    if minor < 28 {
        return Err(io::Error::other(format!("FUSE 7.{minor} of this kernel is too old: 7.28 is needed")));
    }
    let mut out = Vec::new();
    let both = flags & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES);
    for word in [7, minor.min(31), 0, both] {
        out.extend(word.to_le_bytes());
    }
    // The maximum number of requests in flight, and the number from which the kernel considers the queue
    // congested.
    out.extend(256u16.to_le_bytes());
    out.extend(192u16.to_le_bytes());
    out.extend((WRITE_BYTES_MAX as u32).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(((WRITE_BYTES_MAX / 4096) as u16).to_le_bytes());
    out.resize(64, 0);
    Ok(out)
}

/// `struct fuse_attr` of a node; the root is a directory.
fn attributes(node: u64, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for long in [node, bytes, bytes / 512, 0, 0, 0] {
        out.extend(long.to_le_bytes());
    }
    let mode: u32 = if node == ROOT { 0o040_755 } else { 0o100_600 };
    for word in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        out.extend(word.to_le_bytes());
    }
    out
}

/// The answer to LOOKUP.
pub(crate) fn entry(node: u64, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(node.to_le_bytes());
    // The generation, then how long the kernel may cache the name and the attributes: not at all.
    out.resize(40, 0);
    out.extend(attributes(node, bytes));
    out
}

/// The answer to GETATTR.
pub(crate) fn attr(node: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![0; 16];
    out.extend(attributes(node, bytes));
    out
}

/// The answer to OPEN.
pub(crate) fn opened() -> Vec<u8> {
    let mut out = vec![0; 8];
    out.extend((FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES).to_le_bytes());
    out.resize(16, 0);
    out
}

/// The answer to WRITE.
pub(crate) fn written(len: usize) -> Vec<u8> {
    (len as u64).to_le_bytes().to_vec()
}

/// The answer to STATFS.
pub(crate) fn statfs() -> Vec<u8> {
    let mut out = vec![0; 40];
    for word in [4096u32, 255, 4096] {
        out.extend(word.to_le_bytes());
    }
    out.resize(80, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(((HEADER_BYTES + body.len()) as u32).to_le_bytes());
        out.extend(opcode.to_le_bytes());
        out.extend(77u64.to_le_bytes());
        out.extend(5u64.to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        out.extend(body);
        out
    }

    #[test]
    fn answers_have_the_sizes_of_the_protocol() {
        assert_eq!(init(40, u32::MAX).unwrap().len(), 64);
        assert!(init(27, 0).is_err());
        assert_eq!(entry(2, 1).len(), 128);
        assert_eq!(attr(2, 1).len(), 104);
        assert_eq!(opened().len(), 16);
        assert_eq!(written(1).len(), 8);
        assert_eq!(statfs().len(), 80);
        assert_eq!(answer(1, EIO, &[])[4..8], (-5i32).to_le_bytes());
    }

    #[test]
    fn requests_are_read_and_cut_ones_refused() {
        let mut body = vec![0; 40];
        body[8..16].copy_from_slice(&4096u64.to_le_bytes());
        body[16..20].copy_from_slice(&3u32.to_le_bytes());
        body.extend(b"abc");
        let write = request(16, &body);
        let parsed = parse(&write).unwrap();
        assert_eq!((parsed.id, parsed.node), (77, 5));
        assert_eq!(parsed.what, What::Write { offset: 4096, data: b"abc" });
        for len in 0..write.len() {
            assert!(parse(&write[..len]).is_none(), "{len}");
        }
        assert_eq!(parse(&request(1, b"disk\0")).unwrap().what, What::Lookup(b"disk"));
        assert_eq!(parse(&request(999, b"")).unwrap().what, What::Other(999));
    }
}
