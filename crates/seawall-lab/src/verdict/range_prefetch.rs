//! E6: range queries with and without read-ahead, compared with the publication and with this disk's own
//! rate.
//!
//! - The reference is the disk's own random reads at depth 32, from the same run: a query that reaches this
//!   rate waits for the disk only.
//! - Pages are counted, not requests: one request reads several pages that are neighbours in the file, and
//!   then a share can exceed 1.

use super::{Answer, Level, Pair, Verdict, Writer, pair};
use crate::cell::{Access, Ahead, Experiment, KeyOrder};
use crate::plan::{QUERIES, WINDOWS, random_read, range_prefetch};
use crate::results::{CellResult, Results};
use crate::text;

const PAGE_BYTES: f64 = 16_384.0;
/// From this share of the disk's random reads on, one query is said to use the whole disk.
const SHARE_GOOD: f64 = 0.85;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::RangePrefetch) };
    for tree in [KeyOrder::Fragmented, KeyOrder::InOrder] {
        adaptive_against_none(results, tree, &mut w);
        share(results, tree, &mut w);
        direct_against_buffered(results, tree, &mut w);
        parallel(results, tree, &mut w);
        windows(results, tree, &mut w);
    }
    page_cache(results, &mut w);
}

fn tree_name(tree: KeyOrder) -> &'static str {
    match tree {
        KeyOrder::InOrder => "a tree in key order",
        KeyOrder::Fragmented => "a fragmented tree",
    }
}

/// 16 KiB pages that a cell read from the device a second, over the disk's random reads at depth 32.
pub(crate) fn share_of_disk(results: &Results, cell: &CellResult) -> Option<f64> {
    let disk = results.cell(&random_read(32))?.rate()?.median;
    let (_, bytes) = cell.device_reads_per_second()?;
    (disk > 0.0).then_some(bytes / PAGE_BYTES / disk)
}

/// Requests and pages a second, and their share of the disk.
fn at_the_device(results: &Results, cell: &CellResult) -> String {
    let Some((reads, bytes)) = cell.device_reads_per_second() else { return "the device's reads are not known".into() };
    let share = share_of_disk(results, cell)
        .map_or_else(String::new, |share| format!(", {:.0}% of the disk's random reads at depth 32", share * 100.0));
    format!("{} device reads/s, {} pages/s{share}", text::count(reads), text::count(bytes / PAGE_BYTES))
}

fn queries(cell: &CellResult) -> String {
    cell.rate().map_or_else(|| "?".into(), |r| format!("{} queries/s", text::count(r.median)))
}

fn with_device(results: &Results, p: &Pair<'_>) -> String {
    format!("{}; {}; without: {}", p.reason(), at_the_device(results, p.a), at_the_device(results, p.b))
}

fn adaptive_against_none(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    let [adaptive, none] = [Ahead::Adaptive, Ahead::None].map(|a| range_prefetch(tree, Access::Direct, a, 1));
    let Some(p) = pair(results, &adaptive, &none) else { return };
    let over = tree_name(tree);
    const PUBLISHED: &str = "published: 3.0x, 30 queries/s against 10";
    let (level, sentence) = match p.answer {
        Answer::More => (
            Level::Good,
            format!("reading ahead makes one query over {over} {} as fast ({}; {PUBLISHED})", p.times(), queries(p.a)),
        ),
        Answer::Less => (
            Level::Warning,
            format!(
                "reading ahead slows one query over {over} down {}: set prefetch_depth = 0 and report it",
                p.times_slower()
            ),
        ),
        Answer::Same => (
            Level::Note,
            format!(
                "reading ahead changes nothing for one query over {over}: the disk has no more to give ({PUBLISHED})"
            ),
        ),
        Answer::Unclear => (
            Level::CannotTell,
            format!("one query over {over}: {} ({PUBLISHED})", p.cannot_tell("adaptive prefetch", "none")),
        ),
    };
    w.add(&format!("adaptive.{}", tree.word()), level, sentence, with_device(results, &p), &p.cells());
}

/// Whether one query uses the whole disk. A page is one random read only if pages are scattered.
fn share(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    if tree != KeyOrder::Fragmented {
        return;
    }
    let Some(cell) = results.cell(&range_prefetch(tree, Access::Direct, Ahead::Adaptive, 1)) else { return };
    let Some(disk) = results.cell(&random_read(32)) else { return };
    let Some(share) = share_of_disk(results, cell).filter(|s| s.is_finite()) else { return };
    let percent = format!("{:.0}%", share * 100.0);
    let (level, sentence) = if share >= SHARE_GOOD {
        (Level::Good, format!("one query over a fragmented tree gets {percent} of what the disk gives at depth 32"))
    } else {
        (
            Level::Note,
            format!(
                "one query over a fragmented tree gets {percent} of what the disk gives at depth 32: the disk has more to give"
            ),
        )
    };
    let reason = format!("{}; {}; {}", super::cell_rate(cell), at_the_device(results, cell), super::cell_rate(disk));
    w.add("share.fragmented", level, sentence, reason, &[cell, disk]);
}

