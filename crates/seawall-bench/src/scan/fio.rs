//! The rate of the disk itself, by fio, on the very file that was scanned.
//!
//! 1. fio only reads, with direct I/O and one job: its queue depth is what a single query could have reached.
//! 2. A file that holds less than half of the data is no reference for scans: a store of many files has none.

use crate::process;
use crate::store::Result;
use seawall_lab::run::files_below;
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The most time that fio gets beyond its measurement.
const BESIDE: Duration = Duration::from_secs(60);

/// The order in which the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// 16 KiB at random offsets, this many reads at a time.
    Random(u32),
    /// 1 MiB each, in order, [`SEQUENTIAL_DEPTH`] at a time.
    Sequential,
}

/// Reads in flight of [`Pattern::Sequential`].
pub const SEQUENTIAL_DEPTH: u32 = 8;

/// Arguments of every measurement: direct reads; random reads use other offsets in each run.
const FIXED: [&str; 8] = [
    "--name=seawall",
    "--readonly",
    "--direct=1",
    "--thread",
    "--time_based",
    "--norandommap",
    "--randrepeat=0",
    "--output-format=json",
];

impl Pattern {
    /// The patterns that a scan is compared with.
    pub const ALL: [Self; 4] = [Self::Random(1), Self::Random(8), Self::Random(32), Self::Sequential];

    /// Arguments of fio that read by this pattern.
    fn arguments(self, warm_up: Duration, time: Duration) -> Vec<String> {
        let (rw, block, depth) = match self {
            Self::Random(depth) => ("randread", "16k", depth),
            Self::Sequential => ("read", "1M", SEQUENTIAL_DEPTH),
        };
        let (ramp_ms, ms) = (warm_up.as_millis(), time.as_millis());
        let args = format!(
            "--ioengine=libaio --rw={rw} --bs={block} --iodepth={depth} --ramp_time={ramp_ms}ms --runtime={ms}ms"
        );
        args.split(' ').map(str::to_owned).collect()
    }
}

/// Its name in results.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(depth) => write!(f, "fio_random_{depth}"),
            Self::Sequential => f.write_str("fio_sequential"),
        }
    }
}

/// The result of fio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reads {
    /// Reads a second.
    pub reads_per_s: f64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
}

/// Parses fio's JSON, which warnings may precede.
///
/// # Errors
/// When it contains no reads.
fn parse(text: &str) -> Result<(Reads, String), String> {
    let json = text.find('{').map_or("", |at| &text[at..]);
    let value: Value = serde_json::from_str(json).map_err(|e| format!("fio's result is not JSON: {e}"))?;
    let read = &value["jobs"][0]["read"];
    let reads_per_s = read["iops"].as_f64().filter(|iops| *iops > 0.0).ok_or("fio's result has no reads")?;
    let mb_per_s = read["bw_bytes"].as_f64().unwrap_or(0.0) / 1e6;
    Ok((Reads { reads_per_s, mb_per_s }, value["fio version"].as_str().unwrap_or_default().to_owned()))
}

/// The file below `dir` that holds at least half of `data_bytes`, if any.
pub fn data_file(dir: &Path, data_bytes: u64) -> Option<PathBuf> {
    let sizes = files_below(dir).into_iter().filter_map(|file| Some((std::fs::metadata(&file).ok()?.len(), file)));
    sizes.max().filter(|(bytes, _)| *bytes >= data_bytes / 2).map(|(_, file)| file)
}

/// Measures a pattern for `time`, after a warm-up of a quarter of it.
///
/// # Errors
/// Why there is no result; Ctrl-C is a reason.
pub fn measure(pattern: Pattern, file: &Path, time: Duration, stop: &AtomicBool) -> Result<Reads> {
    let warm_up = time / 4;
    Ok(run(file, &pattern.arguments(warm_up, time), warm_up + time + BESIDE, stop)?.0)
}

/// Runs fio on `file` for at most `limit`; returns its reads and its version.
///
/// # Errors
/// Why there is no result; Ctrl-C is a reason.
pub fn run(
    file: &Path,
    arguments: &[impl AsRef<OsStr>],
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(Reads, String)> {
    let mut fio = Command::new("fio");
    fio.args(FIXED).arg(format!("--filename={}", file.display())).args(arguments);
    Ok(parse(&process::run(fio, limit, stop)?.out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_result_is_understood() {
        let text = "note: something\n{\"fio version\": \"fio-3.33\", \"jobs\": [{\"read\": \
            {\"iops\": 40.5, \"bw_bytes\": 2000000}}]}";
        assert_eq!(parse(text).unwrap(), (Reads { reads_per_s: 40.5, mb_per_s: 2.0 }, "fio-3.33".into()));
        assert!(parse("{\"jobs\": []}").is_err() && parse("fio: failed").is_err());
    }

    #[test]
    fn it_reads_the_file_that_holds_the_data_and_never_writes() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(data_file(dir.path(), 100), None);
        std::fs::write(dir.path().join("log"), [0; 49]).unwrap();
        assert_eq!(data_file(dir.path(), 100), None);
        std::fs::write(dir.path().join("data"), [0; 50]).unwrap();
        let file = data_file(dir.path(), 100).unwrap();
        assert_eq!(file, dir.path().join("data"));
        for pattern in Pattern::ALL {
            let args = pattern.arguments(Duration::ZERO, Duration::from_secs(2));
            assert!(FIXED.contains(&"--readonly") && args.contains(&"--runtime=2000ms".to_owned()), "{args:?}");
        }
    }
}
