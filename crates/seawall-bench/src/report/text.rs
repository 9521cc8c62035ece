//! The table for the terminal: a line for each figure of a result. `labels.txt` has its order and its words.

use seawall_lab::report::{count, latency};
use serde::Serialize;
use serde_json::Value;

/// Names of fields, each followed by its label: a phrase that needs no explanation.
const LABELS: &str = include_str!("labels.txt");
/// Units that end a name; values are shown in units of their own.
const UNITS: [&str; 3] = ["_us", "_ms", "_bytes"];

/// The labelled figures in the order of the labels, then the others by their names. Lists are for other programs, and
/// what is unknown is left out.
pub fn table(result: &impl Serialize) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(result) else { return String::new() };
    let mut text = String::new();
    for (name, label) in LABELS.lines().filter_map(|line| line.split_once(' ')) {
        text += &lines(label, name, &fields.remove(name).unwrap_or_default());
    }
    text + &fields.iter().map(|(name, value)| lines(&words(name), name, value)).collect::<String>()
}

/// A figure with its label, or a line for each part that has parts of its own.
fn lines(label: &str, name: &str, value: &Value) -> String {
    let shown = match value {
        Value::Object(parts) if parts.values().any(Value::is_object) => {
            return parts.iter().map(|(name, value)| lines(name, name, value)).collect();
        }
        Value::Object(parts) => {
            let parts = parts.iter().filter(|(_, value)| !value.is_null());
            parts.map(|(name, value)| format!("{} {}", words(name), plain(name, value))).collect::<Vec<_>>().join(", ")
        }
        value => plain(name, value),
    };
    if shown.is_empty() { shown } else { format!("{label:<42} {shown}\n") }
}

/// A name without its unit.
fn words(name: &str) -> String {
    let bare = UNITS.iter().find_map(|unit| name.strip_suffix(unit));
    bare.unwrap_or(name).replace('_', " ")
}

/// A value, by the unit at the end of its name; empty for what is not for the terminal.
fn plain(name: &str, value: &Value) -> String {
    let unit = UNITS.into_iter().find(|unit| name.ends_with(unit));
    match (value, value.as_f64(), unit) {
        (Value::String(text), ..) => text.clone(),
        (_, Some(us), Some("_us")) => latency(us * 1e3),
        (_, Some(ms), Some("_ms")) => latency(ms * 1e6),
        (_, Some(n), Some(_)) => bytes(n as u64),
        (_, Some(n), None) if !value.is_f64() => count(n),
        (_, Some(n), None) => number(n),
        (_, None, _) => String::new(),
    }
}

/// A figure with its significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        a if a >= 1000.0 => count(value.round()),
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A number of bytes: `12.3 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    // Every unit is 10 bits more than the one before.
    match (n.max(1).ilog2() / 10).min(4) {
        0 => format!("{n} B"),
        unit => format!("{:.1} {}", n as f64 / f64::from(10 * unit).exp2(), UNITS[unit as usize - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_read_as_a_person_would_write_them() {
        assert_eq!([bytes(12), bytes(1536), bytes(5 << 40)], ["12 B", "1.5 KiB", "5.0 TiB"]);
        let numbers = [1_234_567.8, -1234.0, 345.6, 12.345, 0.0123, 0.0].map(number);
        assert_eq!(numbers, ["1,234,568", "-1,234", "346", "12.35", "0.0123", "0"]);
    }

    #[test]
    fn every_known_figure_has_a_line() {
        let result = json!({
            "p50_us": 840.0, "keys": 1_000_000, "pool_bytes": 1 << 30, "ops_per_s": 12345.6, "load": null,
            "timeline": [1, 2], "machine": { "cpus": 2, "memory_bytes": 1 << 20 }, "other_figure": "none",
            "transactions": { "delivery": { "ops": 3, "max_us": 1.0 }, "payment": { "ops": 4, "max_us": null } },
        });
        let lines: Vec<String> =
            table(&result).lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "Keys 1,000,000",
            "Memory for the store's cache 1.0 GiB",
            "Operations per second 12,346",
            "Half of them took at most 840 µs",
            "Machine cpus 2, memory 1.0 MiB",
            "other figure none",
            "delivery max 1.0 µs, ops 3",
            "payment ops 4",
        ];
        assert_eq!(lines, expected);
    }
}
