//! `seawall bench restart`: how long opening takes after `kill -9`, and its lower bound.

use crate::{Ended, Outcome, note, print, units};
use clap::Args;
use seawall_bench::goals::process::ProcessError;
use seawall_bench::goals::restart::{Restart, Restarted, fresh};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  seawall bench restart --dir /srv/bench --log 1G")]
pub(crate) struct RestartArgs {
    /// Where the database is created; removed at the end
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Log after the last checkpoint when the process is killed
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::size)]
    log: u64,
    /// Rows
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", default_value = "500", value_parser = units::size)]
    value_size: u64,
    /// Memory for pages; all rows should fit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::size)]
    pool: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Be the process that is killed: DIR is the database
    #[arg(long, hide = true)]
    write: bool,
}

pub(crate) fn run(args: &RestartArgs, stop: &AtomicBool) -> Outcome {
    let mut restart = Restart {
        dir: args.dir.clone(),
        log_bytes: args.log,
        keys: args.keys,
        value_size: args.value_size,
        pool_bytes: args.pool,
    };
    if args.write {
        restart.write(stop, |line| drop(print(&format!("{line}\n"))))?;
        return Ok(Ended::Interrupted);
    }
    restart.dir = fresh(&args.dir)?;
    let exe = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut writer = Command::new(exe);
    writer.args(["bench", "restart", "--write", "--dir"]).arg(&restart.dir);
    for (flag, value) in
        [("--log", args.log), ("--keys", args.keys), ("--value-size", args.value_size), ("--pool", args.pool)]
    {
        writer.args([flag, &value.to_string()]);
    }
    let measured = restart.run(writer, stop);
    remove(&restart.dir);
    match measured {
        Ok(measured) if args.json => {
            print(&format!("{}\n", serde_json::to_string_pretty(&measured)?))?;
            Ok(Ended::Well)
        }
        Ok(measured) => {
            print(&table(&measured))?;
            Ok(Ended::Well)
        }
        Err(ProcessError::Interrupted) => {
            note("interrupted");
            Ok(Ended::Interrupted)
        }
        Err(error @ ProcessError::Failed(_)) => Err(error.to_string().into()),
    }
}

fn remove(dir: &Path) {
    if let Err(e) = std::fs::remove_dir_all(dir) {
        note(format_args!("cannot remove {}: {e}", dir.display()));
    }
}

fn table(r: &Restarted) -> String {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    format!(
        "opened in {:.2} s, from the call to the first row; it has to take {:.2} s, the greatest of:\n\
         \x20 {:>7.2} s  reading {:.0} MiB of log in sequence, {:.0} MiB/s (the opening read {:.0} MiB)\n\
         \x20 {:>7.2} s  reading {} pages at random, {:.0} a second\n\
         \x20 {:>7.2} s  applying: {:.2} s of processor time on {} processors\n\
         others used {:.2} cores meanwhile\n",
        r.open_s,
        r.bound_s,
        r.read_log_s,
        mib(r.log_bytes as f64),
        mib(r.log_read_bytes_per_s),
        mib(r.log_read_bytes as f64),
        r.read_pages_s,
        r.pages_read,
        r.random_reads_per_s,
        r.apply_s,
        r.cpu_s,
        r.cores,
        r.foreign_cpu_cores,
    )
}
