//! `seawall bench restart`: how long opening takes after `kill -9`, and its lower bound.

use super::measured_in;
use crate::{Ended, Outcome, Stop, print, units};
use seawall_bench::restart::{Restart, Restarted};
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
    measured_in(&args.dir, args.json, table, |dir| {
        restart.dir = dir.to_owned();
        let mut writer = Command::new(exe);
        // A later argument overrides an earlier one.
        writer.args(std::env::args_os().skip(1)).arg("--write").arg("--dir").arg(dir);
        restart.run(writer, stop)
    })
}

fn table(r: &Restarted) -> String {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let [log, log_per_s, log_read] = [r.log_bytes as f64, r.log_read_bytes_per_s, r.log_read_bytes as f64].map(mib);
    let Restarted { open_s, bound_s, read_log_s, read_pages_s, pages_read, random_reads_per_s, .. } = r;
    let Restarted { apply_s, cpu_s, foreign_cpu_cores, .. } = r;
    format!(
        "opened in {open_s:.2} s, from the call to the first row; it has to take {bound_s:.2} s, the greatest of:\n\
         \x20 {read_log_s:>7.2} s  reading {log:.0} MiB of log in sequence, {log_per_s:.0} MiB/s (the opening read \
         {log_read:.0} MiB)\n\
         \x20 {read_pages_s:>7.2} s  reading {pages_read} pages at random, {random_reads_per_s:.0} a second\n\
         \x20 {apply_s:>7.2} s  opening a copy whose files are in the page cache\n\
         the opening used {cpu_s:.2} s of processor time; others used {foreign_cpu_cores:.2} cores meanwhile\n"
    )
}
