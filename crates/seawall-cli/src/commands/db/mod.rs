//! Commands on a database, one module for each command or group of related commands, and `seawall options`.
//!
//! - A command that needs a database never creates one by accident: only `init` and `load` do.
//! - `stat` and `doctor` open nothing: they read what the process that has the database open publishes.
//!   `backup` asks that process, if it has a control socket. All other commands open the database themselves.
//! - Keys and values are text with escapes (`\n`, `\\`, `\x00`), the same in input and output, or with
//!   `--hex` hexadecimal digits.

pub(crate) mod backup;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod import;
mod input;
pub(crate) mod load;
pub(crate) mod maintenance;
mod notation;
pub(crate) mod options;
pub(crate) mod rows;
pub(crate) mod stat;
pub(crate) mod trees;

use crate::{Failed, note};
use clap::{Arg, ArgMatches, Args, Command, Error as ClapError, FromArgMatches};
use seawall::{Database, Error, Options};
use seawall_io::{IoError, Op};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub(crate) use notation::Notation;

/// The flag of each option, with its long help: clap needs them until the program ends.
static FLAGS: LazyLock<Vec<(&'static str, String, String)>> = LazyLock::new(|| {
    let flag = |info: seawall::OptionInfo| {
        let (flag, default) = (info.flag().trim_start_matches('-').to_owned(), shown(&info.default));
        let help = format!("{} {}; can be changed {} [default: {default}]", info.help, info.range, info.change);
        (info.name, flag, help)
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
        let command = FLAGS.iter().fold(command, |command, (name, flag, help)| {
            command.arg(Arg::new(*name).long(flag.as_str()).value_name("VALUE").help(help.as_str()).hide(true))
        });
        command.after_help(
            "Each option of a database is a flag too, such as --pool-size 2G: `seawall options` lists them.",
        )
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
pub(crate) struct DatabaseArgs {
    /// The directory of the database
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Returns whether there is a database in `dir` whose creation was not interrupted.
pub(crate) fn is_database(dir: &Path) -> seawall::Result<bool> {
    Ok(has(dir, seawall::CONTROL_FILE)? && !has(dir, seawall::CREATING_FILE)?)
}

/// Returns whether `dir` has this file. A directory that cannot be looked into is an error, not an empty one.
fn has(dir: &Path, name: &str) -> seawall::Result<bool> {
    let path = dir.join(name);
    let found = path.try_exists();
    found.map_err(|e| IoError::os(Op::Inspect, &path, e.raw_os_error().unwrap_or(0)).into())
}

/// Returns whether the system does not permit writing there.
fn is_refusal(error: &IoError) -> bool {
    let kind = error.errno().map(|errno| std::io::Error::from_raw_os_error(errno).kind());
    matches!(kind, Some(ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied))
}

/// Refuses a directory without a database, before any file is created in it.
pub(crate) fn must_be_database(dir: &Path) -> seawall::Result<()> {
    if is_database(dir)? {
        return Ok(());
    }
    if let Err(unfinished @ Error::UnfinishedBackup { .. }) = Database::open_read_only(dir) {
        return Err(unfinished);
    }
    let of_server = dir.join("#seawall");
    let why = if has(dir, seawall::CREATING_FILE)? {
        "its creation was interrupted, or is still running. If it is not, `seawall init` makes it anew".to_owned()
    } else if is_database(&of_server).is_ok_and(|is| is) {
        format!("it is the data directory of a MariaDB server; the database is {:?}", of_server.display())
    } else if dir.exists() {
        format!("it has no file {:?}. `seawall init` makes a database", seawall::CONTROL_FILE)
    } else {
        "there is nothing. `seawall init` makes a database".to_owned()
    };
    Err(Error::NotADatabase { path: dir.into(), why })
}

impl DatabaseArgs {
    /// Opens the existing database.
    pub(crate) fn open(&self) -> seawall::Result<Database> {
        must_be_database(&self.dir)?;
        self.open_or_make()
    }

    /// Opens the existing database for a command that only reads. Writes nothing if the database was closed
    /// cleanly.
    pub(crate) fn open_to_read(&self) -> Result<Database, Failed> {
        must_be_database(&self.dir)?;
        match Database::open_read_only_with(&self.dir, self.flags.options()?) {
            Err(needs @ Error::NeedsRecovery { .. }) => match self.open_or_make() {
                Err(Error::Io(refused)) if is_refusal(&refused) => {
                    Err(format!("{needs}. Opening it for writing failed: {refused}").into())
                }
                opened => Ok(opened?),
            },
            opened => Ok(opened.inspect(Self::warn)?),
        }
    }

    /// Notes that the database does not store the log directory given on the command line.
    pub(crate) fn note_log_dir(&self) {
        if let Some((_, log_dir)) = self.flags.0.iter().find(|(name, _)| *name == "log_dir") {
            let file = self.dir.join("seawall.toml");
            note(format_args!(
                "seawall: later commands need the log's directory too: write log_dir = {log_dir:?} into {}, or give \
                 --log-dir each time",
                file.display()
            ));
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

/// The names of `-` in messages.
const STDIN: &str = "standard input";
const STDOUT: &str = "standard output";

/// Returns the path of a file for messages, or for `-` the name of the `standard` stream that it means.
fn file_name<'a>(path: &'a Path, standard: &'a str) -> &'a Path {
    if path == Path::new("-") { Path::new(standard) } else { path }
}
