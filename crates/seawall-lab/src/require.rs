//! `--require 'flush.p99<10ms'`: compares a run with a limit, for provisioning scripts.
//!
//! - A metric that was not measured is an error that names the experiment to run; it never passes.
//! - A latency is the upper edge of its histogram bucket (1.6% wide at most), so a limit is never met by
//!   rounding.
//! - A rate is the median of the rounds; when the limit lies inside its interval the outcome says so.

use crate::cell::CellSpec;
use crate::plan;
use crate::results::{Results, operation_word};
use crate::text;
use crate::verdict::data;
use serde::Deserialize;
use std::sync::LazyLock;

/// One metric: its name, the cell it reads, and its description.
///
/// ```
/// use seawall_lab::require::metrics;
/// let cell = |name| &metrics().iter().find(|m| m.name == name).unwrap().cell;
/// assert_eq!(cell("flush"), cell("durable_write"), "two names of one cell");
/// ```
#[derive(Debug, Clone, Deserialize)]
pub struct Metric {
    /// Name on the command line.
    pub name: String,
    /// The cell, by [`CellSpec::id`].
    pub cell: String,
    /// What is measured.
    pub help: String,
}

/// Every metric with a short name; any other cell can be named by its id.
pub fn metrics() -> &'static [Metric] {
    #[derive(Deserialize)]
    struct File {
        metric: Vec<Metric>,
    }
    static FILE: LazyLock<File> = LazyLock::new(|| data(include_str!("require.toml")));
    &FILE.metric
}

/// The statistic of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stat {
    /// A latency quantile.
    Quantile(f64),
    Max,
    Rate,
}

const STATS: [(&str, Stat); 8] = [
    ("p50", Stat::Quantile(0.5)),
    ("median", Stat::Quantile(0.5)),
    ("p90", Stat::Quantile(0.9)),
    ("p99", Stat::Quantile(0.99)),
    ("p999", Stat::Quantile(0.999)),
    ("max", Stat::Max),
    ("rate", Stat::Rate),
    ("iops", Stat::Rate),
];

type Holds = fn(&f64, &f64) -> bool;

/// The operators, those of two characters first.
const OPERATORS: [(&str, Holds); 4] = [("<=", f64::le), (">=", f64::ge), ("<", f64::lt), (">", f64::gt)];

/// A parsed requirement.
///
/// ```
/// use seawall_lab::{require::Requirement, sample, plan};
/// let results = sample::of_plan(&plan::decisive());
/// let limits = ["flush.p99<10ms", "read_deep.rate>=20k/s"].map(Requirement::parse);
/// for limit in limits {
///     assert!(limit?.evaluate(&results)?.met);
/// }
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// The requirement as written.
    pub text: String,
    metric: String,
    /// The cell that must be measured, by [`CellSpec::id`].
    pub cell: String,
    stat: Stat,
    /// Index in [`OPERATORS`].
    operator: usize,
    /// Nanoseconds, or operations per second.
    limit: f64,
}

/// The result of a requirement.
///
/// ```
/// # use seawall_lab::{plan, require::Requirement, sample};
/// # let results = sample::of_plan(&plan::decisive());
/// let outcome = Requirement::parse("flush.p99 < 1us")?.evaluate(&results)?;
/// assert!(!outcome.met && outcome.measured > 1000.0, "nanoseconds");
/// assert!(outcome.sentence.starts_with("short: flush.p99 < 1us ("));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Whether it is met.
    pub met: bool,
    /// The measured value: nanoseconds, or operations per second.
    pub measured: f64,
    /// Both figures in a sentence.
    pub sentence: String,
}

/// Every metric with what it measures, a line each.
pub fn metric_list() -> String {
    let lines = metrics().iter().map(|m| format!("  {:<20} {}\n", m.name, m.help));
    lines.collect::<String>() + "  or the id of any cell as it stands in results.json"
}

