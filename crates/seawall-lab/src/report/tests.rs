//! The page on unusual input: nothing measured, one round, zeros, NaN, hostile text; and that it stays
//! self-contained.

use super::*;
use crate::cell::{CellSpec, Experiment, Sync};
use crate::experiment::verdicts;
use crate::results::{CellResult, DeviceDelta, Plateau, Skipped, Sustain, WitnessOutcome};
use crate::verdict::{Level, Verdict};
use crate::{plan, sample};
use histogram::SparseHistogram;
use seawall_io::probe::Finding;

const EVIL: &str = "<script>alert(\"1\")</script>'&";

fn verdict(level: Level, sentence: &str, reason: &str) -> Verdict {
    Verdict {
        id: "test".into(),
        experiment: Some(Experiment::DirectSync),
        level,
        sentence: sentence.into(),
        reason: reason.into(),
    }
}

fn page(results: &Results) -> String {
    let mut said = verdicts(results);
    said.push(verdict(Level::Good, EVIL, EVIL));
    let page = super::page(results, &said, &[(EVIL.to_owned(), EVIL.to_owned())]);
    assert!(!page.contains("NaN") && !page.contains(">inf"), "a number that is not one");
    assert_eq!(page.matches("<script>").count(), 1, "only the page's own script");
    for tag in ["section", "details", "figure", "svg", "table", "tr", "ul", "li", "p", "div", "span"] {
        let open = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "unbalanced <{tag}>");
    }
    page
}

