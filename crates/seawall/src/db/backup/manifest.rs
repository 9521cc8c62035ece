//! The manifest of a backup, and how a directory is filled with a backup or a restored database.
//!
//! ```text
//!   new or empty ──UNFINISHED, durable──> being filled ──all files durable──> MANIFEST written beside, durable, renamed, durable
//!     ──UNFINISHED removed──> a backup
//! ```
//!
//! 1. `UNFINISHED` is durable before the first other file is made: what an interruption leaves is always recognised,
//!    and no opening takes it for a database.
//! 2. The manifest gets its name only after every file that it describes is durable. With a manifest the backup is
//!    whole, with or without `UNFINISHED`.
//! 3. The manifest is text, one field a line, and ends with a checksum of everything before it.
//! 4. A restore marks its directory in the same way, but writes no manifest: the result is a database.

use crate::buffer::{CONTROL_FILE, DATA_FILE};
use crate::error::{Error, Result};
use crate::format::Lsn;
use seawall_io::errno::{EISDIR, ENOENT};
use seawall_io::{Create, Disk, IoError, IoErrorKind, Op, OpenHow, SyncHow, WriteHow};
use std::fmt::Write as _;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

/// The manifest: describes the backup in this directory.
pub(in crate::db) const MANIFEST: &str = "backup";
/// Marks a directory in which a backup or a restore is not finished.
pub(in crate::db) const UNFINISHED: &str = "backup.unfinished";
/// The pages of an increment, one after the other; each contains its number.
pub(super) const PAGES_FILE: &str = "pages";
const TITLE: &str = "seawall-backup";
const VERSION: u32 = 2;
/// Versions from this one on are read: the first had more fields.
const VERSION_MIN: u32 = 1;
/// The longest manifest or other small file, bytes.
const BYTES_MAX: usize = 4096;

/// The name of a backup, or the identity of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Name(pub(super) [u8; 16]);

impl Name {
    /// Returns a name; the same parts give the same name.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.digest128().to_le_bytes())
    }

    fn read(text: &str) -> Option<Self> {
        let mut name = [0; 16];
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (i, byte) in name.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(name))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The description of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Two backups of one opening with the same begin and end have the same name: they are interchangeable.
    pub(super) name: Name,
    /// The backup before, whose later changes this one contains; `None` for a full backup.
    pub(super) base: Option<Name>,
    /// The database's identity.
    pub(super) database: Name,
    pub(super) page_bytes: u32,
    pub(super) block_bytes: u32,
    pub(super) segment_bytes: u64,
    /// Recovery of the restored database begins here. An increment on this backup has every page that was changed after
    /// this position.
    pub(super) begin: Lsn,
    /// The position of the backup's state.
    pub(super) end: Lsn,
    /// Length of the restored data file, bytes.
    pub(super) data_bytes: u64,
    /// Pages in this backup.
    pub(super) pages: u64,
}

impl Manifest {
    pub(super) fn encode(&self) -> String {
        let base = self.base.map_or("none".to_owned(), |base| base.to_string());
        let mut text = format!("{TITLE} {VERSION}\n");
        let fields: [(&str, &dyn std::fmt::Display); 10] = [
            ("name", &self.name),
            ("base", &base),
            ("database", &self.database),
            ("page_bytes", &self.page_bytes),
            ("block_bytes", &self.block_bytes),
            ("segment_bytes", &self.segment_bytes),
            ("begin", &self.begin.0),
            ("end", &self.end.0),
            ("data_bytes", &self.data_bytes),
            ("pages", &self.pages),
        ];
        for (name, value) in fields {
            writeln!(text, "{name} {value}").expect("a string takes all");
        }
        let crc = crc32c::crc32c(text.as_bytes());
        writeln!(text, "crc {crc:08x}").expect("a string takes all");
        text
    }

