//! The parts of an engine cell's spec other than load and threads.
//!
//! - The words are the engine's own: a level or flush method here is the value of the engine's option of that name.
//! - A part that a cell does not set is `None`, and is not in its id.

use super::{Access, CellSpec, Pattern};
use crate::{text, words};
use serde::{Deserialize, Serialize};

words! {
    /// What a commit waits for. Its words are what may be lost, with the engine's default `flush_interval` of a second.
    ///
    /// ```
    /// use seawall_lab::cell::Level;
    /// assert_eq!(Level::Written.number(), 2);
    /// assert!(Level::Flushed.loss().starts_with("nothing"));
    /// ```
    pub enum Level {
        /// The log is flushed: `innodb_flush_log_at_trx_commit = 1`.
        Flushed = "flushed" | "nothing, neither when the process dies nor when power fails",
        /// The log is written: 2.
        Written =
            "written" | "nothing when the process dies, at most the last second (flush_interval) when power fails",
        /// Nothing: 0.
        Deferred =
            "deferred" | "at most the last second (flush_interval), when the process dies as when power fails",
    }
}

impl Level {
    /// InnoDB's number for this level.
    pub fn number(self) -> u32 {
        match self {
            Self::Flushed => 1,
            Self::Written => 2,
            Self::Deferred => 0,
        }
    }

    /// The possible loss, with the engine's default `flush_interval` of a second.
    pub fn loss(self) -> &'static str {
        self.words()
    }

    /// `level 2 (Written)`.
    pub fn name(self) -> String {
        format!("level {} ({self:?})", self.number())
    }
}

words! {
    /// How the engine writes and flushes its data file and its log.
    ///
    /// ```
    /// use seawall_lab::cell::{Access, FlushMethod};
    /// assert_eq!(FlushMethod::ODsync.access(), Access::Buffered);
    /// assert_eq!(FlushMethod::ODirectDsync.word(), "o_direct_dsync");
    /// ```
    pub enum FlushMethod {
        /// Through the page cache, `fdatasync`.
        Fsync = "fsync",
        /// Through the page cache, files opened with `O_DSYNC`.
        ODsync = "o_dsync",
        /// `O_DIRECT`, `fdatasync`.
        ODirect = "o_direct",
        /// `O_DIRECT`, `RWF_DSYNC` where a write must be durable at once.
        ODirectDsync = "o_direct_dsync",
    }
}

impl FlushMethod {
    /// The use of the page cache.
    pub fn access(self) -> Access {
        if matches!(self, Self::Fsync | Self::ODsync) { Access::Buffered } else { Access::Direct }
    }
}

words! {
    /// The insert order of a tree, which decides where its leaves are.
    ///
    /// ```
    /// use seawall_lab::cell::KeyOrder;
    /// assert_eq!(KeyOrder::Fragmented.word(), "fragmented");
    /// ```
    pub enum KeyOrder {
        /// Rows put in key order: neighbours in the tree are neighbours in the file.
        InOrder = "in-order" | "an ordered tree",
        /// Rows put in random order: neighbours in the tree are scattered in the file.
        Fragmented = "fragmented" | "a fragmented tree",
    }
}

words! {
    /// The settings that the engine runs with.
    ///
    /// ```
    /// use seawall_lab::cell::Origin;
    /// assert_eq!(Origin::Recommended.word(), "recommended");
    /// ```
    pub enum Origin {
        /// The engine's own.
        Default = "default",
        /// The `seawall.toml` derived from the run's disk cells.
        Recommended = "recommended",
    }
}

/// How far a query reads ahead.
///
/// ```
/// use seawall_lab::cell::Ahead;
/// assert_eq!(Ahead::Window(8).word(), "window8");
/// assert_eq!(serde_json::to_string(&Ahead::Adaptive)?, r#""adaptive""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ahead {
    /// No read-ahead: it reads each page when it needs it.
    None,
    /// As far as the engine's adaptive read-ahead decides.
    Adaptive,
    /// Always this many pages.
    Window(u32),
}

impl Ahead {
    /// This value's part of a cell id.
    pub fn word(self) -> String {
        match self {
            Self::None => "none".into(),
            Self::Adaptive => "adaptive".into(),
            Self::Window(pages) => format!("window{pages}"),
        }
    }

    pub(crate) fn words(self) -> String {
        match self {
            Self::None => "no prefetch".into(),
            Self::Adaptive => "adaptive prefetch".into(),
            Self::Window(pages) => format!("prefetch of {pages} pages"),
        }
    }
}

/// The engine's setup.
///
/// ```
/// use seawall_lab::{cell::{Ahead, Access, KeyOrder}, plan};
/// let shape = plan::range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::None, 4).engine.unwrap();
/// assert_eq!((shape.tree, shape.level), (Some(KeyOrder::Fragmented), None), "queries do not commit");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EngineShape {
    /// What a commit waits for.
    pub level: Option<Level>,
    /// How data and log are written and flushed.
    pub method: Option<FlushMethod>,
    /// The tree that queries read.
    pub tree: Option<KeyOrder>,
    /// The read-ahead of queries.
    pub ahead: Option<Ahead>,
    /// The settings in use.
    pub settings: Option<Origin>,
}

impl EngineShape {
    /// How the files are used, unless the settings decide: the flush method, or the access to the page cache.
    fn method_word(&self, spec: &CellSpec) -> Option<String> {
        let access = self.settings.is_none().then(|| spec.access.to_string());
        self.method.map(|method| method.to_string()).or(access)
    }

    pub(super) fn id(&self, spec: &CellSpec) -> String {
        let parts = [
            Some(spec.experiment.short().to_owned()),
            self.tree.map(|tree| tree.to_string()),
            Some(spec.pattern.to_string()),
            self.method_word(spec),
            self.level.map(|level| level.to_string()),
            self.ahead.map(Ahead::word),
            self.settings.map(|settings| settings.to_string()),
            Some(format!("t{}", spec.threads)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }

    pub(super) fn title(&self, spec: &CellSpec) -> String {
        let queries = spec.pattern == Pattern::RangeQuery;
        let (one, more) = if queries { ("query", "queries") } else { ("thread", "threads") };
        let load = match (self.tree, self.settings) {
            (Some(_), Some(_)) if queries => "cold range queries",
            (Some(tree), None) if queries => tree.word(),
            _ => spec.pattern.words(),
        };
        let parts = [
            Some(load.to_owned()),
            self.method_word(spec),
            self.level.map(|level| format!("{level:?} ({})", level.number())),
            self.ahead.map(Ahead::words),
            self.settings.map(|settings| format!("{settings} settings")),
            Some(text::many(spec.threads, one, more)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
