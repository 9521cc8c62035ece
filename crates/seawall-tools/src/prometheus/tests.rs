//! A strict parser of the exposition format, run on our output.

use super::*;
use proptest::prelude::*;
use seawall::metrics::FileState;
use seawall_io::{Cause, FileClass, FlushMethod, IoStats, Op};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, Labels, f64)>,
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the labels of `name="value",...` and what follows the closing brace.
fn parse_labels(text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\n') => return None,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (_, c) => value.push(c),
            }
        };
        if !is_name(name) || labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some((labels, rest.strip_prefix('}')?)),
        }
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    let mut series = HashSet::new();
    if !text.ends_with('\n') {
        return Err("the last line does not end".into());
    }
    for line in text.lines() {
        let bad = |why: &str| format!("{why}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| bad("no help"))?;
            if !is_name(name) || !help.ends_with('.') || families.contains_key(name) {
                return Err(bad("a bad or second HELP"));
            }
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| bad("no type"))?;
            if name != helped || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(bad("a TYPE without its HELP"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                return Err(bad("counters, and only they, end in _total"));
            }
            families.insert(name.to_owned(), Family { kind: kind.to_owned(), samples: Vec::new() });
            current = name.to_owned();
        } else {
            let at = line.find(['{', ' ']).ok_or_else(|| bad("no value"))?;
            let (name, rest) = line.split_at(at);
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => parse_labels(rest).ok_or_else(|| bad("bad labels"))?,
                None => (Labels::new(), rest),
            };
            let value = value.strip_prefix(' ').ok_or_else(|| bad("no space"))?;
            let value: f64 = value.parse().map_err(|e| bad(&format!("{e}")))?;
            let family = families.get_mut(&current).ok_or_else(|| bad("no TYPE"))?;
            let suffix = name.strip_prefix(current.as_str()).ok_or_else(|| bad("not of this family"))?;
            let fits = if family.kind == "histogram" {
                ["_bucket", "_sum", "_count"].contains(&suffix)
            } else {
                suffix.is_empty()
            };
            if !fits || !series.insert((name.to_owned(), labels.clone())) {
                return Err(bad("a sample of another family, or twice"));
            }
            family.samples.push((suffix.to_owned(), labels, value));
        }
    }
    for family in families.values().filter(|f| f.kind == "histogram") {
        check_histogram(family)?;
    }
    Ok(families)
}

fn check_histogram(family: &Family) -> Result<(), String> {
    let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for (suffix, labels, value) in &family.samples {
        if suffix == "_bucket" {
            let mut labels = labels.clone();
            let le = labels.remove("le").ok_or("a bucket without le")?;
            buckets.entry(labels).or_default().push((le.parse().map_err(|_e| le)?, *value));
        }
    }
    for (suffix, labels, value) in family.samples.iter().filter(|(s, ..)| s != "_bucket") {
        let list = buckets.get(labels).ok_or("no buckets")?;
        if !list.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1) {
            return Err(format!("buckets do not ascend: {list:?}"));
        }
        let last = list.last().ok_or("no buckets")?;
        if !last.0.is_infinite() || (suffix == "_count" && last.1 != *value) {
            return Err(format!("the last bucket is not the count: {list:?} {value}"));
        }
    }
    Ok(())
}

fn sample_stats() -> Stats {
    let io = IoStats::new();
    for us in [5, 90, 90, 3_000, 20_000_000] {
        io.record(FileClass::Redo, Op::DurableWrite, Cause::Commit, Duration::from_micros(us), 4096);
    }
    io.record_error(FileClass::Data, Op::Read, Cause::DemandRead);
    let mode = |degraded: Option<&str>| EffectiveMode {
        requested: FlushMethod::ODirect,
        direct: degraded.is_none(),
        align_bytes: 512,
        rwf_dsync: false,
        degraded: degraded.map(str::to_owned),
    };
    let mut stats = Stats {
        elapsed_ns: 1_500_000_000,
        io: io.snapshot(),
        files: vec![
            FileState { class: FileClass::Data, mode: mode(None), page_cache_bytes: Some(0) },
            FileState {
                class: FileClass::Redo,
                mode: mode(Some("a \"quoted\" \\ reason\nin two lines")),
                page_cache_bytes: None,
            },
        ],
        backend: "io_uring".into(),
        ..Stats::default()
    };
    stats.log.commit_wait_ns = 2_000_000_001;
    stats
}

#[test]
fn a_strict_parser_reads_it() {
    let families = parse(&super::text(&sample_stats())).unwrap();
    let one = |name: &str| families[name].samples[0].2;
    assert!((one("seawall_elapsed_seconds") - 1.5).abs() < 1e-12);
    assert!((one("seawall_log_commit_wait_seconds_total") - 2.000_000_001).abs() < 1e-12);
    let latency = &families["seawall_io_latency_seconds"];
    let of = |suffix: &str, le: Option<&str>| {
        let found = latency.samples.iter().find(|(s, labels, _)| {
            s == suffix && labels["class"] == "redo" && labels.get("le").map(String::as_str) == le
        });
        found.unwrap().2
    };
    assert_eq!(of("_bucket", Some("0.00001")) as u64, 1);
    assert_eq!(of("_bucket", Some("0.0001")) as u64, 3);
    assert_eq!(of("_bucket", Some("10")) as u64, 4);
    assert_eq!(of("_bucket", Some("+Inf")) as u64, 5);
    assert!((of("_sum", None) / 20.003_185 - 1.0).abs() < 0.02);
    let modes = &families["seawall_file_mode"].samples;
    assert_eq!(modes[1].1["degraded"], "a \"quoted\" \\ reason\nin two lines");
    assert_eq!(families["seawall_page_cache_bytes"].samples.len(), 1, "unknown is not zero");
    assert_eq!(families["seawall_io_errors_total"].samples.iter().map(|s| s.2 as u64).sum::<u64>(), 1);
    parse(&super::text(&Stats::default())).unwrap();
}

#[test]
fn no_family_keeps_nanoseconds() {
    for name in parse(&super::text(&sample_stats())).unwrap().keys() {
        assert!(!name.contains("_ns") && name.starts_with("seawall_"), "{name}");
    }
}

#[test]
fn the_parser_refuses_what_prometheus_would() {
    let head = "# HELP seawall_x_total X.\n# TYPE seawall_x_total counter\n";
    assert!(parse(&format!("{head}seawall_x_total 1\n")).is_ok());
    for bad in [
        "seawall_x_total 1",
        "seawall_x_total one\n",
        "seawall_x_total{a=b} 1\n",
        "seawall_x_total{a=\"b\" 1\n",
        "seawall_y_total 1\n",
        "seawall_x_total 1\nseawall_x_total 1\n",
        "# TYPE seawall_y gauge\n",
    ] {
        assert!(parse(&format!("{head}{bad}")).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn seconds_are_exact(ns in any::<u64>()) {
        let text = seconds(ns);
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let back = whole.parse::<u64>().unwrap() * 1_000_000_000 + format!("{part:0<9}").parse::<u64>().unwrap();
        prop_assert_eq!(back, ns);
    }

    #[test]
    fn any_label_is_read_back(reason in ".{0,20}", backend in "[\\\\\"\nx]{0,8}") {
        let mut stats = sample_stats();
        stats.files[1].mode.degraded = Some(reason.replace('\r', ""));
        stats.backend = backend;
        let parsed = parse(&super::text(&stats));
        prop_assert!(parsed.is_ok(), "{:?}", parsed.err());
    }
}
