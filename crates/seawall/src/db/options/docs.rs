//! docs/options.md, from the table of options.

use super::{OptionInfo, Options};

impl Options {
    /// Returns the text of docs/options.md.
    #[must_use]
    pub fn markdown() -> String {
        let mut out = String::from(
            "# Options\n\n\
             Made from the table in `crates/seawall/src/db/options/table.rs`; do not edit. To regenerate it:\n\n    \
             SEAWALL_WRITE_DOCS=1 cargo test -p seawall options_md\n\n\
             The value of an option comes from its default, from `seawall.toml` in the database's directory, or from \
             the\n\
             program (`Options`, command-line flags); a later source in this list overrides an earlier one.\n\
             Sizes are in powers of 1024 (`512M`, `1.5G`), times take `ms`, `s`, `m`, `h` (a bare number is seconds),\n\
             percentages may end with `%`. In `seawall.toml` the options `data_...` and `log_...` may be in the \
             tables\n\
             `[data]` and `[log]` without the prefix, as `seawall lab` writes them; an unknown name is an error.\n\n\
             | option | default | allowed | changeable | |\n|---|---|---|---|---|\n",
        );
        for info in Self::describe() {
            out += &row(&info);
        }
        out
    }
}

fn row(info: &OptionInfo) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let also = if info.aliases.is_empty() {
        String::new()
    } else {
        format!(" Also known as {}.", info.aliases.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>().join(", "))
    };
    let default = if info.default.is_empty() { "empty".to_owned() } else { format!("`{}`", info.default) };
    let allowed = if info.words.is_empty() {
        info.range.clone()
    } else {
        info.words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
    };
    let unit = if matches!(info.unit, "" | "bytes" | "time" | "percent" | "path") {
        String::new()
    } else {
        format!(" {}", info.unit)
    };
    format!(
        "| `{}` | {default}{unit} | {} | {} | {} {}{also} |\n",
        info.name,
        cell(&allowed),
        info.change,
        cell(info.help),
        cell(info.effect)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
        let wanted = Options::markdown();
        if std::env::var_os("SEAWALL_WRITE_DOCS").is_some() {
            std::fs::write(path, &wanted).unwrap();
        }
        // The published crate does not contain the docs directory.
        let Ok(found) = std::fs::read_to_string(path) else { return };
        assert!(
            found == wanted,
            "docs/options.md is out of date: run SEAWALL_WRITE_DOCS=1 cargo test -p seawall options_md"
        );
    }
}