impl Requirement {
    /// Parses `metric.stat op value`.
    ///
    /// Latencies (`p50`, `median`, `p90`, `p99`, `p999`, `max`) take `ns`, `us`, `ms` or `s`; rates (`rate`,
    /// `iops`) take a number with `k` or `M`, optionally followed by `/s`.
    ///
    /// ```
    /// use seawall_lab::{plan, require::Requirement, sample};
    /// let results = sample::of_plan(&plan::decisive());
    /// assert!(Requirement::parse("flush.p99 < 10ms")?.evaluate(&results)?.met);
    /// assert!(!Requirement::parse("read_deep.rate>1M/s")?.evaluate(&results)?.met);
    /// assert!(Requirement::parse("e1/overwrite/randwrite/4k/direct/nosync/t1.iops>=1k")?.evaluate(&results)?.met);
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// A sentence that lists the valid names, or says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = || {
            let form = "write metric.stat, one of < <= > >=, and a value";
            let text = text.trim();
            format!("`{text}` is not a requirement: {form}, such as 'flush.p99<10ms' or 'read_deep.rate>=20k/s'")
        };
        let at = text.find(['<', '>']).ok_or_else(form)?;
        let (left, rest) = text.split_at(at);
        let (operator, value) =
            (0..OPERATORS.len()).find_map(|i| Some((i, rest.strip_prefix(OPERATORS[i].0)?))).ok_or_else(form)?;
        let (metric, stat) = left.trim().rsplit_once('.').ok_or_else(form)?;
        let (metric, stat, value) = (metric.trim(), stat.trim(), value.trim());
        if metric.is_empty() || stat.is_empty() || value.is_empty() {
            return Err(form());
        }
        let cell = match metrics().iter().find(|m| m.name.eq_ignore_ascii_case(metric)) {
            Some(m) => m.cell.clone(),
            None if metric.contains('/') => metric.to_owned(),
            None => return Err(no_metric(metric)),
        };
        let known = STATS.iter().find(|(name, _)| name.eq_ignore_ascii_case(stat));
        let names = STATS.map(|(name, _)| name).join(", ");
        let (_, stat) = *known.ok_or_else(|| format!("`{stat}` is not a statistic: use one of {names}"))?;
        let limit = parse_limit(value, stat)?;
        Ok(Self { text: text.trim().into(), metric: metric.into(), cell, stat, operator, limit })
    }

    /// Compares the results with the requirement.
    ///
    /// # Errors
    /// When the cell is not among the results or holds no operations, or its id is in no plan.
    ///
    /// ```
    /// use seawall_lab::{require::Requirement, sample};
    /// // A missing measurement never passes.
    /// let error = Requirement::parse("flush.p99<10ms")?.evaluate(&sample::results(vec![])).unwrap_err();
    /// assert!(error.starts_with("flush was not measured"), "{error}");
    /// # Ok::<(), String>(())
    /// ```
    pub fn evaluate(&self, results: &Results) -> Result<Outcome, String> {
        let no_samples = || self.not_measured(results);
        let cell = results.cells.iter().find(|c| c.id == self.cell && c.operations() > 0).ok_or_else(no_samples)?;
        let mut aside = String::new();
        let measured = match self.stat {
            Stat::Quantile(q) => {
                let n = cell.operations() as f64;
                if n * (1.0 - q) < 5.0 {
                    aside = format!(", from {} operations only", text::count(n));
                }
                cell.latency_ns(q).ok_or_else(no_samples)?
            }
            Stat::Max => cell.latency_ns_max().ok_or_else(no_samples)?,
            Stat::Rate => {
                let rate = cell.rate().ok_or_else(no_samples)?;
                if rate.low < self.limit && self.limit < rate.high {
                    let [low, high] = [rate.low, rate.high].map(text::count);
                    aside = format!(", the limit inside its interval of {low} to {high}");
                }
                rate.median
            }
        };
        for (odd, note) in [
            (results.run.rate.is_some(), ", held to --rate"),
            (!results.complete, ", in a run that was interrupted"),
            (cell.disturbed(), ", measured under other load"),
        ] {
            aside += if odd { note } else { "" };
        }
        let met = OPERATORS[self.operator].1(&measured, &self.limit);
        let word = if met { "met" } else { "short" };
        let shown = match self.stat {
            Stat::Quantile(q) => format!("{} p{}", text::latency(measured), (q * 1000.0).round() / 10.0),
            Stat::Max => format!("{} longest", text::latency(measured)),
            Stat::Rate => format!("{}/s median rate in {}", text::count(measured), operation_word(&cell.spec)),
        };
        let sentence = format!("{word}: {} ({shown} of {}{aside})", self.text, cell.spec.title());
        Ok(Outcome { met, measured, sentence })
    }

    fn not_measured(&self, results: &Results) -> String {
        let Self { text, metric, .. } = self;
        let says = |reason: &str, remedy: &str| {
            format!("{metric} was not measured ({reason}), so `{text}` is not met: {remedy}")
        };
        if let Some(skipped) = results.skipped.iter().find(|s| s.id == self.cell) {
            return says(&skipped.reason, "it cannot be measured here");
        }
        let is_this = |spec: &CellSpec| spec.id() == self.cell;
        let Some(spec) = plan::full().into_iter().find(is_this) else { return no_metric(metric) };
        let full = if plan::decisive().iter().any(is_this) { "" } else { " --full" };
        let reason = if results.complete { "not in these results" } else { "the run was interrupted" };
        says(reason, &format!("run `seawall lab PATH{full} --only {}`", spec.experiment))
    }
}

fn no_metric(text: &str) -> String {
    format!("`{text}` is not a metric; --require knows\n{}", metric_list())
}

