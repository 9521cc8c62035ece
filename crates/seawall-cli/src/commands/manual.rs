//! `seawall completions SHELL` and `seawall man DIR`: generated from the argument parser, for shells and
//! for `man`.

use crate::{Ended, Outcome, Stop, answer, cannot};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, e.g. `seawall completions bash > /etc/bash_completion.d/seawall`
    shell: Shell,
}

pub(crate) fn completions(args: &CompletionsArgs, _: &Stop) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "seawall", &mut script);
    answer(script)
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for the pages, e.g. /usr/local/share/man/man1
    dir: PathBuf,
}

pub(crate) fn man(args: &ManArgs, _: &Stop) -> Outcome {
    clap_mangen::generate_to(crate::Cli::command(), &args.dir).map_err(cannot("write man pages to", &args.dir))?;
    Ok(Ended::Well)
}
