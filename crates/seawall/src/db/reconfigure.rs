//! Changing an open database: its options, and the size of its data file.
//!
//! 1. When [`Database::set`] returns, the option is in effect; on error nothing has changed.
//! 2. One change at a time; no hot path reads the set of options.

use super::background::nanos;
use super::database::Database;
use super::options::Options;
use crate::buffer::may_latch;
use crate::error::{Error, Result};
use std::sync::atomic::Ordering;

/// The data file grows in steps of this size, bytes: an error or a crash loses at most one step.
const GROW_STEP_BYTES: u64 = 1 << 30;
/// Sizes are rounded up to a multiple of this, bytes: an extent.
const GROW_UNIT_BYTES: u64 = 1 << 20;

impl Database {
    /// Returns the options in use.
    #[must_use]
    pub fn options(&self) -> Options {
        match self.here() {
            Ok(()) => self.inner.options.lock().clone(),
            // In a forked process: the thread that holds the mutex may not exist here.
            Err(_) => self.inner.options.try_lock().map(|options| options.clone()).unwrap_or_default(),
        }
    }

    /// Changes an option while the database is open. The change is in effect at once and lost when the database
    /// is closed: use `seawall.toml` for permanent settings.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no such option, its value is not allowed, or it cannot be changed
    /// now; [`Error::Poisoned`] if the pool cannot shrink because its pages cannot be written. After an error
    /// nothing has changed.
    ///
    /// ```
    /// let db = seawall::Database::in_memory()?;
    /// db.set("pool_size", "16M")?;
    /// assert_eq!(db.options().pool_size(), 16 << 20);
    /// assert!(db.set("page_size", "8K").is_err(), "that is for ever");
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn set(&self, option: &str, value: &str) -> Result<()> {
        self.here()?;
        may_latch()?;
        let mut options = self.inner.options.lock();
        let mut changed = options.clone();
        changed.set_running(option, value)?;
        let name = Options::info(option)?.name;
        let (work, engine) = (&self.inner.work, &self.inner.work.engine);
        match name {
            "pool_size" => engine.pool().set_bytes(changed.pool_size())?,
            "data_growth_step" => engine.space.set_grow_step(changed.data_growth_step()),
            "log_capacity" => engine.log().set_capacity(changed.log_capacity())?,
            "log_space_reserve" => engine.log().set_space_reserve(changed.log_space_reserve()),
            "log_flush_method" => engine.log().set_method(self.inner.counts.log_method(changed.log_flush_method()))?,
            "durability" => work.set_durability(changed.durability()),
            "flush_interval" => work.set_flush_interval(changed.flush_interval()),
            "io_capacity" | "io_capacity_burst" => {
                engine.pool().set_io_capacity(changed.io_capacity(), changed.io_capacity_burst());
            }
            "max_dirty_percent" | "max_checkpoint_age_percent" => {
                engine.pool().set_cleaning_limits(changed.max_dirty_percent(), changed.max_checkpoint_age_percent());
            }
            "deferred_percent" | "deferred_percent_min" => {
                engine.pool().set_deferred_percent(changed.deferred_percent_min(), changed.deferred_percent());
            }
            "prefetch_depth" | "prefetch_depth_total" => {
                engine.pool().set_prefetch_depths(changed.prefetch_depth(), changed.prefetch_depth_total());
            }
            "stats_interval" => work.set_stats_interval(changed.stats_interval()),
            "prefetch_window" => engine.pool().set_prefetch_window(changed.prefetch_window()),
            "lock_wait_timeout" => {
                engine.lock_wait_timeout_ns.store(nanos(changed.lock_wait_timeout()), Ordering::Relaxed);
            }
            "lock_memory_per_transaction" => engine.locks.set_point_bytes(changed.lock_memory_per_transaction()),
            _ => {
                let why =
                    "this version uses it only when the database is opened: put it into seawall.toml and open it again";
                return Err(Error::InvalidOption { name: name.into(), value: value.into(), why: why.into() });
            }
        }
        *options = changed;
        Ok(())
    }

