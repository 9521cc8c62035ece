//! Verdicts about the run itself: complete, undisturbed, long enough, tested by a power cut.

use super::Level::{CannotTell, Good, NotTested, Note, Warning};
use super::Writer;
use crate::results::{Plateau, Results};
use crate::sustain::{self, Shape};
use crate::text;

pub(crate) fn conclude(results: &Results, w: &mut Writer<'_>) {
    durability(results, w);
    let skipped = results.skipped.len();
    let planned = format!("{} cells measured, {skipped} skipped; {}", results.measured(), results.run.command);
    if !results.complete {
        let sentence = "the run was interrupted: the verdicts rest on the cells measured so far";
        w.add("complete", Warning, sentence, planned, &[]);
    } else if !results.cells.is_empty() {
        w.add("complete", Good, "every planned cell was tried", planned, &[]);
    }
    if skipped > 0 {
        let mut reason: Vec<String> =
            results.skipped.iter().take(4).map(|s| format!("{}: {}", s.title, s.reason)).collect();
        if skipped > 4 {
            reason.push(format!("and {} more", skipped - 4));
        }
        let cells = if skipped == 1 { "one cell".to_owned() } else { format!("{skipped} cells") };
        w.add("skipped", Note, format!("{cells} could not be measured here"), reason.join("; "), &[]);
    }
    disturbance(results, w);
    if let Some(rate) = results.run.rate.map(text::count) {
        let reason = format!("--rate {rate}: rates are the limit's, not the drive's");
        w.add("rate-limited", Note, format!("the run was held to {rate} operations per second"), reason, &[]);
    }
    if let Some(s) = &results.sustain {
        let plateaus = sustain::plateaus(&s.per_second);
        let (shape, sentence) = sustain::sentence(&plateaus);
        let level = match shape {
            Shape::Held | Shape::Rising => Good,
            Shape::Capped | Shape::Uneven => Warning,
            Shape::TooShort => CannotTell,
        };
        let step = |p: &Plateau| format!("{} to {} s at {}/s", p.from_s, p.to_s, text::count(p.rate));
        let steps: Vec<String> = plateaus.iter().take(6).map(step).collect();
        let reason = format!("{}, {} s: {}", s.title, s.per_second.len(), steps.join(", "));
        w.add("sustain", level, sentence, reason, &[]);
    }
}

fn durability(results: &Results, w: &mut Writer<'_>) {
    let (level, outcome, reason) = match &results.witness {
        None => (
            NotTested,
            "not tested".to_owned(),
            "the only proof is pulling the plug: run `seawall witness serve` on another machine, `seawall witness \
             run` here"
                .to_owned(),
        ),
        Some(seen) => {
            let [n, lost, torn] = [seen.acknowledged, seen.lost, seen.torn].map(|n| text::count(n as f64));
            let reason = format!(
                "{n} acknowledged before the cut; {} lost, {} torn, {} out of order; verified {}",
                seen.lost, seen.torn, seen.reordered, seen.verified
            );
            if seen.acknowledged == 0 {
                let reason = format!("no write was acknowledged before the cut; {reason}");
                (CannotTell, "cannot tell".into(), reason)
            } else if seen.lost + seen.torn > 0 {
                let outcome = format!("FAILED, of {n} acknowledged writes {lost} were lost, {torn} torn");
                (Warning, outcome, format!("do not keep a database here; {reason}"))
            } else {
                (Good, format!("all {n} acknowledged writes survived a power cut"), reason)
            }
        }
    };
    w.add("durability", level, format!("durability under power loss: {outcome}"), reason, &[]);
}

fn disturbance(results: &Results, w: &mut Writer<'_>) {
    let measured = results.measured();
    if measured == 0 {
        return;
    }
    let rounds = || results.cells.iter().flat_map(|c| &c.rounds).map(|r| r.foreign);
    let cells: Vec<_> = results.cells.iter().filter(|c| c.disturbed()).collect();
    let (level, sentence, reason) = if !cells.is_empty() {
        let disturbed = || rounds().filter(|foreign| foreign.disturbed);
        let cpu = disturbed().map(|foreign| foreign.cpu_cores).fold(0.0, f64::max);
        let io = text::bytes(disturbed().filter_map(|foreign| foreign.io_bytes_per_s).fold(0.0, f64::max));
        let (n, busy) = (cells.len(), format!("up to {cpu:.2} cores and {io}/s of foreign I/O"));
        let sentence = format!("other load disturbed {n} of {measured} cells: measure again on a quiet machine");
        (Warning, sentence, format!("even after repeating them; {busy}"))
    } else if rounds().any(|foreign| foreign.io_bytes_per_s.is_none()) {
        let sentence = "nothing else loaded the processors; cannot tell about the disk";
        let hidden = "other processes' I/O is hidden from this user (run as root)";
        let reason = format!("{hidden}; no round of {measured} cells was above the limit for foreign CPU");
        (CannotTell, sentence.into(), reason)
    } else {
        let reason = format!("no round of {measured} cells was above the limit for foreign CPU and I/O");
        (Good, "nothing else loaded the machine while it was measured".into(), reason)
    };
    w.add("disturbed", level, sentence, reason, &cells);
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
        assert_eq!(says(vec![9000; 300]).0, Level::Good);
        assert_eq!(says(vec![9000; 20]).0, Level::CannotTell);
        let mut capped = vec![9000; 240];
        capped.extend(vec![3000; 240]);
        let (level, sentence) = says(capped);
        assert_eq!(level, Level::Warning);
        assert!(sentence.starts_with("capped near 3,000 IOPS after 4 minutes"), "{sentence}");
    }
}
