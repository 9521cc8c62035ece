//! The bare disk: one durable 4K write per put into a file with all blocks written. No store can be much
//! faster.
//!
//! 1. It stores no rows: reads are refused, and a load that need not be durable writes nothing.
//! 2. When it is opened, a trial of write + `fdatasync` and `RWF_DSYNC`, alternately, finds the faster one.
//! 3. `written` writes without either; `deferred` has no meaning here and is refused.

use crate::results::named;
use crate::slow_disk::SlowDisk;
use crate::store::{About, Durability, Error, Result, Session, Settings, Store, While};
use seawall_io::{
    AlignedBuf, Backend, Cause, Create, Disk, File, FileClass, FileOptions, FlushMethod, IoError, OsDisk,
};
use seawall_lab::stats::median;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NAME: &str = "raw";
const BLOCK: usize = 4096;
/// The file is overwritten cyclically, like a log: 64 MiB.
const FILE_BYTES: u64 = 64 << 20;
const TRIALS: usize = 48;

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        Self::failed(NAME, error)
    }
}

/// The file.
#[derive(Debug)]
pub struct Raw {
    file: File,
    method: FlushMethod,
    durability: Durability,
    next: AtomicU64,
}

impl Raw {
    /// Creates the file, or opens the existing one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for `deferred`; unknown options; those of the disk.
    pub fn open(settings: &Settings) -> Result<Self> {
        if settings.durability == Durability::Deferred {
            return Err(Error::Unsupported { store: NAME, what: "durability `deferred`: it is the disk alone" });
        }
        let mut asked = None;
        for (name, value) in &settings.options {
            if name != "flush_method" {
                return Err(Error::failed(NAME, format!("there is no option {name:?}: it has flush_method")));
            }
            asked = Some(value.parse::<FlushMethod>().map_err(|e| Error::failed(NAME, e))?);
        }
        settings.make_dir(NAME)?;
        let mut disk: Arc<dyn Disk> = Arc::new(OsDisk::new(Backend::Sync, None).map_err(|e| Error::failed(NAME, e))?);
        if !settings.flush_delay.is_zero() {
            disk = Arc::new(SlowDisk::new(disk, settings.flush_delay));
        }
        let first = asked.unwrap_or(FlushMethod::ODirect);
        let options = FileOptions::new(FileClass::Redo, first).create(Create::IfMissing);
        let file = File::open(disk, &settings.dir.join("blocks"), options)?;
        let zeroes = AlignedBuf::zeroed(1 << 20);
        for at in 0..FILE_BYTES >> 20 {
            file.write_at(at << 20, &zeroes, Cause::Preallocate)?;
        }
        file.sync(Cause::Preallocate)?;
        file.declare_written();
        let method = match asked {
            Some(method) => method,
            None => faster(&file)?,
        };
        file.set_method(method)?;
        Ok(Self { file, method, durability: settings.durability, next: AtomicU64::new(0) })
    }
}

/// The faster of the two ways, by their medians.
fn faster(file: &File) -> Result<FlushMethod> {
    let block = AlignedBuf::zeroed(BLOCK);
    let mut times = [FlushMethod::ODirect, FlushMethod::ODirectDsync].map(|method| (method, Vec::new()));
    for trial in 0..TRIALS {
        for (method, times) in &mut times {
            file.set_method(*method)?;
            let began = Instant::now();
            file.write_durable_at((trial * BLOCK) as u64, &block, Cause::Other)?;
            times.push(began.elapsed().as_secs_f64());
        }
    }
    let [(sync, sync_times), (dsync, dsync_times)] = times;
    Ok(if median(&dsync_times) < median(&sync_times) { dsync } else { sync })
}

impl Store for Raw {
    fn about(&self) -> About {
        let settings = [
            ("flush_method", self.method.name().to_owned()),
            ("mode", self.file.mode().to_string()),
            ("file_bytes", FILE_BYTES.to_string()),
            ("write_bytes", BLOCK.to_string()),
        ];
        About { version: env!("CARGO_PKG_VERSION").into(), settings: named(settings).collect() }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Work { store: self, buf: AlignedBuf::zeroed(BLOCK) }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.file.sync(Cause::Other)?)
    }
}

struct Work<'s> {
    store: &'s Raw,
    buf: AlignedBuf,
}

impl Work<'_> {
    /// Gives the buffer a length of whole blocks.
    fn fit(&mut self, bytes: usize) {
        let len = bytes.next_multiple_of(BLOCK).min(FILE_BYTES as usize);
        if self.buf.len() != len {
            self.buf = AlignedBuf::zeroed(len);
        }
    }

    /// Writes the buffer after the last write, cyclically.
    fn write(&self) -> Result<()> {
        let (store, len) = (self.store, self.buf.len() as u64);
        let blocks = FILE_BYTES / len;
        let offset = store.next.fetch_add(1, Ordering::Relaxed) % blocks * len;
        match store.durability {
            Durability::Flushed => store.file.write_durable_at(offset, &self.buf, Cause::Commit)?,
            _ => store.file.write_at(offset, &self.buf, Cause::Commit)?,
        }
        Ok(())
    }
}

/// There is no data to read.
const READ: Error = Error::Unsupported { store: NAME, what: "reading: it is the disk's writes alone" };

impl Session for Work<'_> {
    fn get(&mut self, _key: &[u8], _visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Err(READ)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.fit(key.len() + value.len());
        self.buf[..key.len()].copy_from_slice(key);
        self.buf[key.len()..key.len() + value.len()].copy_from_slice(value);
        self.write()
    }

    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        if !durable {
            return Ok(());
        }
        self.fit(rows.iter().map(|(key, value)| key.len() + value.len()).sum());
        self.write()
    }

    fn walk(&mut self, _from: &[u8], _to: Option<&[u8]>, _visit: &mut While<'_>) -> Result<()> {
        Err(READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn settings(dir: &std::path::Path, durability: Durability) -> Settings {
        Settings {
            dir: dir.join("raw"),
            pool_bytes: 0,
            durability,
            tables: vec!["kv".into()],
            threads: 1,
            options: Vec::new(),
            flush_delay: Duration::ZERO,
            data_bytes: 0,
        }
    }

    #[test]
    fn writes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Raw::open(&settings(dir.path(), Durability::Flushed)).unwrap();
        let mut session = store.session().unwrap();
        session.put(b"key", b"value").unwrap();
        session.put(b"key", &[1; 5000]).unwrap();
        session.load(&[(b"k".to_vec(), vec![1; 9000])], true).unwrap();
        assert!(matches!(session.get(b"key", &mut |_| ()), Err(Error::Unsupported { .. })));
        drop(session);
        assert!(store.about().settings.iter().any(|(name, value)| name == "flush_method" && !value.is_empty()));
        Box::new(store).close().unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("raw/blocks")).unwrap().len(), FILE_BYTES);
    }

    #[test]
    fn refuses_what_it_has_not() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Raw::open(&settings(dir.path(), Durability::Deferred)).unwrap_err();
        assert!(refused.to_string().contains("deferred"));
        let mut with = settings(dir.path(), Durability::Written);
        with.options = vec![("sync".into(), "1".into())];
        assert!(Raw::open(&with).unwrap_err().to_string().contains("flush_method"));
        with.options = vec![("flush_method".into(), "o_direct_dsync".into())];
        let store = Raw::open(&with).unwrap();
        store.session().unwrap().put(b"k", b"v").unwrap();
    }
}
