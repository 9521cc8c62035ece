//! A user's own `my.cnf` with the recommendations applied, as a unified diff. The file itself is only read.
//!
//! - Only recommended settings are touched: comments, order, spacing, line endings, other groups, `!include`
//!   lines stay.
//! - Names are compared as the server does: `-` and `_` are equal, `loose_` and `skip_` are understood. The
//!   last setting in a group that the server reads takes effect, and that one is changed.
//! - A value that means the same (`16K` and `16384`, `1` and `ON`) is left as the user wrote it.
//! - A default that is kept for lack of a measurement never overrides the user's choice, unless that choice
//!   risks data.

use crate::settings::{Confidence, Recommendation, Server, Settings};
use crate::text;
use std::path::{Path, PathBuf};

/// Why an option file could not be used.
///
/// ```
/// use seawall_lab::mycnf::MyCnf;
/// let error = MyCnf::read("/nowhere/my.cnf".as_ref()).unwrap_err();
/// assert!(error.to_string().contains("give a readable option file with --my-cnf"));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum MyCnfError {
    /// It could not be read.
    #[error("cannot read {}: {source}; give a readable option file with --my-cnf, or a copy of it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// It is not UTF-8 text.
    #[error("{}, line {line}: not UTF-8; save the file as UTF-8, or give a copy without that line", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A line has no valid form for an option file.
    #[error("{name}, line {line}: {problem}: `{text}`")]
    Line {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what to write instead.
        problem: &'static str,
        /// The line, shortened.
        text: String,
    },
}

/// A parsed option file.
///
/// ```
/// use seawall_lab::{mycnf::MyCnf, plan, sample, settings};
/// let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// let server = settings::Server::MariaDb11;
/// let mine = MyCnf::parse("my.cnf", "# written at 3 am\n[mariadb]\nport=3307\n!include local.cnf\n")?;
/// let proposal = mine.propose(server, advice.server(server));
/// assert!(proposal.text.contains("# written at 3 am\n[mariadb]\nport=3307\n"), "what is the user's stays");
/// assert!(proposal.notes[0].contains("includes other files"));
/// # Ok::<(), seawall_lab::mycnf::MyCnfError>(())
/// ```
#[derive(Debug, Clone)]
pub struct MyCnf {
    name: String,
    text: String,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// Blank or comment.
    Quiet,
    Include,
    Group(String),
    Setting {
        /// Without `loose_`, `skip_`, ..., with underscores.
        key: String,
        /// Meaning of the value: that of a bare or `skip_` name is `ON` or `OFF`.
        value: String,
        /// Bytes of the line that the name takes, prefix included.
        name: (usize, usize),
        /// Bytes of the line that the value takes; `None` for bare names.
        span: Option<(usize, usize)>,
        /// Whether the name carried `skip_` or the like.
        negated: bool,
        /// Whether the name carried `loose_`.
        loose: bool,
    },
}

/// One change.
///
/// ```
/// use seawall_lab::{mycnf::MyCnf, plan, sample, settings};
/// # let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// # let server = settings::Server::MySql80;
/// let mine = MyCnf::parse("my.cnf", "[mysqld]\nskip-innodb-doublewrite\n")?;
/// let changes = mine.propose(server, advice.server(server)).changes;
/// let change = changes.iter().find(|c| c.key == "innodb_doublewrite").unwrap();
/// assert_eq!((change.from.as_deref(), change.to.as_str(), change.line), (Some("OFF"), "ON", Some(2)));
/// # Ok::<(), seawall_lab::mycnf::MyCnfError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The variable.
    pub key: String,
    /// The value in the file; `None` where the variable was missing.
    pub from: Option<String>,
    /// The recommended value.
    pub to: String,
    /// The line changed, from 1; `None` for additions.
    pub line: Option<usize>,
}

/// The file with the recommendations applied.
///
/// ```
/// use seawall_lab::{mycnf::MyCnf, plan, sample, settings};
/// # let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// # let server = settings::Server::MySql84;
/// let first = MyCnf::parse("my.cnf", "[mysqld]\n")?.propose(server, advice.server(server));
/// // Once applied, there are no changes left.
/// let second = MyCnf::parse("my.cnf", &first.text)?.propose(server, advice.server(server));
/// assert!(second.diff.is_empty() && second.changes.is_empty());
/// # Ok::<(), seawall_lab::mycnf::MyCnfError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The whole new text.
    pub text: String,
    /// Unified diff from the user's file; empty when there is nothing to change.
    pub diff: String,
    /// The changes of the diff.
    pub changes: Vec<Change>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Reads `path` and proposes the settings for `server`.
