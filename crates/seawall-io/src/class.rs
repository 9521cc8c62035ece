//! The three dimensions by which I/O is counted and its policy named: file class, operation, cause.

use std::fmt;

macro_rules! dimension {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
        pub enum $name { $($(#[$vmeta])* $variant),+ }
        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The name used in tables, metrics and settings.
            #[must_use]
            pub fn name(self) -> &'static str { match self { $(Self::$variant => $word),+ } }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

dimension! {
    /// What a file is for; every I/O policy is set per class.
    ///
    /// ```
    /// use seawall_io::FileClass;
    /// assert_eq!(FileClass::Redo.name(), "redo");
    /// assert!(FileClass::ALL.contains(&FileClass::Doublewrite));
    /// ```
    FileClass {
        /// Pages of trees.
        Data = "data",
        /// The redo log.
        Redo = "redo",
        /// Copies of pages that protect against torn writes.
        Doublewrite = "doublewrite",
        /// The change log (binlog).
        ChangeLog = "change-log",
        /// Files that do not belong to the engine: scratch files of the lab.
        Scratch = "scratch",
    }
}

dimension! {
    /// The operation requested of the disk.
    ///
    /// ```
    /// use seawall_io::{Handle, Op, Request, SyncHow};
    /// let file = Handle::simulated("log".as_ref(), 1);
    /// assert_eq!(Request::sync(&file, SyncHow::Data).op(), Op::Sync);
    /// assert_eq!(format!("{:>14}", Op::DurableWrite), " durable-write");
    /// ```
    Op {
        /// Positioned read.
        Read = "read",
        /// Positioned write, not durable by itself.
        Write = "write",
        /// Write that is durable when it returns, by any flush method.
        DurableWrite = "durable-write",
        /// `fdatasync` or `fsync`.
        Sync = "sync",
        /// Growth: `fallocate`, `ftruncate`.
        Grow = "grow",
        /// Opening a file, or changing how it is open.
        Open = "open",
        /// Directory work: list, rename, remove. The sync of a directory is `sync`.
        Directory = "directory",
        /// Queries about a file or about its pages in the page cache.
        Inspect = "inspect",
    }
}

dimension! {
    /// Why the operation was requested.
    ///
    /// ```
    /// use seawall_io::{Cause, FileClass, IoStats, Op};
    /// # use std::time::Duration;
    /// // The same read, distinguished by what waits for it.
    /// let stats = IoStats::new();
    /// stats.record(FileClass::Data, Op::Read, Cause::Prefetch, Duration::from_micros(80), 16384);
    /// assert!(stats.snapshot().get(FileClass::Data, Op::Read, Cause::DemandRead).is_none());
    /// ```
    Cause {
        /// A caller waits for this page.
        DemandRead = "demand-read",
        /// A page that a scan will need.
        Prefetch = "prefetch",
        /// A commit waits for its log.
        Commit = "commit",
        /// The page cleaner.
        Clean = "clean",
        /// A checkpoint.
        Checkpoint = "checkpoint",
        /// Start-up.
        Recovery = "recovery",
        /// Space prepared ahead of need.
        Preallocate = "preallocate",
        /// Anything else.
        Other = "other",
    }
}
