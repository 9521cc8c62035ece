//! A disk in memory, for databases that end with their process: no faults, no waiting, no durability.

use crate::counted::{Mutex, RwLock};
use seawall_io::{
    Allocate, BackendInfo, Cached, Completion, Create, Disk, Handle, IoBuf, IoError, IoErrorKind, Op, OpenHow, Request,
    RequestKind, Result, SyncHow, Ticket, WriteHow,
};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Contents = Arc<RwLock<Vec<u8>>>;

/// Files that exist as long as this object.
#[derive(Debug)]
pub(super) struct MemoryDisk {
    names: Mutex<BTreeMap<PathBuf, Contents>>,
    open: Arc<OpenFiles>,
    next: AtomicU64,
    info: BackendInfo,
}

/// The contents behind each handle.
type OpenFiles = RwLock<BTreeMap<u64, Contents>>;

/// Closes a file with its last handle; a file without a name then ceases to exist.
struct Closing(Arc<OpenFiles>, u64);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.write().remove(&self.1);
    }
}

impl MemoryDisk {
    pub(super) fn new() -> Self {
        let info = BackendInfo {
            name: "memory",
            reason: "asked for".into(),
            registered_buffers: Err("there is no kernel in between".into()),
        };
        Self { names: Mutex::default(), open: Arc::default(), next: AtomicU64::new(1), info }
    }

    fn contents(&self, file: &Handle, op: Op) -> Result<Contents> {
        let found = file.simulated_id().and_then(|id| self.open.read().get(&id).cloned());
        found.ok_or_else(|| IoError::os(op, file.path(), rustix::io::Errno::BADF.raw_os_error()))
    }

    fn missing(op: Op, path: &Path) -> IoError {
        IoError::os(op, path, rustix::io::Errno::NOENT.raw_os_error())
    }
}

