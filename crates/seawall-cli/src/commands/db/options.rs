//! `seawall options`: every option of a database, which is also a flag of the commands that open one.

use super::shown;
use crate::{Outcome, Stop, answer};
use seawall::Options;

#[derive(Debug, clap::Args)]
pub(crate) struct OptionsArgs {
    /// Show only options whose name contains this
    name: Option<String>,
}

pub(crate) fn options(args: &OptionsArgs, _: &Stop) -> Outcome {
    let wanted = args.name.as_deref().unwrap_or_default().trim_start_matches('-').replace('-', "_");
    let mut text = String::new();
    for option in Options::describe().into_iter().filter(|option| option.name.contains(&wanted)) {
        let (flag, default) = (option.flag(), shown(&option.default));
        text += &format!("{flag} VALUE\n    {}\n    {}; can be changed {}", option.help, option.range, option.change);
        text += &format!("; default: {default}\n\n");
    }
    if text.is_empty() {
        return Err(format!("no option's name contains {wanted:?}: `seawall options` lists them all").into());
    }
    answer(text)
}