    pub(super) fn decode(path: &Path, text: &[u8]) -> Result<Self> {
        let bad = |why: &str| Error::BadBackup { path: path.into(), why: why.into() };
        let text = std::str::from_utf8(text).ok().ok_or_else(|| bad("it is not text: use another backup"))?;
        let version = text.lines().next().and_then(|line| line.strip_prefix(TITLE)?.trim().parse::<u32>().ok());
        match version {
            Some(VERSION_MIN..=VERSION) => {}
            Some(found) if found > VERSION => {
                return Err(Error::OtherFormat { path: path.into(), found, supported: VERSION });
            }
            _ => return Err(bad("it does not begin as one of ours: use another backup")),
        }
        let damaged = || bad("it is damaged: use another backup");
        let at = text.rfind("crc ").ok_or_else(damaged)?;
        let crc = u32::from_str_radix(text[at + 4..].trim_end(), 16).ok().ok_or_else(damaged)?;
        if crc != crc32c::crc32c(&text.as_bytes()[..at]) {
            return Err(damaged());
        }
        let field = |name: &str| {
            let mut values = text[..at].lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            values.next().ok_or_else(damaged)
        };
        let name = |of: &str| Name::read(field(of)?).ok_or_else(damaged);
        let number = |of: &str| field(of)?.parse::<u64>().ok().ok_or_else(damaged);
        let small = |of: &str| u32::try_from(number(of)?).ok().ok_or_else(damaged);
        Ok(Self {
            name: name("name")?,
            base: if field("base")? == "none" { None } else { Some(name("base")?) },
            database: name("database")?,
            page_bytes: small("page_bytes")?,
            block_bytes: small("block_bytes")?,
            segment_bytes: number("segment_bytes")?,
            begin: Lsn(number("begin")?),
            end: Lsn(number("end")?),
            data_bytes: number("data_bytes")?,
            pages: number("pages")?,
        })
    }

    /// Reads the manifest of the backup in `dir`.
    ///
    /// # Errors
    /// [`Error::UnfinishedBackup`], [`Error::BadBackup`], [`Error::OtherFormat`]; disk errors.
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST);
        if let Some(text) = read_small(disk, &path)? {
            return Self::decode(&path, &text);
        }
        let why = match disk.list(dir) {
            Err(e) if e.errno() == Some(ENOENT) => {
                "there is nothing at this path: check that it is spelled right".into()
            }
            found => {
                if found?.contains(&dir.join(UNFINISHED)) {
                    return Err(Error::UnfinishedBackup { path: dir.into() });
                }
                format!("it has no file {MANIFEST:?}: it is not a backup")
            }
        };
        Err(Error::BadBackup { path: dir.into(), why })
    }
}

/// Reads a file of at most [`BYTES_MAX`] bytes; returns `None` if there is none.
pub(super) fn read_small(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenHow::default()) {
        Err(e) if e.errno() == Some(ENOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = vec![0; BYTES_MAX];
    let mut len = 0;
    while len < text.len() {
        match disk.read_at(&file, len as u64, &mut text[len..])? {
            0 => break,
            n => len += n,
        }
    }
    text.truncate(len);
    Ok(Some(text))
}

/// Writes a small file and makes its contents durable.
pub(super) fn write_small(disk: &dyn Disk, path: &Path, text: &[u8]) -> Result<()> {
    let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    let file = disk.open(path, how)?;
    let mut done = 0;
    while done < text.len() {
        match disk.write_at(&file, done as u64, &[IoSlice::new(&text[done..])], WriteHow::default())? {
            0 => return Err(IoError::new(Op::Write, path, IoErrorKind::NoProgress).into()),
            n => done += n,
        }
    }
    Ok(disk.sync(&file, SyncHow::All)?)
}

/// Refuses a directory that holds a backup, or an unfinished backup or restore. A foreign file or directory with the
/// manifest's name is ignored.
///
/// # Errors
/// [`Error::IsABackup`], [`Error::UnfinishedBackup`]; disk errors.
pub(in crate::db) fn refuse(disk: &dyn Disk, dir: &Path, has: impl Fn(&str) -> bool) -> Result<()> {
    if has(MANIFEST) {
        match read_small(disk, &dir.join(MANIFEST)) {
            Ok(Some(text)) if text.starts_with(TITLE.as_bytes()) => {
                return Err(Error::IsABackup { path: dir.into() });
            }
            Err(Error::Io(error)) if error.errno() != Some(EISDIR) => return Err(error.into()),
            _ => {}
        }
    }
    if has(UNFINISHED) {
        return Err(Error::UnfinishedBackup { path: dir.into() });
    }
    Ok(())
}

/// A directory that is being filled.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) dir: PathBuf,
}

