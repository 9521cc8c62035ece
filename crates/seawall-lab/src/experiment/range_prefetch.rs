//! E6: range queries with and without read-ahead, compared with the publication and with this disk's own
//! rate.
//!
//! - The reference is the disk's own random reads at depth 32, from the same run: a query that reaches this
//!   rate waits for the disk only.
//! - Pages are counted, not requests: one request reads several pages that are neighbours in the file. A
//!   share above 1 is explained by that only if requests were indeed larger than a page; else the reference
//!   was low.

use super::baseline::random_read;
use super::definition::Definition;
use super::published;
use crate::cell::{Access, Ahead, CellSpec, EngineShape, Experiment, KeyOrder, Pattern};
use crate::evidence::{Bar, Evidence, Panel};
use crate::results::{CellResult, Results};
use crate::text::{self, vars};
use crate::verdict::{Writer, cell_rate, most_cached, pair};

pub(crate) static EXPERIMENT: Definition =
    Definition { toml: include_str!("range_prefetch.toml"), cells, conclude: &[by_tree, page_cache], evidence };
/// The published ways to read, in the order of the published figures.
const WAYS: [(Access, Ahead); 3] =
    [(Access::Buffered, Ahead::None), (Access::Direct, Ahead::None), (Access::Direct, Ahead::Adaptive)];
const TREES: [KeyOrder; 2] = [KeyOrder::Fragmented, KeyOrder::InOrder];
/// Numbers of concurrent queries.
const QUERIES: [u32; 4] = [1, 2, 4, 16];
/// Fixed windows of the full run, pages.
const WINDOWS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

const PAGE_BYTES: f64 = 16_384.0;
/// From this share of the disk's random reads on, one query is said to use the whole disk.
const SHARE_GOOD: f64 = 0.85;
/// Above this share the query did more than the reference.
const SHARE_MAX: f64 = 1.05;

/// `queries` concurrent queries read ranges of rows of a tree that does not fit the pool.
///
/// ```
/// use seawall_lab::{cell::{Access, Ahead, KeyOrder}, plan};
/// let cell = plan::range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, 16);
/// assert_eq!(cell.id(), "e6/fragmented/ranges/direct/adaptive/t16");
/// assert_eq!(cell.title(), "fragmented, direct, adaptive prefetch, 16 queries");
/// ```
pub fn range_prefetch(tree: KeyOrder, access: Access, ahead: Ahead, queries: u32) -> CellSpec {
    CellSpec {
        pattern: Pattern::RangeQuery,
        block_bytes: 16 << 10,
        threads: queries,
        access,
        engine: Some(EngineShape { tree: Some(tree), ahead: Some(ahead), ..EngineShape::default() }),
        ..CellSpec::new(Experiment::RangePrefetch)
    }
}

fn cells(full: bool) -> Vec<CellSpec> {
    let mut cells = Vec::new();
    for tree in [KeyOrder::InOrder, KeyOrder::Fragmented] {
        for (access, ahead) in WAYS {
            cells.extend(QUERIES.map(|queries| range_prefetch(tree, access, ahead, queries)));
        }
        if full {
            cells.extend(WINDOWS.map(|pages| range_prefetch(tree, Access::Direct, Ahead::Window(pages), 1)));
        }
    }
    cells
}

fn by_tree(results: &Results, w: &mut Writer<'_>) {
    for tree in TREES {
        let [buffered, direct, adaptive] = WAYS;
        two_ways(results, "adaptive", tree, [adaptive, direct], w);
        if tree == KeyOrder::Fragmented {
            share(results, w);
        }
        two_ways(results, "direct", tree, [direct, buffered], w);
        parallel(results, tree, w);
        windows(results, tree, w);
    }
}

/// 16 KiB pages that a cell read from the device a second, over the disk's random reads at depth 32.
fn share_of_disk(results: &Results, cell: &CellResult) -> Option<f64> {
    let disk = results.cell(&random_read(32))?.median()?;
    let (_, bytes) = cell.device_reads_per_second()?;
    (disk > 0.0).then_some(bytes / PAGE_BYTES / disk).filter(|s| s.is_finite())
}

