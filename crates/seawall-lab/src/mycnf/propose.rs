//! Applying recommendations to a parsed option file.

use super::parse::{Line, Setting, truth};
use super::{MyCnf, Proposal};
use crate::cell::Level;
use crate::settings::{Confidence, Recommendation, Server, Settings};
use crate::text;

impl MyCnf {
    /// The file with `recommendations` applied.
    pub fn propose(&self, server: Server, recommendations: &[Recommendation]) -> Proposal {
        let mut lines: Vec<String> = self.text.split_inclusive('\n').map(str::to_owned).collect();
        let eol = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut added = String::new();
        for r in recommendations {
            let kept = r.confidence == Confidence::DefaultKept;
            if let Some((at, setting)) = self.effective(server, &r.key) {
                let danger = risk(&r.key, &setting.value);
                if (kept && danger.is_none()) || same(&r.key, &setting.value, &r.value) {
                    continue;
                }
                let mut said = r.clone();
                if let Some(danger) = danger {
                    said.because = format!("{} {danger}; {}", setting.value, r.because);
                    said.confidence = Confidence::Safety;
                }
                let indent: String = lines[at].chars().take_while(|c| *c == ' ' || *c == '\t').collect();
                lines[at] = comment(&said, &indent, eol) + &replace(&lines[at], r, setting);
            } else if r.changes_default() && !kept {
                added += &format!("{}{} = {}{eol}", comment(r, "", eol), r.option_name(), r.value);
            }
        }
        if !added.is_empty() {
            let place = self.place_for_additions(server);
            if place.is_none() {
                added = format!("{}[{}]{eol}{added}", if lines.is_empty() { "" } else { eol }, server.group());
            }
            let at = place.unwrap_or(lines.len().saturating_sub(1));
            if lines.get(at).is_some_and(|line| !line.ends_with('\n')) {
                lines[at] += eol;
            }
            lines.insert((at + 1).min(lines.len()), added);
        }
        let text = lines.concat();
        let diff = diffy::DiffOptions::new()
            .set_original_filename(self.name.clone())
            .set_modified_filename(format!("{} (proposed)", self.name))
            .create_patch(&self.text, &text)
            .to_string();
        let diff = if text == self.text { String::new() } else { diff };
        Proposal { text, diff, notes: self.notes(server) }
    }

    /// The lines in groups that the server reads, those of the groups included.
    fn read_by(&self, server: Server) -> impl Iterator<Item = (usize, &Line)> {
        let mut read = false;
        self.lines.iter().enumerate().filter(move |(_, line)| {
            if let Line::Group(name) = line {
                read = reads(server, name);
            }
            read
        })
    }

    /// The setting that takes effect: the last one in any group that the server reads.
    fn effective(&self, server: Server, key: &str) -> Option<(usize, &Setting)> {
        let settings = self.read_by(server).filter_map(|(i, line)| match line {
            Line::Setting(setting) if setting.key == key => Some((i, setting)),
            _ => None,
        });
        settings.last()
    }

    /// The line after which new settings are inserted: the end of the server's group that already holds
    /// `innodb_` settings, else of the best named group that the server reads; `None` when there is none.
    fn place_for_additions(&self, server: Server) -> Option<usize> {
        let (mut best, mut rank) = (None, 0);
        for (i, line) in self.read_by(server) {
            rank = match line {
                Line::Group(name) if name == server.group() => 3,
                Line::Group(name) if name == "mysqld" => 2,
                Line::Group(_) => 1,
                Line::Setting(setting) if setting.key.starts_with("innodb_") => 4,
                Line::Setting(_) => rank,
                Line::Quiet | Line::Include => continue,
            };
            best = best.max(Some((rank, i)));
        }
        best.map(|(_, line)| line)
    }

    fn notes(&self, server: Server) -> Vec<String> {
        let includes = "includes other files, which were not read: a setting there may win over these";
        let includes = self.lines.contains(&Line::Include).then(|| format!("{} {includes}", self.name));
        let deprecated = server == Server::MariaDb11 && self.effective(server, "innodb_flush_method").is_some();
        let deprecated = deprecated.then(|| {
            "innodb_flush_method is deprecated since MariaDB 11.0 and sets the four innodb_*_file_buffering and \
             _write_through variables at start: remove it once those are set"
                .to_owned()
        });
        includes.into_iter().chain(deprecated).collect()
    }

