//! The publications' own figures, unchanged, with notes on how to read them today.

use crate::cell::{Experiment, Level, Pattern};

/// One published figure.
///
/// ```
/// use seawall_lab::{cell::Experiment, published};
/// let row: Vec<_> = published::figures(Experiment::DirectSync).filter(|p| p.threads == Some(8)).collect();
/// assert!(row.iter().any(|p| p.series == "cache off, fsync each" && p.rate == 77.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// The experiment it belongs to.
    pub experiment: Experiment,
    /// Short description of the measurement.
    pub what: &'static str,
    /// Group within the experiment (a line or a bar colour): `cache off, fsync each`, ...
    pub series: &'static str,
    /// Threads, where the figure belongs to a series over threads.
    pub threads: Option<u32>,
    /// Operations per second; the middle of a published range.
    pub rate: f64,
}

/// A publication.
///
/// ```
/// for source in seawall_lab::published::SOURCES {
///     assert!(!source.caveat.is_empty(), "nothing old is quoted without what is known today: {}", source.citation);
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Source {
    /// The experiment.
    pub experiment: Experiment,
    /// Author, title, year.
    pub citation: &'static str,
    /// The hardware and software of the measurement.
    pub setup: &'static str,
    /// A caveat to show beside the figures.
    pub caveat: &'static str,
}

/// The publications whose experiments the lab re-runs.
pub const SOURCES: [Source; 6] = [
    Source {
        experiment: Experiment::DirectSync,
        citation: "M. Callaghan, \"Buffered versus direct IO for InnoDB\", 2009",
        setup: "sysbench fileio, random writes to one 4 GB O_DIRECT file, one SATA disk, fsync after each write or none",
        caveat: "The row for one thread with the drive's cache on (503 and 532) contradicts the publication's text, and its \
                 columns are not labelled; both are shown as published.",
    },
    Source {
        experiment: Experiment::LogMemory,
        citation: "D. Mituzas, \"Logs memory pressure\", 2010",
        setup: "MySQL hosts with 72 GB of memory, logs written buffered, uncached and direct",
        caveat: "Published as relations, not rates: a direct log about 10% faster with one thread, 10-20% slower with many threads \
                 and group commit, because several writes per flush were not merged.",
    },
    Source {
        experiment: Experiment::ParallelDirect,
        citation: "D. Mituzas, \"Notes from land of I/O\", 2008",
        setup: "random O_DIRECT writes to one file, 16-disk RAID10, ext2/ext3/jfs and xfs",
        caveat: "Today's ext4 and xfs do not serialise direct overwrites; cached pages and growth still can.",
    },
    Source {
        experiment: Experiment::AppendOverwrite,
        citation: "Y. Matsunobu, \"Overwriting is much faster than appending\", 2009",
        setup: "8 KB writes with fdatasync, 131,072 times, ext3, RAID with battery-backed write cache",
        caveat: "fallocate was not measured then: it reserves unwritten extents, whose first write costs what an append costs.",
    },
    Source {
        experiment: Experiment::CommitLevels,
        citation: "Danti, \"MySQL (innodb) performance tuning\", 2012",
        setup: "InnoDB under DBT-2, sysbench simple (read-only) and sysbench complex (transactional), flush at commit 1 and 2, \
                fdatasync, O_DSYNC and O_DIRECT",
        caveat: "Published as percentages of level 1. Level 0 is explained there and was not measured. O_DSYNC was found slower \
                 everywhere, in the read-only test too, which cannot be its doing: that test writes nothing.",
    },
    Source {
        experiment: Experiment::RangePrefetch,
        citation: "Hardy, \"InnoDB I/O-bound performance enhancement patch\", 2010",
        setup: "range queries on a 30 GB table with a 4 GB buffer pool and 6 disks; pages of the range prefetched \
                asynchronously from the branch pages",
        caveat: "The size of the ranges is not the lab's: compare the three with each other. One query drove about 2,000 reads a \
                 second.",
    },
];

const fn e1(series: &'static str, threads: u32, rate: f64) -> Published {
    Published { experiment: Experiment::DirectSync, what: "random direct writes", series, threads: Some(threads), rate }
}

