//! Stretches of steady rate in a long run, and the conclusion: held, capped, sagging, or too short to say.
//!
//! - Plateaus are contiguous, in time order, and cover the whole series.
//! - A boundary needs a step of more than 10% that is also far outside the scatter around it. A stall of a
//!   second or two is neither a plateau nor a boundary, because all computations use medians.

use crate::results::Plateau;
use crate::stats;

/// The smallest difference between neighbouring plateaus, as a share of the higher one.
const STEP_MIN: f64 = 0.10;
/// How many standard errors of the medians' difference a step must exceed.
const SIGMAS_MIN: f64 = 5.0;
/// The shortest plateau, seconds.
const PLATEAU_S_MIN: usize = 10;
/// Longer series are first condensed to about this many bins.
const BINS_MAX: usize = 600;
/// Neighbourhood of a boundary, in bins, in which the step is judged.
const WINDOW_BINS: usize = 60;

/// Finds stretches of steady rate by binary segmentation: the split that leaves the least sum of absolute
/// deviations from the two medians, accepted when the step is real, then each side again.
///
/// Source: binary segmentation after Scott and Knott (1974), with medians in place of means (Fryzlewicz 2014
/// reviews it).
///
/// ```
/// let mut series = vec![16_000; 240];
/// series.extend(vec![3_000; 600]);
/// let found = seawall_lab::sustain::plateaus(&series);
/// assert_eq!(found.len(), 2);
/// assert_eq!((found[0].from_s, found[0].to_s, found[1].to_s), (0, 240, 840));
/// assert_eq!(found[1].rate, 3_000.0);
/// assert!(seawall_lab::sustain::plateaus(&[]).is_empty());
/// ```
pub fn plateaus(per_second: &[u32]) -> Vec<Plateau> {
    if per_second.is_empty() {
        return vec![];
    }
    let rate = |seconds: &[u32]| median(&seconds.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let width = per_second.len().div_ceil(BINS_MAX);
    let bins: Vec<f64> = per_second.chunks(width).map(rate).collect();
    let mut cuts = Vec::new();
    segment(&bins, 0, PLATEAU_S_MIN.div_ceil(width).max(4), &mut cuts);
    cuts.sort_unstable();

    let mut edges = vec![0];
    edges.extend(cuts.iter().map(|cut| cut * width));
    edges.push(per_second.len());
    // Two neighbours with the same rate are one plateau.
    let mut i = 1;
    while i + 1 < edges.len() {
        let (left, right) = (rate(&per_second[edges[i - 1]..edges[i]]), rate(&per_second[edges[i]..edges[i + 1]]));
        if (left - right).abs() <= STEP_MIN * left.max(right) {
            edges.remove(i);
            i = i.saturating_sub(1).max(1);
        } else {
            i += 1;
        }
    }
    let second = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    let plateau =
        |w: &[usize]| Plateau { from_s: second(w[0]), to_s: second(w[1]), rate: rate(&per_second[w[0]..w[1]]) };
    edges.windows(2).map(plateau).collect()
}

/// Adds to `cuts` the boundaries found in `bins`, which begin at `offset` of the whole.
fn segment(bins: &[f64], offset: usize, bins_min: usize, cuts: &mut Vec<usize>) {
    let n = bins.len();
    if n < 2 * bins_min {
        return;
    }
    let before = costs(bins.iter());
    let after = costs(bins.iter().rev());
    // before[k - 1] is the cost of the first k bins, after[n - k - 1] that of the rest.
    let best = (bins_min..=n - bins_min)
        .min_by(|&a, &b| (before[a - 1] + after[n - a - 1]).total_cmp(&(before[b - 1] + after[n - b - 1])));
    let Some(cut) = best else { return };
    let left = &bins[cut.saturating_sub(WINDOW_BINS)..cut];
    let right = &bins[cut..(cut + WINDOW_BINS).min(n)];
    if is_step(left, right) {
        cuts.push(offset + cut);
        segment(&bins[..cut], offset, bins_min, cuts);
        segment(&bins[cut..], offset + cut, bins_min, cuts);
    }
}

/// Whether two stretches have different levels.
fn is_step(left: &[f64], right: &[f64]) -> bool {
    let (ml, mr) = (median(left), median(right));
    let residuals: Vec<f64> = left.iter().map(|x| (x - ml).abs()).chain(right.iter().map(|x| (x - mr).abs())).collect();
    // 1.4826 * MAD estimates a standard deviation; a median's standard error is 1.2533 times a mean's.
    let sigma = 1.4826 * median(&residuals);
    let error = 1.2533 * sigma * (1.0 / left.len() as f64 + 1.0 / right.len() as f64).sqrt();
    let step = (ml - mr).abs();
    step > STEP_MIN * ml.max(mr) && step > SIGMAS_MIN * error
}

/// For each prefix, the sum of absolute deviations from its median.
fn costs<'a>(values: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::new();
    values
        .map(|&value| {
            let at = sorted.partition_point(|x| *x < value);
            sorted.insert(at, value);
            let half = sorted.len() / 2;
            let low: f64 = sorted[..half].iter().sum();
            let high: f64 = sorted[sorted.len() - half..].iter().sum();
            high - low
        })
        .collect()
}