    /// Says what the file's own choice of commit level puts at risk, and the measured gain. The choice itself is never
    /// changed.
    pub(super) fn commit_risk(&self, server: Server, settings: &Settings) -> Vec<String> {
        const KEY: &str = "innodb_flush_log_at_trx_commit";
        let value = |key: &str| Some(self.effective(server, key)?.1.value.as_str());
        let level = match value(KEY) {
            Some("0") => Some(Level::Deferred),
            Some("2") => Some(Level::Written),
            _ => None,
        };
        let risk = level.map(|level| {
            let (number, loss) = (level.number(), level.loss());
            let measured = settings.level_gains.iter().find(|(gained, _)| *gained == number);
            let gain = measured.map_or("its gain was not measured (run commit-levels)", |(_, gain)| gain.as_str());
            format!("{KEY} = {number} is left as it is; it may lose {loss}; {gain}")
        });
        let binlog = (value("sync_binlog") == Some("0")).then(|| {
            "sync_binlog = 0 is left as it is; a power failure may lose binlog events of transactions that InnoDB keeps"
                .to_owned()
        });
        risk.into_iter().chain(binlog).collect()
    }
}

/// The comment above a changed or added line.
fn comment(r: &Recommendation, indent: &str, eol: &str) -> String {
    let first = format!("{indent}# seawall lab, {}:", r.confidence);
    let rest = format!("{indent}#   ");
    // `wrap` puts no space after the comment character.
    text::wrap(&r.because, 100, &(first + " "), &rest).replace('\n', eol) + eol
}

fn replace(line: &str, r: &Recommendation, setting: &Setting) -> String {
    let Setting { name, negated, .. } = setting;
    // A name that itself means yes or no (`skip_...`) is written out; otherwise the user's spelling stays.
    let written = if *negated { r.option_name() } else { line[name.clone()].to_owned() };
    let loose = if r.loose && !setting.loose && !negated { "loose_" } else { "" };
    let (head, tail, value) = (&line[..name.start], &line[name.end..], &r.value);
    match &setting.span {
        Some(span) => format!("{head}{loose}{written}{}{value}{}", &line[name.end..span.start], &line[span.end..]),
        None => format!("{head}{loose}{written} = {value}{tail}"),
    }
}

/// Whether the server reads a group.
fn reads(server: Server, group: &str) -> bool {
    // [mariadb-10.11], [mysqld-8.0]: read by that release only.
    let of = |product: &str, version: &str| Server::parse(&format!("{product}-{version}")) == Some(server);
    match (group, group.split_once('-')) {
        ("mysqld" | "server", _) => true,
        ("mariadb" | "mariadbd" | "client-server" | "galera", _) if server.is_mariadb() => true,
        (_, Some(("mariadb" | "mariadbd", version))) => of("mariadb", version),
        (_, Some(("mysqld", version))) => of(if server.is_mariadb() { "mariadb" } else { "mysql" }, version),
        _ => false,
    }
}

/// A number with an optional suffix K, M, G, T, P or E.
fn number(value: &str) -> Option<u64> {
    let split = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (digits, suffix) = value.split_at(split);
    let suffixes = ["", "K", "M", "G", "T", "P", "E"];
    let power = suffixes.iter().position(|s| s.eq_ignore_ascii_case(suffix))?;
    digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

/// Why a value must not stay, even without a measurement: it skips flushes that only a proven drive can do
/// without.
fn risk(key: &str, value: &str) -> Option<&'static str> {
    let unsafe_methods = ["o_direct_no_fsync", "5", "nosync", "3", "littlesync", "2"];
    let skips = key == "innodb_flush_method" && unsafe_methods.contains(&value.to_ascii_lowercase().as_str());
    skips.then_some("leaves out flushes that nothing here proves needless")
}

/// Whether two values of `key` mean the same.
fn same(key: &str, a: &str, b: &str) -> bool {
    let name = |value: &str| {
        let value = value.to_ascii_lowercase();
        let name = match (key, value.as_str()) {
            ("innodb_flush_method", "0" | "fdatasync") => "fsync",
            ("innodb_flush_method", "1") => "o_dsync",
            ("innodb_flush_method", "4") => "o_direct",
            ("innodb_flush_method", "5") => "o_direct_no_fsync",
            // Both protect pages as ON does; they differ only in their bookkeeping.
            ("innodb_doublewrite", "detect_and_recover" | "fast" | "1" | "true") => "on",
            _ => return value,
        };
        name.to_owned()
    };
    // A switch: ON and 1 are equal; a number is compared as a number.
    name(a) == name(b)
        || match (truth(b), number(b)) {
            (Some(b), None) => truth(a) == Some(b),
            (_, Some(b)) => number(a) == Some(b),
            _ => false,
        }
}
