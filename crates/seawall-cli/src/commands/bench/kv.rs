//! `seawall bench kv`: key-value workloads.

use super::{CommonArgs, open};
use crate::progress::Bar;
use crate::{Outcome, Stop, units};
use seawall_bench::run::kv::KvRun;
use seawall_bench::workload::Workload;

#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    seawall bench kv --workload commit --threads 16 --duration 30s\n  \
    seawall bench kv --workload update --keys 10M --pool 256M --dir /srv/bench --reuse --json"
)]
pub(crate) struct KvArgs {
    /// Workload to run
    ///
    /// One of load-sequential, load-random, point-read, point-read-cold, update, read-modify-write,
    /// commit, commit-beside-backup, mixed or short-range.
    #[arg(long, value_name = "NAME")]
    workload: Workload,
    /// Number of keys in the store; K and M stand for 1,000 and 1,000,000
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count)]
    keys: u64,
    /// Size of a value, bytes [default: 400, for both kinds of commit 100]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    value_size: Option<u64>,
    /// Combine the puts of up to N threads in one transaction, as an application could
    #[arg(long, value_name = "N", default_value_t = 1)]
    client_batch: usize,
    #[command(flatten)]
    common: CommonArgs,
}

/// Parses `5000`, `10M`: a number, with suffixes for powers of 1000.
pub(super) fn count(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9)];
    let is_count = |n: &f64| n.fract() == 0.0 && (1.0..9e15).contains(n);
    let count = units::scaled(&text.trim().to_ascii_lowercase(), &UNITS).filter(is_count).map(|n| n as u64);
    count.ok_or_else(|| format!("{text:?} is not a count: write a number above 0, also with K or M, such as 10M"))
}

pub(crate) fn run(args: &KvArgs, stop: &Stop) -> Outcome {
    let (common, workload) = (&args.common, args.workload);
    let value_size = args.value_size.unwrap_or_else(|| workload.default_value_size());
    // Without transactions RocksDB cannot lock the rows it reads.
    let locks = common.store == "rocksdb" && workload == Workload::ReadModifyWrite;
    let needed: &[(&str, &str)] = if locks { &[("transactions", "true")] } else { &[] };
    let kv = KvRun {
        cell: common.cell(workload.word(), args.keys, value_size, args.client_batch),
        workload,
        config: common.config(needed),
    };
    kv.check()?;
    let _bounded = common.prepare()?;
    let ran = kv.run(&|settings| open(&common.store, settings), &mut Bar::new(), stop)?;
    common.end(ran)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_are_powers_of_a_thousand() {
        assert_eq!((count("5000"), count("10M"), count("2k")), (Ok(5000), Ok(10_000_000), Ok(2000)));
        assert!(
            count("0").is_err()
                && count("M").is_err()
                && count("1.5k") == Ok(1500)
                && count("1.5").is_err()
                && count("99999999999G").is_err()
        );
    }
}
