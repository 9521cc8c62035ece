//! Every option, defined once: from this table come the getters, the builder, `set`, `seawall.toml`,
//! command-line flags, and docs/options.md.
//!
//! 1. Adding an option takes only one entry here; rules between options are in `rules.rs`.
//! 2. A default is always inside its range.
//! 3. Names agree with the `seawall.toml` that `seawall lab` writes: `[log] flush_method` there is
//!    `log_flush_method` here.

use super::value::{
    ControlSocketChoice, Count, DamagedPages, Directory, FlushChoice, Kind, Limits, Percent, Preallocate, Size, Time,
    TornPages, Word,
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

/// Reads a value that `range` allows. The option's type gives the range its type, and its kind compares the
/// values.
fn read<K: Kind>(name: &str, text: &str, range: &Limits<K::Value>) -> Result<K::Value> {
    K::parse(text).filter(|value| range.allows::<K>(value)).ok_or_else(|| refused::<K>(name, text, range))
}

fn refused<K: Kind>(name: &str, text: &str, range: &Limits<K::Value>) -> Error {
    let shape = if K::words().is_empty() { format!("; write {}", K::SHAPE) } else { String::new() };
    let why = match range {
        Limits::Any if K::words().is_empty() => format!("write {}", K::SHAPE),
        Limits::Any => format!("allowed are {}", range.say::<K>()),
        // The limits are those of the smallest log files, which few databases have.
        _ if name == "log_capacity" => {
            format!("allowed is {}, and at least three log files: 48M if they have 16M{shape}", range.say::<K>())
        }
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
                    // An option without a text, such as a path that is not UTF-8, cannot be in a file of options.
                    let text = <$kind>::print(&self.$name.value);
                    if read::<$kind>(stringify!($name), &text, &$range)? != self.$name.value {
                        return Err(refused::<$kind>(stringify!($name), &text, &$range));
                    }
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
        "The longest key is 928 bytes at 4K, 1952 at 8K, 4000 at 16K and 7500 at 32K; a row of up to half a page \
         stays in its leaf. Small pages write less for a scattered change; large pages make scans and large rows \
         cheaper.";

    pool_size, with_pool_size: u64 as Size = 128 * MIB,
        Limits::Between(256 * KIB, 8 * TIB), Running, "bytes", ["buffer_pool_size"],
        "Memory for cached pages; at least 64 pages.",
        "The more of the working set fits, the fewer pages are read. The default is lowered to half of the memory \
         that this process may use, where that is less.";

    pool_size_max, with_pool_size_max: u64 as Size = 0,
        Limits::ZeroOr(256 * KIB, 32 * TIB), Opening, "bytes", [],
        "The largest value to which `pool_size` can be raised while the database is open; 0 for four times its value \
         at opening.",
        "Reserves address space, not memory.";

    data_initial_size, with_data_initial_size: u64 as Size = 16 * MIB,
        Limits::Between(MIB, TIB), Creation, "bytes", [],
        "The initial size of a new database's data file.",
        "The file need not grow until this space is used.";

    data_growth_step, with_data_growth_step: u64 as Size = 64 * MIB,
        Limits::Between(MIB, 16 * GIB), Running, "bytes", [],
        "The largest step by which the data file grows.",
        "Growth is predicted from the fill rate and done in the background, in whole MiB. Larger steps are less \
         frequent and leave more space unused.";

    data_flush_method, with_data_flush_method: FlushChoice as Word<FlushChoice> = FlushChoice::Auto,
        Limits::Any, Opening, "", [],
        "How the data file and the doublewrite file are written and flushed.",
        "crates/seawall-io/DESIGN.md describes the methods. If another method is in effect, that is reported.";

    log_flush_method, with_log_flush_method: FlushChoice as Word<FlushChoice> = FlushChoice::Auto,
        Limits::Any, Running, "", [],
        "How the log is written and flushed.",
        "Decides the latency of a commit: `seawall lab` measures which is fastest on this disk.";

    log_dir, with_log_dir: PathBuf as Directory = PathBuf::new(),
        Limits::Any, Opening, "path", [],
        "The directory of the log; empty for the directory of the database.",
        "On its own device, the log does not queue behind the data file. Move the log's files, redo.* and ring, when you \
         change it: an opening refuses log beside the data that it would pass over, as after a restore.";

    log_ring_dir, with_log_ring_dir: PathBuf as Directory = PathBuf::new(),
        Limits::Any, Opening, "path", [],
        "A directory in which the log buffer is a mapped file; empty for a buffer in the memory of the process. \
         Relative to the log's directory.",
        "With it, a commit at `written` waits for no write: its log in the buffer survives the death of the process, \
         and the next opening reads it, even if this option has changed. Best on tmpfs (/dev/shm) with room for \
         log_buffer_size, where no other program removes the file: systemd-logind removes it when the user logs out \
         (RemoveIPC=yes). `.` is the log's directory, on ext4 or XFS: the kernel then also writes the buffer to the \
         disk from time to time, the page cache holds it, and a file system that turns read-only ends the process \
         (SIGBUS).";

    log_block_bytes, with_log_block_bytes: u64 as Size = 4 * KIB,
        Limits::PowerOfTwo(512, 64 * KIB), Opening, "bytes", ["log_block_size"],
        "The unit in which the log is written.",
        "At least the device's physical block: a smaller unit is refused, because a power cut can tear durable log \
         beside it.";

    log_segment_size, with_log_segment_size: u64 as Size = 16 * MIB,
        Limits::PowerOfTwo(64 * KIB, GIB), Creation, "bytes", [],
        "The size of a log file.",
        "The log grows and shrinks by whole files, which are filled in advance.";

    log_capacity, with_log_capacity: u64 as Size = 512 * MIB,
        Limits::Between(MIB + 64 * KIB, TIB), Running, "bytes", ["redo_capacity", "redo_log_capacity"],
        "The maximum amount of log that is kept; it limits how far the data file may lag behind the log.",
        "A larger log merges more changes of a page into one write, and makes recovery after a crash longer. At least \
         three log files.";

    log_space_reserve, with_log_space_reserve: u64 as Size = 64 * MIB,
        Limits::Between(0, TIB), Running, "bytes", [],
        "Free space that the log leaves on its file system.",
        "When no more than this is free, the log stops growing and reuses its files. The first files may use \
         the reserve, because nothing can be changed or deleted without them.";

    log_buffer_size, with_log_buffer_size: u64 as Size = 16 * MIB,
        Limits::PowerOfTwo(MIB, GIB), Opening, "bytes", [],
        "Memory for log that is not yet written.",
        "When it is full, changes wait for a log write.";

    durability, with_durability: Durability as Word<Durability> = Durability::Flushed,
        Limits::Any, Running, "", ["flush_log_at_commit", "flush_log_at_trx_commit"],
        "What a commit waits for: `flushed` (or 1), `written` (or 2), `deferred` (or 0).",
        "`flushed` survives power loss; `written` survives a crash of the process and may lose the last \
         `flush_interval` on power loss; `deferred` may lose it on either. A transaction can choose another level.";

    flush_interval, with_flush_interval: Duration as Time = Duration::from_secs(1),
        Limits::Between(Duration::from_millis(1), Duration::from_secs(3600)), Running, "time", ["flush_log_at_timeout"],
        "How old the oldest unflushed commit may become under `written` and `deferred` before others wait for it.",
        "These levels can lose at most the commits acknowledged within one such interval.";

    torn_page_protection, with_torn_page_protection: TornPages as Word<TornPages> = TornPages::Doublewrite,
        Limits::Any, Opening, "", [],
        "How pages are protected against writes torn by a power loss.",
        "`doublewrite` writes each page twice. `atomic` writes it once, and is refused unless a power cut leaves each \
         page whole: the page lies in one block of ext4 or XFS and in one physical sector of the device (with \
         `page_size` = 4K on most SSDs), or is one atomic write (`RWF_ATOMIC`: Linux 6.11, a device that offers it, \
         ext4 with bigalloc or XFS). Pages must not be written through the page cache then. `auto` is `atomic` where \
         that is possible, otherwise `doublewrite`. `off` risks the database.";

    damaged_pages, with_damaged_pages: DamagedPages as Word<DamagedPages> = DamagedPages::Refuse,
        Limits::Any, Opening, "", [],
        "What an opening does when the log has changes of a page that cannot be read: `refuse` or `abandon`.",
        "`refuse` fails with an error that names the page. `abandon` gives up such pages of trees for ever, with a \
         warning for each; what else there is can be read, changed and dumped. For one opening, after a copy of the \
         files was made, when there is no backup.";

    preallocate, with_preallocate: Preallocate as Word<Preallocate> = Preallocate::Written,
        Limits::Any, Opening, "", [],
        "How new files of the log are prepared.",
        "`written` fills them with zeroes, so that a commit changes no metadata; `off` only allocates them, for \
         copy-on-write file systems.";

    io_backend, with_io_backend: Backend as Word<Backend> = Backend::Auto,
        Limits::Any, Opening, "", [],
        "How requests reach the kernel.",
        "`auto` uses io_uring if it works, otherwise threads; the choice and its reason are reported.";

    io_capacity, with_io_capacity: u32 as Count = 2000,
        Limits::Between(10, 10_000_000), Running, "pages a second", [],
        "The maximum number of pages per second that background work writes in normal operation.",
        "A ceiling: below it, the cleaner adapts its rate to the device and to the age of the checkpoint.";

    io_capacity_burst, with_io_capacity_burst: u32 as Count = 20_000,
        Limits::Between(10, 10_000_000), Running, "pages a second", ["io_capacity_max"],
        "The maximum number of pages per second that background work writes when log space or free frames run short.",
        "Also a ceiling. If not set, it follows `io_capacity`: at least twice that.";

    max_dirty_percent, with_max_dirty_percent: u32 as Percent = 90,
        Limits::Between(1, 99), Running, "percent", ["max_dirty_pages_pct"],
        "The largest share of the pool that may be dirty, not counting pages whose changes can be deferred.",
        "Cleaning begins at half of this share; from 80% of it on, it may write at `io_capacity_burst`.";

    max_checkpoint_age_percent, with_max_checkpoint_age_percent: u32 as Percent = 75,
        Limits::Between(5, 90), Running, "percent", [],
        "The largest share of `log_capacity` by which the checkpoint may lag behind the end of the log.",
        "Cleaning begins at half of this share; from 80% of it on, it may write at `io_capacity_burst`. With \
         a higher value, pages that change often are written less often; a lower value makes recovery after a crash \
         shorter.";

    deferred_percent, with_deferred_percent: u32 as Percent = 50,
        Limits::Between(0, 80), Running, "percent", [],
        "The largest share of the pool for deferred changes; 0 for none.",
        "A dirty page with few changes can be evicted while its redo records stay in memory, and is later written \
         once for many changes. The share adapts to what saves most I/O; it is 0 until a page must be evicted.";

    deferred_percent_min, with_deferred_percent_min: u32 as Percent = 1,
        Limits::Between(0, 80), Running, "percent", [],
        "The smallest such share once pages are evicted.",
        "Set both options to one value for a fixed share. `deferred_percent` is the limit if it is smaller.";

    prefetch_depth, with_prefetch_depth: u32 as Count = 32,
        Limits::Between(0, 1024), Running, "reads", [],
        "The most reads that one scan has in flight; 0 for no prefetch.",
        "A scan begins with a few reads in flight, and raises the number when it has to wait.";

    prefetch_depth_total, with_prefetch_depth_total: u32 as Count = 256,
        Limits::Between(0, 65_536), Running, "reads", [],
        "The most prefetch reads that all scans together have in flight.",
        "Leaves device capacity for reads that a thread waits for. If not set, it follows `prefetch_depth`: at least \
         that.";

    prefetch_window, with_prefetch_window: u32 as Count = 0,
        Limits::Between(0, 8192), Running, "pages", [],
        "A fixed number of pages that a scan keeps prefetched; 0 for an adaptive number.",
        "For measuring the effect of a window, as `seawall lab --full` does. Reads in flight stay below \
         `prefetch_depth`.";

    lock_wait_timeout, with_lock_wait_timeout: Duration as Time = Duration::from_secs(50),
        Limits::Between(Duration::ZERO, Duration::from_secs(7 * 24 * 3600)), Running, "time", [],
        "How long a transaction waits for a lock; 0 for not at all.",
        "Then the statement fails, and the transaction may continue. Deadlocks are found at once, independent of this \
         option.";

    lock_memory_per_transaction, with_lock_memory_per_transaction: u64 as Size = 32 * MIB,
        Limits::Between(64 * KIB, TIB), Running, "bytes", [],
        "The most memory that one transaction uses for key locks; a lock counts as 256 bytes.",
        "Rows that it has written need no lock. Beyond the limit, its key locks in a tree become one range lock, which \
         also covers the keys between them; outside MariaDB, a read committed transaction is refused further locks \
         instead (`TooManyLocks`) and keeps those it has, unless it is `like_innodb`.";

    stats_interval, with_stats_interval: Duration as Time = Duration::from_secs(1),
        Limits::Between(Duration::ZERO, Duration::from_secs(3600)), Running, "time", [],
        "How often the statistics are written for `seawall stat` and `seawall doctor`; 0 to write them only when the \
         database is closed.",
        "Each time costs about a millisecond of processor time.";

    control_socket, with_control_socket: ControlSocketChoice as Word<ControlSocketChoice> = ControlSocketChoice::On,
        Limits::Any, Opening, "", [],
        "Whether `seawall backup` can request a backup from this process while the database is open: `on` or `off`.",
        "Uses the socket `control.socket` in the directory, for the process's own user and root. Costs a sleeping \
         thread and two descriptors.";
}
