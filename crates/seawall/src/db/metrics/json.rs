//! Statistics as JSON, equal to the output of `serde_json`: a database publishes them in every build, with or
//! without the feature `serde`.

use super::{Metric, Stats};
use seawall_io::{CellSnapshot, EffectiveMode};
use std::fmt::Write as _;

/// Appends `text` as a JSON string.
pub(in crate::db) fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

pub(in crate::db) fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _cannot_fail = out.write_fmt(what).is_ok();
}

/// Appends a list in `brackets`, separated by commas.
fn list<T>(
    out: &mut String,
    brackets: [char; 2],
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut String, T),
) {
    out.push(brackets[0]);
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        one(out, item);
    }
    out.push(brackets[1]);
}

fn numbers(out: &mut String, numbers: &[u64]) {
    list(out, ['[', ']'], numbers, |out, number| put(out, format_args!("{number}")));
}

fn cell(out: &mut String, cell: &CellSnapshot) {
    let CellSnapshot { class, op, cause, latency, bytes, errors } = cell;
    put(out, format_args!("{{\"class\":\"{class}\",\"op\":\"{op}\",\"cause\":\"{cause}\",\"latency\":{{\"index\":"));
    list(out, ['[', ']'], latency.index(), |out, index| put(out, format_args!("{index}")));
    out.push_str(",\"count\":");
    numbers(out, latency.count());
    put(out, format_args!("}},\"bytes\":{bytes},\"errors\":{errors}}}"));
}

fn optional(out: &mut String, value: Option<impl std::fmt::Display>) {
    match value {
        Some(value) => put(out, format_args!("{value}")),
        None => out.push_str("null"),
    }
}

pub(in crate::db) fn stats(out: &mut String, stats: &Stats) {
    let Stats { elapsed_ns, io, pool, log, txn, locks, purge, space, files, backend } = stats;
    put(out, format_args!("{{\"elapsed_ns\":{elapsed_ns},\"io\":{{\"cells\":"));
    list(out, ['[', ']'], &io.cells, cell);
    out.push('}');
    let groups = [
        ("pool", pool.metrics()),
        ("log", log.metrics()),
        ("txn", txn.metrics()),
        ("locks", locks.metrics()),
        ("purge", purge.metrics()),
        ("space", space.metrics()),
    ];
    for (group, metrics) in groups {
        put(out, format_args!(",\"{group}\":"));
        list(out, ['{', '}'], metrics, |out, Metric { name, value, .. }| put(out, format_args!("\"{name}\":{value}")));
    }
    out.push_str(",\"files\":");
    list(out, ['[', ']'], files, |out, file| {
        let EffectiveMode { requested, direct, align_bytes, rwf_dsync, degraded } = &file.mode;
        put(out, format_args!("{{\"class\":\"{}\",\"mode\":{{\"requested\":\"{requested}\",", file.class));
        put(
            out,
            format_args!("\"direct\":{direct},\"align_bytes\":{align_bytes},\"rwf_dsync\":{rwf_dsync},\"degraded\":"),
        );
        match degraded {
            Some(why) => string(out, why),
            None => out.push_str("null"),
        }
        out.push_str("},\"page_cache_bytes\":");
        optional(out, file.page_cache_bytes);
        out.push('}');
    });
    out.push_str(",\"backend\":");
    string(out, backend);
    out.push('}');
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use crate::metrics::FileState;
    use seawall_io::{Cause, FileClass, FlushMethod, IoStats, Op};
    use std::time::Duration;

    #[test]
    fn it_is_what_serde_writes() {
        let io = IoStats::new();
        for (at, (class, op)) in
            FileClass::ALL.iter().flat_map(|class| Op::ALL.iter().map(move |op| (*class, *op))).enumerate()
        {
            let cause = Cause::ALL[at % Cause::ALL.len()];
            io.record(class, op, cause, Duration::from_nanos(7 << at), 4096);
            io.record_error(class, op, cause);
        }
        let mode = |degraded: Option<&str>| EffectiveMode {
            requested: FlushMethod::ODirectNoFsync,
            direct: false,
            align_bytes: 512,
            rwf_dsync: true,
            degraded: degraded.map(Into::into),
        };
        let file = |class, mode, page_cache_bytes| FileState { class, mode, page_cache_bytes };
        let mut stats = Stats {
            elapsed_ns: u64::MAX,
            io: io.snapshot(),
            files: vec![
                file(FileClass::ChangeLog, mode(None), Some(1)),
                file(FileClass::Data, mode(Some("a \"quote\",\n a \\ and a \u{1} of gr\u{f6}\u{df}e")), None),
            ],
            backend: "io_uring (asked for)".into(),
            ..Stats::default()
        };
        let mut text = String::new();
        super::stats(&mut text, &Stats::default());
        assert_eq!(text, serde_json::to_string(&Stats::default()).unwrap());
        (stats.pool.frames, stats.log.bytes, stats.txn.begun, stats.space.free_bytes) = (1, u64::MAX, 3, 4);
        text.clear();
        super::stats(&mut text, &stats);
        let wanted: serde_json::Value = serde_json::to_value(&stats).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), wanted);
        assert_eq!(serde_json::from_str::<Stats>(&text).unwrap(), stats);
    }
}
