//! The engine with its defaults and with the recommended settings: whether the recommendations are worth
//! following.
//!
//! - "No difference" is an ordinary outcome, reported in the same place.

use super::{Answer, Level, Verdict, Writer, pair};
use crate::cell::{Experiment, Origin, Pattern};
use crate::plan::under_settings;
use crate::results::Results;
use crate::settings::recommend;
use crate::stats::ROUNDS_MIN;
use crate::text;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::Settings) };
    let differs = differs(results);
    for (load, subject, what) in [
        (Pattern::Update, "commit", "small commits"),
        (Pattern::RangeQuery, "cold-scan", "queries of data that is not in memory"),
    ] {
        let [recommended, default] = [Origin::Recommended, Origin::Default].map(|o| under_settings(load, o));
        let Some(p) = pair(results, &recommended, &default) else { continue };
        let (level, sentence) = match p.answer {
            Answer::More => (
                Level::Good,
                format!("the recommended settings make {} the {what} of the engine's defaults", p.times()),
            ),
            Answer::Less => (
                Level::Warning,
                format!(
                    "the recommended settings are {} slower than the engine's defaults for {what}: keep the defaults",
                    p.times_slower()
                ),
            ),
            Answer::Same => (
                Level::Note,
                format!(
                    "the recommended settings make no difference to {what} here: within 10% of the engine's defaults"
                ),
            ),
            Answer::Unclear if p.limited || p.ratio.samples < ROUNDS_MIN => (
                Level::CannotTell,
                format!("{what}: {}", p.cannot_tell("the recommended settings", "the engine's defaults")),
            ),
            Answer::Unclear => (
                Level::CannotTell,
                format!(
                    "{what}: no difference beyond noise between the recommended settings and the engine's defaults ({} to {})",
                    text::ratio(p.ratio.low),
                    text::ratio(p.ratio.high)
                ),
            ),
        };
        w.add(subject, level, sentence, format!("{}; {differs}", p.reason()), &p.cells());
    }
}

/// Which of the recommended settings differ from the engine's defaults.
fn differs(results: &Results) -> String {
    let changed: Vec<String> = recommend(results)
        .seawall
        .iter()
        .filter(|r| r.changes_default())
        .map(|r| format!("{} = {} (default {})", r.key, r.value, r.default))
        .collect();
    if changed.is_empty() {
        "the recommended settings are the defaults".into()
    } else {
        format!("not the defaults: {}", changed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};

    #[test]
    fn following_the_settings_each_way() {
        for (load, id) in [(Pattern::Update, "settings.commit"), (Pattern::RangeQuery, "settings.cold-scan")] {
            let [recommended, default] = [Origin::Recommended, Origin::Default].map(|o| under_settings(load, o));
            let says = |rate| said(&sample::results(vec![cell(recommended, rate), cell(default, 1e3)]), id);
            assert_eq!(says(2e3).0, Level::Good);
            assert_eq!(says(5e2).0, Level::Warning);
            let (level, sentence) = says(1e3);
            assert!(level == Level::Note && sentence.contains("no difference"), "{sentence}");
            let mut r = sample::results(vec![noisy(recommended, 1e3), cell(default, 1e3)]);
            let (level, sentence) = said(&r, id);
            assert!(level == Level::CannotTell && sentence.contains("no difference beyond noise"), "{sentence}");
            let reason = verdict(&r, id).unwrap().reason;
            assert!(reason.contains("data.flush_method = o_direct (default auto)"), "{reason}");
            r.cells.iter_mut().for_each(|c| c.rounds.truncate(2));
            assert!(said(&r, id).1.contains("only 2 rounds"));
        }
    }
}
