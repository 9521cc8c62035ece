//! Where a cell's data is stored: a directory given by the user, which stays, or a temporary one, which is
//! removed.
//!
//! ```text
//!   DIR/bench.json   what the data is: written when it is all there, so that half a load is never taken for a whole one
//!   DIR/data/        the store's directory
//! ```
//!
//! 1. Existing data is used when its marker equals the request and the user gave `--reuse`; it is never
//!    overwritten.
//! 2. A temporary directory is removed when this is dropped, also after an error or Ctrl-C.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MARKER: &str = "bench.json";
const DATA: &str = "data";

/// Identifies data: its store, rows, sizes.
pub type Marker = BTreeMap<String, String>;

/// The directory of a run.
#[derive(Debug)]
pub struct DataDir {
    dir: PathBuf,
    /// Holds the directory until the end.
    _temporary: Option<TempDir>,
    marker: Marker,
    loaded: bool,
}

impl DataDir {
    /// Checks `dir`, or creates a temporary directory below `./target` or the system's temporary directory.
    /// Existing data is used when `reuse` is given and its marker is `marker`.
    ///
    /// # Errors
    /// When the directory cannot be created, or holds something else.
    pub fn prepare(dir: Option<&Path>, reuse: bool, marker: Marker) -> Result<Self, String> {
        let (dir, temporary) = given_or_temporary(dir)?;
        let mut data_dir = Self { dir, _temporary: temporary, marker, loaded: false };
        let (path, marker) = (data_dir.marker_path(), &data_dir.marker);
        let what = match fs::read_to_string(&path) {
            Ok(text) if reuse => match serde_json::from_str::<Marker>(&text) {
                Ok(there) if there == *marker => {
                    data_dir.loaded = true;
                    return Ok(data_dir);
                }
                Ok(there) => format!("other data ({}) than asked for ({}):", words(&there), words(marker)),
                Err(e) => format!("no marker of a benchmark ({e}):"),
            },
            Ok(_) => "the data of an earlier run: give --reuse to measure on it; else".into(),
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot("read", &path, e)),
            Err(_) if data_dir.data().exists() => "data that an earlier run did not finish, or other files:".into(),
            Err(_) => return Ok(data_dir),
        };
        let dir = data_dir.dir.display();
        Err(format!("{dir} holds {what} remove {MARKER} and {DATA}/ in it, or give another --dir"))
    }

    /// The store's directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join(DATA)
    }

    /// The directory that holds it; it exists.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the data is there already.
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Marks the data as complete. To be called when the store has closed or settled.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn set_loaded(&mut self) -> Result<(), String> {
        let path = self.marker_path();
        let text = serde_json::to_string_pretty(&self.marker).unwrap_or_default();
        fs::write(&path, text).map_err(|e| cannot("write", &path, e))?;
        self.loaded = true;
        Ok(())
    }

    fn marker_path(&self) -> PathBuf {
        self.dir.join(MARKER)
    }
}

/// `dir`, created if it does not exist, or a temporary directory below `./target` or the system's temporary directory,
/// which lasts as long as the returned owner.
///
/// # Errors
/// When it cannot be created.
pub fn given_or_temporary(dir: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), String> {
    if let Some(dir) = dir {
        fs::create_dir_all(dir).map_err(|e| cannot("make", dir, e))?;
        return Ok((dir.into(), None));
    }
    let below = if Path::new("target").is_dir() { PathBuf::from("target") } else { std::env::temp_dir() };
    let temporary = tempfile::Builder::new().prefix("seawall-bench-").tempdir_in(&below);
    let temporary = temporary.map_err(|e| cannot("make a directory in", &below, e))?;
    Ok((temporary.path().into(), Some(temporary)))
}

/// Removes a directory, if there is one.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn remove(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot remove {}: {e}", dir.display())),
        _ => Ok(()),
    }
}

fn words(marker: &Marker) -> String {
    let words: Vec<String> = marker.iter().map(|(name, value)| format!("{name} {value}")).collect();
    words.join(", ")
}

fn cannot(what: &str, path: &Path, why: impl Display) -> String {
    format!("cannot {what} {}: {why}; give another --dir", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(keys: &str) -> Marker {
        [("store".to_owned(), "seawall".to_owned()), ("keys".to_owned(), keys.to_owned())].into()
    }

    #[test]
    fn data_is_used_again_only_when_it_is_what_is_asked_for() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("d");
        let mut data_dir = DataDir::prepare(Some(&dir), true, marker("5")).unwrap();
        assert!(!data_dir.is_loaded());
        fs::create_dir(data_dir.data()).unwrap();
        let half = DataDir::prepare(Some(&dir), true, marker("5")).unwrap_err();
        assert!(half.to_string().contains("did not finish"), "{half}");
        data_dir.set_loaded().unwrap();
        drop(data_dir);
        assert!(DataDir::prepare(Some(&dir), true, marker("5")).unwrap().is_loaded());
        let other = DataDir::prepare(Some(&dir), true, marker("6")).unwrap_err().to_string();
        assert!(other.contains("keys 5") && other.contains("keys 6"), "{other}");
        assert!(DataDir::prepare(Some(&dir), false, marker("5")).unwrap_err().to_string().contains("--reuse"));
        fs::write(dir.join(MARKER), "{").unwrap();
        assert!(DataDir::prepare(Some(&dir), true, marker("5")).unwrap_err().to_string().contains("no marker"));
    }

    #[test]
    fn a_temporary_directory_is_removed() {
        let data_dir = DataDir::prepare(None, false, Marker::new()).unwrap();
        let dir = data_dir.dir().to_owned();
        fs::create_dir_all(data_dir.data()).unwrap();
        assert!(dir.exists());
        drop(data_dir);
        assert!(!dir.exists());
    }
}
