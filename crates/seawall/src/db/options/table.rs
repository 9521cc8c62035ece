//! Every option, defined once: from this table come the getters, the builder, `set`, `seawall.toml`,
//! command-line flags, and docs/options.md.
//!
//! 1. Adding an option takes only one entry here; rules between options are in `rules.rs`.
//! 2. A default is always inside its range.
//! 3. Names agree with the `seawall.toml` that `seawall lab` writes: `[log] flush_method` there is
//!    `log_flush_method` here.

use super::value::{
    ControlSocketChoice, Count, Directory, FlushChoice, Kind, Limits, Percent, Preallocate, Size, Time, TornPages, Word,
};
use super::{Change, OptionInfo, Setting, Source, made_with, unknown};
use crate::error::{Error, Result};
use crate::log::{Durability, MTR_BYTES_MAX};
use seawall_io::Backend;
use std::path::PathBuf;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Checks `value` against `range`. The option's type gives the range its type, and its kind compares the
/// values.
fn checked<K: Kind>(name: &str, value: K::Value, text: &str, range: &Limits<K::Value>) -> Result<K::Value> {
    if range.allows::<K>(&value) { Ok(value) } else { Err(refused::<K>(name, text, range)) }
}

fn read<K: Kind>(name: &str, text: &str, range: &Limits<K::Value>) -> Result<K::Value> {
    let value = K::parse(text).ok_or_else(|| refused::<K>(name, text, range))?;
    checked::<K>(name, value, text, range)
}

fn refused<K: Kind>(name: &str, text: &str, range: &Limits<K::Value>) -> Error {
    let shape = if K::words().is_empty() { format!("; write {}", K::SHAPE) } else { String::new() };
    let why = match range {
        Limits::Any if K::words().is_empty() => format!("write {}", K::SHAPE),
        Limits::Any => format!("allowed are {}", range.say::<K>()),
        _ => format!("allowed is {}{shape}", range.say::<K>()),
    };
    Error::InvalidOption { name: name.to_owned(), value: text.to_owned(), why }
}

macro_rules! options {
    ($($name:ident, $with:ident: $type:ty as $kind:ty = $default:expr,
       $range:expr, $change:ident, $unit:literal, [$($alias:literal),*],
       $help:literal, $effect:literal;)+) => {
        /// The options of creating, opening and running a database. docs/options.md lists each option, its
        /// default and its range.
        ///
        /// A value has a source: a value set here overrides `seawall.toml` in the database's directory, which
        /// overrides the default.
        ///
        /// ```
        /// use seawall::{Durability, Options};
        /// let mut options = Options::default().with_pool_size(256 << 20).with_durability(Durability::Written);
        /// options.set("lock_wait_timeout", "500ms")?;
        /// assert_eq!(options.pool_size(), 256 << 20);
        /// let refused = options.set("page_size", "5000").unwrap_err().to_string();
        /// assert!(refused.starts_with("option page_size = 5000: allowed is 4K to 32K, a power of two"), "{refused}");
        /// # Ok::<(), seawall::Error>(())
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Options {
            $(pub(super) $name: Setting<$type>,)+
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($name: Setting { value: $default, source: Source::Default },)+ }
            }
        }

        impl Options {
            $(
                #[doc = $help]
                #[must_use]
                pub fn $name(&self) -> $type {
                    self.$name.value.clone()
                }

                #[doc = concat!("Sets `", stringify!($name), "`, to be checked when the database is opened. ", $help)]
                #[must_use]
                pub fn $with(mut self, value: $type) -> Self {
                    self.$name = Setting { value, source: Source::Explicit };
                    self
                }
            )+

            /// Sets an option unless a stronger source has set it.
            pub(super) fn put(&mut self, name: &str, text: &str, source: Source) -> Result<()> {
                match canonical(name).as_str() {
                    $(stringify!($name) $(| $alias)* => {
                        let value = read::<$kind>(stringify!($name), text, &$range)?;
                        if self.$name.source == Source::Database && value != self.$name.value {
                            return Err(made_with(stringify!($name), text, &<$kind>::print(&self.$name.value)));
                        }
                        if source >= self.$name.source {
                            self.$name = Setting { value, source };
                        }
                        Ok(())
                    })+
                    _ => Err(unknown(name, text)),
                }
            }

            /// Checks that each value is in its own range, because builders accept any value.
            pub(super) fn check_ranges(&self) -> Result<()> {
                $({
                    let value = &self.$name.value;
                    checked::<$kind>(stringify!($name), value.clone(), &<$kind>::print(value), &$range)?;
                })+
                Ok(())
            }

            /// Returns every option's name, value as text, and source, in the order of the docs.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, String, Source)> {
                vec![$((stringify!($name), <$kind>::print(&self.$name.value), self.$name.source),)+]
            }

            /// Returns the descriptions of all options: for command lines, docs, and other programs' variables.
            ///
            /// ```
            /// use seawall::options::Options;
            /// let pool = Options::describe().into_iter().find(|option| option.name == "pool_size").unwrap();
            /// assert_eq!((pool.default.as_str(), pool.flag().as_str()), ("128M", "--pool-size"));
            /// ```
            #[must_use]
            pub fn describe() -> Vec<OptionInfo> {
                vec![$(OptionInfo {
                    name: stringify!($name),
                    aliases: &[$($alias),*],
                    default: <$kind>::print(&$default),
                    range: $range.say::<$kind>(),
                    words: <$kind>::words(),
                    shape: <$kind>::SHAPE,
                    unit: $unit,
                    change: Change::$change,
                    help: $help,
                    effect: $effect,
                },)+]
            }
        }
    };
}

