//! Recommended settings from the measurements: for Seawall, and the same advice for MariaDB and MySQL.
//!
//! - A setting differs from the product's default only because of a measurement outside the noise or a fact
//!   from the probe; when the measurement cannot tell, the default stays and the line says so.
//! - No recommendation trades durability for speed: doublewrite stays on; Seawall skips a flush only if the
//!   drive reports no volatile cache, other servers never; the commit level is never changed.
//! - Every line states the measurement it is based on.
//! - The Rust files decide what was found; defaults, values and reasons by finding are in `reasons.toml`.

mod seawall;
mod server;

use crate::cell::{Beside, Level, Sync};
use crate::experiment::commit_levels::measured_gain;
use crate::results::Results;
use crate::text::{self, Var, fill, vars};
use crate::verdict::{Answer, Pair, data, device_words, file_system_word};
use crate::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use server::Server;

words! {
    /// The basis of a recommendation.
    ///
    /// ```
    /// use seawall_lab::{sample, settings::{Confidence, recommend}};
    /// // Without measurements nothing is recommended for its speed.
    /// let advice = recommend(&sample::results(vec![]));
    /// assert!(advice.seawall.iter().all(|r| r.confidence != Confidence::Measured));
    /// ```
    pub enum Confidence {
        /// A difference outside the noise, or a rate with its interval.
        Measured = "measured",
        /// A fact that the kernel reported or a trial showed.
        Probed = "probed",
        /// Other values risk data, whatever their speed.
        Safety = "safety",
        /// The measurement cannot tell or was not made: the product's default stays.
        DefaultKept = "default kept",
    }
}

/// One setting with its reason.
///
/// ```
/// use seawall_lab::{plan, sample, settings::{Server, recommend}};
/// let advice = recommend(&sample::of_plan(&plan::decisive()));
/// for r in advice.server(Server::MariaDb11).iter().filter(|r| r.changes_default()) {
///     println!("{} = {} (default {})", r.option_name(), r.value, r.default);
///     assert!(!r.because.is_empty(), "every line carries the measurement it rests on");
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The setting's name: `log.flush_method`, `innodb_io_capacity`, ...
    pub key: String,
    /// Its value as the product's configuration file takes it, without quotes.
    pub value: String,
    /// The measurement behind it, a sentence.
    pub because: String,
    /// Its basis.
    pub confidence: Confidence,
    /// The product's default.
    pub default: String,
    /// Whether some releases of the series lack the variable: it is then written with the `loose_` prefix,
    /// with which such a release warns instead of refusing to start.
    pub loose: bool,
}

impl Recommendation {
    /// Returns whether the value differs from the product's default.
    pub fn changes_default(&self) -> bool {
        !self.value.eq_ignore_ascii_case(&self.default)
    }

    /// The name in an option file: with `loose_` if some releases lack it.
    pub fn option_name(&self) -> String {
        if self.loose { format!("loose_{}", self.key) } else { self.key.clone() }
    }
}

/// Every recommendation of a run.
///
/// ```
/// use seawall_lab::{plan, sample, settings};
/// let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// let names: Vec<String> = advice.files().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["seawall.toml", "mariadb-10.cnf", "mariadb-11.cnf", "mysql-8.0.cnf", "mysql-8.4.cnf"]);
/// assert!(advice.measured.starts_with("measured by seawall lab"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// For `seawall.toml`.
    pub seawall: Vec<Recommendation>,
    /// For other servers, by series.
    pub servers: Vec<(Server, Vec<Recommendation>)>,
    /// The measured machine, for the headings.
    pub measured: String,
    /// What weaker levels of commit durability gained: InnoDB's number of the level, and a sentence.
    pub level_gains: Vec<(u32, String)>,
}

/// The settings by name.
static KEYS: LazyLock<BTreeMap<String, Key>> = LazyLock::new(|| data(include_str!("reasons.toml")));

/// A setting: its default, and what is recommended by finding.
#[derive(Debug, Deserialize)]
struct Key {
    default: String,
    /// Defaults of the series that have a different one.
    #[serde(default)]
    default_in: BTreeMap<Server, String>,
    /// Series in which some releases lack the setting.
    #[serde(default)]
    loose_in: Vec<Server>,
    #[serde(flatten)]
    findings: BTreeMap<String, (Confidence, String, String)>,
}

