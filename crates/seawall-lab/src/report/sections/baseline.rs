//! Baseline: random reads by requests in flight.

use super::{doubling, log2, point, rate_bar};
use crate::cell::{Experiment, Pattern};
use crate::report::format::{bytes, count, size, tick};
use crate::report::plots::{Bars, Curve, Curves, Ink, Mark, Panel, Span, YScale, panel};
use crate::results::{CellResult, Results};

pub(super) fn panels(results: &Results) -> Vec<String> {
    let mut reads: Vec<&CellResult> =
        results.cells_of(Experiment::Baseline).filter(|c| c.spec.pattern == Pattern::RandomRead).collect();
    reads.sort_by_key(|c| c.spec.queue_depth);
    let sequential = results
        .cells_of(Experiment::Baseline)
        .find(|c| c.spec.pattern == Pattern::SequentialRead)
        .and_then(|c| c.rate().map(|r| (r.median, f64::from(c.spec.block_bytes))));
    let note = sequential.map_or(String::new(), |(rate, block)| {
        format!("In order: {} reads of {} a second, {}/s.", count(rate), size(block), bytes(rate * block))
    });
    let block = reads.first().map_or(String::new(), |c| size(f64::from(c.spec.block_bytes)));
    let words = Panel {
        title: format!("Random {block} direct reads per second"),
        subtitle: "By requests in flight; interval of the median".into(),
        legend: vec![],
        note,
        span: Span::Full,
    };
    if reads.len() < 3 {
        let rows = reads
            .iter()
            .filter_map(|c| {
                let depth = c.spec.queue_depth;
                let label = if depth == 1 { "1 in flight".into() } else { format!("{depth} in flight") };
                rate_bar(c, label, Ink::series(0))
            })
            .collect();
        return vec![panel(&words, &Bars { rows, reference: None, tick })];
    }
    let curve = Curve {
        ink: Ink::series(0),
        mark: Mark::Dot,
        points: reads.iter().filter_map(|c| point(c, log2(c.spec.queue_depth), 1.0)).collect(),
        joined: true,
    };
    vec![panel(
        &words,
        &Curves {
            curves: vec![curve],
            x_ticks: doubling(reads.iter().map(|c| c.spec.queue_depth)),
            x_title: "requests in flight".into(),
            y_scale: YScale::Linear,
            y_tick: tick,
        },
    )]
}
