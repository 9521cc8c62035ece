//! A disk with slow flushes: each sync, and each write that is durable by itself, completes a given time later than on
//! the disk below.
//!
//! 1. Other requests are not delayed: reads and ordinary writes complete as usual, also while a flush is
//!    being delayed.
//! 2. Concurrent flushes are delayed in parallel, as on a device that accepts several; there is no queue.
//! 3. A delayed request has the outcome and buffers of the disk below.

use rustix::fs::{OFlags, fcntl_getfl};
use seawall_io::probe::Finding;
use seawall_io::{
    Allocate, BackendInfo, Cached, Completion, Disk, FileIdentity, Handle, Op, OpenHow, Request, RequestKind, Result,
    SharedMemory, SyncHow, Ticket, WriteHow,
};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Pause between two polls while both kinds of requests are in flight.
const LOOK: Duration = Duration::from_micros(50);

/// The disk below, with slow flushes.
#[derive(Debug)]
pub struct SlowDisk {
    below: Arc<dyn Disk>,
    delay: Duration,
    /// Flushes in flight, each with a thread that waits for it.
    delayed: Arc<AtomicUsize>,
}

impl SlowDisk {
    /// Adds `delay` to each flush of `below`.
    pub fn new(below: Arc<dyn Disk>, delay: Duration) -> Self {
        Self { below, delay, delayed: Arc::default() }
    }

    /// Whether every write to the file is durable by itself.
    fn is_dsync(file: &Handle) -> bool {
        // A file of a simulated disk has no descriptor, and no such flag.
        file.fd(Op::Inspect).is_ok_and(|fd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DSYNC)))
    }

    fn is_flush(request: &Request) -> bool {
        match request.kind {
            RequestKind::Read => false,
            RequestKind::Write(how) => how.dsync || Self::is_dsync(&request.file),
            RequestKind::Sync(_) => true,
        }
    }

    /// A ticket that is done the delay after `ticket` of the disk below.
    fn late(&self, ticket: Ticket) -> Ticket {
        let (late, completer) = Ticket::new();
        let (below, delay, delayed) = (Arc::clone(&self.below), self.delay, Arc::clone(&self.delayed));
        delayed.fetch_add(1, Ordering::Relaxed);
        std::thread::spawn(move || {
            let completion = below.wait(&ticket);
            std::thread::sleep(delay);
            completer.complete(completion);
            delayed.fetch_sub(1, Ordering::Release);
        });
        late
    }
}

/// Forwards methods to the disk below.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            self.below.$name($($argument),*)
        })*
    };
}