    /// Grows the data file, durably, to at least `bytes`, so that it need not grow under load. Returns its
    /// size. Costs nothing if the file is already that large. Transactions run meanwhile.
    ///
    /// # Errors
    /// [`Error::NoSpace`] at once if the disk has too little space, or later if it fills up during the call:
    /// the space made so far stays. [`Error::Usage`] if no data file can be that large. [`Error::Poisoned`],
    /// [`Error::ReadOnly`].
    pub fn grow(&self, bytes: u64) -> Result<u64> {
        self.here()?;
        let pool = self.inner.engine().pool();
        pool.health().check()?;
        let page_bytes = pool.page_bytes() as u64;
        let size = || u64::from(pool.file_pages()) * page_bytes;
        let wanted = bytes.checked_next_multiple_of(GROW_UNIT_BYTES);
        let wanted = wanted.filter(|wanted| wanted / page_bytes < u64::from(u32::MAX));
        let Some(wanted) = wanted else {
            let most = (u64::from(u32::MAX) * page_bytes) >> 30;
            return Err(Error::Usage(format!("with pages of {page_bytes} bytes a data file has at most {most} GiB")));
        };
        let missing = wanted.saturating_sub(size());
        if missing > self.inner.counts.disk_free_bytes()? {
            return Err(Error::NoSpace { path: pool.data_path().into(), needed_bytes: missing, kept_free_bytes: 0 });
        }
        while size() < wanted {
            let next = wanted.min(size() + GROW_STEP_BYTES);
            self.inner.engine().space.grow_file((next / page_bytes) as u32)?;
        }
        Ok(size())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, Durability, Error, OptionChange, Options};

    #[test]
    fn what_is_changed_is_in_effect() {
        let db = Database::in_memory().unwrap();
        for (name, value) in [
            ("pool_size", "8M"),
            ("log_capacity", "32M"),
            ("log_space_reserve", "1M"),
            ("durability", "written"),
            ("flush_interval", "100ms"),
            ("io_capacity", "777"),
            ("data_growth_step", "2M"),
            ("log_flush_method", "fsync"),
        ] {
            db.set(name, value).unwrap();
            assert_eq!(db.options().get(name).unwrap(), value);
        }
        let engine = db.inner.engine();
        assert_eq!((engine.pool().bytes(), engine.log().capacity()), (8 << 20, 32 << 20));
        assert_eq!(db.inner.work.durability(), Durability::Written);
        assert_eq!(db.options().io_capacity_burst(), 20_000);
        for (name, value) in [("pool_size", "1"), ("page_size", "4K"), ("nonsense", "1"), ("io_capacity", "many")] {
            let before = db.options();
            assert!(matches!(db.set(name, value), Err(Error::InvalidOption { .. })), "{name}");
            assert_eq!(db.options(), before);
        }
    }

    #[test]
    fn every_option_said_to_be_changeable_is() {
        let db = Database::in_memory().unwrap();
        for info in Options::describe() {
            let now = db.options().get(info.name).unwrap();
            assert_eq!(db.set(info.name, &now).is_ok(), info.change == OptionChange::Running, "{}", info.name);
        }
        db.set("lock_wait_timeout", "5ms").unwrap();
        let tree = db.create_tree("t").unwrap();
        let mut holder = db.begin().unwrap();
        holder.put(&tree, b"k", b"1").unwrap();
        let mut other = db.begin().unwrap();
        // With the default time-out this would take most of a minute.
        assert!(matches!(other.put(&tree, b"k", b"2"), Err(Error::LockTimeout { .. })));
    }

    #[test]
    fn grown_space_is_there_and_is_used() {
        let db = Database::in_memory().unwrap();
        assert_eq!(db.grow(20 << 20).unwrap(), 20 << 20);
        assert_eq!(db.grow(1).unwrap(), 20 << 20, "never shorter");
        let space = db.stats().space;
        assert!(space.free_bytes > 18 << 20 && space.data_bytes == 20 << 20, "{space:?}");
        let tree = db.create_tree("t").unwrap();
        for i in 0..150u32 {
            db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &vec![1; 80_000])).unwrap();
        }
        // Background work may grow the file further; existing space is used first.
        let filled = db.stats().space;
        let beyond = filled.data_bytes - (20 << 20);
        assert!(filled.free_bytes < beyond + (8 << 20), "{filled:?}");
        assert_eq!(db.check().unwrap(), []);
        assert!(matches!(db.grow(u64::MAX), Err(Error::Usage(_))));
        assert!(matches!(db.grow(1 << 60), Err(Error::Usage(_))));
    }
}
