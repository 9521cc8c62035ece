//! The system calls themselves, as strace reports them: the cost of a durable write, and that a batch is one
//! call.

mod common;

use common::skip::skipped;
use common::{dir, in_child};
use seawall_io::{AlignedBuf, Backend, Cause, Create, File, FileClass, FileOptions, FileRequest, FlushMethod, OsDisk};
use std::process::Command;
use std::sync::Arc;

/// Runs `test` of this binary under strace; `None` where strace is missing or may not trace.
fn traced(test: &str) -> Option<String> {
    let dir = dir();
    let out = dir.path().join("trace");
    let calls = "trace=write,pwrite64,pwritev,pwritev2,pread64,preadv,fsync,fdatasync,sync_file_range,io_uring_enter";
    let run = Command::new("strace")
        .args(["-f", "-y", "-s", "200", "-e", calls, "-o"])
        .arg(&out)
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--test-threads=1"])
        .env("SEAWALL_TEST_CHILD", test)
        .output();
    match run {
        Ok(run) if run.status.success() => {
            let text = std::fs::read_to_string(out).unwrap();
            if text.contains("marker-begin") {
                return Some(text);
            }
            skipped("strace: nothing was traced");
        }
        Ok(run) => {
            skipped(format_args!("strace: {} {}", run.status, String::from_utf8_lossy(&run.stderr).trim()));
        }
        Err(e) => skipped(format_args!("strace: {e}")),
    }
    None
}

/// The calls between two markers, without arguments.
fn between<'t>(trace: &'t str, name: &str) -> Vec<&'t str> {
    let (begin, end) = (format!("marker-begin {name}\\n"), format!("marker-end {name}\\n"));
    trace
        .lines()
        .skip_while(|l| !l.contains(&begin))
        .skip(1)
        .take_while(|l| !l.contains(&end))
        .filter_map(|l| l.split_whitespace().nth(1)?.split('(').next())
        .filter(|c| c.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        .collect()
}

fn mark(what: &str, name: &str) {
    std::fs::write("/dev/null", format!("marker-{what} {name}\n")).unwrap();
}

#[test]
fn what_the_kernel_is_asked() {
    const NAME: &str = "what_the_kernel_is_asked";
    if std::env::var_os("SEAWALL_TEST_CHILD").is_some() {
        assert!(in_child(NAME));
        let dir = dir();
        for method in FlushMethod::ALL {
            let disk = Arc::new(OsDisk::new(Backend::Auto, None).unwrap());
            let options = FileOptions::new(FileClass::Redo, method).create(Create::New);
            let file = File::open(disk, &dir.path().join(method.name()), options).unwrap();
            let block = AlignedBuf::zeroed(4096);
            mark("begin", method.name());
            file.write_durable_vectored_at(0, &[&block], Cause::Commit).unwrap();
            mark("end", method.name());
            let batch = (0..100u64).map(|i| FileRequest {
                write: true,
                offset: i * 4096,
                bufs: vec![AlignedBuf::zeroed(4096).into()],
                cause: Cause::Clean,
            });
            let batch = batch.collect();
            let name = format!("batch-{method}");
            mark("begin", &name);
            let pending = file.submit(batch).unwrap();
            mark("end", &name);
            for pending in pending {
                file.wait(pending).unwrap();
            }
        }
        return;
    }
    let Some(trace) = traced(NAME) else { return };
    use FlushMethod::{Fsync, ODirect, ODirectDsync, ODirectNoFsync, ODsync};
    for (method, expected) in [
        (Fsync, &["pwrite64", "fdatasync"][..]),
        (ODsync, &["pwrite64"]),
        (ODirect, &["pwrite64", "fdatasync"]),
        (ODirectNoFsync, &["pwrite64", "fdatasync"]),
        (ODirectDsync, &["pwritev2"]),
    ] {
        assert_eq!(between(&trace, method.name()), expected, "{method}: {trace}");
        let batch = between(&trace, &format!("batch-{method}"));
        if OsDisk::new(Backend::IoUring, None).is_ok() {
            assert_eq!(batch, ["io_uring_enter"], "{method}: a hundred requests are one call");
        }
    }
}