const fn e3(series: &'static str, rate: f64) -> Published {
    Published {
        experiment: Experiment::ParallelDirect,
        what: "parallel random direct writes",
        series,
        threads: None,
        rate,
    }
}

const fn e6(what: &'static str, rate: f64) -> Published {
    Published { experiment: Experiment::RangePrefetch, what, series: "6 disks", threads: Some(1), rate }
}

const fn e4(what: &'static str, rate: f64) -> Published {
    Published { experiment: Experiment::AppendOverwrite, what, series: "ext3", threads: Some(1), rate }
}

/// Every published rate.
pub const FIGURES: [Published; 29] = [
    e1("cache off, fsync each", 1, 49.0),
    e1("cache off, fsync each", 2, 58.0),
    e1("cache off, fsync each", 4, 70.0),
    e1("cache off, fsync each", 8, 77.0),
    e1("cache off, no fsync", 1, 109.0),
    e1("cache off, no fsync", 2, 160.0),
    e1("cache off, no fsync", 4, 189.0),
    e1("cache off, no fsync", 8, 209.0),
    e1("cache on, first column", 1, 503.0),
    e1("cache on, first column", 2, 501.0),
    e1("cache on, first column", 4, 510.0),
    e1("cache on, first column", 8, 495.0),
    e1("cache on, first column", 16, 502.0),
    e1("cache on, second column", 1, 532.0),
    e1("cache on, second column", 2, 438.0),
    e1("cache on, second column", 4, 447.0),
    e1("cache on, second column", 8, 451.0),
    e1("cache on, second column", 16, 464.0),
    e3("ext2, ext3, jfs: any number of threads", 225.0),
    e3("xfs", 2100.0),
    e3("xfs with cached pages or beyond the end", 250.0),
    e4("append to an empty file", 3086.0),
    e4("overwrite a full file", 12_330.0),
    e4("zero-fill, overwrite at once", 6569.0),
    e4("zero-fill, wait 20 s, overwrite", 11_670.0),
    e4("zfs, append or overwrite", 7000.0),
    e6("buffered, no prefetch", 15.0),
    e6("O_DIRECT, no prefetch", 10.0),
    e6("O_DIRECT, prefetch", 30.0),
];

/// The published gain of E5's level 2 over level 1 under a load; `None` where nothing was published.
///
/// ```
/// use seawall_lab::{cell::{Level, Pattern}, published};
/// assert_eq!(published::level_gain(Pattern::Transactional, Level::Written), Some("over 40%"));
/// assert_eq!(published::level_gain(Pattern::Tpcc, Level::Deferred), None, "level 0 was not measured");
/// ```
#[must_use]
pub fn level_gain(load: Pattern, level: Level) -> Option<&'static str> {
    match (level, load) {
        (Level::Written, Pattern::Tpcc) => Some("under 10%"),
        (Level::Written, Pattern::ReadOnly) => Some("none"),
        (Level::Written, Pattern::Transactional) => Some("over 40%"),
        _ => None,
    }
}

/// The publication an experiment re-runs; the baseline has none.
///
/// ```
/// use seawall_lab::{cell::Experiment, published::source};
/// assert!(source(Experiment::AppendOverwrite).unwrap().citation.starts_with("Y. Matsunobu"));
/// assert_eq!(source(Experiment::Baseline), None);
/// ```
#[must_use]
pub fn source(experiment: Experiment) -> Option<&'static Source> {
    SOURCES.iter().find(|s| s.experiment == experiment)
}

/// The published rates of one experiment.
///
/// ```
/// use seawall_lab::{cell::Experiment, published::figures};
/// let rate = |what| figures(Experiment::AppendOverwrite).find(|p| p.what == what).unwrap().rate;
/// let ratio = rate("overwrite a full file") / rate("append to an empty file");
/// assert!((3.9..4.1).contains(&ratio), "overwriting was four times as fast");
/// ```
pub fn figures(experiment: Experiment) -> impl Iterator<Item = &'static Published> {
    FIGURES.iter().filter(move |p| p.experiment == experiment)
}
