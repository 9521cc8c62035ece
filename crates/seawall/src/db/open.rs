//! Creating a database, and opening one.
//!
//! ```text
//!   empty ──marker──> being made ──control, log, pool, system pages, checkpoint──> whole ──marker removed──> open
//!   being made ──(crash)──> found with its marker: removed and made again; it was never open
//!   made ──locks, incarnation, log's end, torn pages, redo, undo──> open
//! ```
//!
//! 1. `marker` determines the state of a directory, and which process may create a database in it.
//! 2. `recovery` documents the order of recovery.
//! 3. `read_only` opens a database without writing.

use super::background::{Background, Threads, Work, nanos};
use super::backup::taken::Taken;
use super::calibrate;
use super::counts::Counts;
use super::database::Database;
use super::inner::Inner;
use super::marker::{self, Beside, Found, Marker};
use super::memory::MemoryDisk;
use super::options::{ControlSocketChoice, DamagedPages, FlushChoice, MemoryLimit, Options, Preallocate, TornPages};
use super::prepared::Xid;
use crate::btree::Tree as Btree;
use crate::buffer::{CONTROL_FILE, Control, DATA_FILE, Mtr, MtrSize, Pool, PoolConfig, remove_leftovers};
use crate::counted::Mutex;
use crate::error::{Corruption, Error, Health, Result, while_locked};
use crate::format::control::{ControlBlock, Torn};
use crate::format::{Lsn, PageId, TreeId, TxnId};
use crate::log::{Log, LogConfig, LogReader, check_log_dir};
use crate::mutants::{Mutant, Planted};
use crate::recovery::{self, RedoConfig};
use crate::space::{Purpose, Space};
use crate::txn::{ActiveSet, Engine, Instance, LockConfig, LockTable, OpenState, OpenUndoLog, Trees, Txn, UndoStore};
use seawall_io::InUse;
use seawall_io::probe::{self, BlockDevice, Finding};
use seawall_io::{Clock, Disk, FlushMethod, IoStats, OsDisk, SystemClock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// The environment of a database: everything that a deterministic test replaces.
#[derive(Debug, Clone)]
pub struct Env {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// How background work runs.
    pub background: Background,
}

impl Env {
    /// Returns the environment that [`Database::open`] uses: the operating system's disk with this backend, the
    /// system clock, and background threads.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the backend does not work on this system.
    ///
    /// ```
    /// use seawall::{Database, Env, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path();
    /// let options = Options::default().with_pool_size(8 << 20);
    /// let env = Env::system(options.io_backend())?;
    /// // Here a test or a benchmark puts a disk of its own around `env.disk`.
    /// Database::open_in(env, path, options)?.close()?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn system(backend: seawall_io::Backend) -> Result<Self> {
        let disk = OsDisk::new(backend, None).map_err(|e| Error::InvalidOption {
            name: "io_backend".into(),
            value: backend.to_string(),
            why: e.to_string(),
        })?;
        Ok(Self {
            disk: Arc::new(disk),
            clock: Arc::new(SystemClock::default()),
            seed: random_seed(),
            background: Background::Threads,
        })
    }
}