/// Requests and pages a second, and their share of the disk.
fn at_the_device(results: &Results, cell: &CellResult) -> String {
    let Some((reads, bytes)) = cell.device_reads_per_second() else { return "the device's reads are not known".into() };
    let share = share_of_disk(results, cell)
        .map_or_else(String::new, |share| format!(", {} of the disk's random reads at depth 32", text::percent(share)));
    format!("{} device reads/s, {} pages/s{share}", text::count(reads), text::count(bytes / PAGE_BYTES))
}

/// Two ways of one query, with what the device did for each.
fn two_ways(results: &Results, key: &str, tree: KeyOrder, ways: [(Access, Ahead); 2], w: &mut Writer<'_>) {
    let specs = ways.map(|(access, ahead)| range_prefetch(tree, access, ahead, 1));
    let Some(p) = pair(results, specs) else { return };
    let device = format!("{}; without: {}", at_the_device(results, p.a), at_the_device(results, p.b));
    w.compare(key, p, vars![tree, over = tree.words(), device]);
}

/// Whether one query uses the whole disk. A page is one random read only if pages are scattered.
fn share(results: &Results, w: &mut Writer<'_>) {
    let spec = range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, 1);
    let (Some(cell), Some(disk)) = (results.cell(&spec), results.cell(&random_read(32))) else { return };
    let Some(share) = share_of_disk(results, cell) else { return };
    let Some((reads, bytes)) = cell.device_reads_per_second() else { return };
    let outcome = match share {
        SHARE_GOOD..=SHARE_MAX => "much",
        ..=SHARE_MAX => "little",
        _ if bytes / PAGE_BYTES > 1.1 * reads => "merged",
        _ => "unclear",
    };
    let (rate, device, disk_rate) = (cell_rate(cell), at_the_device(results, cell), cell_rate(disk));
    let (share, pages) = (text::percent(share), format!("{:.1}", bytes / PAGE_BYTES / reads.max(1.0)));
    w.say("share", outcome, vars![rate, device, disk_rate, share, pages]);
}

/// The gain of concurrent queries when each reads ahead.
fn parallel(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    let spec = |queries| range_prefetch(tree, Access::Direct, Ahead::Adaptive, queries);
    let most = QUERIES[QUERIES.len() - 1];
    let rate = |q: u32| Some(format!("{q}: {}", text::count(results.cell(&spec(q))?.median()?)));
    let by_queries = QUERIES.into_iter().filter_map(rate).collect::<Vec<_>>().join(", ");
    w.compare("parallel", pair(results, [most, 1].map(spec)), vars![tree, most, over = tree.words(), by_queries]);
}

/// Adaptive against the best of the fixed windows.
fn windows(results: &Results, tree: KeyOrder, w: &mut Writer<'_>) {
    let spec = |ahead| range_prefetch(tree, Access::Direct, ahead, 1);
    let rate = |pages: u32| Some((pages, results.cell(&spec(Ahead::Window(pages)))?.median()?));
    let rates: Vec<(u32, f64)> = WINDOWS.into_iter().filter_map(rate).collect();
    let Some(&(best, _)) = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let by_window: Vec<String> = rates.iter().map(|(pages, rate)| format!("{pages}: {}", text::count(*rate))).collect();
    let p = pair(results, [Ahead::Adaptive, Ahead::Window(best)].map(spec));
    w.compare("windows", p, vars![tree, best, over = tree.words(), by_window = by_window.join(", ")]);
}

/// Reports whether direct reads left pages of the database in the page cache.
fn page_cache(results: &Results, w: &mut Writer<'_>) {
    let direct = results.cells_of(Experiment::RangePrefetch).filter(|c| c.spec.access == Access::Direct);
    let Some((cell, cached)) = most_cached(direct) else { return };
    let outcome = if cached < 1 << 20 { "none" } else { "left" };
    w.say("page-cache", outcome, vars![size = text::bytes(cached as f64), title = cell.spec.title()]);
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    let mut panels = Vec::new();
    for tree in TREES {
        let over = vars![over = tree.words()];
        let of_tree = |spec: &CellSpec| spec.engine.filter(|e| e.tree == Some(tree)).and_then(|e| e.ahead);
        let by_queries = |spec: &CellSpec| match of_tree(spec)? {
            Ahead::Window(_) => None,
            ahead => Some((format!("{}, {}", spec.access.words(), ahead.words()), spec.threads)),
        };
        let by_window = |spec: &CellSpec| match of_tree(spec)? {
            Ahead::Window(pages) => Some((String::new(), pages)),
            _ => None,
        };
        panels.push(one_query(e, tree));
        panels.push(e.rates_over("by-queries", over, by_queries));
        panels.push(e.rates_over("by-window", over, by_window));
    }
    panels.push(at_the_device_table(e));
    panels
}