fn direct_against_buffered(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    let [direct, buffered] = [Access::Direct, Access::Buffered].map(|a| range_prefetch(tree, a, Ahead::None, 1));
    let Some(p) = pair(results, &direct, &buffered) else { return };
    let over = tree_name(tree);
    const PUBLISHED: &str = "published: 1.5x slower, 10 queries/s against 15";
    let (level, sentence) = match p.answer {
        Answer::More => (
            Level::Note,
            format!(
                "without prefetch, direct reads of {over} are {} as fast as buffered ones ({PUBLISHED})",
                p.times()
            ),
        ),
        Answer::Less => (
            Level::Note,
            format!(
                "without prefetch, direct reads of {over} are {} slower than buffered ones, which have the kernel's read-ahead ({PUBLISHED})",
                p.times_slower()
            ),
        ),
        Answer::Same => (
            Level::Note,
            format!("without prefetch, direct reads of {over} are as fast as buffered ones, within 10% ({PUBLISHED})"),
        ),
        Answer::Unclear => (
            Level::CannotTell,
            format!("without prefetch, {over}: {} ({PUBLISHED})", p.cannot_tell("direct reads", "buffered ones")),
        ),
    };
    w.add(&format!("direct.{}", tree.word()), level, sentence, with_device(results, &p), &p.cells());
}

/// The gain of concurrent queries when each reads ahead.
fn parallel(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    let spec = |queries| range_prefetch(tree, Access::Direct, Ahead::Adaptive, queries);
    let most = QUERIES[QUERIES.len() - 1];
    let Some(p) = pair(results, &spec(most), &spec(1)) else { return };
    let over = tree_name(tree);
    let (level, sentence) = match p.answer {
        Answer::More => (
            Level::Note,
            format!("{most} queries at a time over {over} do {} what one does, each reading ahead", p.times()),
        ),
        Answer::Less => (
            Level::Warning,
            format!(
                "{most} queries at a time over {over} do less than one alone, {} less: they are in each other's way",
                p.times_slower()
            ),
        ),
        Answer::Same => {
            (Level::Good, format!("one query over {over} already gets all that {most} at a time get, within 10%"))
        }
        Answer::Unclear => {
            (Level::CannotTell, format!("{over}: {}", p.cannot_tell(&format!("{most} queries at a time"), "one")))
        }
    };
    let by_queries: Vec<String> =
        QUERIES.iter().filter_map(|q| Some(format!("{q}: {}", queries(results.cell(&spec(*q))?)))).collect();
    w.add(
        &format!("parallel.{}", tree.word()),
        level,
        sentence,
        format!("{}; by queries at a time: {}", p.reason(), by_queries.join(", ")),
        &p.cells(),
    );
}

/// Adaptive against the best of the fixed windows.
fn windows(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    let fixed = |pages| range_prefetch(tree, Access::Direct, Ahead::Window(pages), 1);
    let rate = |pages: u32| results.cell(&fixed(pages)).and_then(CellResult::rate).map(|r| (pages, r.median));
    let Some((best, _)) = WINDOWS.iter().filter_map(|p| rate(*p)).max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let adaptive = range_prefetch(tree, Access::Direct, Ahead::Adaptive, 1);
    let Some(p) = pair(results, &adaptive, &fixed(best)) else { return };
    let over = tree_name(tree);
    let window = format!("the best fixed window over {over}, {best} pages");
    let (level, sentence) = match p.answer {
        Answer::More => (Level::Good, format!("adaptive prefetch is {} as fast as {window}", p.times())),
        Answer::Less => (Level::Note, format!("adaptive prefetch is {} slower than {window}", p.times_slower())),
        Answer::Same => (Level::Good, format!("adaptive prefetch is as fast as {window}, within 10%")),
        Answer::Unclear => (Level::CannotTell, p.cannot_tell("adaptive prefetch", &window)),
    };
    let all: Vec<String> =
        WINDOWS.iter().filter_map(|p| rate(*p)).map(|(p, r)| format!("{p}: {}", text::count(r))).collect();
    w.add(
        &format!("windows.{}", tree.word()),
        level,
        sentence,
        format!("{}; queries/s by window: {}", p.reason(), all.join(", ")),
        &p.cells(),
    );
}

