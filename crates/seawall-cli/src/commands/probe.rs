//! `seawall probe PATH`.

use crate::{Outcome, Stop, answer, pretty};
use seawall_io::probe::{explain, probe};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// Directory on the disk to probe; a small trial file is created there and removed
    path: PathBuf,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ProbeArgs, _: &Stop) -> Outcome {
    let mut found = probe(&args.path)?;
    if args.json {
        // JSON cannot hold a path that is not UTF-8.
        found.path = found.path.to_string_lossy().into_owned().into();
        return answer(pretty(&found)?);
    }
    let lines = explain(&found);
    let name = lines.iter().map(|l| l.name.len()).max().unwrap_or(0);
    let mut text = format!("{}, kernel {}\n\n", found.path.display(), found.kernel);
    for line in &lines {
        text += &format!("{:name$}  {}\n", line.name, line.value);
        if !line.meaning.is_empty() {
            text += &format!("{:name$}    {}\n", "", line.meaning);
        }
    }
    answer(text)
}