impl Target {
    /// Takes `dir`, which must be new or empty, and marks it.
    ///
    /// # Errors
    /// [`Error::UnfinishedBackup`] if an earlier backup or restore did not end there; [`Error::BadBackup`] if it is not
    /// empty; disk errors.
    pub(super) fn begin(disk: &dyn Disk, dir: &Path) -> Result<Self> {
        let found = match disk.list(dir) {
            Err(e) if e.errno() == Some(ENOENT) => {
                seawall_io::create_dir(dir)?;
                Vec::new()
            }
            found => found?,
        };
        if found.contains(&dir.join(UNFINISHED)) {
            return Err(Error::UnfinishedBackup { path: dir.into() });
        }
        if let Some(first) = found.first() {
            let why = format!("the directory must be new or empty, and has {}", first.display());
            return Err(Error::BadBackup { path: dir.into(), why });
        }
        // The file must be new: of two backups that begin at once, one is refused.
        write_small(disk, &dir.join(UNFINISHED), b"seawall: a backup or a restore has not come to its end here\n")?;
        disk.sync_dir(dir)?;
        disk.make_name_durable(dir)?;
        Ok(Self { dir: dir.into() })
    }

    /// Ends a backup, all of whose files are durable.
    ///
    /// # Errors
    /// Disk errors; the backup is then unfinished, or whole.
    pub(super) fn finish_backup(self, disk: &dyn Disk, manifest: &Manifest) -> Result<()> {
        let (new, path) = (self.dir.join("backup.new"), self.dir.join(MANIFEST));
        write_small(disk, &new, manifest.encode().as_bytes())?;
        // The names of all other files are durable before the manifest's.
        disk.sync_dir(&self.dir)?;
        disk.rename_new(&new, &path)?;
        disk.sync_dir(&self.dir)?;
        self.finish(disk)
    }

    /// Ends a restore, all of whose files are durable.
    ///
    /// # Errors
    /// Disk errors.
    pub(super) fn finish(self, disk: &dyn Disk) -> Result<()> {
        disk.sync_dir(&self.dir)?;
        disk.remove(&self.dir.join(UNFINISHED))?;
        Ok(disk.sync_dir(&self.dir)?)
    }
}

/// Returns the files that the directory of a backup must have.
pub(super) fn files_of(manifest: &Manifest) -> [&'static str; 2] {
    [CONTROL_FILE, if manifest.base.is_none() { DATA_FILE } else { PAGES_FILE }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            name: Name([1; 16]),
            base: Some(Name([2; 16])),
            database: Name([3; 16]),
            page_bytes: 16384,
            block_bytes: 4096,
            segment_bytes: 1 << 20,
            begin: Lsn(4096),
            end: Lsn(123_456),
            data_bytes: 1 << 30,
            pages: 99,
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let path = Path::new("backup");
        for manifest in [manifest(), Manifest { base: None, ..manifest() }] {
            assert_eq!(Manifest::decode(path, manifest.encode().as_bytes()).unwrap(), manifest);
        }
    }

    #[test]
    fn the_version_before_is_read() {
        let text = manifest().encode();
        let fields = text[..text.rfind("crc ").unwrap()].replacen(" 2\n", " 1\n", 1);
        let fields = fields.replace("page_bytes", &format!("history {}\nincarnation 7\npage_bytes", Name([4; 16])));
        let text = format!("{fields}crc {:08x}\n", crc32c::crc32c(fields.as_bytes()));
        assert_eq!(Manifest::decode(Path::new("backup"), text.as_bytes()).unwrap(), manifest());
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let (path, text) = (Path::new("backup"), manifest().encode());
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Manifest::decode(path, &bytes).is_err(), "byte {at}");
            assert!(Manifest::decode(path, &text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
        let newer = text.replacen(" 2\n", " 3\n", 1);
        assert!(matches!(Manifest::decode(path, newer.as_bytes()), Err(Error::OtherFormat { found: 3, .. })));
    }
}
