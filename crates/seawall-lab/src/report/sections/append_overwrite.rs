//! E4: appending, preallocating and overwriting, each relative to overwriting.
//!
//! - Ten years of hardware separate the published rates and the user's: both are shown relative to their own
//!   overwrite, with the rates printed.
//! - Colours show the origin of the blocks: written before, grown by the write, zero-filled, or prepared
//!   ahead.
//! - An access path with fewer than three cells is shown beside the main one, not on its own.

use crate::cell::{Access, Beside, CellSpec, Experiment, Preparation, Sync};
use crate::published;
use crate::report::format::{count, percent, tick};
use crate::report::plots::{Bar, Bars, Ink, Mark, Panel, Span, panel};
use crate::results::{CellResult, Results};
use std::cmp::Reverse;

const MAIN: (Access, Sync) = (Access::Buffered, Sync::Fdatasync);

pub(super) fn panels(results: &Results) -> Vec<String> {
    let cells: Vec<&CellResult> = results.cells_of(Experiment::AppendOverwrite).collect();
    let mut paths: Vec<(Access, Sync)> = Vec::new();
    for c in &cells {
        if !paths.contains(&path(&c.spec)) {
            paths.push(path(&c.spec));
        }
    }
    let of = |p: (Access, Sync)| cells.iter().copied().filter(move |c| path(&c.spec) == p);
    paths.sort_by_key(|p| (*p != MAIN, Reverse(of(*p).count())));
    let Some(main) = paths.first().copied() else { return vec![] };
    let (large, small): (Vec<_>, Vec<_>) = paths.into_iter().skip(1).partition(|p| of(*p).count() >= 3);
    let mut first: Vec<&CellResult> = of(main).collect();
    first.extend(small.into_iter().flat_map(of));
    let mut panels = vec![plot(main, first, Span::Full)];
    // Rows of two; a remaining panel takes the full width.
    let last = large.len() - large.len() % 2;
    let spans = (0..large.len()).map(|i| if i < last { Span::Half } else { Span::Full });
    panels.extend(large.iter().zip(spans).map(|(p, span)| plot(*p, of(*p).collect(), span)));
    panels
}

fn path(spec: &CellSpec) -> (Access, Sync) {
    (spec.access, spec.sync)
}

fn plot(main: (Access, Sync), mut cells: Vec<&CellResult>, span: Span) -> String {
    cells.sort_by_key(|c| (path(&c.spec) != main, order(c.spec.preparation)));
    let reference = cells
        .iter()
        .find(|c| c.spec.preparation == Preparation::Written && c.spec.beside == Beside::Nothing)
        .and_then(|c| c.rate())
        .map(|r| r.median)
        .filter(|m| *m > 0.0);
    let mut families: Vec<(Ink, &str)> = Vec::new();
    let mut rows = Vec::new();
    for c in cells {
        let Some(rate) = c.rate() else { continue };
        let unit = reference.map_or(1.0, |r| r / 100.0);
        let (ink, family) = family(c.spec.preparation);
        if !families.contains(&(ink, family)) {
            families.push((ink, family));
        }
        let mut text = format!("{}/s", count(rate.median));
        if reference.is_some() {
            text = format!("{} · {text}", percent(rate.median / unit / 100.0));
        }
        let published = published_share(c.spec.preparation)
            .filter(|_| {
                reference.is_some() && main == MAIN && path(&c.spec) == main && c.spec.beside == Beside::Nothing
            })
            .map(|(share, rate)| (share * 100.0, format!("{} · {}/s", percent(share), count(rate))));
        rows.push(Bar {
            low: rate.low / unit,
            high: rate.high / unit,
            published,
            ..Bar::new(name(&c.spec, main), rate.median / unit, text, ink)
        });
    }
    let mut legend: Vec<_> = families.into_iter().map(|(ink, name)| (Mark::Block, ink, name.to_owned())).collect();
    let quoted = rows.iter().any(|r| r.published.is_some());
    if quoted {
        legend.push((Mark::Block, Ink::Published, "published 2009: ext3, battery-backed cache".into()));
    }
    let relative = if reference.is_some() { "relative to overwriting = 100%" } else { "of writes per second" };
    let words = Panel {
        title: format!("8 KiB writes, {}", path_words(main)),
        subtitle: if main == MAIN {
            format!("Rate {relative}, by what the file's blocks were before; whiskers: interval of the median")
        } else {
            format!("Rate {relative}, each panel its own")
        },
        // Small multiples share the first panel's legend.
        legend: if span == Span::Full { legend } else { vec![] },
        note: if quoted {
            "zfs reached about 7,000/s in 2009 either way: a file system that never overwrites in place gains \
             nothing from preallocation."
                .into()
        } else {
            String::new()
        },
        span,
    };
    let tick = if reference.is_some() { |v| format!("{}%", tick(v)) } else { tick };
    panel(&words, &Bars { rows, reference: reference.map(|_| 100.0), tick })
}

