//! Two runs side by side: `seawall lab diff A.json B.json`.
//!
//! - Cells are joined by id, never by title or position.
//! - Rounds of two runs are not paired: a difference counts only when the two intervals do not overlap and
//!   the medians are more than 3% apart.
//! - Runs of different machines, file sizes or modes may be compared; the output states the differences
//!   first.

use crate::evidence::Table;
use crate::results::{CellResult, Results};
use crate::stats::{Estimate, distinct};
use crate::verdict::device_words;
use crate::{table, text, words};
use seawall_io::probe::explain;
use serde::Serialize;
use std::collections::HashSet;

words! {
    /// How a cell of the second run compares with the first.
    ///
    /// ```
    /// use seawall_lab::{compare::{Outcome, compare}, plan, sample};
    /// let before = sample::results(vec![sample::cell(plan::random_read(1), 10_000.0)]);
    /// let within_noise = sample::results(vec![sample::cell(plan::random_read(1), 10_100.0)]);
    /// assert_eq!(compare(&before, &within_noise).rows[0].outcome, Outcome::CannotTell);
    /// ```
    pub enum Outcome {
        /// The second run is faster, outside both intervals.
        Faster = "B faster",
        /// The second run is slower, outside both intervals.
        Slower = "B slower",
        /// The intervals overlap, or there are under three rounds.
        CannotTell = "cannot tell",
        /// Measured in the first run only.
        OnlyFirst = "only in A",
        /// Measured in the second run only.
        OnlySecond = "only in B",
    }
}

/// One cell in two runs.
///
/// ```
/// use seawall_lab::{compare::{Outcome, compare}, plan, sample};
/// let cell = |depth| sample::cell(plan::random_read(depth), 10_000.0);
/// let rows = compare(&sample::results(vec![cell(1)]), &sample::results(vec![cell(32)])).rows;
/// assert_eq!((rows[0].outcome, rows[1].outcome), (Outcome::OnlyFirst, Outcome::OnlySecond));
/// assert_eq!(rows[0].ratio, None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Cell id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Rate in the first run.
    pub first: Option<Estimate>,
    /// Rate in the second run.
    pub second: Option<Estimate>,
    /// Second over first.
    pub ratio: Option<f64>,
    /// The result of the comparison.
    pub outcome: Outcome,
    /// Whether other load disturbed either run.
    pub disturbed: bool,
}

/// Two runs compared.
///
/// ```
/// use seawall_lab::{compare::compare, sample};
/// let (a, mut b) = (sample::results(vec![]), sample::results(vec![]));
/// b.machine.host = "db2".into();
/// let difference = compare(&a, &b);
/// assert!(!difference.same_machine);
/// assert_eq!(difference.context, [("host".to_owned(), "db1".to_owned(), "db2".to_owned())]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Whether both runs come from the same machine and device, as far as the results tell.
    pub same_machine: bool,
    /// Differences in machine, probe and settings: what, first, second.
    pub context: Vec<(String, String, String)>,
    /// The cells, in the first run's order, then those only in the second.
    pub rows: Vec<Row>,
}

/// Compares two runs.
///
/// ```
/// use seawall_lab::{compare::{compare, Outcome}, plan, sample};
/// let before = sample::results(vec![sample::cell(plan::random_read(1), 10_000.0)]);
/// let after = sample::results(vec![sample::cell(plan::random_read(1), 14_000.0)]);
/// let difference = compare(&before, &after);
/// assert_eq!(difference.rows[0].outcome, Outcome::Faster);
/// assert!(difference.to_text().contains("1.40x"));
/// ```
pub fn compare(first: &Results, second: &Results) -> Difference {
    let context = context(first, second);
    let same_machine = !context.iter().any(|(what, ..)| MACHINE.contains(&what.as_str()));
    let mut seen = HashSet::new();
    let cells = first.cells.iter().chain(&second.cells).filter(|cell| seen.insert(cell.id.as_str()));
    let row = |cell: &CellResult| row(cell, first.cell_by_id(&cell.id), second.cell_by_id(&cell.id));
    Difference { same_machine, context, rows: cells.filter_map(row).collect() }
}