impl Database {
    /// Opens the database in the directory `path`, or creates it if there is none.
    ///
    /// # Errors
    /// [`Error::Locked`] if the database is still open, in this process or another, after 3 s; [`Error::NotADatabase`];
    /// [`Error::IsABackup`] and [`Error::UnfinishedBackup`] for a directory that must be restored first;
    /// [`Error::OtherFormat`]; [`Error::Corrupt`] with the damage; [`Error::InvalidOption`] for a bad line in
    /// its `seawall.toml`; [`Error::NoSpace`]; [`Error::NoThread`]; [`Error::Usage`] in a forked process;
    /// [`Error::Io`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("accounts.db");
    /// let db = seawall::Database::open(&path)?;
    /// let users = db.create_tree("users")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&users, b"ada", b"1815")?;
    /// tx.commit()?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, Options::default())
    }

    /// Like [`Database::open`], with options, which override the directory's `seawall.toml`.
    ///
    /// # Errors
    /// Those of [`Database::open`]; [`Error::InvalidOption`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = &absolute(path.as_ref())?;
        seawall_io::raise_descriptor_limit();
        seawall_io::create_dir_all(path)?;
        let options = options.with_file_of(path)?;
        let log_dir = options.log_dir_of(path);
        // The log's directory of an existing database exists: a name that does not is wrong, and is not made.
        if !path.join(CONTROL_FILE).exists() || path.join(marker::CREATING_FILE).exists() {
            seawall_io::create_dir_all(&log_dir)?;
        }
        if let Finding::Known(device) = probe::block_device_of(&log_dir.canonicalize().unwrap_or(log_dir)) {
            refuse_small_blocks(options.log_block_bytes(), &device)?;
        }
        let env = Env::system(options.io_backend())?;
        // If the directories are moved while they are open, the next log segments go with them.
        for dir in [path, &options.log_dir_of(path), &options.log_ring_dir()].into_iter().filter(|dir| dir.is_dir()) {
            env.disk.pin(dir)?;
        }
        let listens = options.control_socket();
        let db = Self::open_settled(env, path, options, &MemoryLimit::read())?;
        db.inner.publish().map_err(|e| no_thread(path, &e))?;
        if listens == ControlSocketChoice::On {
            db.inner.listen();
        }
        Ok(db)
    }

    /// Opens a database in a given environment, for tests that control its disk and clock.
    ///
    /// # Errors
    /// Those of [`Database::open`].
    pub fn open_in(env: Env, path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_settled(env, path.as_ref(), options, &MemoryLimit::unknown())
    }

    /// Creates a database in memory, for tests and scratch data. It exists until its last handle is dropped.
    ///
    /// # Errors
    /// Only if the process runs out of memory or threads.
    pub fn in_memory() -> Result<Self> {
        let env = Env {
            disk: Arc::new(MemoryDisk::new()),
            clock: Arc::new(SystemClock::default()),
            seed: random_seed(),
            background: Background::Threads,
        };
        let options = Options::default()
            .with_pool_size(32 << 20)
            .with_data_initial_size(4 << 20)
            .with_log_segment_size(1 << 20)
            .with_log_capacity(16 << 20)
            .with_log_buffer_size(4 << 20)
            .with_torn_page_protection(TornPages::Off);
        Self::open_settled(env, Path::new("memory"), options, &MemoryLimit::read())
    }

    fn open_settled(env: Env, path: &Path, mut options: Options, memory: &MemoryLimit) -> Result<Self> {
        let in_use = InUse::new().ok_or_else(forked_in_use)?;
        let clock = env.clock.clone();
        loop {
            if let Found::Whole(beside) = while_locked(&*clock, || marker::look(&env.disk, path))? {
                return Opening::existing(env, path, &mut options, memory, &beside)?.finish(options, in_use);
            }
            options.settle(memory)?;
            options.settle_torn_pages(|| env.disk.untorn_write_bytes(path), || env.disk.atomic_write_bytes(path))?;
            let token = identity(env.seed);
            let log_dir = options.log_dir_of(path);
            if let Some(marker) = while_locked(&*clock, || Marker::take(&env.disk, path, &log_dir, &token))? {
                return Opening::new(env, path, &options, marker)?.finish(options, in_use);
            }
        }
    }
}

/// A database that is being opened.
pub(super) struct Opening {
    pub(super) env: Env,
    pub(super) path: std::path::PathBuf,
    pub(super) space: Arc<Space>,
    pub(super) undo: UndoStore,
    pub(super) next_txn: TxnId,
    pub(super) open: Vec<OpenUndoLog>,
}

impl Opening {
    pub(super) fn log_config(
        env: &Env,
        path: &Path,
        options: &Options,
        block: &ControlBlock,
        stats: &Arc<IoStats>,
    ) -> LogConfig {
        let dir = options.log_dir_of(path);
        LogConfig {
            method: method(options.log_flush_method(), env, &dir),
            dir,
            block_bytes: options.log_block_bytes() as usize,
            segment_bytes: block.segment_bytes,
            capacity_bytes: options.log_capacity(),
            reserve_bytes: options.log_space_reserve(),
            written: options.preallocate() == Preallocate::Written,
            buffer_bytes: options.log_buffer_size() as usize,
            ring_dir: Some(options.log_ring_dir()).filter(|dir| !dir.as_os_str().is_empty()),
            database: block.database,
            incarnation: block.incarnation,
            stats: stats.clone(),
            flush_interval: options.flush_interval(),
            clock: env.clock.clone(),
        }
    }

