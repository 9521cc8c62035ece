//! Shared by the tests of this crate: the backends that work here, a seeded generator, a child process, a
//! disk with faults.
#![allow(dead_code, unreachable_pub)]

use seawall_io::{
    Allocate, Backend, BackendInfo, Cached, Completion, Disk, Handle, IoError, Op, OpenHow, OsDisk, Request,
    RequestKind, Result, SyncHow, Ticket, WriteHow,
};
use std::io::IoSlice;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub mod skip;

/// Every backend that works here; the others are named on standard error.
pub fn backends() -> Vec<Backend> {
    [Backend::IoUring, Backend::Threads, Backend::Sync]
        .into_iter()
        .filter(|&backend| match OsDisk::new(backend, None) {
            Ok(_) => true,
            Err(e) => {
                skip::skipped(format_args!("{backend}: {e}"));
                false
            }
        })
        .collect()
}

/// A directory on the file system of the build directory, which is more often on a disk than /tmp.
pub fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory")
}

/// A directory in memory, where the machine has one.
pub fn dir_in_memory() -> Option<tempfile::TempDir> {
    let made = tempfile::tempdir_in("/dev/shm");
    if let Err(e) = &made {
        skip::skipped(format_args!("/dev/shm: {e}"));
    }
    made.ok()
}

/// A small seeded generator (xorshift64*).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Runs the test `name` again in its own process and returns whether this is that process; limits,
/// capabilities and signals set there affect no other test.
pub fn in_child(name: &str) -> bool {
    const KEY: &str = "SEAWALL_TEST_CHILD";
    if std::env::var_os(KEY).is_some_and(|v| v == name) {
        return true;
    }
    let this = std::env::current_exe().expect("this test's binary");
    let out = std::process::Command::new(this)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(KEY, name)
        .output()
        .expect("a child process");
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(
        out.status.success(),
        "{name} failed in its child: {}\n{}{}",
        out.status,
        text(&out.stdout),
        text(&out.stderr)
    );
    for line in text(&out.stderr).lines().filter(|l| l.starts_with("skipped")) {
        eprintln!("{line}");
    }
    false
}

/// What a [`FaultyDisk`] is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub op: Op,
    pub path: PathBuf,
    /// The descriptor, to distinguish an old handle from a new one.
    pub fd: i32,
    pub offset: u64,
    pub len: u64,
    pub dsync: bool,
    /// One attempt of an asynchronous request (else a synchronous call).
    pub is_async: bool,
}

/// What the disk does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail(i32),
    /// Transfer at most this many bytes.
    Short(usize),
}

type Judge = Box<dyn FnMut(&Call) -> Verdict + Send>;

/// The operating system's disk with scripted faults, and a list of the calls made.
pub struct FaultyDisk {
    inner: OsDisk,
    judge: Mutex<Judge>,
    calls: Mutex<Vec<Call>>,
    pub free_bytes: Mutex<Option<u64>>,
}

impl std::fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyDisk")
    }
}

