//! Commands on a database: `seawall init|trees|get|put|del|scan|load|dump|grow|compact|stat|doctor|backup|restore|check DIR`.
//!
//! - A command that needs a database never creates one by accident: only `init` and `load` do.
//! - `stat` and `doctor` open nothing: they read what the process that has the database open publishes.
//!   `backup` asks that process, if it has a control socket. All other commands open the database themselves.
//! - Keys and values are text with escapes (`\n`, `\\`, `\x00`), the same on the way in and out, or with `--hex` hexadecimal digits.

pub(crate) mod backup;
pub(crate) mod care;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod entries;
mod input;
pub(crate) mod stat;

use crate::note;
use clap::{Arg, ArgMatches, Args, Command, Error as ClapError, FromArgMatches};
use seawall::{Database, Error, Options};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The flag of each option, with its long help: clap needs them until the program ends.
static FLAGS: LazyLock<Vec<(&'static str, String, String)>> = LazyLock::new(|| {
    let flag = |info: seawall::OptionInfo| {
        let help =
            format!("{} {}; can be changed {} [default: {}]", info.help, info.range, info.change, shown(&info.default));
        (info.name, info.flag().trim_start_matches('-').to_owned(), help)
    };
    Options::describe().into_iter().map(flag).collect()
});

fn shown(value: &str) -> &str {
    if value.is_empty() { "empty" } else { value }
}

/// The options of a database that were given on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(Vec<(&'static str, String)>);

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let given = FLAGS.iter().filter_map(|(name, ..)| Some((*name, matches.get_one::<String>(name)?.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, (name, flag, help)| {
            let arg = Arg::new(*name).long(flag.as_str()).value_name("VALUE").help(help.as_str());
            command.arg(arg.help_heading("Options of the database").hide_short_help(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Flags {
    fn options(&self) -> seawall::Result<Options> {
        let mut options = Options::default();
        for (name, value) in &self.0 {
            options.set(name, value)?;
        }
        Ok(options)
    }
}

/// The database of a command.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The directory of the database
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Whether there is a database in `dir`.
pub(crate) fn is_database(dir: &Path) -> bool {
    dir.join(seawall::CONTROL_FILE).exists()
}

/// Refuses a directory without a database, before any file is created in it.
pub(crate) fn must_be_database(dir: &Path) -> seawall::Result<()> {
    if is_database(dir) {
        return Ok(());
    }
    let why = if dir.exists() {
        format!("it has no file {:?}. `seawall init` makes a database", seawall::CONTROL_FILE)
    } else {
        "there is nothing. `seawall init` makes a database".to_owned()
    };
    Err(Error::NotADatabase { path: dir.into(), why })
}

impl Place {
    /// Opens the existing database.
    pub(crate) fn open(&self) -> seawall::Result<Database> {
        must_be_database(&self.dir)?;
        self.open_or_make()
    }

    /// Opens the existing database for a command that only reads: without any write if it was closed cleanly.
    pub(crate) fn open_to_read(&self) -> seawall::Result<Database> {
        must_be_database(&self.dir)?;
        match Database::open_read_only_with(&self.dir, self.flags.options()?) {
            Err(Error::NeedsRecovery { .. }) => self.open_or_make(),
            opened => opened.inspect(Self::warn),
        }
    }

    /// Opens the database, or creates it.
    pub(crate) fn open_or_make(&self) -> seawall::Result<Database> {
        Database::open_with(&self.dir, self.flags.options()?).inspect(Self::warn)
    }

    fn warn(db: &Database) {
        for warning in db.options().warnings(&seawall::MemoryLimit::read()) {
            note(format_args!("seawall: {warning}"));
        }
    }
}

/// How keys and values are written.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Notation {
    /// Keys and values are hexadecimal digits, on the way in and out
    #[arg(long)]
    pub(crate) hex: bool,
}

impl Notation {
    /// Parses bytes from text.
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>, String> {
        if self.hex { from_hex(text) } else { unescape(text) }
    }

    /// Formats bytes for people, and for [`Notation::read`].
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        if self.hex { to_hex(bytes) } else { escape(bytes) }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| Some(c.to_digit(16)? as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(format!("{text:?} are no bytes: write two hexadecimal digits for each, such as 00ff7a")),
    }
}

/// Printable characters stay, so that text in any script is readable; the rest is escaped byte by byte.
fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() => {
                    let mut buf = [0; 4];
                    c.encode_utf8(&mut buf).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escaped = &rest[at + 1..];
        let plain = |byte: u8| Some((byte, 1));
        let found = match escaped.bytes().next() {
            Some(b'n') => plain(b'\n'),
            Some(b't') => plain(b'\t'),
            Some(b'r') => plain(b'\r'),
            Some(b'0') => plain(0),
            Some(b'\\') => plain(b'\\'),
            Some(b'x') => {
                let digits = escaped.get(1..3).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
                digits.and_then(|digits| Some((u8::from_str_radix(digits, 16).ok()?, 3)))
            }
            _ => None,
        };
        let Some((byte, len)) = found else {
            return Err(format!(
                "{text:?} has a backslash that means nothing: write \\\\ for one, or \\n, \\t, \\r, \\0, \\x7f, or use --hex"
            ));
        };
        out.push(byte);
        rest = &escaped[len..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read() {
        let every: Vec<u8> = (0..=255).collect();
        for bytes in [&every[..], b"", b"plain", b"a\\x41", "grüße\u{7}".as_bytes(), b"\xc3", b"\xe2\x82"] {
            for hex in [false, true] {
                let notation = Notation { hex };
                assert_eq!(notation.read(&notation.show(bytes)).as_deref(), Ok(bytes), "{}", notation.show(bytes));
            }
        }
        assert_eq!(escape("grüße\n".as_bytes()), "grüße\\n");
        assert_eq!(unescape("\\x41\\0"), Ok(b"A\0".to_vec()));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in ["\\", "\\q", "\\x", "\\x4", "\\xg0", "a\\x\u{e9}", "\\x+1"] {
            assert!(unescape(text).unwrap_err().contains("backslash"), "{text}");
        }
        for text in ["0", "0g", "é0"] {
            assert!(from_hex(text).unwrap_err().contains("hexadecimal"), "{text}");
        }
        assert_eq!(from_hex("00 FF 7a"), Ok(vec![0, 255, 0x7a]));
    }
}
