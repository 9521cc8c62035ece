//! Opening a closed database read-only.
//!
//! 1. *Nothing is written.* All files are accessed through a [`ReadOnlyDisk`], which opens files for reading
//!    and refuses every operation that changes a file, a name or durability. So it works without write
//!    permission on files and directories, and on read-only file systems. No background work runs.
//! 2. *There is nothing to recover.* The control block records that the database was closed: each page is in the
//!    data file, whole and flushed, and there is no log after the checkpoint. The log and the doublewrite file
//!    are not opened. If the database was not closed, the opening is refused, because recovery writes.
//! 3. *Locks are shared.* The control file and the data file are locked against a writer, but not against other
//!    readers. A writer locks the control file first, so of a concurrent reader and writer one is refused.
//! 4. *Every change is refused* with [`Error::ReadOnly`]: [`Health`] admits no mini-transaction. Locking
//!    reads take locks in memory, against other transactions of this process.
//! 5. Transactions that had not ended when the database was closed (prepared ones, and losers whose rollback
//!    was not complete) are active, as after any opening: their changes are invisible, and here they never
//!    end. A lock request for one of their rows times out.
//!
//! ```text
//!   closed ──control locked (shared), clean──> data locked (shared) ──space, undo read──> open, read-only
//!                      └─not clean──> NeedsRecovery
//! ```

use super::database::Database;
use super::marker;
use super::open::{Env, Opening, forked_in_use};
use super::options::{FlushChoice, MemoryLimit, Options};
use crate::buffer::{CONTROL_FILE, Control, Pool};
use crate::error::{Error, Health, Result, while_locked};
use crate::format::TxnId;
use crate::log::{Log, check_log_dir};
use crate::space::Space;
use crate::txn::UndoStore;
use seawall_io::{FlushMethod, InUse, IoStats, ReadOnlyDisk};
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// Opens the closed database in the directory `path` read-only. It writes no file and no name, so it needs
    /// no write permission and works on a read-only file system. Several processes can have the database open
    /// in this way at the same time; meanwhile none can open it for writing.
    ///
    /// Reads, cursors, snapshots, [`Database::check`], [`Database::dump`] and [`Database::stats`] work; every
    /// change fails with [`Error::ReadOnly`].
    ///
    /// # Errors
    /// [`Error::NeedsRecovery`] if it was not closed: open it for writing once. [`Error::Locked`] if another
    /// process has it open for writing; [`Error::NotADatabase`] (none is created), [`Error::OtherFormat`],
    /// [`Error::Corrupt`], [`Error::Io`].
    ///
    /// ```
    /// use seawall::{Database, Error};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("accounts.db");
    /// let db = Database::open(&path)?;
    /// let users = db.create_tree("users")?;
    /// db.transact(|tx| tx.put(&users, b"ada", b"1815"))?;
    /// assert!(matches!(Database::open_read_only(&path), Err(Error::Locked { .. })));
    /// drop(users);
    /// db.close()?;
    ///
    /// let (one, other) = (Database::open_read_only(&path)?, Database::open_read_only(&path)?);
    /// let users = one.open_tree("users")?;
    /// assert_eq!(one.get(&users, "ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert!(matches!(other.create_tree("more"), Err(Error::ReadOnly { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_read_only_with(path, Options::default())
    }

    /// Like [`Database::open_read_only`], with options, which override the directory's `seawall.toml`. Options
    /// for writing and for the log have no effect.
    ///
    /// # Errors
    /// Those of [`Database::open_read_only`]; [`Error::InvalidOption`].
    pub fn open_read_only_with(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = &super::open::absolute(path.as_ref())?;
        seawall_io::raise_descriptor_limit();
        let options = options.with_file_of(path)?;
        let env = Env::system(options.io_backend())?;
        Self::open_reading(env, path, options, &MemoryLimit::read())
    }

    /// Like [`Database::open_read_only`], in a given environment, for tests that control its disk and clock.
    ///
    /// # Errors
    /// Those of [`Database::open_read_only`].
    pub fn open_read_only_in(env: Env, path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_reading(env, path.as_ref(), options, &MemoryLimit::unknown())
    }

    fn open_reading(env: Env, path: &Path, mut options: Options, memory: &MemoryLimit) -> Result<Self> {
        let in_use = InUse::new().ok_or_else(forked_in_use)?;
        let env = Env { disk: Arc::new(ReadOnlyDisk::new(env.disk.clone())), ..env };
        Opening::read_only(env, path, &mut options, memory)?.finish(options, in_use)
    }
}

impl Opening {
    fn read_only(env: Env, path: &Path, options: &mut Options, memory: &MemoryLimit) -> Result<Self> {
        let disk = env.disk.clone();
        let beside = marker::look_only(&*disk, path)?;
        let stats = Arc::new(IoStats::new());
        let control = while_locked(&*env.clock, || Control::open(disk.clone(), &path.join(CONTROL_FILE), &stats))?;
        let block = control.current();
        options.adopt(u64::from(block.page_bytes), block.segment_bytes)?;
        options.settle(memory)?;
        check_log_dir(&disk, beside.as_deref(), &options.log_dir_of(path))?;
        // A slot that could not be read may be the newer one, but it is then also marked clean: an opening
        // for writing first removes the mark from both slots, durably, before it appends to the log.
        if !block.clean {
            return Err(Error::NeedsRecovery { path: path.into() });
        }
        // Measuring the fastest method would write files, and a read-only database needs no flush method.
        let direct = |choice: FlushChoice| FlushChoice::Method(choice.method().unwrap_or(FlushMethod::ODirect));
        let reading = options
            .clone()
            .with_data_flush_method(direct(options.data_flush_method()))
            .with_log_flush_method(direct(options.log_flush_method()));
        let health = Arc::new(Health::read_only());
        let log_config = Self::log_config(&env, path, &reading, &block, &stats);
        let pool_config = Self::pool_config(&env, path, &reading, &block, &stats);
        let log = Arc::new(Log::open_read_only(disk.clone(), log_config, health.clone(), block.checkpoint)?);
        let pool = Arc::new(Pool::open(disk, pool_config, control, log, health)?);
        let space = Arc::new(Space::open(pool)?);
        let (undo, open, last) = UndoStore::open(space.clone())?;
        let next_txn = TxnId(block.next_txn.0.max(last.0 + 1));
        Ok(Self { env, path: path.into(), space, undo, next_txn, open })
    }
}
