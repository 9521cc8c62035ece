//! `seawall bench restart`: how long opening takes after `kill -9`, and its lower bound.

use crate::{Ended, Outcome, Stop, answer, make_dir, note, pretty, print, units};
use seawall_bench::report::table;
use seawall_bench::restart::{Restart, copy_of};
use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = "Example:\n  seawall bench restart --dir /srv/bench --log 1G")]
pub(crate) struct RestartArgs {
    /// Directory for the database, which is removed at the end
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Amount of log after the last checkpoint when the process is killed
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::size)]
    log: u64,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Size of a value, bytes
    #[arg(long, value_name = "SIZE", default_value = "500", value_parser = units::size)]
    value_size: u64,
    /// Memory for the buffer pool; all rows should fit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::size)]
    pool: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Be the process that is killed: DIR is the database
    #[arg(long, hide = true)]
    write: bool,
}

pub(crate) fn run(args: &RestartArgs, stop: &Stop) -> Outcome {
    let mut restart = Restart {
        dir: args.dir.clone(),
        log_bytes: args.log,
        keys: args.keys,
        value_size: args.value_size,
        pool_bytes: args.pool,
    };
    if args.write {
        restart.write(stop, |line| drop(print(format!("{line}\n"))))?;
        return Ok(Ended::Interrupted);
    }
    let exe = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let database = args.dir.join("database");
    for path in [&database, &copy_of(&database)] {
        if path.exists() {
            return Err(format!("{} exists: remove it, or give another --dir", path.display()).into());
        }
    }
    make_dir(&args.dir, "--dir")?;
    let mut writer = Command::new(exe);
    // A later argument overrides an earlier one.
    writer.args(std::env::args_os().skip(1)).arg("--write").arg("--dir").arg(&database);
    restart.dir.clone_from(&database);
    let measured = restart.run(writer, stop);
    if let Err(e) = std::fs::remove_dir_all(&database) {
        note(format_args!("cannot remove {}: {e}", database.display()));
    }
    let measured = measured?;
    answer(if args.json { pretty(&measured)? } else { table(&measured) })
}
