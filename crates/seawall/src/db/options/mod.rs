//! Options: their names and values, their sources, and when they can be changed.
//!
//! 1. Strength of sources: default < `seawall.toml` < set by the program < the value that the database was
//!    created with (for options that cannot change).
//! 2. Nothing unknown is skipped: a misspelt name is an error that names the closest one. Only `[lab]`, the
//!    lab's own notes, is ignored.
//! 3. [`Options::settle`] comes before use: after it every value is in its range and the rules between
//!    options hold.

mod docs;
mod file;
mod memory;
mod rules;
mod table;
#[cfg(feature = "toml")]
mod toml;
mod value;

pub use memory::MemoryLimit;
pub use table::Options;
pub use value::{ControlSocketChoice, DamagedPages, FlushChoice, Preallocate, TornPages};

use crate::error::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of the file with options in a database's directory.
pub const FILE_NAME: &str = "seawall.toml";

/// The source of an option's value; a later one is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// No source: the default.
    Default,
    /// `seawall.toml`.
    File,
    /// The program: builder, [`Options::set`], command line.
    Explicit,
    /// The database, which was created with it.
    Database,
}

/// When an option can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Never after the database is created.
    Creation,
    /// Each time the database is opened.
    Opening,
    /// At any time.
    Running,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Creation => "never: fixed when the database is made",
            Self::Opening => "when opened",
            Self::Running => "at any time",
        })
    }
}

/// The description of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionInfo {
    /// Its name, snake case.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Its default as text.
    pub default: String,
    /// The values allowed, in words.
    pub range: String,
    /// The values, if they can be listed.
    pub words: Vec<&'static str>,
    /// How a value is written.
    pub shape: &'static str,
    /// The unit; empty for words.
    pub unit: &'static str,
    /// When it can be changed.
    pub change: Change,
    /// What it is, as a sentence.
    pub help: &'static str,
    /// The effect of changing it.
    pub effect: &'static str,
}

impl OptionInfo {
    /// Returns the option's table (empty for none) and key in `seawall.toml`.
    #[must_use]
    pub fn toml_path(&self) -> (&'static str, &'static str) {
        file::TABLES
            .iter()
            .find_map(|table| Some((*table, self.name.strip_prefix(table)?.strip_prefix('_')?)))
            .unwrap_or(("", self.name))
    }

    /// Returns the option's command-line flag.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }
}

/// A warning about the options, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Warning {
    /// The option.
    pub option: &'static str,
    /// The problem, and what to do.
    pub sentence: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.sentence)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting<T> {
    value: T,
    source: Source,
}

fn unknown(name: &str, text: &str) -> Error {
    let wanted = table::canonical(name);
    let infos = Options::describe();
    let names = infos.iter().flat_map(|info| std::iter::once(&info.name).chain(info.aliases));
    let closest = names.min_by_key(|known| distance(known, &wanted)).copied().unwrap_or_default();
    // If more than half of the letters differ, the similarity is accidental.
    let why = if distance(closest, &wanted) * 2 <= wanted.chars().count() {
        format!("there is no such option; did you mean {closest}?")
    } else {
        "there is no such option; `seawall options` and Options::describe list them all".to_owned()
    };
    Error::InvalidOption { name: name.to_owned(), value: text.to_owned(), why }
}

fn made_with(name: &str, value: &str, actual: &str) -> Error {
    let why = format!("this database was made with {actual}: leave it out, or dump it and load it into a new one");
    Error::InvalidOption { name: name.to_owned(), value: value.to_owned(), why }
}

/// Returns the number of inserted, deleted or replaced letters between two words (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(100).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl Options {
    /// Sets an option by name. Dots and dashes count as underscores.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no such option, or the value is not allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.put(name, value, Source::Explicit)
    }

    /// Returns an option's value as text.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no such option.
    pub fn get(&self, name: &str) -> Result<String> {
        let info = Self::info(name)?;
        let found = self.list().into_iter().find(|(n, ..)| *n == info.name);
        Ok(found.map(|(_, value, _)| value).expect("every option described is listed"))
    }

    /// Returns the description of one option.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no such option.
    pub fn info(name: &str) -> Result<OptionInfo> {
        Self::info_for(name, "?")
    }

    /// Returns the description of the option that is given `value`, which an error names.
    fn info_for(name: &str, value: &str) -> Result<OptionInfo> {
        let wanted = table::canonical(name);
        Self::describe()
            .into_iter()
            .find(|info| info.name == wanted || info.aliases.contains(&wanted.as_str()))
            .ok_or_else(|| unknown(name, value))
    }

    /// Sets an option of an open database. On error nothing has changed.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], also if the option cannot be changed while the database is open.
    pub fn set_running(&mut self, name: &str, value: &str) -> Result<()> {
        let info = Self::info_for(name, value)?;
        let refuse = |why: &str| Error::InvalidOption { name: info.name.into(), value: value.into(), why: why.into() };
        match info.change {
            Change::Running => {
                let mut changed = self.clone();
                changed.put(info.name, value, Source::Explicit)?;
                changed.follow();
                changed.check()?;
                *self = changed;
                Ok(())
            }
            Change::Opening => {
                Err(refuse("it is read when the database is opened: close it, set it, and open it again"))
            }
            Change::Creation => {
                Err(refuse("it is fixed when the database is made: dump it and load it into a new one"))
            }
        }
    }

    /// Returns the log directory of the database in `dir`.
    #[must_use]
    pub fn log_dir_of(&self, dir: &Path) -> PathBuf {
        // In a join, an absolute path replaces `dir`, and an empty one keeps it.
        let log_dir = &self.log_dir.value;
        if log_dir.as_os_str().is_empty() { dir.to_owned() } else { dir.join(log_dir) }
    }
}

