//! Sizes and durations as people write them.

pub(crate) use seawall_bench::report::bytes;

use std::time::Duration;

/// Returns the number before the unit, times the unit's factor; `None` without a number or with an
/// unknown unit.
pub(crate) fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.trim().parse::<f64>().ok()? * factor)
}

/// Parses a size such as `4096`, `512K` or `1.5G`: bytes, in powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 5] =
        [("", 1.0), ("k", 1024.0), ("m", 1_048_576.0), ("g", 1_073_741_824.0), ("t", 1_099_511_627_776.0)];
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    // Less than a byte means a forgotten unit. It is not 0, which can mean "no limit".
    let is_size = |bytes: &f64| *bytes == 0.0 || (1.0..1e18).contains(bytes);
    let bytes = scaled(lower, &UNITS).filter(is_size).map(|bytes| bytes as u64);
    bytes.ok_or_else(|| format!("{text:?} is not a size: write a number with K, M, G or T, such as 512M"))
}

/// Parses a time such as `500ms`, `5s`, `30m` or `2h`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] = [("ms", 1e-3), ("", 1.0), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0)];
    let time = scaled(text.trim(), &UNITS).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| format!("{text:?} is not a duration: write a number with ms, s, m or h, such as 30m"))
}

/// Parses a number above 0.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text:?} is not a rate: write a number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_units_in_many_ways() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("1.5 GiB"), Ok(3 << 29));
        assert_eq!(size("4096"), Ok(4096));
        assert!(size("ten").is_err() && size("-1").is_err() && size("5X").is_err() && size("").is_err());
        assert!(size("0.5").is_err() && size("0") == Ok(0));
        assert_eq!(duration("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert!(duration("0s").is_err() && duration("soon").is_err() && duration("5 parsecs").is_err());
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(12), "12 B");
    }
}
