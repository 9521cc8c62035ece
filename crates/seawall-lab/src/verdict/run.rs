//! Verdicts about the run itself: complete, undisturbed, long enough, tested by a power cut.

use super::{Level, Writer};
use crate::results::Results;
use crate::sustain::{self, Shape};
use crate::text;

pub(crate) fn conclude(results: &Results, w: &mut Writer<'_>) {
    durability(results, w);
    if results.complete {
        if !results.cells.is_empty() {
            w.add("complete", Level::Good, "every planned cell was tried", cells_planned(results), &[]);
        }
    } else {
        w.add(
            "complete",
            Level::Warning,
            "the run was interrupted: the verdicts rest on the cells measured so far",
            cells_planned(results),
            &[],
        );
    }
    if !results.skipped.is_empty() {
        let mut reason: Vec<String> =
            results.skipped.iter().take(4).map(|s| format!("{}: {}", s.title, s.reason)).collect();
        if results.skipped.len() > 4 {
            reason.push(format!("and {} more", results.skipped.len() - 4));
        }
        let n = results.skipped.len();
        let sentence = if n == 1 {
            "one cell could not be measured here".to_owned()
        } else {
            format!("{n} cells could not be measured here")
        };
        w.add("skipped", Level::Note, sentence, reason.join("; "), &[]);
    }
    disturbance(results, w);
    if let Some(rate) = results.run.rate {
        w.add(
            "rate-limited",
            Level::Note,
            format!("the run was held to {} operations per second", text::count(rate)),
            format!("--rate {}: rates are the limit's, not the drive's", text::count(rate)),
            &[],
        );
    }
    if let Some(s) = &results.sustain {
        let plateaus = sustain::plateaus(&s.per_second);
        let (shape, sentence) = sustain::sentence(&plateaus);
        let level = match shape {
            Shape::Held | Shape::Rising => Level::Good,
            Shape::Capped | Shape::Uneven => Level::Warning,
            Shape::TooShort => Level::CannotTell,
        };
        let steps: Vec<String> = plateaus
            .iter()
            .take(6)
            .map(|p| format!("{} to {} s at {}/s", p.from_s, p.to_s, text::count(p.rate)))
            .collect();
        let reason = format!("{}, {} s: {}", s.title, s.per_second.len(), steps.join(", "));
        w.add("sustain", level, sentence, reason, &[]);
    }
}

fn durability(results: &Results, w: &mut Writer<'_>) {
    let Some(seen) = &results.witness else {
        w.add(
            "durability",
            Level::NotTested,
            "durability under power loss: not tested",
            "the only proof is pulling the plug: run `seawall witness serve` on another machine, `seawall witness \
             run` here",
            &[],
        );
        return;
    };
    let n = text::count(seen.acknowledged as f64);
    let reason = format!(
        "{n} acknowledged before the cut; {} lost, {} torn, {} out of order; verified {}",
        seen.lost, seen.torn, seen.reordered, seen.verified
    );
    if seen.acknowledged == 0 {
        let reason = format!("no write was acknowledged before the cut; {reason}");
        w.add("durability", Level::CannotTell, "durability under power loss: cannot tell", reason, &[]);
    } else if seen.lost + seen.torn > 0 {
        w.add(
            "durability",
            Level::Warning,
            format!(
                "durability under power loss: FAILED, of {n} acknowledged writes {} were lost, {} torn",
                text::count(seen.lost as f64),
                text::count(seen.torn as f64)
            ),
            format!("do not keep a database here; {reason}"),
            &[],
        );
    } else {
        w.add(
            "durability",
            Level::Good,
            format!("durability under power loss: all {n} acknowledged writes survived a power cut"),
            reason,
            &[],
        );
    }
}

fn disturbance(results: &Results, w: &mut Writer<'_>) {
    let cells: Vec<_> = results.cells.iter().filter(|c| c.disturbed()).collect();
    let measured = results.cells.iter().filter(|c| !c.rounds.is_empty()).count();
    if measured == 0 {
        return;
    }
    if cells.is_empty() {
        let unseen = results.cells.iter().flat_map(|c| &c.rounds).any(|r| r.foreign.io_bytes_per_s.is_none());
        if unseen {
            w.add(
                "disturbed",
                Level::CannotTell,
                "nothing else loaded the processors; cannot tell about the disk",
                format!(
                    "other processes' I/O is hidden from this user (run as root); no round of {measured} cells \
                         was above the limit for foreign CPU"
                ),
                &[],
            );
            return;
        }
        w.add(
            "disturbed",
            Level::Good,
            "nothing else loaded the machine while it was measured",
            format!("no round of {measured} cells was above the limit for foreign CPU and I/O"),
            &[],
        );
        return;
    }
    let rounds = cells.iter().flat_map(|c| &c.rounds).filter(|r| r.foreign.disturbed);
    let (mut cpu, mut io) = (0.0_f64, 0.0_f64);
    for round in rounds {
        cpu = cpu.max(round.foreign.cpu_cores);
        io = io.max(round.foreign.io_bytes_per_s.unwrap_or(0.0));
    }
    w.add(
        "disturbed",
        Level::Warning,
        format!("other load disturbed {} of {measured} cells: measure again on a quiet machine", cells.len()),
        format!("even after repeating them; up to {cpu:.2} cores and {}/s of foreign I/O", text::bytes(io)),
        &cells,
    );
}

fn cells_planned(results: &Results) -> String {
    let measured = results.cells.iter().filter(|c| !c.rounds.is_empty()).count();
    format!("{measured} cells measured, {} skipped; {}", results.skipped.len(), results.run.command)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{said, verdict};
    use super::*;
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
        assert_eq!(says(vec![9000; 300]).0, Level::Good);
        assert_eq!(says(vec![9000; 20]).0, Level::CannotTell);
        let mut capped = vec![9000; 240];
        capped.extend(vec![3000; 240]);
        let (level, sentence) = says(capped);
        assert_eq!(level, Level::Warning);
        assert!(sentence.starts_with("capped near 3,000 IOPS after 4 minutes"), "{sentence}");
    }
}
