//! Numbers and text as the report shows them.
//!
//! - [`escape`] is the only path by which text from a results file enters the page.
//! - A number that is not finite is shown as an en dash, never as `NaN` or `inf`.
//! - Three significant digits: the intervals beside the figures justify no more.

/// Shown where a figure is missing.
pub(crate) const MISSING: &str = "–";

/// Between a figure and its unit.
const NO_BREAK: char = '\u{a0}';

/// Text made safe for element content and for quoted attributes; control characters are dropped.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// `0.43`, `7.4`, `212`, `3,086`, `12.3k`, `1.40M`.
pub(crate) fn count(value: f64) -> String {
    if !value.is_finite() {
        return MISSING.into();
    }
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.001 => format!("{value:.0e}"),
        v if v < 0.0995 => format!("{value:.3}"),
        v if v < 0.995 => format!("{value:.2}"),
        v if v < 9.95 => trim(format!("{value:.1}")),
        v if v < 999.5 => format!("{value:.0}"),
        v if v < 9999.5 => {
            let text = format!("{value:.0}");
            let (head, tail) = text.split_at(text.len() - 3);
            format!("{head},{tail}")
        }
        v if v < 1e15 => scaled(value, 1000.0, &["k", "M", "G", "T"]),
        _ => format!("{value:.1e}"),
    }
}

/// A tick label: like [`count`], without unneeded digits (`10k`, `2.5k`).
pub(crate) fn tick(value: f64) -> String {
    if !value.is_finite() {
        return MISSING.into();
    }
    match value.abs() {
        0.0 => "0".into(),
        v if !(0.01..1e15).contains(&v) => format!("{value:e}"),
        v if v < 1000.0 => trim(format!("{value:.2}")),
        v if v < 1e6 => trim(format!("{:.2}", value / 1e3)) + "k",
        v if v < 1e9 => trim(format!("{:.2}", value / 1e6)) + "M",
        _ => trim(format!("{:.2}", value / 1e9)) + "G",
    }
}

/// Nanoseconds as `840 ns`, `84 µs`, `1.24 ms`, `2.5 s`.
pub(crate) fn duration(ns: f64) -> String {
    if !ns.is_finite() || ns < 0.0 {
        return MISSING.into();
    }
    let (value, unit) = match ns {
        v if v < 999.5 => (v, "ns"),
        v if v < 999.5e3 => (v / 1e3, "µs"),
        v if v < 999.5e6 => (v / 1e6, "ms"),
        v => (v / 1e9, "s"),
    };
    format!("{}{NO_BREAK}{unit}", digits(value))
}

/// Bytes as `512 B`, `8.0 KiB`, `1.5 GiB`.
pub(crate) fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return MISSING.into();
    }
    if value.abs() < 1023.5 {
        return format!("{value:.0}{NO_BREAK}B");
    }
    scaled(value, 1024.0, &["\u{a0}KiB", "\u{a0}MiB", "\u{a0}GiB", "\u{a0}TiB", "\u{a0}PiB", "\u{a0}EiB"])
}

/// A round number of bytes as `512 B`, `16 KiB`, `1 GiB`.
pub(crate) fn size(value: f64) -> String {
    whole(&bytes(value))
}

/// A figure with its unit, without a fraction of zero: `10.0 µs` becomes `10 µs`.
pub(crate) fn whole(figure: &str) -> String {
    figure.replace(".00\u{a0}", "\u{a0}").replace(".0\u{a0}", "\u{a0}")
}

/// A share as `55%`, `8.4%`.
pub(crate) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return MISSING.into();
    }
    let value = share * 100.0;
    if value.abs() < 9.95 && value != 0.0 { format!("{value:.1}%") } else { format!("{}%", count(value)) }
}

/// A factor as `3.1×`.
pub(crate) fn times(factor: f64) -> String {
    if factor.is_finite() { format!("{}×", digits(factor)) } else { MISSING.into() }
}

/// An RFC 3339 time as `2026-11-20 12:00 UTC`; other text unchanged.
pub(crate) fn moment(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(10..11), rfc3339.get(11..16)) {
        (Some(day), Some("T"), Some(time)) if rfc3339.ends_with('Z') => format!("{day} {time} UTC"),
        _ => rfc3339.to_owned(),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value / step;
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    digits(value) + units[unit]
}

fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        v if v < 1e6 => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

fn trim(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_a_person_would_write_them() {
        let shown: Vec<String> = [0.0, 0.434, 7.4, 8.0, 211.6, 3086.0, 12_330.0, 999_700.0, 1.4e6, f64::NAN, 1e300]
            .into_iter()
            .map(count)
            .collect();
        assert_eq!(shown, ["0", "0.43", "7.4", "8", "212", "3,086", "12.3k", "1.00M", "1.40M", "–", "1.0e300"]);
        assert_eq!(["10k", "2.5k", "0.5", "100"], [tick(1e4), tick(2500.0), tick(0.5), tick(100.0)].map(|t| t));
        assert_eq!(duration(84_000.0), "84.0\u{a0}µs");
        assert_eq!(duration(1_240_000.0), "1.24\u{a0}ms");
        assert_eq!(duration(f64::INFINITY), MISSING);
        assert_eq!(bytes(8192.0), "8.00\u{a0}KiB");
        assert_eq!([size(16384.0), size(1536.0)], ["16\u{a0}KiB", "1.50\u{a0}KiB"]);
        assert_eq!(percent(0.084), "8.4%");
        assert_eq!(moment("2026-11-20T12:00:00Z"), "2026-11-20 12:00 UTC");
        assert_eq!(moment("ünknown"), "ünknown");
    }

    #[test]
    fn nothing_leaves_its_element() {
        assert_eq!(escape("<script>alert('x\"')&\u{0}\u{1b}"), "&lt;script&gt;alert(&#39;x&quot;&#39;)&amp;");
    }
}
