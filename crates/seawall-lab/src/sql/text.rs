//! The results as text for a terminal.

use super::{COMMIT_THREADS, Engine, LOADS, RANGE_THREADS, SqlResults, What};
use crate::cell::Level;
use crate::evidence::Table;
use crate::experiment::commit_levels::published_gain;
use crate::stats::{Estimate, median};
use crate::table::lines;
use crate::text::{bytes, count, or_missing, ratio};

/// A cell's name.
pub(super) fn name(what: What) -> String {
    match what {
        What::Commits(load, level) => format!("{}, {}", load.words(), level.name()),
        What::Ranges(threads) => format!("ranges, {}", connections(threads)),
    }
}

fn connections(threads: u32) -> String {
    crate::text::many(threads, "connection", "connections")
}

/// The ratio of two cells of one run, marked when it is inside the noise.
fn compared(a: &[f64], b: &[f64]) -> String {
    or_missing(Estimate::of_ratio(a, b), |r| {
        format!("{}{}", ratio(r.median), if r.is_difference() { "" } else { " ?" })
    })
}

fn rate(rates: &[f64]) -> String {
    or_missing(Estimate::of(rates), |e| match e.samples {
        1 => count(e.median),
        _ => format!("{} +-{}", count(e.median), crate::text::spread(e.spread())),
    })
}

impl SqlResults {
    /// Tables for a terminal: E5 with the published gains beside the measured ones, E6 with the published rates.
    pub fn to_text(&self) -> String {
        let mut out = format!("MariaDB {}, sysbench {}", self.version, self.sysbench);
        for (name, value) in &self.variables {
            out += &format!(", {name}={value}");
        }
        out.push('\n');
        if self.has(|what| matches!(what, What::Commits(..))) {
            out += &self.commits();
        }
        if self.has(|what| matches!(what, What::Ranges(_))) {
            out += &self.ranges();
        }
        for note in &self.notes {
            out += &format!("\nnote: {note}\n");
        }
        out + "\n?: inside the noise of the rounds: take it for no difference. Per second; medians of rounds.\n"
    }

    fn has(&self, of: impl Fn(What) -> bool) -> bool {
        self.cells.iter().any(|cell| of(cell.what) && !cell.rates.is_empty())
    }

    fn engines(&self) -> Vec<Engine> {
        crate::stats::distinct(self.cells.iter().map(|cell| cell.engine))
    }

    fn commits(&self) -> String {
        let head = ["load", "engine", "level 1", "2 / 1", "0 / 1", "published 2 / 1", "to InnoDB at 1"];
        let mut rows = Vec::new();
        for load in LOADS {
            for engine in self.engines() {
                let at = |engine, level| self.rates(engine, What::Commits(load, level));
                let flushed = at(engine, Level::Flushed);
                let [written, deferred] = [Level::Written, Level::Deferred].map(|l| compared(at(engine, l), flushed));
                let innodb = match engine {
                    Engine::InnoDb => String::new(),
                    Engine::Seawall => compared(flushed, at(Engine::InnoDb, Level::Flushed)),
                };
                let (load_is, gain) = (load.words().to_owned(), published_gain(load).to_owned());
                rows.push(vec![load_is, engine.word().into(), rate(flushed), written, deferred, gain, innodb]);
            }
        }
        let threads = crate::text::many(COMMIT_THREADS, "thread", "threads");
        format!(
            "\nE5 commit-levels, {threads} (Danti, 2012: sysbench simple, sysbench complex, DBT-2)\n{}",
            lines(&Table { head: head.map(str::to_owned).into(), rows })
        )
    }

    fn ranges(&self) -> String {
        let mut head = vec!["engine".to_owned()];
        head.extend(RANGE_THREADS.map(connections));
        head.push("published, 1 connection".into());
        let mut rows = Vec::new();
        for engine in self.engines() {
            let mut row = vec![engine.word().to_owned()];
            row.extend(RANGE_THREADS.map(|threads| rate(self.rates(engine, What::Ranges(threads)))));
            row.push(match engine {
                Engine::InnoDb => "15 buffered, 10 direct".into(),
                Engine::Seawall => "30 direct with prefetch".into(),
            });
            rows.push(row);
        }
        let mut out = format!(
            "\nE6 range-prefetch, sums over 30,000 rows of a table of {} in scattered order (Hardy, 2010)\n{}",
            bytes(self.table_bytes as f64),
            lines(&Table { head, rows })
        );
        let of = |engine| self.rates(engine, What::Ranges(1));
        if median(of(Engine::Seawall)).is_some() && median(of(Engine::InnoDb)).is_some() {
            out += &format!("Seawall to InnoDB: {}\n", compared(of(Engine::Seawall), of(Engine::InnoDb)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::SqlCell;
    use super::*;

    fn results() -> SqlResults {
        let cell = |engine, what, rate: f64| SqlCell { engine, what, rates: vec![rate; 5], p99_ms: vec![1.0; 5] };
        let mut cells = Vec::new();
        for (engine, base) in [(Engine::InnoDb, 1000.0), (Engine::Seawall, 1200.0)] {
            for load in LOADS {
                for (level, gain) in [(Level::Flushed, 1.0), (Level::Written, 1.5), (Level::Deferred, 1.02)] {
                    cells.push(cell(engine, What::Commits(load, level), base * gain));
                }
            }
            cells.push(cell(engine, What::Ranges(1), base / 50.0));
        }
        SqlResults {
            version: "10.11.18-MariaDB".into(),
            sysbench: "1.0.20".into(),
            round_s: 3.0,
            variables: vec![("log_bin".into(), "OFF".into())],
            cells,
            table_bytes: 480 << 20,
            notes: vec!["left out".into()],
            complete: true,
        }
    }

    #[test]
    fn the_tables_hold_measured_and_published_figures() {
        let text = results().to_text();
        let line = |start: &str, has: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(start) && line.contains(has));
            found.unwrap_or_else(|| panic!("no line {start} with {has}: {text}")).to_owned()
        };
        assert!(line("transactional", "SEAWALL").contains("1.50x  1.02x ?         over 40%"), "{text}");
        assert!(line("transactional", "SEAWALL").ends_with("1.20x"), "{text}");
        assert!(line("TPC-C", "InnoDB").contains("1,000 +-0%"), "{text}");
        assert!(line("SEAWALL", "prefetch").contains("24 +-0%"), "{text}");
        assert!(line("Seawall to InnoDB", "1.20x").len() < 40);
        assert!(text.contains("log_bin=OFF") && text.contains("note: left out"));
    }

    #[test]
    fn an_experiment_that_was_not_measured_has_no_table() {
        let mut results = results();
        results.cells.retain(|cell| matches!(cell.what, What::Ranges(_)));
        assert!(!results.to_text().contains("E5"), "{}", results.to_text());
        assert!(results.to_json().contains("\"ranges\": 1"), "{}", results.to_json());
    }
}
