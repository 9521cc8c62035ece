//! Parsing an option file: one [`Line`] for each line of the text.

use super::MyCnf;
use std::ops::Range;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Blank or comment.
    Quiet,
    Include,
    Group(String),
    Setting(Setting),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// Without `loose_`, `skip_`, ..., with underscores.
    pub(super) key: String,
    /// The value's meaning; for a bare or `skip_` name, `ON` or `OFF`.
    pub(super) value: String,
    /// Bytes of the line that the name takes, prefix included.
    pub(super) name: Range<usize>,
    /// Bytes of the line that the value takes; `None` for bare names.
    pub(super) span: Option<Range<usize>>,
    /// Whether the name carried `skip_` or the like.
    pub(super) negated: bool,
    /// Whether the name carried `loose_`.
    pub(super) loose: bool,
}

impl MyCnf {
    /// Reads a file.
    ///
    /// # Errors
    /// As `propose`.
    ///
    /// ```
    /// use seawall_lab::mycnf::MyCnf;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("my.cnf");
    /// std::fs::write(&path, b"[mysqld]\n# Gr\xfc\xdfe\n")?;
    /// assert!(MyCnf::read(&path).unwrap_err().contains("line 2: not UTF-8"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let hint = "give a readable option file with --my-cnf, or a copy of it";
        let bytes = std::fs::read(path).map_err(|e| format!("cannot read {name}: {e}; {hint}"))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.iter().filter(|b| **b == b'\n').count() + 1;
            format!("{name}, line {line}: not UTF-8; save the file as UTF-8, or give a copy without that line")
        })?;
        Self::parse(&name.to_string(), &text)
    }

    /// Parses text; `name` is used in messages and in the diff's header.
    ///
    /// ```
    /// use seawall_lab::{mycnf::MyCnf, plan, sample, settings};
    /// let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
    /// let mine = MyCnf::parse("my.cnf", "[mysqld]\ninnodb-doublewrite = 0\n")?;
    /// let proposal = mine.propose(settings::Server::MySql80, advice.server(settings::Server::MySql80));
    /// assert!(proposal.diff.contains("-innodb-doublewrite = 0\n"));
    /// assert!(proposal.diff.contains("+innodb-doublewrite = ON\n"));
    /// let wrong = MyCnf::parse("my.cnf", "[mysqld]\nport 3306\n").unwrap_err();
    /// assert!(wrong.to_string().starts_with("my.cnf, line 2: "));
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// Names the first line without a valid form.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut lines = Vec::new();
        let mut in_group = false;
        for (i, raw) in text.split_inclusive('\n').enumerate() {
            let raw = if i == 0 { raw.trim_start_matches('\u{feff}') } else { raw };
            let line = parse_line(raw).and_then(|line| match line {
                Line::Setting(_) if !in_group => {
                    Err("a setting before any group; put a line such as [mysqld] above it")
                }
                line => Ok(line),
            });
            let line = line.map_err(|problem| {
                let text: String = raw.trim().chars().take(60).collect();
                format!("{name}, line {}: {problem}: `{text}`", i + 1)
            })?;
            in_group |= matches!(line, Line::Group(_));
            lines.push(line);
        }
        Ok(Self { name: name.into(), text: text.into(), lines })
    }
}

fn parse_line(raw: &str) -> Result<Line, &'static str> {
    let start = raw.len() - raw.trim_start().len();
    let body = raw.trim();
    if body.is_empty() || body.starts_with(['#', ';']) {
        return Ok(Line::Quiet);
    }
    if let Some(rest) = body.strip_prefix('!') {
        return match rest.split_whitespace().next() {
            Some("include" | "includedir") => Ok(Line::Include),
            _ => Err("only !include and !includedir may follow an exclamation mark"),
        };
    }
    if let Some(rest) = body.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((name, _)) if !name.trim().is_empty() => Ok(Line::Group(name.trim().to_owned())),
            Some(_) => Err("a group without a name"),
            None => Err("a group without its closing bracket"),
        };
    }
    let body = without_comment(body);
    let (name, value) = body.split_once('=').map_or((body, None), |(name, value)| (name.trim_end(), Some(value)));
    let bare = name.trim_start_matches('-');
    if bare.is_empty() {
        return Err("a value without a name");
    }
    if bare.contains(char::is_whitespace) {
        return Err("not a setting of an option file; write `name = value`");
    }
    if !bare.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:?*#@/".contains(c)) {
        return Err("not a name that an option can have");
    }
    let spelled = bare.replace('-', "_");
    let key = spelled.strip_prefix("loose_").unwrap_or(&spelled);
    let loose = key.len() < spelled.len();
    // `skip_networking` and similar variables have names of their own; only InnoDB's variables are looked up here.
    let prefixed = [("skip_", true), ("disable_", true), ("enable_", false)]
        .into_iter()
        .find_map(|(prefix, no)| Some((key.strip_prefix(prefix).filter(|key| key.starts_with("innodb"))?, no)));
    let (key, negated) = prefixed.unwrap_or((key, false));
    let span = value.map(|value| {
        let offset = start + body.len() - value.trim_start().len();
        offset..offset + value.trim().len()
    });
    let value = value.map_or("ON", |value| value.trim().trim_matches(['"', '\'']));
    let value = match (negated, truth(value)) {
        (true, Some(false)) => "ON",
        (true, _) => "OFF",
        (false, _) => value,
    };
    Ok(Line::Setting(Setting {
        key: key.into(),
        value: value.into(),
        name: start..start + name.len(),
        span,
        negated,
        loose,
    }))
}

/// A `#` outside quotes begins a comment.
fn without_comment(body: &str) -> &str {
    let mut quote = None;
    for (i, c) in body.char_indices() {
        match (quote, c) {
            (None, '#') => return body[..i].trim_end(),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            _ => {}
        }
    }
    body
}

pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "1" | "true" | "yes" => Some(true),
        "off" | "0" | "false" | "no" => Some(false),
        _ => None,
    }
}
