//! `seawall options`: every option of a database, which is also a flag of the commands that open one.

use crate::{Ended, Outcome, print};
use clap::Args;
use seawall::Options;

#[derive(Debug, Args)]
pub(crate) struct OptionsArgs {
    /// Only options whose name contains this
    name: Option<String>,
}

pub(crate) fn options(args: &OptionsArgs) -> Outcome {
    let wanted = args.name.as_deref().unwrap_or_default().trim_start_matches('-').replace('-', "_");
    let mut text = String::new();
    for option in Options::describe().into_iter().filter(|option| option.name.contains(&wanted)) {
        let default = if option.default.is_empty() { "empty" } else { &option.default };
        text += &format!(
            "{} VALUE\n    {}\n    {}; can be changed {}; default: {default}\n\n",
            option.flag(),
            option.help,
            option.range,
            option.change
        );
    }
    if text.is_empty() {
        return Err(format!("no option's name contains {wanted:?}: `seawall options` lists them all").into());
    }
    print(&text)?;
    Ok(Ended::Well)
}
