//! `seawall.toml`: read, merged, written.
//!
//! 1. Every line is checked, even one that a stronger source overrides: a typo is never silent.
//! 2. `[log] dir` is the option `log_dir`; the same option twice is an error.
//! 3. A written file is read back as the same options.
//! 4. A build without the feature `toml` refuses a directory whose file sets options: options are never
//!    ignored.

#[cfg(feature = "toml")]
use super::table;
#[cfg(feature = "toml")]
use super::toml::Value;
use super::{FILE_NAME, OptionInfo, Options, Source};
use crate::error::{Error, Result};
use seawall_io::errno::EIO;
use seawall_io::{IoError, Op};
#[cfg(feature = "toml")]
use std::collections::HashSet;
use std::path::Path;

/// Tables of `seawall.toml`: prefixes of option names.
pub(super) const TABLES: [&str; 2] = ["data", "log"];
/// A table that belongs to `seawall lab`.
#[cfg(feature = "toml")]
const LAB: &str = "lab";

impl Options {
    /// Completes these options with those of `seawall.toml` in `dir`, if the file exists.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::Usage`] if it is not TOML, or if it sets options and
    /// this program was built without the feature `toml` of this crate; [`Error::InvalidOption`] for an option
    /// in it.
    pub fn with_file_of(mut self, dir: &Path) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes)
                    .map_err(|e| Error::Usage(format!("{} is not a text file: {e}", path.display())))?;
                self.merge_file(&text, &path)?;
                Ok(self)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(self),
            Err(error) => Err(IoError::os(Op::Open, &path, error.raw_os_error().unwrap_or(EIO)).into()),
        }
    }

    #[cfg(feature = "toml")]
    fn merge_file(&mut self, text: &str, path: &Path) -> Result<()> {
        self.merge_toml(text, &path.display().to_string())
    }

    /// Without a TOML parser, accepts only a file that is certain to set nothing.
    #[cfg(not(feature = "toml"))]
    #[allow(clippy::unused_self, reason = "the same call as with the feature")]
    fn merge_file(&mut self, text: &str, path: &Path) -> Result<()> {
        if text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with(['#', '['])) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{} sets options, and this program was built without the feature `toml` of the crate seawall: build it \
             with that, or set the \
             options in the program and remove the file",
            path.display()
        )))
    }

    /// Takes the options from the text of a `seawall.toml`, except those that a stronger source has set.
    /// `origin` names the file in errors. On error some of the options may be in effect.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not TOML; [`Error::InvalidOption`] for a name or a value in it.
    ///
    /// ```
    /// use seawall::options::Options;
    /// let mut options = Options::default().with_io_capacity(500);
    /// options.merge_toml("io_capacity = 8000\n[log]\nflush_method = \"o_direct_dsync\"\n", "seawall.toml")?;
    /// assert_eq!(options.io_capacity(), 500, "the program's word is the stronger one");
    /// assert_eq!(options.log_flush_method().to_string(), "o_direct_dsync");
    /// let typo = options.merge_toml("[log]\nflush_metod = \"fsync\"\n", "seawall.toml").unwrap_err().to_string();
    /// assert!(typo.contains("did you mean log_flush_method?"), "{typo}");
    /// # Ok::<(), seawall::Error>(())
    /// ```
    #[cfg(feature = "toml")]
    pub fn merge_toml(&mut self, text: &str, origin: &str) -> Result<()> {
        let values =
            super::toml::parse(text).map_err(|why| Error::Usage(format!("{origin} is not valid TOML: {why}")))?;
        let mut seen = HashSet::new();
        for (path, value) in values.into_iter().filter(|(path, _)| path.len() == 1 || path[0] != LAB) {
            // A nested table is no option: its name is refused as unknown, or as a value that no option has.
            let (name, value) = match path.as_slice() {
                [_, _, _, ..] => (path[..2].join("."), Value::Other(format!("{} = ...", path[2..].join(".")))),
                _ => (path.join("."), value),
            };
            let placed = |error| match error {
                Error::InvalidOption { name, value, why } => {
                    Error::InvalidOption { name, value, why: format!("{why} (in {origin})") }
                }
                other => other,
            };
            let text = as_text(&name, value).map_err(placed)?;
            self.put(&name, &text, Source::File).map_err(placed)?;
            let known = Self::info(&name)?.name;
            if !seen.insert(known) {
                return Err(placed(Error::InvalidOption { name, value: text, why: format!("{known} is set twice") }));
            }
        }
        Ok(())
    }

    /// Returns a `seawall.toml` with these options and a comment for each. Defaults are commented out, so that
    /// a better default of a later version takes effect.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = format!(
            "# {FILE_NAME}: options of the database in this directory. What is commented out is the default.\n"
        );
        let infos = Self::describe();
        let values = self.list();
        for table in std::iter::once("").chain(TABLES) {
            if !table.is_empty() {
                out += &format!("\n[{table}]\n");
            }
            for (info, (_, value, source)) in infos.iter().zip(&values).filter(|(info, _)| info.toml_path().0 == table)
            {
                let unset = *source == Source::Default;
                out += &format!(
                    "\n# {}\n# Default {}; {}; can be changed {}.\n",
                    info.help,
                    shown(&info.default),
                    info.range,
                    when(info)
                );
                out += &format!("{}{} = {}\n", if unset { "# " } else { "" }, info.toml_path().1, toml_value(value));
            }
        }
        out
    }
}

fn when(info: &OptionInfo) -> String {
    info.change.to_string()
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "empty" } else { value }
}

/// Writes numbers bare and other values as strings, including a value that only looks like a number, such as
/// the directory 007.
fn toml_value(text: &str) -> String {
    if text.parse::<i64>().is_ok_and(|number| number.to_string() == text) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(feature = "toml")]
