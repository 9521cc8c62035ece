#![no_main]
#[allow(dead_code)] // one of many
#[path = "../../crates/seawall/tests/support/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::node(data));