/// `log.flush-method` is `log_flush_method`.
pub(super) fn canonical(name: &str) -> String {
    name.trim().trim_start_matches("--").to_ascii_lowercase().replace(['.', '-'], "_")
}

const _: () = assert!(MIB >= 4 * MTR_BYTES_MAX as u64, "the smallest log buffer and log hold four mini-transactions");

options! {
    page_size, with_page_size: u64 as Size = 16 * KIB,
        Limits::PowerOfTwo(4 * KIB, 32 * KIB), Creation, "bytes", [],
        "The size of a page.",
        "Keys may have 928 bytes at 4K, 1952 at 8K, 4000 at 16K and 7500 at 32K; a row of up to half a page stays in its \
         leaf. Smaller pages write less for a scattered change, larger ones make scans and large rows cheaper.";

    pool_size, with_pool_size: u64 as Size = 128 * MIB,
        Limits::Between(256 * KIB, 8 * TIB), Running, "bytes", ["buffer_pool_size"],
        "Memory for pages.",
        "The more of the working set fits, the fewer reads. At least 64 pages. The default is lowered to half of the \
         memory this process may use where that is less.";

    pool_size_max, with_pool_size_max: u64 as Size = 0,
        Limits::ZeroOr(256 * KIB, 32 * TIB), Opening, "bytes", [],
        "The most `pool_size` can be raised to while the database is open; 0 for four times what it is at opening.",
        "Reserves address space, no memory.";

    data_initial_size, with_data_initial_size: u64 as Size = 16 * MIB,
        Limits::Between(MIB, TIB), Creation, "bytes", [],
        "The size of the data file of a new database.",
        "Existing space needs no growth later.";

    data_growth_step, with_data_growth_step: u64 as Size = 64 * MIB,
        Limits::Between(MIB, 16 * GIB), Running, "bytes", [],
        "The most by which the data file grows at a time.",
        "Growth is predicted from the fill rate and done in the background, in whole MiB; larger steps grow less \
         often and leave more unused.";

    data_flush_method, with_data_flush_method: FlushChoice as Word<FlushChoice> = FlushChoice::Auto,
        Limits::Any, Opening, "", [],
        "How the data file and the doublewrite area are written and flushed.",
        "The methods of crates/seawall-io/DESIGN.md. If another method is in effect, that is reported.";

    log_flush_method, with_log_flush_method: FlushChoice as Word<FlushChoice> = FlushChoice::Auto,
        Limits::Any, Running, "", [],
        "How the log is written and flushed.",
        "Decides the latency of a commit: `seawall lab` measures which is fastest on this disk.";

    log_dir, with_log_dir: PathBuf as Directory = PathBuf::new(),
        Limits::Any, Opening, "path", [],
        "Where the log is; empty for the directory of the database.",
        "On a device of its own the log does not wait behind the data file. Move its files when you change it.";

    log_ring_dir, with_log_ring_dir: PathBuf as Directory = PathBuf::new(),
        Limits::Any, Opening, "path", [],
        "A directory for the log buffer as a mapped file; empty for memory of the process. Relative to the log's directory.",
        "With it a commit at Written waits for no write: what it left in the buffer survives the death of the process, \
         and the next opening finds it, also with another value here. Best on tmpfs (/dev/shm), which must have room \
         for log_buffer_size, and where no other program removes the file: systemd-logind does for a user who logs out \
         (RemoveIPC=yes). `.` is the log's directory, on ext4 or XFS: then the kernel also writes the buffer to the \
         disk now and then, the page cache holds it, and a file system that turns read-only ends the process (SIGBUS).";

    log_block_bytes, with_log_block_bytes: u64 as Size = 4 * KIB,
        Limits::PowerOfTwo(512, 64 * KIB), Opening, "bytes", ["log_block_size"],
        "The unit in which the log is written.",
        "Use at least the device's physical block, otherwise the device must read a block for each commit to complete \
         it.";

    log_segment_size, with_log_segment_size: u64 as Size = 16 * MIB,
        Limits::PowerOfTwo(64 * KIB, GIB), Creation, "bytes", [],
        "The size of a log file.",
        "The log grows and shrinks by whole files, filled in advance.";

    log_capacity, with_log_capacity: u64 as Size = 512 * MIB,
        Limits::Between(MIB + 64 * KIB, TIB), Running, "bytes", ["redo_capacity", "redo_log_capacity"],
        "The most log that is kept: how far dirty pages may lag behind it.",
        "A larger log merges more changes of a page into one write, and makes start-up after a crash longer. At least \
         three log files.";

    log_space_reserve, with_log_space_reserve: u64 as Size = 64 * MIB,
        Limits::Between(0, TIB), Running, "bytes", [],
        "Free space on the log's file system that the log does not take.",
        "The log stops growing there and reuses its files. The first three files may use the reserve: without them no \
         change and no delete is possible.";

    log_buffer_size, with_log_buffer_size: u64 as Size = 16 * MIB,
        Limits::PowerOfTwo(MIB, GIB), Opening, "bytes", [],
        "Memory for log that is not yet written.",
        "When it is full, changes wait for a log write.";

    durability, with_durability: Durability as Word<Durability> = Durability::Flushed,
        Limits::Any, Running, "", ["flush_log_at_commit", "flush_log_at_trx_commit"],
        "What a commit waits for: `flushed` (or 1), `written` (or 2), `deferred` (or 0).",
        "`flushed` survives power loss; `written` survives a crash of the process and may lose the last \
         `flush_interval` on power loss; `deferred` may lose it on either. A transaction may ask for another level.";

    flush_interval, with_flush_interval: Duration as Time = Duration::from_secs(1),
        Limits::Between(Duration::from_millis(1), Duration::from_secs(3600)), Running, "time", ["flush_log_at_timeout"],
        "How old the oldest unflushed commit may become under `written` and `deferred`.",
        "What these levels can lose at most.";

    torn_page_protection, with_torn_page_protection: TornPages as Word<TornPages> = TornPages::Doublewrite,
        Limits::Any, Opening, "", [],
        "The protection of pages against writes torn by a power loss.",
        "`doublewrite` writes pages twice. `atomic` does not: it is refused unless each page lies in one block of ext4 \
         or XFS and in one physical sector of the device, which a power cut leaves whole (with `page_size` = 4K on \
         most SSDs), or can be one atomic write (`RWF_ATOMIC`: Linux 6.11, a device that offers it, ext4 with bigalloc \
         or XFS), and is not written through the page cache. \
         `auto` is `atomic` where that is so, otherwise `doublewrite`. `off` risks the database.";

    preallocate, with_preallocate: Preallocate as Word<Preallocate> = Preallocate::Written,
        Limits::Any, Opening, "", [],
        "How log and doublewrite space is prepared.",
        "`written`: with zeroes, so that a commit changes no metadata; `off` for copy-on-write file systems.";

    io_backend, with_io_backend: Backend as Word<Backend> = Backend::Auto,
        Limits::Any, Opening, "", [],
        "How requests reach the kernel.",
        "`auto` uses io_uring if it works, otherwise threads; the choice and its reason are reported.";

    io_capacity, with_io_capacity: u32 as Count = 2000,
        Limits::Between(10, 10_000_000), Running, "pages a second", [],
        "The most pages a second that background work writes in normal operation.",
        "A ceiling: the cleaner adapts its rate below it to the device and to the checkpoint's lag.";

    io_capacity_burst, with_io_capacity_burst: u32 as Count = 20_000,
        Limits::Between(10, 10_000_000), Running, "pages \
        a second", ["io_capacity_max"],
        "The most pages a second that background work writes when log space or free frames run short.",
        "A ceiling too. Follows `io_capacity` when it is not set: at least twice that.";

    max_dirty_percent, with_max_dirty_percent: u32 as Percent = 90,
        Limits::Between(1, 99), Running, "percent", ["max_dirty_pages_pct"],
        "The largest share of the pool that may be dirty, but for pages whose changes can be deferred.",
        "Cleaning begins at half of this share; from 80% of it on it may write at `io_capacity_burst`.";

    max_checkpoint_age_percent, with_max_checkpoint_age_percent: u32 as Percent = 75,
        Limits::Between(5, 90), Running, "percent", [],
        "The largest share of `log_capacity` that the checkpoint may be behind the log's end.",
        "Cleaning begins at half of this share; from 80% of it on it may write at `io_capacity_burst`. Higher: a page that \
         changes often is written less often. Lower: recovery after a crash is shorter.";

    deferred_percent, with_deferred_percent: u32 as Percent = 50,
        Limits::Between(0, 80), Running, "percent", [],
        "The largest share of the pool for deferred changes; 0 for none.",
        "A page with few changes leaves memory as their redo records and is written once for many of them. The share \
         follows what saves most I/O: it is 0 until a page must be evicted.";

    deferred_percent_min, with_deferred_percent_min: u32 as Percent = 1,
        Limits::Between(0, 80), Running, "percent", [],
        "The least such share once pages are evicted.",
        "The same as `deferred_percent`: a fixed share. At most `deferred_percent` counts.";

    prefetch_depth, with_prefetch_depth: u32 as Count = 32,
        Limits::Between(0, 1024), Running, "reads", [],
        "The most reads that one scan has in flight; 0 for no prefetch.",
        "A scan begins with few and increases their number when it has to wait.";

    prefetch_depth_total, with_prefetch_depth_total: u32 as Count = 256,
        Limits::Between(0, 65_536), Running, "reads", [],
        "The most prefetch reads that all scans together have in flight.",
        "Leaves device capacity for reads that a thread waits for. Follows `prefetch_depth` when it is not set: at \
         least that.";

    prefetch_window, with_prefetch_window: u32 as Count = 0,
        Limits::Between(0, 8192), Running, "pages", [],
        "A fixed number of pages that a scan keeps prefetched; 0 for an adaptive number.",
        "For measuring the effect of a window, as `seawall lab --full` does. Reads in flight stay below \
         `prefetch_depth`.";

    lock_wait_timeout, with_lock_wait_timeout: Duration as Time = Duration::from_secs(50),
        Limits::Between(Duration::ZERO, Duration::from_secs(7 * 24 * 3600)), Running, "time", [],
        "How long a transaction waits for a lock; 0 for not at all.",
        "Then the statement fails and the transaction may go on. Deadlocks are found at once, independent of this \
         option.";

    lock_memory_per_transaction, with_lock_memory_per_transaction: u64 as Size = 32 * MIB,
        Limits::Between(64 * KIB, TIB), Running, "bytes", [],
        "The most memory that one transaction uses for locks on keys; a lock counts as 256 bytes.",
        "Rows that it has written need no lock. Beyond it a read committed transaction is refused further locks \
         (`TooManyLocks`) and keeps \
         those it has; at the other levels its locks on the keys of one tree become one range, which also locks the \
         keys between them.";

    stats_interval, with_stats_interval: Duration as Time = Duration::from_secs(1),
        Limits::Between(Duration::ZERO, Duration::from_secs(3600)), Running, "time", [],
        "How often the statistics are written for `seawall stat` and `seawall doctor`; 0 for only when the database \
         is closed.",
        "About a millisecond of processor time each.";

    control_socket, with_control_socket: ControlSocketChoice as Word<ControlSocketChoice> = ControlSocketChoice::On,
        Limits::Any, Opening, "", [],
        "Whether `seawall backup` can request a backup from this process while it has the database open: `on` or \
         `off`.",
        "Through the socket `control.socket` in the directory, for the process's own user and root. Costs a thread \
         that sleeps and two descriptors.";
}