fn as_text(name: &str, value: Value) -> Result<String> {
    match value {
        Value::Text(text) => Ok(text),
        Value::Other(value) => {
            let name = table::canonical(name);
            let why = Options::info(&name).map(|info| format!("write {}", info.shape))?;
            Err(Error::InvalidOption { name, value, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Options> {
        let mut options = Options::default();
        options.merge_toml(text, "/srv/db/seawall.toml").map(|()| options)
    }

    #[test]
    fn a_file_of_the_lab_is_understood() {
        let text = "# seawall.toml, measured by seawall lab\n\n\
                    io_capacity = 12000\nio_capacity_burst = 21000\nprefetch_depth = 16\n\
                    preallocate = \"off\"\ntorn_page_protection = \"auto\"\n\n\
                    [data]\nflush_method = \"o_direct_no_fsync\"\n\n\
                    [log]\nflush_method = \"o_direct_dsync\"\nblock_bytes = 512\n\n[lab]\nseed = 1\n";
        let options = read(text).unwrap();
        for (name, value) in [
            ("io_capacity", "12000"),
            ("io_capacity_burst", "21000"),
            ("prefetch_depth", "16"),
            ("preallocate", "off"),
            ("torn_page_protection", "auto"),
            ("data_flush_method", "o_direct_no_fsync"),
            ("log_flush_method", "o_direct_dsync"),
            ("log_block_bytes", "512"),
        ] {
            assert_eq!(options.get(name).unwrap(), value);
        }
    }

    #[test]
    fn errors_say_what_and_where() {
        for (text, wants) in [
            ("pool_size = ", "/srv/db/seawall.toml is not valid TOML"),
            ("pool_sizes = 1", "did you mean pool_size? (in /srv/db/seawall.toml)"),
            ("[data]\nflush_method = \"turbo\"", "option data_flush_method = turbo: allowed are auto, fsync"),
            ("[page]\nsizes = 4096", "did you mean page_size?"),
            ("pool_size = true", "option pool_size = true: write a number of bytes"),
            ("pool_size = [1]", "write a number of bytes"),
            ("[data.flush_method]\nx = 1", "data_flush_method"),
            ("log_dir = \"/a\"\n[log]\ndir = \"/b\"", "log_dir is set twice"),
            ("redo_capacity = \"1G\"\nlog_capacity = \"1G\"", "log_capacity is set twice"),
            ("max_dirty_percent = 0", "1% to 99%"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(wants), "{text}: {error}");
        }
        assert!(read("flush_interval = 0.5").is_ok());
    }

    #[test]
    fn the_file_is_between_default_and_program() {
        let dir = tempfile::tempdir().unwrap();
        let given = Options::default().with_pool_size(1 << 30);
        assert_eq!(given.clone().with_file_of(dir.path()).unwrap(), given);
        std::fs::write(dir.path().join(FILE_NAME), "pool_size = \"2G\"\ndurability = 2\n").unwrap();
        let options = given.clone().with_file_of(dir.path()).unwrap();
        assert_eq!(options.pool_size(), 1 << 30);
        assert_eq!(options.get("durability").unwrap(), "written");
        std::fs::write(dir.path().join(FILE_NAME), [0xff, 0xfe]).unwrap();
        assert!(given.clone().with_file_of(dir.path()).unwrap_err().to_string().contains("is not a text file"));
        std::fs::remove_file(dir.path().join(FILE_NAME)).unwrap();
        std::fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        assert!(matches!(given.with_file_of(dir.path()), Err(Error::Io(_))));
    }

    /// The lab recommends options and the engine reads them, in two crates: names and defaults must agree.
    #[test]
    fn every_key_of_the_lab_is_an_option() {
        let reasons = concat!(env!("CARGO_MANIFEST_DIR"), "/../seawall-lab/src/settings/reasons.toml");
        // The published crate does not contain the lab.
        let Ok(reasons) = std::fs::read_to_string(reasons) else { return };
        let reasons: toml::Table = reasons.parse().unwrap();
        let of_engine = reasons.iter().filter(|(key, _)| !key.starts_with("innodb"));
        let keys: Vec<(&str, &str)> = of_engine.map(|(key, of)| (&**key, of["default"].as_str().unwrap())).collect();
        assert_eq!(keys.len(), 8, "{keys:?}");
        for (key, default) in keys {
            let (table, inner) = key.split_once('.').unwrap_or(("", key));
            let info = Options::info(key).unwrap();
            assert_eq!(info.toml_path(), (table, inner));
            let mut options = Options::default();
            options.set(info.name, default).unwrap();
            assert_eq!(options.get(info.name).unwrap(), Options::default().get(info.name).unwrap());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..12),
            dir in prop_oneof!["[ -~]{0,20}", "[-+]?0{0,2}[0-9]{1,3}"],
        ) {
            let infos = Options::describe();
            let mut options = Options::default();
            for (which, word) in picks {
                let info = which.get(&infos);
                let value = match info.words.len() {
                    0 if info.name == "log_dir" => dir.clone(),
                    0 => info.default.clone(),
                    n => info.words[word.index(n)].to_owned(),
                };
                options.put(info.name, &value, Source::File).unwrap();
            }
            let text = options.to_toml();
            let back = read(&text);
            prop_assert_eq!(back.unwrap(), options);
        }

        #[test]
        fn garbage_is_an_error(text in "[a-z_=\\[\\]\" .0-9\n]{0,60}") {
            if let Err(error) = read(&text) {
                prop_assert!(error.to_string().contains("seawall.toml"), "{}", error);
            }
        }
    }
}