    pub(super) fn pool_config(
        env: &Env,
        path: &Path,
        options: &Options,
        block: &ControlBlock,
        stats: &Arc<IoStats>,
    ) -> PoolConfig {
        let method = method(options.data_flush_method(), env, path);
        let max = options.pool_size_max();
        let once = options.torn_page_protection() == TornPages::Atomic;
        let sectors_hold = |page| matches!(env.disk.untorn_write_bytes(path), Finding::Known(bytes) if bytes >= page);
        PoolConfig {
            dir: path.into(),
            page_bytes: block.page_bytes as usize,
            pool_bytes: options.pool_size(),
            pool_bytes_max: if max == 0 { options.pool_size().saturating_mul(4) } else { max },
            method,
            doublewrite_method: method,
            torn: torn(options),
            atomic_writes: once && !sectors_hold(block.page_bytes),
            stats: stats.clone(),
            clock: env.clock.clone(),
            io_capacity: options.io_capacity(),
            io_capacity_burst: options.io_capacity_burst(),
            max_dirty_percent: options.max_dirty_percent(),
            max_checkpoint_age_percent: options.max_checkpoint_age_percent(),
            deferred_percent_min: options.deferred_percent_min(),
            deferred_percent: options.deferred_percent(),
            redo: crate::recovery::apply,
            prefetch_depth: options.prefetch_depth(),
            prefetch_depth_total: options.prefetch_depth_total(),
            patience: match env.background {
                Background::Threads => Duration::from_secs(10),
                Background::Steps => Duration::ZERO,
            },
        }
    }

    fn new(env: Env, path: &Path, options: &Options, marker: Marker) -> Result<Self> {
        let disk = env.disk.clone();
        let stats = Arc::new(IoStats::new());
        let health = Arc::new(Health::default());
        let block = ControlBlock {
            database: identity(env.seed),
            page_bytes: options.page_size() as u32,
            block_bytes: options.log_block_bytes() as u32,
            segment_bytes: options.log_segment_size(),
            incarnation: 1,
            torn: torn(options),
            clean: false,
            checkpoint: Lsn(0),
            log_end: Lsn(0),
            next_txn: TxnId(1),
            log_incarnation: 1,
            log_buffer: options.log_buffer_size(),
        };
        let log_config = Self::log_config(&env, path, options, &block, &stats);
        let pool_config = Self::pool_config(&env, path, options, &block, &stats);
        let control = Control::create(disk.clone(), &path.join(CONTROL_FILE), &stats, block)?;
        let log = Arc::new(Log::create(disk.clone(), log_config, health.clone())?);
        let pool = Arc::new(Pool::create(disk.clone(), pool_config, control, log, health)?);
        options.check_torn_pages(&pool.data_mode(), pool.config().atomic_writes)?;
        let initial = options.data_initial_size() / pool.page_bytes() as u64;
        let space = Arc::new(Space::create(pool.clone(), initial as u32)?);
        pool.retry(|| {
            let mut reserved = space.reserve(TreeId::CATALOG, PageId::NONE, 1, Purpose::Grow)?;
            let mut mtr = Mtr::begin(&pool, MtrSize::Small)?;
            let catalog = Btree::create(TreeId::CATALOG, &mut mtr, &mut reserved)?;
            space.set_catalog_root(&mut mtr, catalog.root)?;
            mtr.commit();
            Ok(())
        })?;
        let undo = UndoStore::create(space.clone())?;
        marker.make_names_durable(&options.log_dir_of(path))?;
        pool.flush_all()?;
        // Writes the other slot too: from now on the loss of one slot does no harm.
        pool.control().write(&pool.control().current())?;
        marker.remove()?;
        Ok(Self { env, path: path.into(), space, undo, next_txn: TxnId(1), open: Vec::new() })
    }

    /// Returns whether all log that `block` needs still exists. An unreadable slot of the control file may be
    /// the newer one; the log that the readable slot needs may then have been reused. The check runs before
    /// anything is written, because in that case only the unreadable slot leads to the data.
    fn reaches(disk: &Arc<dyn Disk>, config: &LogConfig, block: &ControlBlock) -> Result<bool> {
        let read = || {
            let mut reader = LogReader::open(disk.clone(), config, block.checkpoint, block.incarnation)?;
            reader.written_by(block.log_incarnation, block.log_buffer);
            if block.clean {
                reader.closed_at(block.checkpoint);
            }
            while reader.next()?.is_some() {}
            Ok(reader.at() >= block.log_end)
        };
        match read() {
            Err(Error::Corrupt(_)) => Ok(false),
            done => done,
        }
    }