/// One query at a time, the published rates scaled to direct reads without prefetch.
fn one_query(e: &Evidence<'_>, tree: KeyOrder) -> Option<Panel> {
    let cell = |access, ahead| e.results.cell(&range_prefetch(tree, access, ahead, 1));
    let base = cell(Access::Direct, Ahead::None).and_then(CellResult::median);
    let figures = published(Experiment::RangePrefetch);
    let bars = WAYS.into_iter().zip(figures).enumerate().filter_map(|(i, ((access, ahead), figure))| {
        let bar = Bar::rate(cell(access, ahead)?, format!("{}, {}", access.words(), ahead.words()), i)?;
        let published = Some((figure.rates[0], figures[1].rates[0], " queries/s"));
        Some(bar.relative(base, text::ratio, published))
    });
    e.bars("one-query", vars![over = tree.words()], bars.collect())
}

/// Every cell with its queries, device reads, and share of the disk's rate.
fn at_the_device_table(e: &Evidence<'_>) -> Option<Panel> {
    let rows = e.cells().map(|cell| {
        let device = cell.device_reads_per_second();
        vec![
            cell.spec.title(),
            text::or_missing(cell.median(), text::count),
            text::or_missing(device, |(reads, _)| text::count(reads)),
            text::or_missing(device, |(_, bytes)| text::count(bytes / PAGE_BYTES)),
            text::or_missing(share_of_disk(e.results, cell), text::percent),
        ]
    });
    let sizes = e.results.engine.as_ref().map_or_else(String::new, |e| {
        let rows = text::count(f64::from(e.range_rows));
        let [tree, pool] = [e.tree_bytes, e.pool_bytes].map(|bytes| text::bytes(bytes as f64));
        format!(" A query reads {rows} rows of a tree of about {tree}, through a pool of {pool}.")
    });
    e.table("at-the-device", vars![sizes], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level;
    use crate::verdict::testing::{noisy, said, verdict};

    const TREES: [KeyOrder; 2] = [KeyOrder::InOrder, KeyOrder::Fragmented];

    #[test]
    fn reading_ahead_each_way_beside_what_was_published() {
        for tree in TREES {
            let [adaptive, none] = [Ahead::Adaptive, Ahead::None].map(|a| range_prefetch(tree, Access::Direct, a, 1));
            let id = format!("range-prefetch.adaptive.{}", tree.word());
            let says = |rate| said(&sample::results(vec![cell(adaptive, rate), cell(none, 100.0)]), &id);
            assert_eq!(says(360.0).0, Level::Good);
            let v = verdict(&sample::results(vec![cell(adaptive, 360.0), cell(none, 100.0)]), &id).unwrap();
            assert!(v.sentence.contains("3.6x") && v.reason.contains("30 queries/s against 10"), "{v:?}");
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
        // More than the disk gave: explained by merged requests only if requests were larger than a page.
        let (level, sentence) = said(&run(30_000.0), "range-prefetch.share.fragmented");
        assert!(level == Level::CannotTell && sentence.starts_with("cannot tell what share"), "{sentence}");
        let mut merged = run(30_000.0);
        for round in &mut merged.cells[0].rounds {
            round.device.as_mut().unwrap().reads /= 4;
        }
        assert!(said(&merged, "range-prefetch.share.fragmented").1.contains("neighbours are merged"));
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
        assert!(says(50.0).contains("2.0x slower"), "{}", says(50.0));
        assert!(says(200.0).contains("2.0x as fast"));
        assert!(says(100.0).contains("as fast as buffered"));
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
        assert!(says(100.0).0 == Level::Good && says(100.0).1.contains("32 fixed pages"), "{}", says(100.0).1);
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