fn row(cell: &CellResult, a: Option<&CellResult>, b: Option<&CellResult>) -> Option<Row> {
    let (first, second) = (a.and_then(CellResult::rate), b.and_then(CellResult::rate));
    let both = first.zip(second);
    let ratio = both.filter(|(a, _)| a.median > 0.0).map(|(a, b)| b.median / a.median);
    let outcome = match both {
        None if first.is_some() => Outcome::OnlyFirst,
        None if second.is_some() => Outcome::OnlySecond,
        None => return None,
        Some((a, b)) if a.samples < 3 || b.samples < 3 => Outcome::CannotTell,
        Some((a, b)) if b.low > a.high && b.median > 1.03 * a.median => Outcome::Faster,
        Some((a, b)) if b.high < a.low && b.median < 0.97 * a.median => Outcome::Slower,
        Some(_) => Outcome::CannotTell,
    };
    let disturbed = [a, b].into_iter().flatten().any(CellResult::disturbed);
    Some(Row { id: cell.id.clone(), title: cell.spec.title(), first, second, ratio, outcome, disturbed })
}

fn context(a: &Results, b: &Results) -> Vec<(String, String, String)> {
    let [first, second] = [a, b].map(facts);
    let names = distinct(first.iter().chain(&second).map(|fact| fact.0));
    let value = |facts: &[(&str, String)], what: &str| {
        facts.iter().find(|fact| fact.0 == what).map_or_else(|| text::MISSING.to_owned(), |fact| fact.1.clone())
    };
    let both = names.into_iter().map(|what| (what.to_owned(), value(&first, what), value(&second, what)));
    let mut out: Vec<_> = both.collect();
    // A cell under the recommended settings has the same id whatever these were.
    if let (Some(a), Some(b)) = (&a.engine, &b.engine) {
        out.push(("recommended settings".into(), a.settings_line(), b.settings_line()));
    }
    out.retain(|(_, a, b)| a != b);
    out
}

/// What tells machines and drives apart.
const MACHINE: [&str; 5] = ["host", "processor", "processors", "memory", "drive"];

/// What the figures of a run depend on: the machine, all that the probe found except the free space, and the run.
fn facts(r: &Results) -> Vec<(&'static str, String)> {
    let machine = [
        r.machine.host.clone(),
        r.machine.cpu_model.clone(),
        r.machine.cpus.to_string(),
        text::bytes(r.machine.memory_bytes as f64),
        device_words(r),
    ];
    let run = [
        ("kernel", r.machine.kernel.clone()),
        ("path", r.probe.path.display().to_string()),
        ("file size", text::bytes(r.run.file_bytes as f64)),
        ("backend", r.run.io_backend.clone()),
        ("rate limit", r.run.rate.map_or_else(|| "none".to_owned(), text::count)),
        ("plan", if r.run.full { "full" } else { "default" }.to_owned()),
        ("seed", r.run.seed.to_string()),
        ("seawall", r.seawall_version.clone()),
        ("complete", if r.complete { "yes" } else { "interrupted" }.to_owned()),
    ];
    let probed = explain(&r.probe).into_iter().filter(|found| !["model", "free space"].contains(&found.name));
    MACHINE.into_iter().zip(machine).chain(probed.map(|found| (found.name, found.value))).chain(run).collect()
}

