//! Rules between options, and the effects of the available memory and of the options the database was created
//! with.
//!
//! 1. Only defaults are adapted: a value that was set is used or refused, never changed.
//! 2. The rules of `check` hold for every set of options that is in use.

use super::value::{Kind, Size};
use super::{MemoryLimit, Options, Setting, Source, TornPages, Warning, made_with};
use crate::error::{Error, Result};
use crate::log::MTR_BYTES_MAX;
use seawall_io::probe::Finding;
use seawall_io::{EffectiveMode, FlushMethod};

/// The smallest pool, pages: one operation pins some, and all threads together need more.
const POOL_PAGES_MIN: u64 = 64;
const LOG_SEGMENTS_MIN: u64 = 3;

/// Why no write through the page cache is certain to be whole.
const BUFFERED: &str = "through the page cache the kernel may write a page while it changes";

impl Options {
    /// Prepares the options for use: lowers the default of the pool if memory is short, sets defaults that
    /// depend on other options, and checks all of them. Returns warnings for the operator.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for the first value that is not allowed, alone or in combination.
    ///
    /// ```
    /// use seawall::options::{MemoryLimit, Options};
    /// let small = MemoryLimit { bytes: Some(64 << 20), from: "memory.max".into() };
    /// let mut options = Options::default();
    /// assert!(options.settle(&small)?.is_empty());
    /// assert_eq!(options.pool_size(), 32 << 20);
    /// let mut options = Options::default().with_pool_size(60 << 20);
    /// assert!(options.settle(&small)?[0].to_string().contains("60M"));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn settle(&mut self, memory: &MemoryLimit) -> Result<Vec<Warning>> {
        self.check_ranges()?;
        if let (Some(limit), Source::Default) = (memory.bytes, self.pool_size.source) {
            // Half: the program around the engine, its stacks and the kernel's own memory are charged to the
            // same limit.
            let least = (POOL_PAGES_MIN * self.page_size.value).max(1 << 20);
            let share = (limit / 2) & !((1 << 20) - 1);
            self.pool_size.value = self.pool_size.value.min(share.max(least));
        }
        if self.pool_size_max.value == 0 {
            self.pool_size_max.value = self.pool_size.value.saturating_mul(4);
        }
        self.cut_log();
        self.follow();
        self.check()?;
        Ok(self.warnings(memory))
    }

    /// Returns the warnings about these options, for the operator.
    #[must_use]
    pub fn warnings(&self, memory: &MemoryLimit) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let pool = self.pool_size.value;
        if let Some(limit) = memory.bytes.filter(|limit| u128::from(pool) * 10 > u128::from(*limit) * 9) {
            warnings.push(Warning {
                option: "pool_size",
                sentence: format!(
                    "{} is more than 90% of the {} that this process may use ({}): it may be killed for its memory. \
                     Lower pool_size or raise the limit",
                    Size::print(&pool),
                    Size::print(&limit),
                    memory.from
                ),
            });
        }
        if self.torn_page_protection.value == TornPages::Off {
            warnings.push(Warning {
                option: "torn_page_protection",
                sentence: "off: a power loss in the middle of a page write destroys that page. Use doublewrite or \
                           auto unless the data can be lost"
                    .into(),
            });
        }
        if self.torn_page_protection.value == TornPages::Atomic {
            warnings.push(Warning {
                option: "torn_page_protection",
                sentence:
                    "atomic: pages are written once. By what the file system and the device report, a power loss \
                           leaves a page write done or undone: blocks and physical sectors are as large as a page, or \
                           there are atomic writes (RWF_ATOMIC). Use doublewrite if the device may report a wrong size"
                        .into(),
            });
        }
        warnings
    }

    /// Refuses `atomic` protection for pages that are written through the page cache. `O_DSYNC` is allowed,
    /// because such a write returns only when the disk has it; but not if each page must be one atomic write,
    /// which needs direct I/O.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check_torn_pages(&self, mode: &EffectiveMode, atomic_writes: bool) -> Result<()> {
        let once = self.torn_page_protection.value == TornPages::Atomic;
        if !once || mode.direct || (mode.requested == FlushMethod::ODsync && !atomic_writes) {
            return Ok(());
        }
        let why = format!("{BUFFERED}; direct I/O does not work here ({mode}): use doublewrite");
        Err(Error::InvalidOption { name: "torn_page_protection".into(), value: "atomic".into(), why })
    }

    /// Resolves `auto` protection against torn pages, and refuses `atomic` if it is not proven. `whole` returns
    /// the largest write that a power cut leaves whole, bytes; `atomic` returns the largest write that the
    /// kernel does atomically on request.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn settle_torn_pages(
        &mut self,
        whole: impl FnOnce() -> Finding<u32>,
        atomic: impl FnOnce() -> Finding<u32>,
    ) -> Result<()> {
        let (wanted, page_size) = (self.torn_page_protection.value, self.page_size.value);
        if !matches!(wanted, TornPages::Atomic | TornPages::Auto) {
            return Ok(());
        }
        let large_enough = |found, what: &str| match found {
            Finding::Known(bytes) if u64::from(bytes) >= page_size => Ok(()),
            Finding::Known(bytes) => Err(format!("{what} {bytes} bytes, and a page has {page_size}")),
            Finding::Unknown(reason) => Err(reason),
        };
        let unproven = match self.data_flush_method.value.method() {
            // The kernel writes a cached page while it may be changed again.
            Some(FlushMethod::Fsync) => Some(BUFFERED.into()),
            method => large_enough(whole(), "a power cut leaves writes whole of at most").err().and_then(|why| {
                // Only direct I/O can be atomic.
                let asked = if method == Some(FlushMethod::ODsync) { Finding::Known(0) } else { atomic() };
                let still = large_enough(asked, "the largest atomic write (RWF_ATOMIC) has").err()?;
                Some(format!("{why}; {still}"))
            }),
        };
        self.torn_page_protection.value = match unproven {
            None => TornPages::Atomic,
            Some(why) if wanted == TornPages::Atomic => {
                let why = format!("{why}: use doublewrite");
                return Err(Error::InvalidOption { name: "torn_page_protection".into(), value: "atomic".into(), why });
            }
            Some(why) => {
                log::info!("pages are written twice, for torn_page_protection = auto: {why}");
                TornPages::Doublewrite
            }
        };
        Ok(())
    }

    /// Takes the fixed options that the database was created with.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if another value was set.
    pub fn adopt(&mut self, page_size: u64, log_segment_size: u64) -> Result<()> {
        let take = |name: &str, setting: &mut Setting<u64>, actual: u64| {
            if setting.source != Source::Default && setting.value != actual {
                return Err(made_with(name, &Size::print(&setting.value), &Size::print(&actual)));
            }
            *setting = Setting { value: actual, source: Source::Database };
            Ok(())
        };
        take("page_size", &mut self.page_size, page_size)?;
        take("log_segment_size", &mut self.log_segment_size, log_segment_size)
    }

    /// Adapts defaults to the options they depend on.
    pub(super) fn follow(&mut self) {
        if self.io_capacity_burst.source == Source::Default {
            let wanted = self.io_capacity.value.saturating_mul(2).min(10_000_000);
            self.io_capacity_burst.value = self.io_capacity_burst.value.max(wanted);
        }
        if self.prefetch_depth_total.source == Source::Default {
            self.prefetch_depth_total.value = self.prefetch_depth_total.value.max(self.prefetch_depth.value);
        }
    }

    /// Adapts the size of log files to that of the log. Only before the database is open, because all its log
    /// files have one size.
    fn cut_log(&mut self) {
        if self.log_segment_size.source == Source::Default {
            // A small log is cut into eight files, so that it is reused in small pieces; one file leaves
            // space for the largest changes.
            let beside = self.log_capacity.value.saturating_sub(4 * MTR_BYTES_MAX as u64);
            let eighth = (self.log_capacity.value / 8).min(beside).max(64 << 10);
            let power = 1u64 << (63 - eighth.leading_zeros());
            self.log_segment_size.value = self.log_segment_size.value.min(power);
        } else if self.log_capacity.source == Source::Default {
            self.log_capacity.value =
                self.log_capacity.value.max(self.log_segment_size.value.saturating_mul(LOG_SEGMENTS_MIN));
        }
    }

    /// Checks all values and the rules between options.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for the first value that is out of its range or against a rule.
    pub fn check(&self) -> Result<()> {
        self.check_ranges()?;
        let pool_least = self.page_size.value * POOL_PAGES_MIN;
        if self.pool_size.value < pool_least {
            let why = format!(
                "it must hold at least {POOL_PAGES_MIN} pages: {} for pages of {}",
                Size::print(&pool_least),
                Size::print(&self.page_size.value)
            );
            return Err(refuse("pool_size", &self.pool_size.value, why));
        }
        if self.pool_size_max.value != 0 && self.pool_size.value > self.pool_size_max.value {
            let why = format!(
                "more than pool_size_max = {}, which is fixed while the database is open",
                Size::print(&self.pool_size_max.value)
            );
            return Err(refuse("pool_size", &self.pool_size.value, why));
        }
        let segment = self.log_segment_size.value;
        let log_least = (segment * LOG_SEGMENTS_MIN).max(segment + 4 * MTR_BYTES_MAX as u64);
        if self.log_capacity.value < log_least {
            let why = format!(
                "it must hold three log files, and four of the largest changes beside one: {} for log_segment_size = \
                 {}",
                Size::print(&log_least),
                Size::print(&self.log_segment_size.value)
            );
            return Err(refuse("log_capacity", &self.log_capacity.value, why));
        }
        if self.io_capacity_burst.value < self.io_capacity.value {
            let why = format!("less than io_capacity = {}", self.io_capacity.value);
            return Err(Error::InvalidOption {
                name: "io_capacity_burst".into(),
                value: self.io_capacity_burst.value.to_string(),
                why,
            });
        }
        if self.prefetch_depth_total.value < self.prefetch_depth.value {
            let why = format!("less than prefetch_depth = {}", self.prefetch_depth.value);
            return Err(Error::InvalidOption {
                name: "prefetch_depth_total".into(),
                value: self.prefetch_depth_total.value.to_string(),
                why,
            });
        }
        Ok(())
    }
}