    fn existing(env: Env, path: &Path, options: &mut Options, memory: &MemoryLimit, beside: &Beside) -> Result<Self> {
        let disk = env.disk.clone();
        let stats = Arc::new(IoStats::new());
        let health = Arc::new(Health::default());
        let control = while_locked(&*env.clock, || Control::open(disk.clone(), &path.join(CONTROL_FILE), &stats))?;
        // No other opening can create such files while this one has the control file locked.
        remove_leftovers(&*disk, &beside.leftovers);
        let made = control.current();
        options.adopt(u64::from(made.page_bytes), made.segment_bytes)?;
        options.settle(memory)?;
        check_log_dir(&disk, beside.log.as_deref(), &options.log_dir_of(path))?;
        let data = path.join(DATA_FILE);
        options.settle_torn_pages(|| env.disk.untorn_write_bytes(path), || env.disk.atomic_write_bytes(&data))?;
        if let Some(unread) = control.unreadable() {
            let config = Self::log_config(&env, path, options, &made, &stats);
            if !Self::reaches(&disk, &config, &made)? {
                return Err(unread.clone().into());
            }
        }
        // Before the control file is written: a log that is not there, or not this database's any more, takes no mark
        // of a clean shutdown away, and is refused at the next opening, too.
        let log_config = Self::log_config(&env, path, options, &made, &stats);
        let mut reader = LogReader::open(disk.clone(), &log_config, made.checkpoint, made.incarnation)?;
        reader.written_by(made.log_incarnation, made.log_buffer);
        let mut again = reader.again();
        if made.clean {
            reader.closed_at(made.checkpoint);
        } else {
            reader.with_ring(&disk, &log_config)?;
        }
        while reader.next()?.is_some() {}
        let tail = reader.finish()?;
        let end = tail.end;
        if end < made.log_end {
            let why = format!(
                "it ends at {end}, but was whole and durable up to {} when the checkpoint was made",
                made.log_end
            );
            return Err(Corruption::Log { at: end, why }.into());
        }
        // After a copy, or a move of the log, names may be new.
        disk.sync_dir(path)?;
        disk.make_name_durable(path)?;
        if log_config.dir != path {
            disk.make_name_durable(&log_config.dir)?;
        }
        if !Planted::here().has(Mutant::GhostTail) {
            control.begin_incarnation(options.log_buffer_size())?;
        }
        let block = control.current();
        let log_config = Self::log_config(&env, path, options, &block, &stats);
        if beside.backed_up {
            Taken::forget_abandoned(&*disk, path, end)?;
        }
        let log = Arc::new(Log::open(disk.clone(), log_config, health.clone(), tail)?);
        let pool_config = Self::pool_config(&env, path, options, &block, &stats);
        let pool = Arc::new(Pool::open(disk.clone(), pool_config, control, log, health)?);
        options.check_torn_pages(&pool.data_mode(), pool.config().atomic_writes)?;
        pool.recover_doublewrite()?;
        let abandons = options.damaged_pages() == DamagedPages::Abandon;
        let redo = RedoConfig { threads: redo_threads(&env), abandons, clock: &*env.clock };
        let redone = recovery::redo(&pool, &mut again, end, redo)?;
        drop(again);
        let space = Arc::new(Space::open(pool)?);
        let (undo, open, last) = UndoStore::open(space.clone())?;
        let next = block.next_txn.0.max(redone.last_txn + 1).max(last.0 + 1);
        Ok(Self { env, path: path.into(), space, undo, next_txn: TxnId(next), open })
    }

    pub(super) fn finish(self, options: Options, in_use: InUse) -> Result<Database> {
        let Self { env, path, space, undo, next_txn, open } = self;
        let active = ActiveSet::new(env.clock.clone());
        let forgotten = |undo_log: &&OpenUndoLog| {
            matches!(undo_log.state, OpenState::Active) && space.pool().health().has(Mutant::LosersStay)
        };
        let ids: Vec<TxnId> =
            open.iter().filter(|undo_log| !forgotten(undo_log)).map(|undo_log| undo_log.txn).collect();
        active.restore(next_txn, &ids);
        space.pool().note_next_txn(next_txn.0);
        let may_wait = env.background == Background::Threads;
        let health = space.pool().health().clone();
        let lock_config = LockConfig { blocking: may_wait, health, ..LockConfig::new(env.clock.clone()) };
        let catalog_root = space.catalog_root()?;
        let locks = LockTable::new(lock_config);
        locks.set_point_bytes(options.lock_memory_per_transaction());
        let instance = Instance::new(identity(env.seed));
        let engine = Arc::new(Engine {
            trees: Trees::new(instance.number()),
            instance,
            catalog_root,
            space,
            undo,
            locks,
            first_txn: active.next_id(),
            rollbacks: AtomicU64::new(0),
            active,
            resumed: AtomicU64::new(0),
            resumed_asked: AtomicBool::new(false),
            unfinished: Mutex::default(),
            purge: Mutex::default(),
            compacting: Mutex::default(),
            clock: env.clock.clone(),
            lock_wait_timeout_ns: AtomicU64::new(nanos(options.lock_wait_timeout())),
            may_wait,
        });
        let (mut losers, mut prepared) = (Vec::new(), BTreeMap::new());
        for OpenUndoLog { undo_log, txn, state } in open {
            match state {
                OpenState::Active if engine.health().has(Mutant::LosersStay) => {}
                OpenState::Active => losers.push(Txn::resume(engine.clone(), txn, undo_log)),
                OpenState::Prepared { xid } => {
                    let resumed = Txn::resume_prepared(engine.clone(), txn, undo_log)?;
                    prepared.insert(Xid(xid), Some(resumed));
                }
            }
        }
        if losers.len() + prepared.len() > 0 {
            let (losers, prepared) = (losers.len(), prepared.len());
            ::log::info!("open transactions: {losers} to roll back, {prepared} prepared");
        }
        engine.space.set_grow_step(options.data_growth_step());
        engine.pool().set_prefetch_window(options.prefetch_window());
        let work = Arc::new(Work::new(engine, losers, &options));
        let threads = match env.background {
            _ if work.engine.health().is_read_only() => None,
            Background::Steps => None,
            Background::Threads => Some(Threads::start(&work).map_err(|e| no_thread(&path, &e))?),
        };
        let prepared = Arc::new(Mutex::new(prepared));
        let log_dir = options.log_dir_of(&path);
        let counts = Arc::new(Counts::new(env.disk, &path, log_dir, work.clone(), prepared.clone()));
        Ok(Database::new(Inner::new(path, work, options, counts, prepared, threads, in_use)))
    }
}

