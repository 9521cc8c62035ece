//! Latency distributions as a ridge: one density per row on a common logarithmic axis.
//!
//! - Density is per logarithm of time: equal areas are equal shares of operations. Each row is scaled to its own peak.
//! - The median is a line and the 99th percentile a dot; both are also printed.
//! - Buckets are spread over the columns they cover; nothing is extrapolated beyond the outermost bucket.

use super::Plot;
use super::canvas::{Align, Ink, log_ticks, picture, text_width};
use crate::report::format::{duration, whole};
use histogram::SparseHistogram;

/// One distribution.
#[derive(Debug, Clone)]
pub(crate) struct RidgeRow {
    pub(crate) label: String,
    pub(crate) ink: Ink,
    /// Shares of operations: from ns, to ns, weight.
    pub(crate) buckets: Vec<(f64, f64, f64)>,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
}

impl RidgeRow {
    /// A row for a histogram, `None` when it is empty.
    pub(crate) fn of(label: String, ink: Ink, latency: &SparseHistogram, p50_ns: u64, p99_ns: u64) -> Option<Self> {
        let buckets: Vec<(f64, f64, f64)> = latency
            .iter()
            .map(|b| (b.start().max(1) as f64, b.end().max(1) as f64 + 1.0, b.count() as f64))
            .filter(|b| b.2 > 0.0)
            .collect();
        (!buckets.is_empty()).then_some(Self { label, ink, buckets, p50_ns: p50_ns as f64, p99_ns: p99_ns as f64 })
    }

    /// Share of operations in each of `columns` equal steps of the logarithm from `low` to `high`, peak 1.
    fn density(&self, low: f64, high: f64, columns: usize) -> Vec<f64> {
        let mut sum = vec![0.0; columns];
        let place = |v: f64| (v.log10() - low) / (high - low) * columns as f64;
        for (from, to, weight) in &self.buckets {
            let (a, b) = (place(*from).max(0.0), place(*to).min(columns as f64));
            let width = (b - a).max(1e-9);
            let mut column = a as usize;
            while column < columns && (column as f64) < b {
                let covered = (b.min(column as f64 + 1.0) - a.max(column as f64)).max(0.0);
                sum[column] += weight * covered / width;
                column += 1;
            }
        }
        let smooth: Vec<f64> = (0..columns)
            .map(|i| {
                let at = |d: isize| i.checked_add_signed(d).and_then(|j| sum.get(j)).copied().unwrap_or(0.0);
                (at(-2) + 2.0 * at(-1) + 3.0 * at(0) + 2.0 * at(1) + at(2)) / 9.0
            })
            .collect();
        let peak = smooth.iter().copied().fold(0.0, f64::max);
        smooth.into_iter().map(|v| if peak > 0.0 { v / peak } else { 0.0 }).collect()
    }
}

/// A ridge plot.
#[derive(Debug, Clone)]
pub(crate) struct Ridge {
    pub(crate) rows: Vec<RidgeRow>,
}

impl Plot for Ridge {
    fn draw(&self, width: u32, label: &str) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let buckets = || self.rows.iter().flat_map(|r| &r.buckets);
        let min = buckets().map(|b| b.0).fold(f64::INFINITY, f64::min);
        let max = buckets().map(|b| b.1).fold(1.0, f64::max);
        let all_ticks = log_ticks(min, max);
        let (low, high) = (min.log10() - 0.04, (max * 1.001).log10() + 0.04);
        let full = f64::from(width);
        let names = self.rows.iter().map(|r| text_width(&r.label, 13.0)).fold(0.0, f64::max) + 14.0;
        let beside = full >= 900.0 && names < full * 0.4;
        let left = if beside { names } else { 0.0 };
        let right = if beside { full - 190.0 } else { full - 6.0 };
        let (name, hill, gap) = if beside { (0.0, 42.0, 6.0) } else { (34.0, 34.0, 12.0) };
        let row = name + hill + gap;
        let bottom = 4.0 + row * self.rows.len() as f64;
        let x = |ns: f64| left + ((ns.max(1.0).log10() - low) / (high - low)).clamp(0.0, 1.0) * (right - left);
        let columns = ((right - left) / 3.0) as usize;
        picture(width, bottom + 26.0, label, |c| {
            let mut free = f64::NEG_INFINITY;
            for t in all_ticks.into_iter().filter(|t| (low..=high).contains(&t.log10())) {
                c.line(&[(x(t), 4.0), (x(t), bottom)], Ink::Grid, 1.0)?;
                let text = whole(&duration(t));
                let half = text_width(&text, 11.5) / 2.0;
                let middle = x(t).clamp(half, full - half);
                if middle - half > free {
                    c.text((middle, bottom + 13.0), &text, 11.5, Ink::Muted, Align::Middle)?;
                    free = middle + half + 6.0;
                }
            }
            for (i, r) in self.rows.iter().enumerate() {
                let base = 4.0 + row * (i as f64 + 1.0) - gap;
                let density = r.density(low, high, columns);
                let step = (right - left) / columns.max(1) as f64;
                let top: Vec<(f64, f64)> = density
                    .iter()
                    .enumerate()
                    .map(|(j, d)| (left + (j as f64 + 0.5) * step, base - d * (hill - 4.0)))
                    .collect();
                let mut hull = vec![(left, base)];
                hull.extend(&top);
                hull.push((right, base));
                c.shape(&hull, r.ink, 0.28)?;
                c.line(&[(left, base), (right, base)], Ink::Axis, 1.0)?;
                c.line(&outline(&top, base), r.ink, 1.8)?;
                c.line(&[(x(r.p50_ns), base), (x(r.p50_ns), base - hill + 4.0)], Ink::Text, 1.6)?;
                c.dot((x(r.p99_ns), base), 4.6, Ink::Ground)?;
                c.dot((x(r.p99_ns), base), 3.6, Ink::Text)?;
                let figures = format!("p50 {} · p99 {}", duration(r.p50_ns), duration(r.p99_ns));
                if beside {
                    let middle = base - hill / 2.0 + 4.0;
                    c.text((left - 12.0, middle), &r.label, 13.0, Ink::Text, Align::Right)?;
                    c.text((right + 12.0, middle), &figures, 12.0, Ink::Muted, Align::Left)?;
                } else {
                    c.text((0.0, base - hill - 25.0), &r.label, 12.5, Ink::Text, Align::Left)?;
                    c.text((0.0, base - hill - 9.0), &figures, 11.5, Ink::Muted, Align::Left)?;
                }
            }
            Ok(())
        })
    }
}

/// The part of a density line that rises above its base line.
fn outline(top: &[(f64, f64)], base: f64) -> Vec<(f64, f64)> {
    let visible = |p: &(f64, f64)| base - p.1 > 0.15;
    let first = top.iter().position(visible).unwrap_or(0).saturating_sub(1);
    let last = top.iter().rposition(visible).map_or(0, |i| (i + 2).min(top.len()));
    top.get(first..last).unwrap_or_default().to_vec()
}