fn median(values: &[f64]) -> f64 {
    stats::median(values).unwrap_or(0.0)
}

/// The shape of a long run.
///
/// ```
/// use seawall_lab::sustain::{Shape, plateaus, shape};
/// let of = |seconds: usize| shape(&plateaus(&vec![8_000; seconds]));
/// assert_eq!((of(30), of(600)), (Shape::TooShort, Shape::Held));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One rate from beginning to end.
    Held,
    /// Fast initially, then lower for the rest.
    Capped,
    /// Up and down.
    Uneven,
    /// Faster at the end than at the start.
    Rising,
    /// Under a minute: no conclusion about sustained load.
    TooShort,
}

/// The shape of the plateaus found by [`plateaus`].
pub fn shape(plateaus: &[Plateau]) -> Shape {
    let each_step = |is: fn(&f64, &f64) -> bool| plateaus.windows(2).all(|w| is(&w[1].rate, &w[0].rate));
    match plateaus.last() {
        None => Shape::TooShort,
        Some(last) if last.to_s < 60 => Shape::TooShort,
        Some(_) if plateaus.len() == 1 => Shape::Held,
        Some(last) if each_step(f64::lt) && last.to_s - last.from_s >= 30 => Shape::Capped,
        Some(_) if each_step(f64::gt) => Shape::Rising,
        Some(_) => Shape::Uneven,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    fn noisy(rate: f64, seconds: usize, noise: f64, rng: &mut Pcg64) -> Vec<u32> {
        (0..seconds).map(|_| (rate * (1.0 + noise * rng.random_range(-1.0..1.0))) as u32).collect()
    }

    #[test]
    fn burst_credit_is_found_in_noise() {
        for seed in 0..20 {
            let mut rng = Pcg64::seed_from_u64(seed);
            let mut series = noisy(16_000.0, 240, 0.15, &mut rng);
            series.extend(noisy(3_000.0, 1560, 0.15, &mut rng));
            // A stall and a spike are not plateaus.
            series[100] = 0;
            series[900] = 20_000;
            let found = plateaus(&series);
            assert_eq!(found.len(), 2, "seed {seed}: {found:?}");
            assert!(found[0].to_s.abs_diff(240) <= 3, "seed {seed}: {found:?}");
            assert_eq!(shape(&found), Shape::Capped);
        }
    }

    #[test]
    fn noise_alone_is_one_plateau() {
        for seed in 0..50 {
            let mut rng = Pcg64::seed_from_u64(seed);
            for noise in [0.0, 0.05, 0.3] {
                let series = noisy(5_000.0, 600, noise, &mut rng);
                assert_eq!(plateaus(&series).len(), 1, "seed {seed} noise {noise}: {:?}", plateaus(&series));
            }
        }
        assert_eq!(shape(&plateaus(&[5000; 600])), Shape::Held);
    }

    #[test]
    fn three_levels_and_a_bump_in_the_middle() {
        let mut rng = Pcg64::seed_from_u64(7);
        let mut series = noisy(9_000.0, 300, 0.1, &mut rng);
        series.extend(noisy(4_000.0, 60, 0.1, &mut rng));
        series.extend(noisy(9_000.0, 300, 0.1, &mut rng));
        let found = plateaus(&series);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(shape(&found), Shape::Uneven);
        let mut rising = vec![1000; 100];
        rising.extend(vec![2000; 100]);
        assert_eq!(shape(&plateaus(&rising)), Shape::Rising);
    }

    #[test]
    fn short_empty_and_zero_series_do_not_panic() {
        assert_eq!(shape(&plateaus(&[])), Shape::TooShort);
        assert_eq!(shape(&plateaus(&[1, 2, 3])), Shape::TooShort);
        assert_eq!(plateaus(&[0; 100]).len(), 1);
        assert_eq!(shape(&plateaus(&[0; 100])), Shape::Held);
        let long: Vec<u32> = (0..20_000).map(|i| if i < 10_000 { 500 } else { 100 }).collect();
        assert_eq!(plateaus(&long).len(), 2);
    }
}