pub(super) fn forked_in_use() -> Error {
    let why = "this process was forked from one that had a database open: threads that were not copied still stand in \
        the queues of its locks, so that \
               its own might wait for ever. Fork before any database is opened (or after all are closed), or execute \
               a program in the child";
    Error::Usage(why.into())
}

/// The error for a thread that the system cannot start.
fn no_thread(path: &Path, error: &std::io::Error) -> Error {
    Error::NoThread { path: path.into(), why: error.to_string() }
}

/// Returns the number of redo threads: 1 if everything must happen in one order.
fn redo_threads(env: &Env) -> usize {
    match env.background {
        Background::Steps => 1,
        Background::Threads => std::thread::available_parallelism().map_or(1, |n| n.get().min(8)),
    }
}

/// Makes `path` absolute, so that it stays valid if the process changes its working directory.
pub(in crate::db) fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    let failed =
        |e: std::io::Error| seawall_io::IoError::os(seawall_io::Op::Directory, path, e.raw_os_error().unwrap_or(2));
    std::path::absolute(path).map_err(|e| failed(e).into())
}

fn torn(options: &Options) -> Torn {
    match options.torn_page_protection() {
        TornPages::Off | TornPages::Atomic => Torn::Off,
        TornPages::Doublewrite | TornPages::Auto => Torn::Doublewrite,
    }
}

/// Refuses log blocks smaller than a physical sector of the device. To write such a block the device rewrites
/// the neighbouring bytes of the sector, so a power cut could tear durable log.
fn refuse_small_blocks(block_bytes: u64, device: &BlockDevice) -> Result<()> {
    match device.physical_block_bytes {
        Finding::Known(physical) if block_bytes < u64::from(physical) => {
            let why = format!(
                "the log's device {} has physical sectors of {physical} bytes: use at least that much, otherwise a \
                 power cut can tear durable log",
                device.name
            );
            Err(Error::InvalidOption { name: "log_block_bytes".into(), value: block_bytes.to_string(), why })
        }
        _ => Ok(()),
    }
}

/// Returns the requested flush method, or the one that was measured as the fastest in this directory.
fn method(choice: FlushChoice, env: &Env, path: &Path) -> FlushMethod {
    match choice.method() {
        Some(method) => method,
        None if env.background == Background::Steps => FlushMethod::ODirect,
        None => calibrate::method(&*env.disk, path),
    }
}

/// Derives a unique id from `seed`. It distinguishes the logs of different databases, and is not a secret.
fn identity(seed: u64) -> [u8; 16] {
    let mut id = [0; 16];
    let (mut a, mut b) = (seed, seed ^ 0x9e37_79b9_7f4a_7c15);
    for half in [&mut a, &mut b] {
        // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
        *half = (*half ^ (*half >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *half = (*half ^ (*half >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *half ^= *half >> 31;
    }
    id[..8].copy_from_slice(&a.to_le_bytes());
    id[8..].copy_from_slice(&b.to_le_bytes());
    id
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // Keyed from the system's random numbers once per thread; each call increments the key.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
