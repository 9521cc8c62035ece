//! Verdicts about the run itself: complete, undisturbed, long enough, tested by a power cut.

use super::{Says, Writer, data};
use crate::results::{Plateau, Results, Sustain, WitnessOutcome};
use crate::sustain::{Shape, plateaus, shape};
use crate::text::{self, vars};
use std::sync::LazyLock;

/// The words of these verdicts.
pub(crate) static SAYS: LazyLock<Says> = LazyLock::new(|| data(include_str!("run.toml")));

pub(crate) fn conclude(results: &Results, w: &mut Writer<'_>) {
    durability(results, w);
    let (measured, skipped) = (results.measured(), results.skipped.len());
    if !results.complete || !results.cells.is_empty() {
        let outcome = if results.complete { "yes" } else { "no" };
        w.say("complete", outcome, vars![measured, skipped, command = results.run.command]);
    }
    if skipped > 0 {
        let mut reasons: Vec<String> =
            results.skipped.iter().take(4).map(|s| format!("{}: {}", s.title, s.reason)).collect();
        if skipped > 4 {
            reasons.push(format!("and {} more", skipped - 4));
        }
        let cells = if skipped == 1 { "one cell".to_owned() } else { format!("{skipped} cells") };
        w.say("skipped", "cells", vars![cells, reasons = reasons.join("; ")]);
    }
    disturbance(results, w);
    if let Some(rate) = results.run.rate.map(text::count) {
        w.say("rate-limited", "held", vars![rate]);
    }
    if let Some(run) = &results.sustain {
        sustained(run, w);
    }
}

fn sustained(Sustain { title, per_second, .. }: &Sustain, w: &mut Writer<'_>) {
    let plateaus = plateaus(per_second);
    let rates = || plateaus.iter().map(|p| p.rate);
    let (first, last) = (plateaus.first().copied().unwrap_or_default(), plateaus.last().copied().unwrap_or_default());
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let [begin, end, low, high] = [first.rate, last.rate, low, high].map(|rate| text::count(near(rate)));
    let (after, total, n, seconds) = (duration(last.from_s), duration(last.to_s), plateaus.len(), per_second.len());
    let step = |p: &Plateau| format!("{} to {} s at {}/s", p.from_s, p.to_s, text::count(p.rate));
    let steps = plateaus.iter().take(6).map(step).collect::<Vec<_>>().join(", ");
    let vars = vars![title, seconds, steps, begin, end, low, high, after, total, n];
    let outcome = match shape(&plateaus) {
        Shape::Held => "held",
        Shape::Rising => "rising",
        Shape::Capped => "capped",
        Shape::Uneven => "uneven",
        Shape::TooShort => "too-short",
    };
    w.say("sustain", outcome, vars);
}

/// Two significant digits: a plateau is no more precise than that.
fn near(rate: f64) -> f64 {
    if rate < 100.0 {
        return rate.round();
    }
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    (rate / unit).round() * unit
}

