//! `seawall bench bulk`: rows popped from the front, a tree built of sorted rows, an index built beside
//! writers.

use super::measured_in;
use crate::{Outcome, Stop, units};
use seawall_bench::bulk::{Bulk, Bulked, Task};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Example:\n  seawall bench bulk --task build-tree --keys 10000000 --dir /srv/bench"
)]
pub(crate) struct BulkArgs {
    /// Task: pop-first, build-tree, put-many or index
    #[arg(long, value_name = "NAME")]
    task: Task,
    /// Directory for the database, which is removed at the end
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Size of a value, bytes
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = units::size)]
    value_size: u64,
    /// Memory for the buffer pool
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::size)]
    pool: u64,
    /// Writers that run during the index build
    #[arg(long, value_name = "N", default_value_t = 16)]
    threads: usize,
    /// Time to measure the writers alone, before and again after the index build
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = units::duration)]
    duration: Duration,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BulkArgs, stop: &Stop) -> Outcome {
    let mut bulk = Bulk {
        task: args.task,
        dir: args.dir.clone(),
        keys: args.keys,
        value_size: args.value_size,
        pool_bytes: args.pool,
        writers: args.threads,
        alone: args.duration,
    };
    bulk.check()?;
    measured_in(&args.dir, args.json, table, |dir| {
        bulk.dir = dir.to_owned();
        bulk.run(stop)
    })
}

fn table(b: &Bulked) -> String {
    let Bulked { workload, ops, value_size, duration_s, settle_seconds, .. } = b;
    let mut text = format!(
        "{workload}: {ops} rows of 16 + {value_size} bytes in {duration_s:.2} s, {settle_seconds:.2} s more until they \
         are written\n\
         \x20 {:>12.0} rows a second\n\
         \x20 {:>12.0} rows a second with that\n\
         \x20 {:>12.0} rows a second of the thread's processor time\n",
        b.ops_per_s, b.sustained_per_s, b.ops_per_cpu_s
    );
    if let (Some(beside), Some(alone)) = (b.beside_per_s, b.alone_per_s) {
        let share = beside / alone;
        text +=
            &format!("  {beside:>12.0} commits a second beside it, {alone:.0} without it: {share:.2} of the rate\n");
    }
    if let Some(bytes) = b.device_written_bytes_per_op {
        text += &format!("  {bytes:>12.0} bytes written at the device for a row\n");
    }
    text + &format!("others used {:.2} cores meanwhile\n", b.foreign_cpu_cores)
}
