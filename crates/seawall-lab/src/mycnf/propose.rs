//! Applying recommendations to a parsed option file.

use super::parse::{Line, truth};
use super::{Change, MyCnf, Proposal};
use crate::cell::Level;
use crate::settings::{Confidence, Recommendation, Server, Settings};
use crate::text;

impl MyCnf {
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

    /// What the file leaves at risk by its own choice of commit level, beside the measured gain: the choice
    /// itself is never changed.
    pub(super) fn commit_risk(&self, server: Server, settings: &Settings) -> Vec<String> {
        let value = |key: &str| match self.effective(server, key) {
            Some((_, Line::Setting { value, .. })) => Some(value.as_str()),
            _ => None,
        };
        let mut notes = Vec::new();
        const KEY: &str = "innodb_flush_log_at_trx_commit";
        let level = match value(KEY) {
            Some("0") => Some(Level::Deferred),
            Some("2") => Some(Level::Written),
            _ => None,
        };
        if let Some(level) = level {
            let measured = settings.level_gains.iter().find(|(number, _)| *number == level.number());
            notes.push(format!(
                "{KEY} = {} is left as it is; it may lose {}; {}",
                level.number(),
                level.loss(),
                measured.map_or("its gain was not measured (run commit-levels)", |(_, gain)| gain.as_str())
            ));
        }
        if value("sync_binlog") == Some("0") {
            notes.push(
                "sync_binlog = 0 is left as it is; a power failure may lose binlog events of transactions that \
                 InnoDB keeps"
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