#[test]
fn whole_plans_show_every_experiment_and_nothing_from_the_network() {
    for plan in [plan::decisive(), plan::full()] {
        let page = page(&sample::of_plan(&plan));
        for id in ["base", "e1", "e2", "e3", "e4", "e5", "e6", "set", "time", "settings", "cells", "probe", "sources"] {
            assert!(page.contains(&format!("id=\"{id}\"")), "{id} is missing");
        }
        for cell in &plan {
            assert!(page.contains(&cell.title().replace('\'', "&#39;")), "{} is missing from the table", cell.title());
        }
        // Addresses of sources are links; nothing is loaded.
        for outside in ["url(", "@import", "src=", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let addresses = page.matches("http").count();
        assert_eq!(addresses, 2 * page.matches("href=\"http").count(), "an address that is no link");
        assert!(page.contains("http://dom.as/"));
        assert!(page.contains("Durability under power loss: not tested"));
        assert!(page.contains("cache off") && page.contains("contradicts the publication"));
        assert!(page.contains("12,330/s"));
    }
}

#[test]
fn the_engine_is_shown_beside_what_was_published_and_what_may_be_lost() {
    let page = page(&sample::of_plan(&plan::full()));
    let section = |id: &str| {
        let from = page.find(&format!("<section id=\"{id}\"")).unwrap();
        &page[from..from + page[from..].find("</section>").unwrap()]
    };
    let e5 = section("e5");
    for text in ["over 40%", "under 10%", "not measured", "at most the last second", "o_direct_dsync"] {
        assert!(e5.contains(text), "{text} is not in E5");
    }
    let e6 = section("e6");
    for text in
        ["30 queries/s", "15 queries/s", "by fixed window, a fragmented tree", "of disk", "rows of a tree of about"]
    {
        assert!(e6.contains(text), "{text} is not in E6");
    }
    assert!(section("set").contains("flush_method = &#34;"), "the settings that were measured are shown");
    assert!(!self::page(&sample::of_plan(&plan::decisive())).contains("by fixed window"), "no empty axes");
}

#[test]
fn one_cell_of_each_kind_alone_is_a_page() {
    for spec in plan::full() {
        page(&sample::of_plan(&[spec]));
        let mut once = sample::of_plan(&[spec]);
        once.cells[0].rounds.truncate(1);
        page(&once);
    }
}

#[test]
fn nothing_measured_says_so_and_draws_nothing() {
    let mut none = sample::results(vec![]);
    let empty = page(&none);
    assert!(empty.contains("Nothing was measured") && !empty.contains("class=\"panel\""));
    none.complete = false;
    none.skipped = vec![Skipped { id: EVIL.into(), title: EVIL.into(), reason: EVIL.into() }];
    let interrupted = page(&none);
    assert!(interrupted.contains("Incomplete run") && interrupted.contains("Not measured here"));
    let spec = CellSpec::new(Experiment::DirectSync);
    page(&sample::results(vec![CellResult { id: spec.id(), spec, rounds: vec![] }]));
}

#[test]
fn odd_numbers_do_not_panic() {
    for seconds in [0.0, -1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for operations in [0, 1, u64::MAX / 1000] {
            let mut results = sample::of_plan(&plan::full());
            for (i, cell) in results.cells.iter_mut().enumerate() {
                for round in &mut cell.rounds[i % 3..] {
                    round.seconds = seconds;
                    round.operations = operations;
                    round.latency_ns_max = operations;
                    round.device = Some(DeviceDelta { written_bytes: operations, ..DeviceDelta::default() });
                    round.foreign.cpu_cores = seconds;
                    if i % 2 == 0 {
                        round.latency = SparseHistogram::new(6, 40).unwrap();
                    } else if i % 5 == 0 {
                        round.latency = SparseHistogram::new(4, 30).unwrap();
                    }
                }
            }
            results.run.rate = Some(seconds);
            results.sustain = Some(Sustain {
                title: EVIL.into(),
                per_second: vec![0, u32::MAX, u32::try_from(operations % 7).unwrap()],
                plateaus: vec![
                    Plateau { from_s: 9, to_s: 2, rate: seconds },
                    Plateau { from_s: 0, to_s: u32::MAX, rate: seconds },
                ],
            });
            page(&results);
            results.sustain.as_mut().unwrap().per_second.clear();
            page(&results);
        }
    }
}

#[test]
fn text_from_results_is_escaped_everywhere() {
    let mut results = sample::of_plan(&plan::decisive());
    let evil = || EVIL.to_owned();
    results.machine.host = evil();
    results.machine.cpu_model = evil();
    results.machine.kernel = evil();
    results.run.command = evil();
    results.run.io_backend = evil();
    results.started = evil();
    results.seawall_version = evil();
    results.probe.path = EVIL.into();
    results.probe.io_uring_reason = evil();
    if let Finding::Known(device) = &mut results.probe.device {
        device.model = Finding::Known(evil());
        device.volume = evil();
        device.scheduler = Finding::Known(evil());
        device.below = vec![evil()];
    }
    if let Finding::Known(fs) = &mut results.probe.file_system {
        fs.kind = evil();
        fs.options = evil();
        fs.journal = Finding::unknown(EVIL);
    }
    results.cells[0].id = evil();
    results.sustain = Some(Sustain { title: evil(), per_second: vec![5; 100], plateaus: vec![] });
    results.witness = Some(WitnessOutcome { acknowledged: 9, lost: 1, torn: 0, reordered: 0, verified: evil() });
    let shown = page(&results);
    assert!(shown.contains("FAILED") && !shown.contains("power loss: not tested"));
    results.probe.device = Finding::unknown(EVIL);
    results.probe.file_system = Finding::unknown(EVIL);
    page(&results);
}

#[test]
fn warnings_come_first_and_good_news_last() {
    let results = sample::of_plan(&[plan::direct_sync(1, 4096, Sync::None)]);
    let line = |level, sentence| verdict(level, sentence, "");
    let said = [
        line(Level::Good, "all is well"),
        line(Level::NotTested, "power loss"),
        line(Level::Note, "note this"),
        line(Level::Warning, "act now"),
    ];
    let page = super::page(&results, &said, &[]);
    let at = |text: &str| page.find(text).unwrap();
    assert!(
        at("Act now") < at("Note this") && at("Note this") < at("Power loss") && at("Power loss") < at("All is well")
    );
    assert!(!page.contains("id=\"settings\""));
}