fn path_words((access, sync): (Access, Sync)) -> String {
    let access = match access {
        Access::Buffered => "buffered",
        Access::Uncached => "buffered, cache dropped",
        Access::DontCache => "RWF_DONTCACHE",
        Access::Direct => "direct",
    };
    match sync {
        Sync::None => access.to_owned(),
        Sync::Fdatasync => format!("{access}, fdatasync each"),
        Sync::RwfDsync => format!("{access}, RWF_DSYNC each"),
        Sync::ODsync => format!("{access}, O_DSYNC"),
    }
}

fn name(spec: &CellSpec, main: (Access, Sync)) -> String {
    let mut name = match spec.preparation {
        Preparation::Written => "overwrite a written file",
        Preparation::Append => "append to an empty file",
        Preparation::Unwritten => "fallocated, unwritten extents",
        Preparation::KeepSize => "append into reserved space",
        Preparation::WriteZeroes => "after WRITE_ZEROES",
        Preparation::Recycled => "recycled file",
        Preparation::ZeroFilledNow => "zero-filled, at once",
        Preparation::ZeroFilledWait => "zero-filled, 20 s later",
        Preparation::Preallocated => "preallocated",
    }
    .to_owned();
    if spec.beside == Beside::PacedFill {
        name.push_str(", fill beside");
    }
    if spec.access != main.0 {
        name.push_str(if spec.access == Access::Direct { ", direct" } else { ", buffered" });
    }
    if spec.sync != main.1 {
        name.push_str(", ");
        name.push_str(spec.sync.word());
    }
    name
}

fn order(preparation: Preparation) -> usize {
    use Preparation as P;
    [
        P::Written,
        P::Append,
        P::KeepSize,
        P::Unwritten,
        P::ZeroFilledNow,
        P::ZeroFilledWait,
        P::WriteZeroes,
        P::Recycled,
        P::Preallocated,
    ]
    .iter()
    .position(|p| *p == preparation)
    .unwrap_or(usize::MAX)
}

fn family(preparation: Preparation) -> (Ink, &'static str) {
    use Preparation as P;
    match preparation {
        P::Written => (Ink::series(0), "blocks already written"),
        P::Append | P::KeepSize | P::Unwritten => (Ink::series(1), "size or extents change at the write"),
        P::ZeroFilledNow | P::ZeroFilledWait => (Ink::series(3), "zero-filled through the page cache"),
        P::WriteZeroes | P::Recycled | P::Preallocated => (Ink::series(2), "prepared ahead"),
    }
}

/// The published rate for a preparation, relative to the published overwrite, and absolute.
fn published_share(preparation: Preparation) -> Option<(f64, f64)> {
    let rate = |what: &str| published::figures(Experiment::AppendOverwrite).find(|f| f.what == what).map(|f| f.rate);
    let what = match preparation {
        Preparation::Append => "append to an empty file",
        Preparation::Written => "overwrite a full file",
        Preparation::ZeroFilledNow => "zero-fill, overwrite at once",
        Preparation::ZeroFilledWait => "zero-fill, wait 20 s, overwrite",
        _ => return None,
    };
    Some((rate(what)? / rate("overwrite a full file")?, rate(what)?))
}