/// The database was read and leaves nothing in the page cache.
fn page_cache(results: &Results, w: &mut Writer<'_>) {
    let direct = results.cells_of(Experiment::RangePrefetch).filter(|c| c.spec.access == Access::Direct);
    let Some((cell, held)) = direct.filter_map(|c| Some((c, c.cached_bytes_max()?))).max_by_key(|(_, bytes)| *bytes)
    else {
        return;
    };
    let reason = format!("at most {} in the page cache after {}", text::bytes(held as f64), cell.spec.title());
    if held < 1 << 20 {
        w.add("page-cache", Level::Good, "direct queries leave no page cache behind", reason, &[cell]);
    } else {
        let sentence = format!("direct queries left {} in the page cache", text::bytes(held as f64));
        w.add("page-cache", Level::Warning, sentence, reason, &[cell]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};

    const TREES: [KeyOrder; 2] = [KeyOrder::InOrder, KeyOrder::Fragmented];

    #[test]
    fn reading_ahead_each_way_beside_what_was_published() {
        for tree in TREES {
            let [adaptive, none] = [Ahead::Adaptive, Ahead::None].map(|a| range_prefetch(tree, Access::Direct, a, 1));
            let id = format!("range-prefetch.adaptive.{}", tree.word());
            let says = |rate| said(&sample::results(vec![cell(adaptive, rate), cell(none, 100.0)]), &id);
            let (level, sentence) = says(360.0);
            assert_eq!(level, Level::Good);
            assert!(sentence.contains("3.6x") && sentence.contains("30 queries/s against 10"), "{sentence}");
            assert_eq!(says(100.0).0, Level::Note);
            assert_eq!(says(40.0).0, Level::Warning);
            let r = sample::results(vec![noisy(adaptive, 100.0), cell(none, 100.0)]);
            assert_eq!(said(&r, &id).0, Level::CannotTell);
        }
    }

    #[test]
    fn the_share_of_the_disk_is_counted_in_pages() {
        let spec = range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, 1);
        let run = |disk| sample::results(vec![cell(spec, 250.0), cell(random_read(32), disk)]);
        // 160 pages a query.
        let share = share_of_disk(&run(80_000.0), &run(80_000.0).cells[0]).unwrap();
        assert!((share - 0.5).abs() < 0.02, "{share}");
        let (level, sentence) = said(&run(80_000.0), "range-prefetch.share.fragmented");
        assert!(level == Level::Note && sentence.contains("50%"), "{sentence}");
        assert_eq!(said(&run(42_000.0), "range-prefetch.share.fragmented").0, Level::Good);
        let mut unknown = run(80_000.0);
        unknown.cells[0].rounds[2].device = None;
        assert!(verdict(&unknown, "range-prefetch.share.fragmented").is_none());
        unknown.cells.truncate(1);
        assert!(verdict(&unknown, "range-prefetch.share.fragmented").is_none(), "no baseline");
    }

    #[test]
    fn direct_against_buffered_each_way() {
        let [direct, buffered] =
            [Access::Direct, Access::Buffered].map(|a| range_prefetch(KeyOrder::InOrder, a, Ahead::None, 1));
        let says = |rate| {
            said(&sample::results(vec![cell(direct, rate), cell(buffered, 100.0)]), "range-prefetch.direct.in-order").1
        };
        assert!(says(50.0).contains("2.0x slower") && says(50.0).contains("10 queries/s against 15"), "{}", says(50.0));
        assert!(says(200.0).contains("2.0x as fast"));
        assert!(says(100.0).contains("within 10%"));
    }

    #[test]
    fn parallel_queries_each_way() {
        let spec = |q| range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, q);
        let says = |rate| {
            said(
                &sample::results(vec![cell(spec(16), rate), cell(spec(1), 100.0)]),
                "range-prefetch.parallel.fragmented",
            )
            .0
        };
        assert_eq!(says(300.0), Level::Note);
        assert_eq!(says(100.0), Level::Good);
        assert_eq!(says(50.0), Level::Warning);
    }

    #[test]
    fn adaptive_is_held_against_the_best_window() {
        let tree = KeyOrder::Fragmented;
        let says = |rate| {
            let window = |pages| range_prefetch(tree, Access::Direct, Ahead::Window(pages), 1);
            let adaptive = range_prefetch(tree, Access::Direct, Ahead::Adaptive, 1);
            let cells =
                vec![cell(window(4), 80.0), cell(window(32), 100.0), cell(window(64), 95.0), cell(adaptive, rate)];
            said(&sample::results(cells), "range-prefetch.windows.fragmented")
        };
        assert_eq!(says(200.0).0, Level::Good);
        assert!(says(100.0).0 == Level::Good && says(100.0).1.contains("32 pages"), "{}", says(100.0).1);
        assert_eq!(says(60.0).0, Level::Note);
    }

    #[test]
    fn page_cache_each_way() {
        let spec = range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, 4);
        let mut r = sample::results(vec![cell(spec, 100.0)]);
        assert_eq!(said(&r, "range-prefetch.page-cache").0, Level::Good);
        r.cells[0].rounds[1].cached_bytes = Some(200 << 20);
        assert_eq!(said(&r, "range-prefetch.page-cache").0, Level::Warning);
    }
}