impl Disk for SlowDisk {
    forward! {
        fn backend() -> &BackendInfo;
        fn open(path: &Path, how: OpenHow) -> Result<Handle>;
        fn rename(from: &Path, to: &Path) -> Result<()>;
        fn rename_new(from: &Path, to: &Path) -> Result<()>;
        fn remove(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<PathBuf>>;
        fn free_bytes(path: &Path) -> Result<u64>;
        fn untorn_write_bytes(path: &Path) -> Finding<u32>;
        fn atomic_write_bytes(path: &Path) -> Finding<u32>;
        fn identity(file: &Handle) -> Result<FileIdentity>;
        fn map_shared(file: &Handle, len: usize) -> Result<SharedMemory>;
        fn lock(file: &Handle) -> Result<()>;
        fn lock_shared(file: &Handle) -> Result<()>;
        fn len(file: &Handle) -> Result<u64>;
        fn set_len(file: &Handle, len: u64) -> Result<()>;
        fn allocate(file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()>;
        fn read_at(file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize>;
        fn cached(file: &Handle, len: u64) -> Result<Cached>;
        fn drop_cache(file: &Handle, offset: u64, len: u64) -> Result<()>;
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.below.sync_dir(path)?;
        std::thread::sleep(self.delay);
        Ok(())
    }

    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        let written = self.below.write_at(file, offset, bufs, how)?;
        if how.dsync || Self::is_dsync(file) {
            std::thread::sleep(self.delay);
        }
        Ok(written)
    }

    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.below.sync(file, how)?;
        std::thread::sleep(self.delay);
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let flushes: Vec<bool> = batch.iter().map(Self::is_flush).collect();
        let tickets = self.below.submit(batch).into_iter().zip(flushes);
        tickets.map(|(ticket, flush)| if flush { self.late(ticket) } else { ticket }).collect()
    }

    fn drive(&self, block: bool) -> usize {
        let before = self.delayed.load(Ordering::Relaxed);
        loop {
            let completed = self.below.drive(block && before == 0);
            if completed > 0 || !block || self.delayed.load(Ordering::Relaxed) < before.max(1) {
                return completed;
            }
            std::thread::sleep(LOOK.min(self.delay));
        }
    }

    fn wait(&self, ticket: &Ticket) -> Completion {
        loop {
            // Read first: a delayed ticket is complete before it is no longer counted.
            let delayed = self.delayed.load(Ordering::Acquire);
            if let Some(completion) = ticket.take() {
                return completion;
            }
            if delayed == 0 {
                return self.below.wait(ticket);
            }
            self.below.drive(false);
            std::thread::sleep(LOOK.min(self.delay));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_io::{AlignedBuf, Backend, Create, OsDisk};
    use std::time::Instant;

    const DELAY: Duration = Duration::from_millis(30);

    fn disk(backend: Backend) -> SlowDisk {
        SlowDisk::new(Arc::new(OsDisk::new(backend, None).unwrap()), DELAY)
    }

    fn file(disk: &SlowDisk, dir: &Path, dsync: bool) -> Handle {
        let how = OpenHow { write: true, create: Create::IfMissing, direct: false, dsync };
        disk.open(&dir.join(if dsync { "dsync" } else { "plain" }), how).unwrap()
    }

    #[test]
    fn flushes_take_at_least_the_delay() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(Backend::Threads);
        let (plain, dsync) = (file(&disk, dir.path(), false), file(&disk, dir.path(), true));
        let block = AlignedBuf::zeroed(4096);
        let write = |file: &Handle, how| {
            let began = Instant::now();
            assert_eq!(disk.write_at(file, 0, &[IoSlice::new(&block)], how).unwrap(), 4096);
            began.elapsed()
        };
        assert!(write(&dsync, WriteHow::default()) >= DELAY);
        assert!(write(&plain, WriteHow { dsync: true, ..WriteHow::default() }) >= DELAY);
        let began = Instant::now();
        disk.sync(&plain, SyncHow::Data).unwrap();
        assert!(began.elapsed() >= DELAY);
        let began = Instant::now();
        let tickets = disk.submit(vec![Request::sync(&plain, SyncHow::Data)]);
        disk.wait(&tickets[0]).result.unwrap();
        assert!(began.elapsed() >= DELAY);
    }

    #[test]
    fn a_flush_delays_no_other_request_and_completes_by_any_poll() {
        let dir = tempfile::tempdir().unwrap();
        for backend in [Backend::Auto, Backend::Threads, Backend::Sync] {
            let disk = disk(backend);
            let file = file(&disk, dir.path(), false);
            let write = |how| Request::write(&file, 0, vec![AlignedBuf::zeroed(4096).into()], how);
            let tickets = disk.submit(vec![
                write(WriteHow::default()),
                write(WriteHow { dsync: true, ..WriteHow::default() }),
                Request::sync(&file, SyncHow::All),
            ]);
            // The ordinary write completes while the flushes are still delayed: they have not been polled
            // yet.
            assert_eq!(disk.wait(&tickets[0]).bufs[0].len(), 4096);
            while !(tickets[1].is_done() && tickets[2].is_done()) {
                disk.drive(true);
            }
            assert_eq!(disk.wait(&tickets[1]).bufs[0].len(), 4096, "the memory comes back");
            tickets[2].take().unwrap().result.unwrap();
            let tickets = disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(4096).into())]);
            disk.wait(&tickets[0]).result.unwrap();
            // Two threads wait for two flushes; either may complete the flush of the other.
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let tickets = disk.submit(vec![Request::sync(&file, SyncHow::Data)]);
                        disk.wait(&tickets[0]).result.unwrap();
                    });
                }
            });
        }
    }
}
