//! Seawall passes the check of every measured store.

#[path = "common/conformance.rs"]
mod conformance;

use seawall_bench::Settings;
use seawall_bench::store::Durability;
use seawall_bench::stores::Seawall;
use std::time::Duration;

#[test]
fn does_what_a_store_must() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        dir: dir.path().join("db"),
        pool_bytes: 8 << 20,
        durability: Durability::Flushed,
        tables: vec!["a".into(), "b".into()],
        threads: 2,
        options: Vec::new(),
        flush_delay: Duration::ZERO,
        data_bytes: 1 << 20,
    };
    conformance::check(&|| Ok(Box::new(Seawall::open(&settings)?)));
}