fn refuse(name: &str, bytes: &u64, why: String) -> Error {
    Error::InvalidOption { name: name.into(), value: Size::print(bytes), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(bytes: u64) -> MemoryLimit {
        MemoryLimit { bytes: Some(bytes), from: "memory.max".into() }
    }

    #[test]
    fn the_default_pool_fits_and_a_given_one_is_kept() {
        for (bytes, pool) in [(8u64 << 30, 128u64 << 20), (100 << 20, 50 << 20), (0, 1 << 20), (1 << 20, 1 << 20)] {
            let mut options = Options::default();
            options.settle(&limit(bytes)).unwrap();
            assert_eq!(options.pool_size(), pool);
            assert_eq!(options.pool_size_max(), pool * 4);
        }
        let mut options = Options::default().with_pool_size(1 << 30);
        let warnings = options.settle(&limit(1 << 30)).unwrap();
        assert_eq!((options.pool_size(), warnings.len()), (1 << 30, 1));
        assert!(options.warnings(&limit(2 << 30)).is_empty());
        let mut options = Options::default().with_page_size(32 << 10);
        options.settle(&limit(1)).unwrap();
        assert_eq!(options.pool_size(), 2 << 20, "64 pages, whatever the limit");
    }

    #[test]
    fn defaults_follow_and_given_values_are_refused() {
        let mut options =
            Options::default().with_io_capacity(50_000).with_prefetch_depth(1000).with_log_capacity(2 << 20);
        options.settle(&MemoryLimit::unknown()).unwrap();
        assert_eq!((options.io_capacity_burst(), options.prefetch_depth_total()), (100_000, 1000));
        assert_eq!(options.log_segment_size(), 256 << 10);

        let mut options = Options::default().with_log_segment_size(1 << 30);
        options.settle(&MemoryLimit::unknown()).unwrap();
        assert_eq!(options.log_capacity(), 3 << 30);

        for (options, name) in [
            (Options::default().with_io_capacity(100).with_io_capacity_burst(50), "io_capacity_burst = 50"),
            (Options::default().with_pool_size(512 << 10), "pool_size = 512K"),
            (Options::default().with_pool_size(2 << 30).with_pool_size_max(1 << 30), "pool_size = 2G"),
            (Options::default().with_log_capacity(32 << 20).with_log_segment_size(16 << 20), "log_capacity = 32M"),
            (Options::default().with_prefetch_depth_total(4), "prefetch_depth_total = 4"),
            (Options::default().with_page_size(5000), "page_size = 5000"),
            (Options::default().with_flush_interval(std::time::Duration::MAX), "flush_interval = "),
            (Options::default().with_pool_size(u64::MAX), "pool_size = "),
            (Options::default().with_page_size(u64::MAX), "page_size = "),
        ] {
            let error = options.clone().settle(&limit(u64::MAX)).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn what_the_database_was_made_with_stays() {
        let mut options = Options::default();
        options.adopt(4096, 1 << 20).unwrap();
        assert_eq!((options.page_size(), options.log_segment_size()), (4096, 1 << 20));
        options.set("page_size", "4K").unwrap();
        assert!(options.set("page_size", "8K").is_err(), "the database is the stronger source");
        options.set("log_capacity", "2M").unwrap();
        assert!(options.settle(&MemoryLimit::unknown()).unwrap_err().to_string().contains("three log files"));
        let error = Options::default().with_page_size(8192).adopt(4096, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("page_size = 8K: this database was made with 4K"), "{error}");
    }
}
