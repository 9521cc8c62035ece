//! Numbers and text for people, the same in the terminal and in the report: `12,330`, `95 µs`, `1.5 GiB`,
//! `3.1x`.
//!
//! - A number that is not finite is shown as `?`.

use std::fmt::Display;

/// A rate or a count: thousands grouped, decimals only for small values.
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    match value.abs() {
        v if v >= 10.0 || v.fract() == 0.0 => {}
        v if v < 0.0005 => return "0".into(),
        v if v < 0.1 => return format!("{value:.3}"),
        v if v < 1.0 => return format!("{value:.2}"),
        _ => return format!("{value:.1}"),
    }
    let digits = format!("{:.0}", value.abs());
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.collect::<Vec<_>>().join(","))
}

/// A latency in nanoseconds: `95 µs`, `4.2 ms`.
///
/// ```
/// assert_eq!(seawall_lab::report::latency(95_000.0), "95 µs");
/// ```
pub fn latency(ns: f64) -> String {
    if !ns.is_finite() {
        return "?".into();
    }
    let (value, unit) = match ns {
        n if n < 1e3 => return format!("{n:.0} ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A size in bytes.
pub(crate) fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    let mut value = value;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let shown = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
            return format!("{} {unit}", shown.strip_suffix(".0").unwrap_or(&shown));
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A ratio: two decimals near one, fewer further away.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        v if !v.is_finite() => "?".into(),
        v if v < 2.0 => format!("{v:.2}x"),
        v if v < 100.0 => format!("{v:.1}x"),
        v => format!("{}x", count(v)),
    }
}

/// A share: `55%`, `8.4%`.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        v if !v.is_finite() => "?".into(),
        v if v.abs() < 9.95 && v != 0.0 => format!("{v:.1}%"),
        v => format!("{v:.0}%"),
    }
}

/// Half an interval's width, relative: `4%`, at most `>999%`.
pub(crate) fn spread(spread: f64) -> String {
    match spread * 100.0 {
        s if !s.is_finite() => "?".into(),
        s if s >= 999.0 => ">999%".into(),
        s => format!("{s:.0}%"),
    }
}

/// Shown where a figure is missing.
pub(crate) const MISSING: &str = "-";

/// The figure, or [`MISSING`].
pub(crate) fn or_missing<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| MISSING.into(), show)
}

/// `1 thread`, `4 threads`.
pub(crate) fn many(n: u32, one: &str, more: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {more}") }
}

/// An RFC 3339 time as `2026-11-20 12:00 UTC`; other text unchanged.
pub(crate) fn moment(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(10..11), rfc3339.get(11..16)) {
        (Some(day), Some("T"), Some(time)) if rfc3339.ends_with('Z') => format!("{day} {time} UTC"),
        _ => rfc3339.to_owned(),
    }
}

/// A name and its value, for [`fill`].
pub(crate) type Var<'a> = (&'a str, &'a dyn Display);

/// The variables of a template: `vars![fs, times = pair.times()]`. A name without a value is a local variable.
macro_rules! vars {
    (@value $name:ident) => { &$name };
    (@value $name:ident = $value:expr) => { &$value };
    ($($name:ident $(= $value:expr)?),* $(,)?) => {
        &[$((stringify!($name), $crate::text::vars!(@value $name $(= $value)?) as &dyn ::std::fmt::Display)),*]
    };
}
pub(crate) use vars;

/// `template` with the value of each `{name}` in its place.
pub(crate) fn fill(template: &str, vars: &[Var<'_>]) -> String {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, named)) = rest.split_once('{') {
        let (name, after) = named.split_once('}').unwrap_or((named, ""));
        let value = vars.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        debug_assert!(value.is_some(), "{name} has no value in: {template}");
        out += before;
        out += &value.unwrap_or_default();
        rest = after;
    }
    out + rest
}

/// `text` broken into lines of at most `width` characters; the first starts with `first`, the others with
/// `rest`. A word longer than the line is not broken.
pub(crate) fn wrap(text: &str, width: usize, first: &str, rest: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let options = textwrap::Options::new(width).initial_indent(first).subsequent_indent(rest).break_words(false);
    textwrap::fill(&words.join(" "), options.word_splitter(textwrap::WordSplitter::NoHyphenation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(12_330.4), "12,330");
        assert_eq!(count(1.5), "1.5");
        assert_eq!(count(-1_234_567.0), "-1,234,567");
        assert_eq!(count(f64::NAN), "?");
        assert_eq!(latency(95_000.0), "95 µs");
        assert_eq!(latency(4_200_000.0), "4.2 ms");
        assert_eq!(latency(0.0), "0 ns");
        assert_eq!(bytes(8192.0), "8 KiB");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(600.0 * 1024.0 * 1024.0), "600 MiB");
        assert_eq!([count(0.434), count(0.0421), count(0.0)], ["0.43", "0.042", "0"]);
        assert_eq!([percent(0.084), percent(0.55)], ["8.4%", "55%"]);
        assert_eq!(moment("2026-11-20T12:00:00Z"), "2026-11-20 12:00 UTC");
        assert_eq!(moment("ünknown"), "ünknown");
        assert_eq!(ratio(3.12), "3.1x");
        assert_eq!(ratio(1.026), "1.03x");
        assert_eq!(ratio(f64::INFINITY), "?");
    }

    #[test]
    fn wrapping_keeps_the_width_and_every_word() {
        let text = "one two three four five six seven";
        let wrapped = wrap(text, 12, "- ", "  ");
        assert!(wrapped.lines().all(|l| l.len() <= 12), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().skip(1).collect::<Vec<_>>().join(" "), text);
    }
}