/// A map from name to value as text.
#[cfg(feature = "serde")]
impl serde::Serialize for Options {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let list = self.list();
        let mut map = serializer.serialize_map(Some(list.len()))?;
        for (name, value, _) in list {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Durability;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_sound() {
        let mut names = HashSet::new();
        for info in Options::describe() {
            for name in std::iter::once(&info.name).chain(info.aliases) {
                assert!(names.insert(*name), "{name} is there twice");
                assert_eq!(*name, table::canonical(name));
            }
            let mut options = Options::default();
            options.set(info.name, &info.default).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(options.get(info.name).unwrap(), info.default);
            assert!(info.help.ends_with('.') && info.effect.ends_with('.'), "{}", info.name);
            assert_eq!(info.unit.is_empty(), !info.words.is_empty(), "{}", info.name);
        }
        Options::default().check().unwrap();
    }

    #[test]
    fn values_are_set_by_any_spelling_of_the_name() {
        let mut options = Options::default();
        for (name, value) in [
            ("log.flush_method", "o_direct_dsync"),
            ("--lock-wait-timeout", "0"),
            ("flush_log_at_commit", "2"),
            ("redo_capacity", "2G"),
        ] {
            options.set(name, value).unwrap();
        }
        assert_eq!(options.log_flush_method().to_string(), "o_direct_dsync");
        assert!(options.lock_wait_timeout().is_zero());
        assert_eq!(options.durability(), Durability::Written);
        assert_eq!(options.get("log_capacity").unwrap(), "2G");
    }

    #[test]
    fn what_is_refused_is_named_with_what_is_allowed() {
        let mut options = Options::default();
        let mut says = |name: &str, value: &str| options.set(name, value).unwrap_err().to_string();
        assert_eq!(
            says("max_dirty_percent", "100"),
            "option max_dirty_percent = 100: allowed is 1% to 99%; write a whole number of percent, such as 90%"
        );
        assert!(says("torn_page_protection", "on").contains("allowed are doublewrite, atomic, off, auto"));
        assert!(says("flush_interval", "0").contains("1ms to 1h"));
        assert!(says("log_capacity", "1").contains("1088K to 1T, and at least three log files: 48M if they have 16M"));
        assert!(says("pool_sise", "1G").contains("did you mean pool_size?"));
        assert!(says("innodb_foo", "1").contains("`seawall options`"));
        assert!(says("", "1").contains("no such option"));
        let latin1 = std::os::unix::ffi::OsStrExt::from_bytes(b"/srv/b\xfccher");
        let refused = options.with_log_dir(Path::new::<std::ffi::OsStr>(latin1).into()).check().unwrap_err();
        assert!(refused.to_string().starts_with("option log_dir = ") && refused.to_string().contains("UTF-8"));
    }

    #[test]
    fn a_running_database_changes_only_what_it_can() {
        let mut options = Options::default();
        options.settle(&MemoryLimit::unknown()).unwrap();
        options.set_running("pool_size", "256M").unwrap();
        assert_eq!(options.pool_size(), 256 << 20);
        let before = options.clone();
        for (name, value, why) in [
            ("pool_size", "1T", "pool_size_max"),
            ("io_backend", "threads", "open it again"),
            ("page_size", "4K", "dump it"),
            ("log_capacity", "32M", "three log files"),
            ("nope", "1", "option nope = 1: there is no such option"),
        ] {
            let error = options.set_running(name, value).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(options, before);
        options.set_running("io_capacity", "9000").unwrap();
        assert_eq!(options.io_capacity_burst(), 20_000);
    }

    #[test]
    fn the_log_is_beside_the_data_unless_told() {
        let dir = Path::new("/srv/db");
        assert_eq!(Options::default().log_dir_of(dir), dir);
        assert_eq!(Options::default().with_log_dir("log".into()).log_dir_of(dir), Path::new("/srv/db/log"));
        assert_eq!(Options::default().with_log_dir("/log".into()).log_dir_of(dir), Path::new("/log"));
    }

    #[test]
    fn options_serialize_as_text_by_name() {
        let json = serde_json::to_value(Options::default()).unwrap();
        assert_eq!(json["page_size"], "16K");
        assert_eq!(json["durability"], "flushed");
    }
}