impl Difference {
    /// The comparison as a table for a terminal.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if !self.same_machine {
            out += "These runs come from different machines or drives: a ratio compares the two, it does not show a \
                    change.\n\n";
        }
        let width = self.context.iter().map(|(w, ..)| w.len()).max().unwrap_or(0);
        for (what, a, b) in &self.context {
            out += &format!("  {what:width$}  {a}  ->  {b}\n");
        }
        out += if self.context.is_empty() { "" } else { "\n" };
        if self.rows.is_empty() {
            return out + "No cell was measured in either run.\n";
        }
        let line = |row: &Row| {
            let [a, b] = [row.first, row.second].map(|rate| text::or_missing(rate, |rate| text::count(rate.median)));
            let mark = if row.disturbed { " (disturbed)" } else { "" };
            vec![row.title.clone(), a, b, text::or_missing(row.ratio, text::ratio), format!("{}{mark}", row.outcome)]
        };
        let head = ["operations per second", "A", "B", "B/A", "verdict"].map(str::to_owned).into();
        out += &table::lines(&Table { head, rows: self.rows.iter().map(line).collect() });
        let count = |outcomes: &[Outcome]| self.rows.iter().filter(|r| outcomes.contains(&r.outcome)).count();
        let [faster, slower, cannot_tell] =
            [Outcome::Faster, Outcome::Slower, Outcome::CannotTell].map(|outcome| count(&[outcome]));
        let one = count(&[Outcome::OnlyFirst, Outcome::OnlySecond]);
        out + &format!(
            "\n{faster} faster, {slower} slower, {cannot_tell} cannot tell (intervals overlap, or under 3% apart), \
             {one} in one run only\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, sample};

    #[test]
    fn each_outcome() {
        let cell = |depth, rate| sample::cell(plan::random_read(depth), rate);
        let a = sample::results(vec![cell(1, 1e4), cell(2, 1e4), cell(4, 1e4), cell(8, 1e4)]);
        let b = sample::results(vec![cell(1, 2e4), cell(2, 5e3), cell(4, 1.02e4), cell(16, 1e4)]);
        let d = compare(&a, &b);
        let outcomes: Vec<Outcome> = d.rows.iter().map(|r| r.outcome).collect();
        assert_eq!(
            outcomes,
            [Outcome::Faster, Outcome::Slower, Outcome::CannotTell, Outcome::OnlyFirst, Outcome::OnlySecond]
        );
        assert!(d.same_machine && d.context.is_empty());
        let text = d.to_text();
        assert!(text.contains("1 faster, 1 slower, 1 cannot tell"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 130));
        // With the runs swapped, the outcome is reversed.
        assert_eq!(compare(&b, &a).rows[0].outcome, Outcome::Slower);
    }

    #[test]
    fn machines_and_settings_are_compared_first() {
        let a = sample::of_plan(&plan::decisive());
        let mut b = a.clone();
        b.run.file_bytes = 8 << 30;
        let d = compare(&a, &b);
        assert!(d.same_machine);
        assert_eq!(d.context, [("file size".into(), "1 GiB".into(), "8 GiB".into())]);
        b.machine.host = "db2".into();
        let text = compare(&a, &b).to_text();
        assert!(text.starts_with("These runs come from different machines"), "{text}");
        assert!(text.contains("db1  ->  db2"), "{text}");
    }

    #[test]
    fn cells_of_the_engine_are_compared_and_other_settings_are_said_to_be() {
        let a = sample::of_plan(&plan::decisive());
        let mut b = a.clone();
        assert!(compare(&a, &b).context.is_empty());
        let engine = b.engine.as_mut().unwrap();
        engine.seawall_toml = format!("# another day\n{}", engine.seawall_toml);
        assert!(compare(&a, &b).context.is_empty(), "comments are no settings");
        let engine = b.engine.as_mut().unwrap();
        engine.seawall_toml = engine.seawall_toml.replace("doublewrite", "off");
        let d = compare(&a, &b);
        let (what, first, second) = &d.context[0];
        assert!(what == "recommended settings" && first.contains("\"doublewrite\"") && second.contains("\"off\""));
        assert!(d.same_machine, "{d:?}");
        for id in
            ["e5/tpcc/o_direct/written/t4", "e6/fragmented/ranges/direct/adaptive/t16", "set/update/recommended/t4"]
        {
            assert!(d.rows.iter().any(|r| r.id == id && r.ratio == Some(1.0)), "{id}");
        }
    }

    #[test]
    fn too_few_rounds_and_odd_cells() {
        let mut a = sample::results(vec![sample::cell(plan::random_read(1), 1e4)]);
        let mut b = sample::results(vec![sample::cell(plan::random_read(1), 3e4)]);
        b.cells[0].rounds.truncate(2);
        assert_eq!(compare(&a, &b).rows[0].outcome, Outcome::CannotTell);
        a.cells[0].rounds.iter_mut().for_each(|r| r.operations = 0);
        assert_eq!(compare(&a, &b).rows[0].ratio, None);
        a.cells[0].rounds.clear();
        b.cells[0].rounds.iter_mut().for_each(|r| r.seconds = f64::NAN);
        assert!(compare(&a, &b).to_text().ends_with("No cell was measured in either run.\n"));
    }
}
