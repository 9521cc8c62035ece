//! `seawall dump DIR`: writes all trees, or some, as one portable stream (crates/seawall/FORMAT.md).
//!
//! - A dump shows one moment of the database: one snapshot for all trees.
//! - A file gets its name when the dump in it is complete and durable; a killed dump leaves a hidden file
//!   `.seawall-dump-*` beside it. On a pipe, an incomplete dump has no end block, which `load` notices.
//! - With `--skip-damaged` it dumps the rest: standard error names each missing range of keys, and the exit
//!   code is 1.

use super::trees::trees_of;
use super::{DatabaseArgs, STDOUT, file_name};
use crate::{Ended, Failed, Outcome, Stop, cannot, note};
use rustix::io::Errno;
use seawall::dump::{DumpError, DumpOptions, Dumped};
use seawall::{Database, Error};
use seawall_io::Op;
use std::fs::{File, Permissions};
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Trees to dump; all if none is named
    trees: Vec<String>,
    /// New file to write; `-` is standard output
    #[arg(long, short, default_value = "-")]
    out: PathBuf,
    /// Skip damaged parts and report them instead of failing; the exit code is then 1
    #[arg(long)]
    skip_damaged: bool,
}

pub(crate) fn dump(args: &DumpArgs, stop: &Stop) -> Outcome {
    let to_stdout = args.out == Path::new("-");
    if to_stdout && std::io::stdout().is_terminal() {
        return Err("a dump is not text: redirect it to a file or a pipe, or name a file with --out".into());
    }
    let db = args.database.open_to_read()?;
    // Checked before the output file is created.
    trees_of(&db, &args.trees)?;
    let dumped = if to_stdout { write(&db, std::io::stdout().lock(), args, stop) } else { write_file(&db, args, stop) };
    let Dumped { totals, skipped } = match dumped {
        Err(_) if stop.is_set() => return Ok(Ended::Interrupted),
        Err(error) if to_stdout && is_broken_pipe(&*error) => {
            db.close()?;
            return Ok(Ended::Well);
        }
        dumped => dumped?,
    };
    note(format_args!("{} trees written to {}", totals.trees, file_name(&args.out, STDOUT).display()));
    for lost in &skipped {
        note(format_args!("{lost}"));
    }
    db.close()?;
    if skipped.is_empty() {
        return Ok(Ended::Well);
    }
    note(format_args!("ranges of keys left out: {}; everything else is in the dump", skipped.len()));
    Ok(Ended::Short)
}

/// Returns whether the reader of standard output has gone, as after `| head`.
fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(Error::Io(error)) => error.errno().is_some_and(|errno| errno == Errno::PIPE.raw_os_error()),
        _ => false,
    }
}

fn write_file(db: &Database, args: &DumpArgs, stop: &Stop) -> Result<Dumped, Failed> {
    let cannot = cannot("write", &args.out);
    if args.out.symlink_metadata().is_ok() {
        return Err(cannot(ErrorKind::AlreadyExists.into()).into());
    }
    let dir = args.out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = Permissions::from_mode(0o666); // less the umask
    let file = tempfile::Builder::new().prefix(".seawall-dump-").permissions(permissions).tempfile_in(dir);
    let mut out = BufWriter::with_capacity(1 << 20, file.map_err(&cannot)?);
    let dumped = write(db, &mut out, args, stop)?;
    let file = out.into_inner().map_err(|e| cannot(e.into_error()))?;
    file.as_file().sync_all().map_err(&cannot)?;
    file.persist_noclobber(&args.out).map_err(|e| cannot(e.error))?;
    // Make its name durable, too.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(&cannot)?;
    Ok(dumped)
}

fn write<W: Write>(db: &Database, out: W, args: &DumpArgs, stop: &Stop) -> Result<Dumped, Failed> {
    let options = DumpOptions { trees: args.trees.clone(), skip_damaged: args.skip_damaged };
    match db.dump_with(out, &options, |_| stop.flow()) {
        Ok(Some(dumped)) => Ok(dumped),
        Ok(None) => Err("interrupted".into()),
        Err(DumpError::Database(error)) if error.is_damage() && !args.skip_damaged => {
            Err(format!("{error}. With --skip-damaged the rest is dumped").into())
        }
        Err(error) => Err(error.of_file(file_name(&args.out, STDOUT), Op::Write).into()),
    }
}