///
/// # Errors
/// [`MyCnfError`]: the file cannot be read, is not UTF-8, or has a line without a valid form.
///
/// ```
/// use seawall_lab::{mycnf::propose, plan, sample, settings};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("my.cnf");
/// std::fs::write(&path, "[mysqld]\ninnodb_doublewrite = OFF\n")?;
/// let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// let proposal = propose(&path, settings::Server::MySql80, &advice)?;
/// assert!(proposal.text.contains("innodb_doublewrite = ON\n"));
/// assert!(std::fs::read_to_string(&path)?.contains("OFF"), "the file itself is only read");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn propose(path: &Path, server: Server, settings: &Settings) -> Result<Proposal, MyCnfError> {
    Ok(MyCnf::read(path)?.propose(server, settings.server(server)))
}

impl MyCnf {
    /// Reads a file.
    ///
    /// # Errors
    /// As [`propose`].
    ///
    /// ```
    /// use seawall_lab::mycnf::{MyCnf, MyCnfError};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("my.cnf");
    /// std::fs::write(&path, b"[mysqld]\n# Gr\xfc\xdfe\n")?;
    /// assert!(matches!(MyCnf::read(&path), Err(MyCnfError::NotUtf8 { line: 2, .. })));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read(path: &Path) -> Result<Self, MyCnfError> {
        let bytes = std::fs::read(path).map_err(|source| MyCnfError::Unreadable { path: path.into(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            MyCnfError::NotUtf8 { path: path.into(), line: good.iter().filter(|b| **b == b'\n').count() + 1 }
        })?;
        Self::parse(&path.display().to_string(), &text)
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
    /// # Ok::<(), seawall_lab::mycnf::MyCnfError>(())
    /// ```
    ///
    /// # Errors
    /// [`MyCnfError::Line`] for the first line without a valid form.
    pub fn parse(name: &str, text: &str) -> Result<Self, MyCnfError> {
        let mut lines = Vec::new();
        let mut in_group = false;
        for (i, raw) in text.split_inclusive('\n').enumerate() {
            let raw = if i == 0 { raw.trim_start_matches('\u{feff}') } else { raw };
            let line = parse_line(raw).and_then(|line| match line {
                Line::Setting { .. } if !in_group => {
                    Err("a setting before any group; put a line such as [mysqld] above it")
                }
                line => Ok(line),
            });
            match line {
                Ok(line) => {
                    in_group |= matches!(line, Line::Group(_));
                    lines.push(line);
                }
                Err(problem) => {
                    let text: String = raw.trim().chars().take(60).collect();
                    return Err(MyCnfError::Line { name: name.into(), line: i + 1, problem, text });
                }
            }
        }
        Ok(Self { name: name.into(), text: text.into(), lines })
    }

    /// The file with `recommendations` applied.
    #[must_use]
    pub fn propose(&self, server: Server, recommendations: &[Recommendation]) -> Proposal {
        let mut raw: Vec<String> = self.text.split_inclusive('\n').map(str::to_owned).collect();
        let eol = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut changes = Vec::new();
        let mut before: Vec<(usize, String)> = Vec::new();
        let mut additions = Vec::new();

        for r in recommendations {
            let setting = self.effective(server, &r.key);
            match setting {
                Some((at, Line::Setting { value, name, span, negated, loose, .. })) => {
                    let danger = risk(&r.key, value);
                    let kept = r.confidence == Confidence::DefaultKept && danger.is_none();
                    if kept || same(&r.key, value, &r.value) {
                        continue;
                    }
                    let mut said = r.clone();
                    if let Some(danger) = danger {
                        said.because = format!("{value} {danger}; {}", r.because);
                        said.confidence = Confidence::Safety;
                    }
                    let indent: String = raw[at].chars().take_while(|c| *c == ' ' || *c == '\t').collect();
                    before.push((at, comment(&said, &indent, eol)));
                    raw[at] = replace(&raw[at], r, *name, *span, *negated, *loose);
                    changes.push(Change {
                        key: r.key.clone(),
                        from: Some(value.clone()),
                        to: r.value.clone(),
                        line: Some(at + 1),
                    });
                }
                _ if r.changes_default() && r.confidence != Confidence::DefaultKept => {
                    additions.push(comment(r, "", eol) + &format!("{} = {}{eol}", r.option_name(), r.value));
                    changes.push(Change { key: r.key.clone(), from: None, to: r.value.clone(), line: None });
                }
                _ => {}
            }
        }

        let added = additions.concat();
        let place = self.place_for_additions(server);
        let mut out = String::new();
        for (i, line) in raw.iter().enumerate() {
            out.extend(before.iter().filter(|(at, _)| *at == i).map(|(_, c)| c.as_str()));
            out.push_str(line);
            if place == Some(i) && !added.is_empty() {
                if !line.ends_with('\n') {
                    out.push_str(eol);
                }
                out.push_str(&added);
            }
        }
        if place.is_none() && !added.is_empty() {
            if !out.is_empty() {
                if !out.ends_with('\n') {
                    out.push_str(eol);
                }
                out.push_str(eol);
            }
            out += &format!("[{}]{eol}{added}", server.group());
        }

        let diff = if out == self.text {
            String::new()
        } else {
            diffy::DiffOptions::new()
                .set_original_filename(self.name.clone())
                .set_modified_filename(format!("{} (proposed)", self.name))
                .create_patch(&self.text, &out)
                .to_string()
        };
        Proposal { text: out, diff, changes, notes: self.notes(server) }
    }

    /// The setting that takes effect: the last one in any group that the server reads.
    fn effective(&self, server: Server, key: &str) -> Option<(usize, &Line)> {
        let mut read = false;
        let mut found = None;
        for (i, line) in self.lines.iter().enumerate() {
            match line {
                Line::Group(group) => read = reads(server, group),
                Line::Setting { key: k, .. } if read && k == key => found = Some((i, line)),
                _ => {}
            }
        }
        found
    }

    /// The line after which new settings are inserted: the end of the server's group that already holds
    /// `innodb_` settings, else of the best named group that the server reads; `None` when there is none.
    fn place_for_additions(&self, server: Server) -> Option<usize> {
        let mut best: Option<(u8, usize)> = None;
        let mut group: Option<(u8, usize)> = None;
        for (i, line) in self.lines.iter().enumerate() {
            match line {
                Line::Group(name) => {
                    best = best.max(group);
                    let rank = match name.as_str() {
                        n if !reads(server, n) => 0,
                        n if n == server.group() => 3,
                        "mysqld" => 2,
                        _ => 1,
                    };
                    group = (rank > 0).then_some((rank, i));
                }
                Line::Setting { key, .. } => {
                    if let Some((rank, end)) = &mut group {
                        *end = i;
                        if key.starts_with("innodb_") {
                            *rank = 4;
                        }
                    }
                }
                Line::Quiet | Line::Include => {}
            }
        }
        best.max(group).map(|(_, line)| line)
    }

    fn notes(&self, server: Server) -> Vec<String> {
        let mut notes = Vec::new();
        if self.lines.contains(&Line::Include) {
            notes.push(format!(
                "{} includes other files, which were not read: a setting there may win over these",
                self.name
            ));
        }
        if server == Server::MariaDb11 && self.effective(server, "innodb_flush_method").is_some() {
            notes.push(
                "innodb_flush_method is deprecated since MariaDB 11.0 and sets the four innodb_*_file_buffering and \
                 _write_through variables at start: remove it once those are set"
                    .into(),
            );
        }
        notes
    }
}

/// The comment above a changed or added line.
fn comment(r: &Recommendation, indent: &str, eol: &str) -> String {
    let first = format!("{indent}# seawall lab, {}:", r.confidence);
    let rest = format!("{indent}#   ");
    // `wrap` puts no space after the comment character.
    text::wrap(&r.because, 100, &(first + " "), &rest).replace('\n', eol) + eol
}

fn replace(
    line: &str,
    r: &Recommendation,
    name: (usize, usize),
    span: Option<(usize, usize)>,
    negated: bool,
    loose: bool,
) -> String {
    // A name that itself means yes or no (`skip_...`) is written out; otherwise the user's spelling stays.
    let written = &line[name.0..name.1];
    let spelled = if negated { r.option_name() } else { written.to_owned() };
    let spelled = if r.loose && !loose && !negated { format!("loose_{spelled}") } else { spelled };
    let head = &line[..name.0];
    match span {
        Some((from, to)) => format!("{head}{spelled}{}{}{}", &line[name.1..from], r.value, &line[to..]),
        None => format!("{head}{spelled} = {}{}", r.value, &line[name.1..]),
    }
}

/// Whether the server reads a group.
fn reads(server: Server, group: &str) -> bool {
    if matches!(group, "mysqld" | "server") {
        return true;
    }
    if server.is_mariadb() && matches!(group, "mariadb" | "mariadbd" | "client-server" | "galera") {
        return true;
    }
    // [mariadb-10.11], [mysqld-8.0]: read by that release only.
    match group.split_once('-') {
        Some(("mariadb" | "mariadbd", version)) => Server::parse(&format!("mariadb-{version}")) == Some(server),
        Some(("mysqld", version)) => {
            let product = if server.is_mariadb() { "mariadb" } else { "mysql" };
            Server::parse(&format!("{product}-{version}")) == Some(server)
        }
        _ => false,
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
    let (name, value) = match body.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(value)),
        None => (body, None),
    };
    let dashes = name.len() - name.trim_start_matches('-').len();
    let bare = &name[dashes..];
    if bare.is_empty() {
        return Err("a value without a name");
    }
    if bare.contains(char::is_whitespace) {
        return Err("not a setting of an option file; write `name = value`");
    }
    if !bare.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:?*#@/".contains(c)) {
        return Err("not a name that an option can have");
    }
    let mut key = bare.replace('-', "_");
    let loose = key.starts_with("loose_");
    if loose {
        key.drain(..6);
    }
    let mut negated = false;
    for (prefix, no) in [("skip_", true), ("disable_", true), ("enable_", false)] {
        // `skip_networking` and similar variables have names of their own; only InnoDB's variables are looked
        // up here.
        if key.starts_with(prefix) && key[prefix.len()..].starts_with("innodb") {
            key.drain(..prefix.len());
            negated = no;
        }
    }
    let (value, span) = match value {
        Some(value) => {
            let trimmed = value.trim();
            let offset = start + body.len() - value.len() + (value.len() - value.trim_start().len());
            (trimmed.trim_matches(['"', '\'']).to_owned(), Some((offset, offset + trimmed.len())))
        }
        None => ("ON".to_owned(), None),
    };
    let value = if negated { if truth(&value) == Some(false) { "ON".into() } else { "OFF".into() } } else { value };
    Ok(Line::Setting { key, value, name: (start, start + name.len()), span, negated, loose })
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

fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "1" | "true" | "yes" => Some(true),
        "off" | "0" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// A number with an optional suffix K, M, G, T, P or E.
fn number(value: &str) -> Option<u64> {
    let split = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (digits, suffix) = value.split_at(split);
    let shift = match suffix.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        "E" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Why a value must not stay, even without a measurement: it skips flushes that only a proven drive can do
/// without.
fn risk(key: &str, value: &str) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    match (key, value.as_str()) {
        ("innodb_flush_method", "o_direct_no_fsync" | "5" | "nosync" | "3" | "littlesync" | "2") => {
            Some("leaves out flushes that nothing here proves needless")
        }
        _ => None,
    }
}

/// Whether two values of `key` mean the same.
fn same(key: &str, a: &str, b: &str) -> bool {
    if a.eq_ignore_ascii_case(b) {
        return true;
    }
    let name = |v: &str| {
        let v = v.to_ascii_lowercase();
        match (key, v.as_str()) {
            ("innodb_flush_method", "0" | "fdatasync") => "fsync".to_owned(),
            ("innodb_flush_method", "1") => "o_dsync".to_owned(),
            ("innodb_flush_method", "4") => "o_direct".to_owned(),
            ("innodb_flush_method", "5") => "o_direct_no_fsync".to_owned(),
            // Both protect pages as ON does; they differ only in their bookkeeping.
            ("innodb_doublewrite", "detect_and_recover" | "fast" | "1" | "true") => "on".to_owned(),
            _ => v,
        }
    };
    if name(a) == name(b) {
        return true;
    }
    match (truth(b), number(b)) {
        // A switch: ON and 1 are equal; a number is compared as a number.
        (Some(b), None) => truth(a) == Some(b),
        (_, Some(b)) => number(a) == Some(b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, sample, settings};

    fn rec(key: &str, value: &str, default: &str, confidence: Confidence) -> Recommendation {
        Recommendation {
            key: key.into(),
            value: value.into(),
            because: format!("{key} was measured"),
            confidence,
            default: default.into(),
            loose: false,
        }
    }

    fn apply(text: &str, server: Server, list: &[Recommendation]) -> Proposal {
        let proposal = MyCnf::parse("my.cnf", text).unwrap().propose(server, list);
        // Applying the diff gives the text.
        if !proposal.diff.is_empty() {
            let patch = diffy::Patch::from_str(&proposal.diff).unwrap();
            assert_eq!(diffy::apply(text, &patch).unwrap(), proposal.text);
        }
        proposal
    }

    const MEASURED: Confidence = Confidence::Measured;

    #[test]
    fn changes_in_place_and_leaves_the_rest() {
        let text = "# mine\n[client]\nport=3306\n\n[mysqld]\n  innodb-io-capacity=200   # old disk\nskip-name-resolve\n!includedir /etc/x\n\n[mysqldump]\nquick\n";
        let p = apply(
            text,
            Server::MySql80,
            &[
                rec("innodb_io_capacity", "5000", "200", MEASURED),
                rec("innodb_flush_method", "O_DIRECT", "fsync", MEASURED),
            ],
        );
        assert!(p.text.contains(
            "  # seawall lab, measured: innodb_io_capacity was measured\n  innodb-io-capacity=5000   # old disk\n"
        ));
        assert!(p.text.contains("skip-name-resolve\n# seawall lab, measured: innodb_flush_method was measured\ninnodb_flush_method = O_DIRECT\n"), "{}", p.text);
        assert_eq!(p.changes.len(), 2);
        assert_eq!((p.changes[0].from.as_deref(), p.changes[0].line), (Some("200"), Some(6)));
        assert_eq!(p.notes.len(), 1);
        // Removing the additions restores the user's file.
        let back: String = p
            .text
            .split_inclusive('\n')
            .filter(|l| !l.contains("seawall lab") && !l.starts_with("innodb_flush_method"))
            .collect();
        assert_eq!(back.replace("5000", "200"), text);
    }

    #[test]
    fn the_last_setting_in_a_group_the_server_reads_is_the_one() {
        let text = "[mysqld]\ninnodb_io_capacity=1\n[mariadb-10.6]\ninnodb_io_capacity=2\n[mariadb-10.11]\ninnodb_io_capacity=3\n[mysqld_safe]\ninnodb_io_capacity=4\n";
        let list = [rec("innodb_io_capacity", "9000", "200", MEASURED)];
        assert_eq!(apply(text, Server::MariaDb10, &list).changes[0].from.as_deref(), Some("3"));
        assert_eq!(apply(text, Server::MySql80, &list).changes[0].from.as_deref(), Some("1"));
    }

    #[test]
    fn equal_meanings_and_kept_defaults_are_left_alone() {
        let text = "[mysqld]\ninnodb_log_write_ahead_size=16K\ninnodb_doublewrite\nloose-innodb_use_fdatasync=1\ninnodb_flush_method=4\ninnodb_io_capacity = 777\n";
        let p = apply(
            text,
            Server::MySql80,
            &[
                rec("innodb_log_write_ahead_size", "16384", "8192", MEASURED),
                rec("innodb_doublewrite", "ON", "ON", Confidence::Safety),
                rec("innodb_use_fdatasync", "ON", "OFF", MEASURED),
                rec("innodb_flush_method", "O_DIRECT", "fsync", MEASURED),
                rec("innodb_io_capacity", "200", "200", Confidence::DefaultKept),
            ],
        );
        assert_eq!(p.diff, "");
        assert_eq!(p.text, text);
        assert!(p.changes.is_empty());
    }

    #[test]
    fn danger_is_undone_however_it_is_spelled() {
        let list = [rec("innodb_doublewrite", "ON", "ON", Confidence::Safety)];
        for (line, now) in [
            ("skip-innodb-doublewrite", "innodb_doublewrite = ON"),
            ("skip_innodb_doublewrite # fast!", "innodb_doublewrite = ON # fast!"),
            ("innodb_doublewrite=0", "innodb_doublewrite=ON"),
            ("innodb_doublewrite = \"OFF\"", "innodb_doublewrite = ON"),
        ] {
            let p = apply(&format!("[server]\n{line}\n"), Server::MariaDb11, &list);
            assert!(p.text.ends_with(&format!("\n{now}\n")), "{line}: {}", p.text);
        }
        // A missing variable means the default, which is safe.
        assert_eq!(apply("[server]\n", Server::MariaDb11, &list).diff, "");
    }

    #[test]
    fn flushes_skipped_without_proof_come_back_even_unmeasured() {
        let list = [rec("innodb_flush_method", "fsync", "fsync", Confidence::DefaultKept)];
        for value in ["O_DIRECT_NO_FSYNC", "nosync", "5"] {
            let p = apply(&format!("[mysqld]\ninnodb_flush_method={value}\n"), Server::MySql80, &list);
            assert!(p.text.contains("seawall lab, safety: ") && p.text.ends_with("=fsync\n"), "{}", p.text);
        }
        assert_eq!(apply("[mysqld]\ninnodb_flush_method=O_DIRECT\n", Server::MySql80, &list).diff, "");
        let proven = [rec("innodb_flush_method", "O_DIRECT_NO_FSYNC", "fsync", MEASURED)];
        assert_eq!(apply("[mysqld]\ninnodb_flush_method=O_DIRECT_NO_FSYNC\n", Server::MySql80, &proven).diff, "");
    }

    #[test]
    fn a_missing_group_or_final_newline_is_made() {
        let list = [rec("innodb_io_capacity", "5000", "200", MEASURED)];
        let p = apply("[client]\nport=1", Server::MariaDb10, &list);
        assert!(p.text.starts_with("[client]\nport=1\n\n[mariadb]\n# seawall"), "{}", p.text);
        let p = apply("", Server::MySql84, &list);
        assert!(p.text.starts_with("[mysqld]\n"), "{}", p.text);
        let p = apply("[mysqld]\r\nport=1\r\n", Server::MySql84, &list);
        assert!(p.text.ends_with("measured\r\ninnodb_io_capacity = 5000\r\n"), "{:?}", p.text);
        let p = apply("[mariadb]\n[mysqld]\ninnodb_strict_mode=1\n[mariadb]\n", Server::MariaDb10, &list);
        assert!(p.text.contains("innodb_strict_mode=1\n# seawall"), "{}", p.text);
    }

    #[test]
    fn lines_that_are_not_my_cnf_are_named() {
        for (text, line, problem) in [
            ("innodb_io_capacity=1\n", 1, "before any group"),
            ("[mysqld]\n\nport 3306\n", 3, "write `name = value`"),
            ("[mysqld\n", 1, "closing bracket"),
            ("[]\n", 1, "without a name"),
            ("[mysqld]\n= 3\n", 2, "a value without a name"),
            ("[mysqld]\n!import x\n", 2, "!include"),
            ("{\"json\": 1}\n", 1, "write `name = value`"),
        ] {
            match MyCnf::parse("my.cnf", text) {
                Err(e @ MyCnfError::Line { line: at, .. }) => {
                    assert_eq!(at, line, "{text}");
                    assert!(e.to_string().contains(problem), "{e}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn unreadable_files_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none.cnf");
        let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
        assert!(matches!(propose(&missing, Server::MySql80, &advice), Err(MyCnfError::Unreadable { .. })));
        let binary = dir.path().join("binary.cnf");
        std::fs::write(&binary, b"[mysqld]\nx=\xff\n").unwrap();
        assert!(matches!(propose(&binary, Server::MySql80, &advice), Err(MyCnfError::NotUtf8 { line: 2, .. })));
        let good = dir.path().join("good.cnf");
        std::fs::write(&good, "\u{feff}[mysqld]\ninnodb_io_capacity = 200\n").unwrap();
        let proposal = propose(&good, Server::MySql80, &advice).unwrap();
        assert!(proposal.changes.iter().any(|c| c.key == "innodb_io_capacity" && c.from.as_deref() == Some("200")));
        // A second application changes nothing.
        let again =
            MyCnf::parse("again", &proposal.text).unwrap().propose(Server::MySql80, advice.server(Server::MySql80));
        assert_eq!(again.diff, "");
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_or_errs_and_proposals_settle(text in "(\\[mysqld\\]\n)?[ -~\n\u{e9}]{0,200}") {
            let list = [rec("innodb_io_capacity", "5000", "200", MEASURED)];
            if let Ok(file) = MyCnf::parse("x", &text) {
                let p = file.propose(Server::MySql80, &list);
                let again = MyCnf::parse("x", &p.text).unwrap().propose(Server::MySql80, &list);
                proptest::prop_assert_eq!(again.diff, "");
            }
        }
    }
}
