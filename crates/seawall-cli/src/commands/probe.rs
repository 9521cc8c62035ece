//! `seawall probe PATH`.

use crate::{Ended, Outcome, print};
use clap::Args;
use seawall_io::probe::{explain, probe};
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A directory on the disk to probe (a small trial file is created there and removed)
    path: PathBuf,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ProbeArgs) -> Outcome {
    let mut found = probe(&args.path)?;
    if args.json {
        // JSON cannot hold a path that is not UTF-8.
        found.path = found.path.to_string_lossy().into_owned().into();
        print(&format!("{}\n", serde_json::to_string_pretty(&found)?))?;
        return Ok(Ended::Well);
    }
    let lines = explain(&found);
    let name = lines.iter().map(|l| l.name.len()).max().unwrap_or(0);
    let mut text = format!("{}, kernel {}\n\n", found.path.display(), found.kernel);
    for line in &lines {
        writeln!(text, "{:name$}  {}", line.name, line.value)?;
        if !line.meaning.is_empty() {
            writeln!(text, "{:name$}    {}", "", line.meaning)?;
        }
    }
    print(&text)?;
    Ok(Ended::Well)
}
