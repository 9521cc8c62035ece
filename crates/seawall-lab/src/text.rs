//! Numbers formatted for people: `12,330`, `95 us`, `1.5 GiB`, `3.1x`. NaN and infinities become `?`, never a
//! panic.

/// A rate or a count: thousands grouped, decimals only for small values.
pub(crate) fn count(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

/// A latency in nanoseconds.
pub(crate) fn latency(ns: f64) -> String {
    if !ns.is_finite() {
        return "?".into();
    }
    let (value, unit) = match ns {
        n if n < 1e3 => return format!("{n:.0} ns"),
        n if n < 1e6 => (n / 1e3, "us"),
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
            return if value < 10.0 && unit != "B" {
                format!("{value:.1} {unit}")
            } else {
                format!("{value:.0} {unit}")
            };
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

/// `text` broken into lines of at most `width` characters; the first starts with `first`, the others with
/// `rest`. A word longer than the line is not broken.
pub(crate) fn wrap(text: &str, width: usize, first: &str, rest: &str) -> String {
    let mut out = String::from(first);
    let mut column = first.chars().count();
    let mut fresh = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !fresh && column + 1 + length > width {
            out.push('\n');
            out.push_str(rest);
            column = rest.chars().count();
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        fresh = false;
    }
    out
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
        assert_eq!(latency(95_000.0), "95 us");
        assert_eq!(latency(4_200_000.0), "4.2 ms");
        assert_eq!(latency(0.0), "0 ns");
        assert_eq!(bytes(8192.0), "8.0 KiB");
        assert_eq!(bytes(600.0 * 1024.0 * 1024.0), "600 MiB");
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
