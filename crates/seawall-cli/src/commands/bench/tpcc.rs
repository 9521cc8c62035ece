//! `seawall bench tpcc`: TPC-C, all five transactions, with the specification's consistency conditions at the end.
//!
//! Exit code 1 when a condition does not hold; standard error names each.

use super::{CommonArgs, open};
use crate::progress::Bar;
use crate::{Ended, Outcome, Stop, note};
use seawall_bench::tpcc::Shape;
use seawall_bench::tpcc::check::Checked;
use seawall_bench::tpcc::run::{TpccRun, WAREHOUSES_MAX};

#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    seawall bench tpcc --warehouses 4 --threads 8 --duration 60s --pool 2G\n  \
    seawall bench tpcc --warehouses 4 --threads 8 --dir /srv/bench --reuse --json"
)]
pub(crate) struct TpccArgs {
    /// Warehouses, about 80 MiB each
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(WAREHOUSES_MAX)))]
    warehouses: u16,
    /// Divide the numbers of items and customers by this, for a quick look; the result is then not TPC-C
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=300))]
    scale_down: u32,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &TpccArgs, stop: &Stop) -> Outcome {
    let common = &args.common;
    let full = Shape::default();
    let (items, customers) = (full.items / args.scale_down, full.customers / args.scale_down);
    // Without transactions RocksDB cannot lock the rows it reads.
    let needed: &[(&str, &str)] = if common.store == "rocksdb" { &[("transactions", "true")] } else { &[] };
    let tpcc = TpccRun {
        cell: common.cell("tpcc", 0, 0, 1),
        shape: Shape { warehouses: args.warehouses, items, customers },
        config: common.config(needed),
    };
    tpcc.check()?;
    let _bounded = common.prepare()?;
    let (ran, checked) = tpcc.run(&|settings| open(&common.store, settings), &mut Bar::new(), stop)?;
    match (common.end(ran)?, &checked) {
        (Ended::Well, Some(checked)) => Ok(verdict(checked)),
        (ended, _) => Ok(ended),
    }
}

fn verdict(checked: &Checked) -> Ended {
    for violation in &checked.violations {
        note(format_args!("seawall: {violation}"));
    }
    if checked.more > 0 {
        note(format_args!("seawall: {} more do not hold", checked.more));
    }
    if checked.violations.is_empty() {
        note("all consistency conditions hold");
        Ended::Well
    } else {
        Ended::Short
    }
}