/// The recommendation for a setting of Seawall, or of a server, after this finding.
fn advise(server: Option<Server>, key: &str, finding: &str, vars: &[Var<'_>]) -> Recommendation {
    let Key { default, default_in, loose_in, findings } = &KEYS[key];
    let (confidence, value, because) = &findings[finding];
    let default = fill(server.and_then(|s| default_in.get(&s)).unwrap_or(default), vars);
    let loose = server.is_some_and(|s| loose_in.contains(&s));
    let value = fill(value, &[vars, vars![default]].concat());
    let (key, because) = (key.into(), fill(because, vars));
    Recommendation { key, value, because, confidence: *confidence, default, loose }
}

/// The settings recommended from a run.
///
/// ```
/// use seawall_lab::{plan, sample, settings};
/// let results = sample::of_plan(&plan::decisive());
/// let advice = settings::recommend(&results);
/// let file: toml::Table = advice.to_toml().parse().unwrap();
/// assert_eq!(file["data"]["flush_method"].as_str(), Some("o_direct"));
/// assert_eq!(file["torn_page_protection"].as_str(), Some("doublewrite"));
/// let cnf = advice.option_file(settings::Server::MariaDb11);
/// assert!(cnf.starts_with("# ") && cnf.contains("\n[mariadb]\n"));
/// ```
pub fn recommend(results: &Results) -> Settings {
    let (fs, device) = (file_system_word(results), device_words(results));
    let Results { seawall_version, machine, probe, started, .. } = results;
    let (host, path) = (&machine.host, probe.path.display());
    let gain = |level: Level| Some((level.number(), measured_gain(results, level)?));
    Settings {
        seawall: seawall::recommend(results),
        servers: Server::ALL.into_iter().map(|s| (s, server::recommend(results, s))).collect(),
        level_gains: [Level::Written, Level::Deferred].into_iter().filter_map(gain).collect(),
        measured: format!(
            "measured by seawall lab {seawall_version} on {host} at {path} ({fs} on {device}), {started}"
        ),
    }
}

impl Settings {
    /// The recommendations for one server series.
    pub fn server(&self, server: Server) -> &[Recommendation] {
        self.servers.iter().find(|(s, _)| *s == server).map_or(&[], |(_, list)| list)
    }

    /// `seawall.toml`, each line after a comment with its measurement.
    pub fn to_toml(&self) -> String {
        let heading = comment(&format!("seawall.toml, {}", self.measured)) + "\n";
        let line = |r: &Recommendation| format!("{}{} = {}\n", because(r), r.key, toml_value(&r.value));
        heading + &self.seawall.iter().map(line).collect::<String>()
    }

    /// Every file to offer, as (name, text): `seawall.toml` first, then one option file a server series.
    pub fn files(&self) -> Vec<(String, String)> {
        let texts = std::iter::once(self.to_toml()).chain(Server::ALL.into_iter().map(|s| self.option_file(s)));
        Self::names().zip(texts).collect()
    }

    /// The names of [`Settings::files`], in order.
    ///
    /// ```
    /// use seawall_lab::settings::Settings;
    /// assert_eq!(Settings::names().next().as_deref(), Some("seawall.toml"));
    /// ```
    pub fn names() -> impl Iterator<Item = String> {
        std::iter::once("seawall.toml".to_owned()).chain(Server::ALL.into_iter().map(|s| format!("{}.cnf", s.word())))
    }

    /// A fragment of an option file (`my.cnf`) for one server series: changed settings as lines, kept
    /// defaults as comments.
    pub fn option_file(&self, server: Server) -> String {
        let mut out = comment(&format!("{}, {}", server.words(), self.measured));
        out += &format!("\n[{}]\n", server.group());
        for r in self.server(server) {
            // A kept default needs no line: the file stays correct when the default improves.
            let mark = if r.changes_default() || r.confidence == Confidence::Safety { "" } else { "# " };
            out += &format!("{}{mark}{} = {}\n", because(r), r.option_name(), r.value);
        }
        out
    }
}

/// The comment above a line: its basis, and the measurement.
fn because(r: &Recommendation) -> String {
    comment(&format!("{}: {}", r.confidence, r.because))
}

fn comment(text: &str) -> String {
    text::wrap(text, 118, "# ", "# ") + "\n"
}

/// A value as TOML: numbers and booleans bare, anything else a string.
fn toml_value(value: &str) -> String {
    let bare = value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok();
    if bare { value.to_owned() } else { toml::Value::String(value.to_owned()).to_string() }
}

/// The finding of a comparison: its first cell is faster, it is slower, the two are alike, or were not measured.
fn finding(pair: Option<&Pair<'_>>, [faster, slower, alike, unmeasured]: [&'static str; 4]) -> &'static str {
    match pair.map(|pair| pair.answer) {
        Some(Answer::More) => faster,
        Some(Answer::Less) => slower,
        Some(Answer::Same | Answer::Unclear) => alike,
        None => unmeasured,
    }
}

/// The physical block of the device, if it is known.
fn physical_block(results: &Results) -> Option<u32> {
    results.probe.device.known().and_then(|d| d.physical_block_bytes.known()).copied()
}

