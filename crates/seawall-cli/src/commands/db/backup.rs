//! `seawall backup DIR TO` and `seawall restore FULL INCREMENT... TO`.
//!
//! A process that has the database open makes the backup itself, on request through its control socket. A
//! closed database is opened here.

use super::{DatabaseArgs, must_be_database};
use crate::{Outcome, Stop, answer, interrupted, note, print, units};
use seawall::{BackupAnswer, BackupOptions, BackupProgress, BackupReport, Database, Error};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Interval between progress messages.
const TOLD_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// New or empty directory for the backup
    to: PathBuf,
    /// Maximum bytes read per second; 0 for no limit
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = units::size)]
    rate: u64,
    /// Maximum log kept for the backup, beyond log_capacity
    ///
    /// When writers are this far ahead, the backup ends with an error.
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = units::size)]
    held_log_max: u64,
    /// Earlier backup: copy only what has changed since
    #[arg(long, value_name = "BASE")]
    incremental_from: Option<PathBuf>,
    /// Copy log until the process that has the database open ends the backup
    ///
    /// Prints "waiting" when that process may end the backup, and "ended" when it has. A MariaDB server ends
    /// it at BACKUP STAGE END.
    #[arg(long)]
    wait_for_end: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn backup(args: &BackupArgs, stop: &Stop) -> Outcome {
    must_be_database(&args.database.dir)?;
    let options = BackupOptions {
        rate: args.rate,
        held_log_max: args.held_log_max,
        incremental_from: args.incremental_from.clone(),
        ends_when_told: args.wait_for_end,
    };
    let mut told = Instant::now();
    let (mut waits, mut ended) = (false, false);
    let mut go_on = |progress: &BackupProgress| {
        // If nothing reads the output any more, signals still end the backup.
        if progress.waits && !std::mem::replace(&mut waits, true) {
            drop(print(if args.json { "{\"waiting\":true}\n" } else { "waiting\n" }));
        }
        if args.wait_for_end && progress.done && !std::mem::replace(&mut ended, true) {
            drop(print(if args.json { "{\"ended\":true}\n" } else { "ended\n" }));
        }
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            let log = units::bytes(progress.log_bytes);
            note(format_args!("{} of {} pages, {log} of log", progress.pages_read, progress.pages));
        }
        stop.flow()
    };
    let done = match Database::ask_for_backup(&args.database.dir, &args.to, &options, &mut go_on)? {
        BackupAnswer::Done(report) => Some(report),
        BackupAnswer::Aborted => None,
        BackupAnswer::NoListener if args.wait_for_end => {
            let why = "no process that has it open listens, so none would end the backup: leave out --wait-for-end";
            return Err(format!("{}: {why}", args.database.dir.display()).into());
        }
        BackupAnswer::NoListener => match args.database.open() {
            Err(Error::Locked { path, .. }) => {
                let why = "and that process has no control socket (option control_socket). Have it call \
                    Database::backup_to, or close it";
                return Err(format!("{} is open in another process, {why}", path.display()).into());
            }
            opened => {
                let db = opened?;
                let done = db.backup_to_with(&args.to, &options, &mut go_on)?;
                db.close()?;
                done
            }
        },
    };
    let to = args.to.display();
    let Some(report) = done else {
        return interrupted(format_args!(
            "broken off: {to} holds an unfinished backup, remove it (a file `backup` there shows that it was finished \
             nevertheless)"
        ));
    };
    if args.json {
        return answer(serde_json::to_string(&report)? + "\n");
    }
    let BackupReport { end, pages, log_bytes, incremental, .. } = report;
    let (kind, log) = (if incremental { "increment" } else { "full backup" }, units::bytes(log_bytes));
    answer(format!("{to}: {kind} at position {end}: {pages} pages, {log} of log\n"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// A full backup, its increments in order, and a new or empty directory for the new database
    #[arg(required = true, num_args = 2.., value_name = "FROM... TO")]
    places: Vec<PathBuf>,
}

pub(crate) fn restore(args: &RestoreArgs, _: &Stop) -> Outcome {
    let Some((to, from)) = args.places.split_last() else { return Err("name a backup and a directory".into()) };
    let done = Database::restore(from, to)?;
    let (data, to) = (units::bytes(done.data_bytes), to.display());
    answer(format!(
        "{to}: a database at position {}: {} pages, a data file of {data}. Options are not part of a backup: put its \
         seawall.toml there if it had one, without log_dir, because the log is restored beside the data\n",
        done.end, done.pages
    ))
}