fn duration(seconds: u32) -> String {
    match f64::from(seconds) {
        s if s < 90.0 => format!("{seconds} s"),
        s if s < 5400.0 => format!("{} minutes", (s / 60.0).round()),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

fn durability(results: &Results, w: &mut Writer<'_>) {
    let Some(WitnessOutcome { acknowledged, lost, torn, reordered, verified }) = &results.witness else {
        return w.say("durability", "untested", &[]);
    };
    let outcome = match lost + torn {
        _ if *acknowledged == 0 => "nothing",
        0 => "survived",
        _ => "failed",
    };
    let [acknowledged, lost_shown, torn_shown] = [acknowledged, lost, torn].map(|n| text::count(*n as f64));
    let vars = vars![acknowledged, lost, torn, reordered, verified, lost_shown, torn_shown];
    w.say("durability", outcome, vars);
}

fn disturbance(results: &Results, w: &mut Writer<'_>) {
    let measured = results.measured();
    if measured == 0 {
        return;
    }
    let rounds = || results.cells.iter().flat_map(|c| &c.rounds).map(|r| r.foreign);
    let disturbed = results.cells.iter().filter(|c| c.disturbed()).count();
    let outcome = if disturbed > 0 {
        "by-load"
    } else if rounds().any(|foreign| foreign.io_bytes_per_s.is_none()) {
        "hidden"
    } else {
        "quiet"
    };
    let busy = || rounds().filter(|foreign| foreign.disturbed);
    let cpu = format!("{:.2}", busy().map(|foreign| foreign.cpu_cores).fold(0.0, f64::max));
    let io = text::bytes(busy().filter_map(|foreign| foreign.io_bytes_per_s).fold(0.0, f64::max));
    w.say("disturbed", outcome, vars![measured, disturbed, cpu, io]);
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::testing::{said, verdict};
    use crate::results::{Skipped, Sustain, WitnessOutcome};
    use crate::{plan, sample};

    #[test]
    fn durability_each_way() {
        let mut r = sample::results(vec![]);
        assert_eq!(said(&r, "run.durability").0, Level::NotTested);
        let seen = WitnessOutcome {
            acknowledged: 12_000,
            lost: 0,
            torn: 0,
            reordered: 3,
            verified: "2026-11-21T08:00:00Z".into(),
        };
        r.witness = Some(seen.clone());
        assert_eq!(said(&r, "run.durability").0, Level::Good);
        r.witness = Some(WitnessOutcome { lost: 2, ..seen.clone() });
        let (level, sentence) = said(&r, "run.durability");
        assert_eq!(level, Level::Warning);
        assert!(sentence.contains("of 12,000 acknowledged writes 2 were lost"), "{sentence}");
        r.witness = Some(WitnessOutcome { acknowledged: 0, ..seen });
        assert_eq!(said(&r, "run.durability").0, Level::CannotTell);
    }

    #[test]
    fn whole_and_interrupted_alone_and_disturbed() {
        let mut r = sample::of_plan(&plan::decisive());
        assert_eq!(said(&r, "run.complete").0, Level::Good);
        assert_eq!(said(&r, "run.disturbed").0, Level::Good);
        assert!(verdict(&r, "run.skipped").is_none());
        assert!(verdict(&r, "run.rate-limited").is_none());
        assert!(verdict(&r, "run.sustain").is_none());
        r.cells[1].rounds[2].foreign.io_bytes_per_s = None;
        assert_eq!(said(&r, "run.disturbed").0, Level::CannotTell);
        r.complete = false;
        r.run.rate = Some(500.0);
        r.cells[0].rounds[0].foreign.disturbed = true;
        r.skipped.push(Skipped { id: "x".into(), title: "WRITE_ZEROES".into(), reason: "Linux 6.17".into() });
        assert_eq!(said(&r, "run.complete").0, Level::Warning);
        assert!(said(&r, "run.disturbed").1.contains(&format!("1 of {}", plan::decisive().len())));
        assert!(said(&r, "run.skipped").1.starts_with("one cell"));
        assert!(said(&r, "run.rate-limited").1.contains("held to 500"));
    }

    #[test]
    fn sustained_each_way() {
        let mut r = sample::results(vec![]);
        let mut says = |series: Vec<u32>| {
            r.sustain = Some(Sustain { title: "16K random writes".into(), per_second: series, plateaus: vec![] });
            said(&r, "run.sustain")
        };
        assert_eq!(says(vec![9000; 300]), (Level::Good, "held 9,000 IOPS for 5 minutes".into()));
        assert_eq!(says(vec![0; 100]).1, "held 0 IOPS for 2 minutes");
        assert_eq!(says(vec![9000; 20]).0, Level::CannotTell);
        assert_eq!(says(vec![]).0, Level::CannotTell);
        let mut capped = vec![9000; 240];
        capped.extend(vec![3000; 240]);
        let (level, sentence) = says(capped);
        assert_eq!(level, Level::Warning);
        assert_eq!(sentence, "capped near 3,000 IOPS after 4 minutes (9,000 before)");
        let uneven = says([vec![9000; 300], vec![4000; 120], vec![6000; 300]].concat()).1;
        assert_eq!(uneven, "moved between 4,000 and 9,000 IOPS in 3 steps over 12 minutes: plan for the lower one");
    }
}
