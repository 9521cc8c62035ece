//! Reports that a test cannot run here. The tests of other crates include this file by its path.
//!
//! A test that returns early because something is missing calls [`skipped`], so that `make test` can count
//! it: an unreported skip hides a test that never runs.

/// Writes to standard error that the running test, or a part of it, is left out, and why. Appends a line to
/// the file that the environment variable `SEAWALL_SKIPPED` names.
#[allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
pub fn skipped(why: impl std::fmt::Display) {
    use std::io::Write as _;
    // A test in a process of its own, see `in_child`, runs on the main thread.
    let child = std::env::var("SEAWALL_TEST_CHILD").ok();
    let thread = std::thread::current();
    let name = child.as_deref().or(thread.name()).unwrap_or("a test");
    let line = format!("{name}: {why}").replace('\n', " ");
    eprintln!("skipped: {line}");
    if let Some(path) = std::env::var_os("SEAWALL_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // One write of one line: tests run at the same time.
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).expect("SEAWALL_SKIPPED names a file");
    }
}