/// Units of a rate, in operations per second.
const RATE_UNITS: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("m", 1e6)];
/// Units of a latency, in nanoseconds.
const LATENCY_UNITS: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("\u{b5}s", 1e3), ("\u{3bc}s", 1e3), ("ms", 1e6), ("s", 1e9)];

/// A number with the unit of a latency, to nanoseconds, or of a rate, to operations per second.
fn parse_limit(value: &str, stat: Stat) -> Result<f64, String> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let number = value[..end].parse::<f64>().ok().filter(|number| number.is_finite());
    let unit = value[end..].trim();
    let (unit, units, wanted) = if stat == Stat::Rate {
        let unit = unit.strip_suffix("/s").unwrap_or(unit).trim_end();
        (unit, RATE_UNITS, "rate: write operations per second, such as 5000, 20k or 1.5M/s")
    } else {
        (unit, LATENCY_UNITS, "latency: write a number with ns, us, ms or s, such as 10ms")
    };
    let scale = units.iter().find(|(known, _)| *known == unit).map(|(_, scale)| scale);
    let limit = number.zip(scale).map(|(number, scale)| number * scale);
    limit.ok_or_else(|| format!("`{value}` is not a {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Skipped;
    use crate::sample;

    #[test]
    fn every_metric_is_in_the_decisive_plan_or_the_full_one() {
        let full: Vec<String> = plan::full().iter().map(CellSpec::id).collect();
        for m in metrics() {
            assert!(full.contains(&m.cell), "{}", m.name);
        }
    }

    #[test]
    fn what_weakens_an_outcome_is_said() {
        let mut r = sample::results(vec![sample::cell(plan::random_read(1), 30.0)]);
        let says = |r: &Results, text: &str| Requirement::parse(text).unwrap().evaluate(r).unwrap().sentence;
        assert!(says(&r, "read.p99<1s").contains("from 178 operations only"), "{}", says(&r, "read.p99<1s"));
        assert!(!says(&r, "read.p50<1s").contains("only"));
        r.complete = false;
        r.run.rate = Some(40.0);
        let sentence = says(&r, "read.rate>1");
        assert!(sentence.contains("interrupted") && sentence.contains("held to --rate"), "{sentence}");
    }

    #[test]
    fn each_way_and_each_operator() {
        let r = sample::results(vec![sample::cell(plan::random_read(1), 10_000.0)]);
        let met = |text: &str| Requirement::parse(text).unwrap().evaluate(&r).unwrap().met;
        assert!(met("read.rate>9k") && !met("read.rate>11k"));
        assert!(met("read.iops<0.02M/s") && met("read.rate >= 9000/s") && !met("read.rate<=5"));
        assert!(met("read.p50<200us") && !met("read.p50<1us") && met("read.median<=0.2ms"));
        assert!(met("read.max<1s") && !met("read.max<100us") && met("read.p999>100ns"));
        let o = Requirement::parse("read.rate>11k").unwrap().evaluate(&r).unwrap();
        assert!(o.sentence.starts_with("short: read.rate>11k (10,0"), "{}", o.sentence);
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, says) in [
            ("flush", "is not a requirement"),
            ("flush.p99=10ms", "is not a requirement"),
            ("<10ms", "is not a requirement"),
            ("flush<10ms", "is not a requirement"),
            ("flush.p99<", "is not a requirement"),
            ("flash.p99<10ms", "--require knows\n  flush "),
            ("flush.p98<10ms", "use one of p50, median, p90, p99, p999, max, rate, iops"),
            ("flush.p99<10", "write a number with ns, us, ms or s"),
            ("flush.p99<ms", "write a number with"),
            ("flush.rate>10ms", "write operations per second"),
            ("flush.rate>1e999k", "write operations per second"),
        ] {
            let error = Requirement::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn what_was_not_measured_never_passes() {
        let mut r = sample::results(vec![]);
        let eval = |r: &Results, text: &str| Requirement::parse(text).unwrap().evaluate(r).unwrap_err();
        assert!(eval(&r, "append.rate>1").ends_with("run `seawall lab PATH --only append-overwrite`"));
        assert!(eval(&r, "base/overwrite/randread/16k/direct/nosync/t1/d4.rate>1").contains("--full --only baseline"));
        assert!(eval(&r, "e9/what.rate>1").contains("is not a metric"));
        r.skipped.push(Skipped {
            id: plan::flush_under_writes().id(),
            title: String::new(),
            reason: "no O_DIRECT here".into(),
        });
        assert!(eval(&r, "flush_under_writes.p99<1s").contains("no O_DIRECT here"));
        let mut empty = sample::results(vec![sample::cell(plan::random_read(1), 100.0)]);
        empty.cells[0].rounds.iter_mut().for_each(|round| round.operations = 0);
        assert!(eval(&empty, "read.rate<1").contains("was not measured"));
    }
}