impl Disk for MemoryDisk {
    fn backend(&self) -> &BackendInfo {
        &self.info
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        let mut names = self.names.lock();
        let contents = match (names.get(path), how.create) {
            (Some(_), Create::New) => {
                return Err(IoError::os(Op::Open, path, rustix::io::Errno::EXIST.raw_os_error()));
            }
            (Some(contents), _) => contents.clone(),
            (None, Create::No) => return Err(Self::missing(Op::Open, path)),
            (None, Create::New | Create::IfMissing) => {
                let contents = Contents::default();
                names.insert(path.into(), contents.clone());
                contents
            }
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().insert(id, contents);
        Ok(Handle::simulated_guarded(path, id, Box::new(Closing(self.open.clone(), id))))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = self.names.lock();
        let contents = names.remove(from).ok_or_else(|| Self::missing(Op::Directory, from))?;
        names.insert(to.into(), contents);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.names.lock().remove(path).map(|_| ()).ok_or_else(|| Self::missing(Op::Directory, path))
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        Ok(self.names.lock().keys().filter(|name| name.parent() == Some(path)).cloned().collect())
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(u64::MAX / 2)
    }

    fn lock(&self, _file: &Handle) -> Result<()> {
        Ok(())
    }

    fn len(&self, file: &Handle) -> Result<u64> {
        Ok(self.contents(file, Op::Inspect)?.read().len() as u64)
    }

    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        self.contents(file, Op::Grow)?.write().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let contents = self.contents(file, Op::Grow)?;
        let mut contents = contents.write();
        let end = (offset + len) as usize;
        if how != Allocate::KeepSize && contents.len() < end {
            contents.resize(end, 0);
        }
        if how == Allocate::WriteZeroes {
            contents[offset as usize..end].fill(0);
        }
        Ok(())
    }

    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let contents = self.contents(file, Op::Read)?;
        let contents = contents.read();
        let from = contents.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], _how: WriteHow) -> Result<usize> {
        let contents = self.contents(file, Op::Write)?;
        let mut contents = contents.write();
        let mut at = offset as usize;
        for buf in bufs {
            if contents.len() < at + buf.len() {
                contents.resize(at + buf.len(), 0);
            }
            contents[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        Ok(at - offset as usize)
    }

    fn sync(&self, _file: &Handle, _how: SyncHow) -> Result<()> {
        Ok(())
    }

    fn cached(&self, _file: &Handle, _len: u64) -> Result<Cached> {
        Ok(Cached::default())
    }

    fn drop_cache(&self, _file: &Handle, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let run = |request: Request| {
            let Request { file, kind, offset, mut bufs, .. } = request;
            let result = match kind {
                RequestKind::Read => self.read_all(&file, offset, &mut bufs),
                RequestKind::Write(how) => {
                    let slices: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
                    self.write_at(&file, offset, &slices, how).map(|_| ())
                }
                RequestKind::Sync(_) => Ok(()),
            };
            let (ticket, completer) = Ticket::new();
            completer.complete(Completion { result, bufs });
            ticket
        };
        batch.into_iter().map(run).collect()
    }

    fn drive(&self, _block: bool) -> usize {
        0
    }
}

impl MemoryDisk {
    fn read_all(&self, file: &Handle, offset: u64, bufs: &mut [IoBuf]) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            let got = self.read_at(file, at, buf)? as u64;
            at += got;
            if got < buf.len() as u64 {
                let kind = IoErrorKind::UnexpectedEof { got: at - offset };
                return Err(IoError::new(Op::Read, file.path(), kind).at(offset, at - offset));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryDisk;
    use crate::db::open::Env;
    use crate::{Background, Database, Error, LockWait, Options, Result, TornPages, TxOptions};
    use seawall_io::{Create, Disk as _, OpenHow, SystemClock};
    use std::sync::Arc;

    /// A removed file stays usable as long as it is open; its last handle frees its memory.
    #[test]
    fn a_removed_file_ends_with_its_last_handle() {
        let disk = MemoryDisk::new();
        let file = disk.open("file".as_ref(), OpenHow { create: Create::New, ..OpenHow::default() }).unwrap();
        let clone = file.clone();
        disk.set_len(&file, 10).unwrap();
        disk.remove("file".as_ref()).unwrap();
        drop(file);
        assert_eq!(disk.len(&clone).unwrap(), 10);
        drop(clone);
        assert!(disk.open.read().is_empty());
    }

    /// A message about a lock names a row, a whole tree or the name of a tree, and says what ends the wait.
    #[test]
    fn what_is_locked_is_named() {
        let db = Database::in_memory().unwrap();
        let tree = db.create_tree("t").unwrap();
        let begin = || db.begin_with(TxOptions { wait: LockWait::NoWait, ..TxOptions::default() }).unwrap();
        let mut first = begin();
        first.put(&tree, b"", b"1").unwrap();
        first.create_tree("mine").unwrap();
        let id = tree.id();
        let says = |refused: Result<()>, on: &str| {
            let said = refused.unwrap_err().to_string();
            let holder = first.id().unwrap();
            assert!(
                said.contains(&format!(" on {on}, held by {holder}. ")) && said.contains("rollback_prepared"),
                "{said}"
            );
        };
        says(begin().drop_tree("t"), &format!("the whole tree {id}"));
        says(begin().create_tree("mine").map(drop), "the name of tree \"mine\"");
        says(begin().put(&tree, b"", b"2"), &format!("key \"\" of tree {id}"));
    }

    /// Small enough for Miri, which watches every access to memory (`make miri`): splits, evictions, two
    /// writers of the same rows, and reopening.
    #[test]
    fn a_small_database_with_two_writers() {
        let disk = Arc::new(MemoryDisk::new());
        let open = || {
            let env = Env {
                disk: disk.clone(),
                clock: Arc::new(SystemClock::default()),
                seed: 1,
                background: Background::Steps,
            };
            let options = Options::default()
                .with_page_size(4096)
                .with_pool_size(256 << 10)
                .with_data_initial_size(1 << 20)
                .with_data_growth_step(1 << 20)
                .with_log_segment_size(64 << 10)
                .with_log_capacity(2 << 20)
                .with_log_buffer_size(1 << 20)
                .with_torn_page_protection(TornPages::Off);
            Database::open_in(env, "db", options).unwrap()
        };
        let db = open();
        let tree = db.create_tree("t").unwrap();
        // Miri is about a thousand times slower.
        let rounds = if cfg!(miri) { 4 } else { 12 };
        std::thread::scope(|scope| {
            for writer in 0..2u8 {
                let (db, tree) = (&db, &tree);
                scope.spawn(move || {
                    for i in 0..rounds {
                        let value = vec![writer; 100 * usize::from(i)];
                        // With background work by steps nothing waits for a lock.
                        while let Err(error) = db.transact(|tx| {
                            tx.get_for_update(tree, &[i % 4])?;
                            tx.put(tree, &[i % 4], &value)?;
                            tx.put(tree, &[writer, i], &value)
                        }) {
                            assert!(matches!(error, Error::LockTimeout { .. } | Error::Deadlock { .. }), "{error}");
                            std::thread::yield_now();
                        }
                        drop(db.transact(|tx| {
                            tx.delete(tree, &[writer, i / 2])?;
                            Err::<(), _>(Error::Usage("taken back".into()))
                        }));
                    }
                });
            }
        });
        while db.step().unwrap() {}
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 4 + 2 * usize::from(rounds));
        drop(tree);
        db.close().unwrap();
        let db = open();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 4 + 2 * usize::from(rounds));
        assert_eq!(db.check().unwrap(), []);
    }
}
