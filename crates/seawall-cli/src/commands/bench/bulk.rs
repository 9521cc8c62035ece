//! `seawall bench bulk`: rows popped from the front, a tree built of sorted rows, an index built beside
//! writers.

use super::CommonArgs;
use crate::progress::Bar;
use crate::{Outcome, Stop, units};
use seawall_bench::bulk::{BulkRun, Task};

/// Default memory for the buffer pool.
const POOL_BYTES: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    mut_arg("threads", |arg| arg.default_value("16").help("Writers that run during the index build")),
    mut_arg("duration", |arg| arg.default_value("4s").help("Time of the writers alone, before and after the index build")),
    mut_arg("pool", |arg| arg.help("Memory for the buffer pool [default: 1G]")),
    mut_arg("dir", |arg| arg.help("Directory for the database, which is removed at the end")),
    after_help = "Example:\n  seawall bench bulk --task build-tree --keys 10000000 --dir /srv/bench"
)]
pub(crate) struct BulkArgs {
    /// Task: pop-first, build-tree, put-many or index
    #[arg(long, value_name = "NAME")]
    task: Task,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Size of a value, bytes
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = units::size)]
    value_size: u64,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &BulkArgs, stop: &Stop) -> Outcome {
    let common = &args.common;
    let mut cell = common.cell(args.task.word(), args.keys, args.value_size, 1);
    cell.pool_bytes = common.pool.unwrap_or(POOL_BYTES);
    cell.threads = if args.task == Task::Index { cell.threads } else { 1 };
    let bulk = BulkRun { cell, task: args.task, config: common.config(&[]) };
    bulk.check()?;
    let _bounded = common.prepare()?;
    common.end(bulk.run(&mut Bar::new(), stop)?)
}
