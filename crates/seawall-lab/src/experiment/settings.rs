//! The engine with its defaults and with the recommended settings: whether the recommendations are worth
//! following.
//!
//! - "No difference" is an ordinary outcome, reported in the same place.
//! - A query writes nothing. A database that wrote much more per query than the other was still settling after its
//!   load, and the two are not compared.

use super::commit_levels::COMMIT_THREADS;
use super::definition::Definition;
use crate::cell::{CellSpec, EngineShape, Experiment, KeyOrder, Origin, Pattern};
use crate::evidence::{Bar, Evidence, Panel};
use crate::results::Results;
use crate::settings::recommend;
use crate::summary::changed;
use crate::text::{self, vars};
use crate::verdict::{Pair, Writer, pair};

pub(crate) static EXPERIMENT: Definition =
    Definition { toml: include_str!("settings.toml"), cells, conclude: &[conclude], evidence };

/// From this many bytes written for each query on, a database is still settling.
const SETTLING_BYTES: f64 = 4096.0;

/// The engine with its defaults or with the recommended settings: small commits ([`Pattern::Update`]) by a
/// few threads, or one range query at a time over a fragmented tree that is not in memory
/// ([`Pattern::RangeQuery`]).
///
/// ```
/// use seawall_lab::{cell::{Origin, Pattern}, plan};
/// assert_eq!(plan::under_settings(Pattern::Update, Origin::Default).id(), "set/update/default/t4");
/// let scan = plan::under_settings(Pattern::RangeQuery, Origin::Recommended);
/// assert_eq!(scan.id(), "set/fragmented/ranges/recommended/t1");
/// ```
pub fn under_settings(load: Pattern, settings: Origin) -> CellSpec {
    let reads = load == Pattern::RangeQuery;
    let tree = reads.then_some(KeyOrder::Fragmented);
    CellSpec {
        pattern: load,
        block_bytes: 16 << 10,
        threads: if reads { 1 } else { COMMIT_THREADS },
        engine: Some(EngineShape { tree, settings: Some(settings), ..EngineShape::default() }),
        ..CellSpec::new(Experiment::Settings)
    }
}

const LOADS: [(Pattern, &str, &str); 2] =
    [(Pattern::Update, "commit", "small commits"), (Pattern::RangeQuery, "cold-scan", "cold range queries")];

fn cells(_full: bool) -> Vec<CellSpec> {
    let both = |(load, ..): (Pattern, _, _)| {
        [Origin::Default, Origin::Recommended].map(|settings| under_settings(load, settings))
    };
    LOADS.into_iter().flat_map(both).collect()
}

fn conclude(results: &Results, w: &mut Writer<'_>) {
    let differs = differs(results);
    for (load, subject, what) in LOADS {
        let specs = [Origin::Recommended, Origin::Default].map(|origin| under_settings(load, origin));
        let Some(p) = pair(results, specs) else { continue };
        match settling(&p).filter(|_| load == Pattern::RangeQuery) {
            Some([recommended, default]) => {
                let vars = vars![subject, what, differs, recommended, default, rates = p.reason()];
                w.say("load", "settling", vars);
            }
            None => w.compare("load", p, vars![subject, what, differs]),
        }
    }
}

/// Bytes written for each query under the recommended settings and under the defaults, if the two databases are not in
/// the same state.
fn settling(p: &Pair<'_>) -> Option<[String; 2]> {
    let [recommended, default] = p.cells().map(|c| c.per_operation(|device| Some(device.written_bytes)));
    let (recommended, default) = (recommended?, default?);
    let (most, least) = (recommended.max(default), recommended.min(default));
    (most >= SETTLING_BYTES && most > 4.0 * least).then(|| [recommended, default].map(text::bytes))
}

/// Lists the recommended settings that differ from the engine's defaults.
fn differs(results: &Results) -> String {
    let advice = recommend(results).seawall;
    let changed: Vec<String> =
        changed(&advice).map(|r| format!("{} = {} (default {})", r.key, r.value, r.default)).collect();
    if changed.is_empty() {
        "the recommended settings are the defaults".into()
    } else {
        format!("not the defaults: {}", changed.join(", "))
    }
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    let rates = LOADS.map(|(load, _, what)| {
        let bars = e.cells().filter(|c| c.spec.pattern == load).filter_map(|c| {
            let origin = c.spec.engine?.settings?;
            Bar::rate(c, format!("{origin} settings"), usize::from(origin == Origin::Recommended))
        });
        e.bars("rates", vars![what], bars.collect())
    });
    let mut panels: Vec<Option<Panel>> = rates.into();
    if let Some(engine) = e.results.engine.as_ref().filter(|_| panels.iter().any(Option::is_some)) {
        let rows = engine.settings_line().split("; ").map(|line| vec![line.to_owned()]).collect();
        panels.push(e.table("recommended", &[], rows));
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level;
    use crate::verdict::testing::{noisy, said, verdict};

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
            assert!(level == Level::CannotTell && sentence.starts_with("cannot tell recommended"), "{sentence}");
            let reason = verdict(&r, id).unwrap().reason;
            assert!(reason.contains("data.flush_method = o_direct (default auto)"), "{reason}");
            r.cells.iter_mut().for_each(|c| c.rounds.truncate(2));
            assert!(verdict(&r, id).unwrap().reason.contains("only 2 rounds"));
        }
    }

    #[test]
    fn a_database_that_still_settles_is_not_compared() {
        let [recommended, default] =
            [Origin::Recommended, Origin::Default].map(|o| under_settings(Pattern::RangeQuery, o));
        let mut r = sample::results(vec![cell(recommended, 5e2), cell(default, 1e3)]);
        for round in &mut r.cells[0].rounds {
            round.device.as_mut().unwrap().written_bytes = round.operations * (96 << 10);
        }
        let v = verdict(&r, "settings.cold-scan").unwrap();
        assert_eq!(v.level, Level::CannotTell);
        assert!(v.reason.starts_with("one database was still settling: 96 KiB"), "{}", v.reason);
    }
}