impl FaultyDisk {
    pub fn new(judge: impl FnMut(&Call) -> Verdict + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            inner: OsDisk::synchronous(),
            judge: Mutex::new(Box::new(judge)),
            calls: Mutex::default(),
            free_bytes: Mutex::default(),
        })
    }
    pub fn script(&self, judge: impl FnMut(&Call) -> Verdict + Send + 'static) {
        *self.judge.lock().unwrap() = Box::new(judge);
    }
    /// The calls since the last query.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
    /// The operations since the last query, of reads, writes and syncs only.
    pub fn ops(&self) -> Vec<Op> {
        let io = [Op::Read, Op::Write, Op::DurableWrite, Op::Sync];
        self.calls().into_iter().map(|c| c.op).filter(|op| io.contains(op)).collect()
    }
    fn judge(&self, call: Call) -> Result<usize> {
        let verdict = (self.judge.lock().unwrap())(&call);
        let error = |errno| IoError::os(call.op, &call.path, errno).at(call.offset, call.len);
        let answer = match verdict {
            Verdict::Pass => Ok(usize::MAX),
            Verdict::Short(n) => Ok(n),
            Verdict::Fail(errno) => Err(error(errno)),
        };
        self.calls.lock().unwrap().push(call);
        answer
    }
    fn on(&self, op: Op, file: &Handle, offset: u64, len: u64, dsync: bool, is_async: bool) -> Result<usize> {
        let fd = file.fd(op)?.as_raw_fd();
        self.judge(Call { op, path: file.path().into(), fd, offset, len, dsync, is_async })
    }
    fn at(&self, op: Op, path: &Path) -> Result<()> {
        let path = path.to_owned();
        self.judge(Call { op, path, fd: -1, offset: 0, len: 0, dsync: false, is_async: false }).map(drop)
    }
    /// One attempt at a request.
    fn attempt(&self, request: &mut Request) -> Result<usize> {
        let (offset, done) = (request.offset + request.done as u64, request.done);
        let dsync = matches!(request.kind, RequestKind::Write(how) if how.dsync);
        let len = (request.len() - done) as u64;
        let most = self.on(request.op(), &request.file, offset, len, dsync, true)?;
        match request.kind {
            RequestKind::Sync(how) => self.inner.sync(&request.file, how).map(|()| 0),
            RequestKind::Read => {
                let (mut skip, mut moved) = (done, 0);
                for buf in &mut request.bufs {
                    let here = skip.min(buf.len());
                    skip -= here;
                    let want = (buf.len() - here).min(most.saturating_sub(moved));
                    if want > 0 {
                        let n =
                            self.inner.read_at(&request.file, offset + moved as u64, &mut buf[here..here + want])?;
                        moved += n;
                        if n < want {
                            break;
                        }
                    }
                }
                Ok(moved)
            }
            RequestKind::Write(how) => {
                let all: Vec<u8> = request.bufs.iter().flat_map(|b| b.iter().copied()).collect();
                let rest = seawall_io::AlignedBuf::copy_of(&all[done..]);
                self.inner.write_at(&request.file, offset, &[IoSlice::new(&rest[..rest.len().min(most)])], how)
            }
        }
    }
}

impl Disk for FaultyDisk {
    fn backend(&self) -> &BackendInfo {
        self.inner.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        self.at(Op::Open, path)?;
        self.inner.open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.at(Op::Directory, from)?;
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.at(Op::Sync, path)?;
        self.inner.sync_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.inner.list(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let stated = *self.free_bytes.lock().unwrap();
        stated.map_or_else(|| self.inner.free_bytes(path), Ok)
    }
    fn lock(&self, file: &Handle) -> Result<()> {
        self.inner.lock(file)
    }
    fn lock_shared(&self, file: &Handle) -> Result<()> {
        self.inner.lock_shared(file)
    }
    fn len(&self, file: &Handle) -> Result<u64> {
        self.inner.len(file)
    }
    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        self.inner.set_len(file, len)
    }
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.on(Op::Grow, file, offset, len, how == Allocate::WriteZeroes, false)?;
        self.inner.allocate(file, how, offset, len)
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let most = self.on(Op::Read, file, offset, buf.len() as u64, false, false)?;
        // Reads the whole (direct I/O takes whole blocks only) and reports less.
        Ok(self.inner.read_at(file, offset, buf)?.min(most))
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        let len = bufs.iter().map(|b| b.len() as u64).sum();
        let op = if how.dsync { Op::DurableWrite } else { Op::Write };
        match self.on(op, file, offset, len, how.dsync, false)? {
            usize::MAX => self.inner.write_at(file, offset, bufs, how),
            most => {
                let all: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
                let some = seawall_io::AlignedBuf::copy_of(&all[..all.len().min(most).max(1)]);
                let some = if most == 0 { &some[..0] } else { &some[..] };
                self.inner.write_at(file, offset, &[IoSlice::new(some)], how)
            }
        }
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.on(Op::Sync, file, 0, 0, how == SyncHow::All, false)?;
        self.inner.sync(file, how)
    }
    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.inner.cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.inner.drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for mut request in batch {
            let (ticket, completer) = Ticket::new();
            let result = loop {
                let answer = match self.attempt(&mut request) {
                    Ok(n) => i64::try_from(n).unwrap(),
                    Err(e) => -i64::from(e.errno().expect("faults have an errno")),
                };
                if let Some(result) = request.attempt_ended(answer) {
                    break result;
                }
            };
            completer.complete(Completion { result, bufs: request.bufs });
            tickets.push(ticket);
        }
        tickets
    }
    fn drive(&self, _block: bool) -> usize {
        0
    }
}