/// Writes per second to plan with: the low end of the interval of many parallel 16 KiB writes, or less if a long run
/// found a lower plateau. The returned sentence explains its origin; `Err` explains why there is none.
pub(crate) fn write_capacity(results: &Results) -> Result<(f64, String), String> {
    use crate::plan::{direct_sync, parallel};
    if results.run.rate.is_some() {
        return Err("the run was held to a rate, so capacity was not measured".into());
    }
    let flushed = direct_sync(16, 4096, Sync::Fdatasync);
    // Without direct I/O, writes without a flush go to memory.
    let to_memory = seawall::direct_works(results).err();
    let specs = match to_memory {
        Some(_) => vec![flushed],
        None => vec![
            parallel(16, Beside::Nothing),
            parallel(8, Beside::Nothing),
            direct_sync(16, 16 << 10, Sync::None),
            flushed,
            parallel(1, Beside::Nothing),
        ],
    };
    let sustained = results.sustain.iter().filter(|_| to_memory.is_none());
    let sustained = sustained.flat_map(|s| crate::sustain::plateaus(&s.per_second));
    let lasting = sustained.filter(|p| p.to_s - p.from_s >= 30 && p.rate >= 1.0).map(|p| p.rate);
    let lowest = lasting.fold(f64::INFINITY, f64::min);
    let Some(cell) = specs.iter().find_map(|spec| results.cell(spec)) else {
        if lowest.is_finite() {
            return Ok((lowest, format!("{} writes per second last under sustained load", text::count(lowest))));
        }
        let unmeasured = || "parallel direct writes were not measured (run parallel-direct)".into();
        return Err(to_memory.map_or_else(unmeasured, |why| format!("writes without a flush went to memory: {why}")));
    };
    let title = cell.spec.title();
    if cell.disturbed() {
        return Err(format!("other load disturbed the measurement of capacity ({title})"));
    }
    let rate = cell.rate().filter(|r| r.low >= 1.0).ok_or_else(|| format!("no rate came out of {title}"))?;
    let (median, low) = (text::count(rate.median), text::count(rate.low));
    let aside = if lowest < rate.low {
        format!(", but only {} last under sustained load", text::count(lowest))
    } else if lowest.is_infinite() {
        ", over seconds; `--sustain 30m` would show whether that lasts".into()
    } else {
        String::new()
    };
    Ok((rate.low.min(lowest), format!("{title} make {median} writes per second (at least {low}){aside}")))
}

/// Rounds down to two significant digits.
pub(crate) fn round_down(value: f64) -> u64 {
    if !value.is_finite() || value < 1.0 {
        return 1;
    }
    let unit = 10f64.powf((value.log10().floor() - 1.0).max(0.0));
    ((value / unit).floor() * unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, sample};

    #[test]
    fn everything_parses_and_every_line_has_its_reason() {
        for results in [sample::of_plan(&plan::decisive()), sample::of_plan(&plan::full()), sample::results(vec![])] {
            let advice = recommend(&results);
            let text = advice.to_toml();
            let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert!(table["io_capacity"].is_integer());
            assert!(table["data"]["flush_method"].is_str());
            let lines: Vec<&str> = text.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                assert!(line.chars().count() <= 120, "{line}");
                if line.contains(" = ") && !line.starts_with('#') {
                    assert!(lines[i - 1].starts_with("# "), "{line} has no reason");
                }
            }
            for server in Server::ALL {
                let cnf = advice.option_file(server);
                assert!(cnf.contains("innodb_doublewrite = ON\n"), "{cnf}");
                assert!(
                    advice.server(server).iter().all(|r| !r.because.is_empty() && !r.because.contains('?')),
                    "{cnf}"
                );
            }
        }
    }

    #[test]
    fn nothing_measured_keeps_every_default() {
        let advice = recommend(&sample::results(vec![]));
        for list in std::iter::once(&advice.seawall).chain(advice.servers.iter().map(|(_, l)| l)) {
            for r in list {
                if r.confidence == Confidence::DefaultKept {
                    assert!(!r.changes_default(), "{r:?}");
                }
            }
        }
    }

    #[test]
    fn rounding_is_down_and_survives_odd_values() {
        assert_eq!(round_down(12_987.0), 12_000);
        assert_eq!(round_down(199.0), 190);
        assert_eq!(round_down(7.9), 7);
        assert_eq!(round_down(f64::NAN), 1);
        assert_eq!(round_down(0.0), 1);
    }

    #[test]
    fn hostile_values_stay_valid_toml() {
        let mut advice = recommend(&sample::results(vec![]));
        advice.seawall[0].value = "a\"b\\c\n".into();
        advice.seawall[0].because = "first line\nsecond = line".into();
        assert!(advice.to_toml().parse::<toml::Table>().is_ok(), "{}", advice.to_toml());
    }

    /// The findings in Rust and those in the data file are the same ones.
    #[test]
    fn every_finding_has_its_reason() {
        let code = [include_str!("seawall.rs"), include_str!("server.rs")].concat();
        for (name, key) in &*KEYS {
            assert!(code.contains(&format!("\"{name}\"")), "nothing recommends {name}");
            for finding in key.findings.keys() {
                assert!(code.contains(&format!("\"{finding}\"")), "{name} never has the finding {finding}");
            }
        }
    }
}
