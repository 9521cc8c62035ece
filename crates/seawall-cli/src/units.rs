//! Sizes and durations as people write them.

use std::time::Duration;

/// `4096`, `512K`, `1.5G`: bytes, in powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let split = lower.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(split);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{text:?} is no size: write a number with K, M, G or T, such as 512M")),
    };
    let bytes =
        number.trim().parse::<f64>().ok().map(|n| n * f64::from(shift).exp2()).filter(|n| (0.0..1e18).contains(n));
    bytes
        .map(|n| n as u64)
        .ok_or_else(|| format!("{text:?} is no size: write a number with K, M, G or T, such as 512M"))
}

/// `500ms`, `5s`, `30m`, `2h`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let factor = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.trim().parse::<f64>().unwrap_or(f64::NAN) * factor;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(format!("{text:?} is no duration: write a number with ms, s, m or h, such as 30m")),
    }
}

/// Bytes for people: `12.3 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
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
        assert_eq!(duration("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert!(duration("0s").is_err() && duration("soon").is_err() && duration("5 parsecs").is_err());
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(12), "12 B");
    }
}
