//! `seawall lab PATH`: what a run prints and writes, and what it refuses.

mod common;

use common::skip::skipped;
use common::{Mount, cells, command, lab, lab_command, names, read_json, scratch, seawall, spawn};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The only directory that a run created where it was started.
fn run_dir(work: &Path) -> PathBuf {
    let made: Vec<String> = names(work).into_iter().filter(|n| n.starts_with("seawall-lab-")).collect();
    assert_eq!(made.len(), 1, "{made:?}");
    work.join(&made[0])
}

#[test]
fn the_default_plan_prints_and_writes_everything() {
    let (work, disk) = (scratch(), scratch());
    let ran = lab(work.path(), disk.path(), &["--table"]).exits(0);
    let experiments =
        ["E1 direct-sync", "E4 append-overwrite", "E5 commit-levels", "E6 range-prefetch", "SET settings"];
    for text in experiments.into_iter().chain(["not tested", "seawall.toml:", "flush_method", "recommended settings"]) {
        assert!(ran.out.contains(text), "{text:?} is missing: {}", ran.out);
    }
    assert!(names(disk.path()).is_empty(), "the scratch directory stays: {:?}", names(disk.path()));
    let dir = run_dir(work.path());
    for name in ["results.json", "report.html", "seawall.toml"] {
        assert!(ran.err.contains(&format!("{name}\n")), "{name} is not announced: {}", ran.err);
    }
    let results = read_json(&dir.join("results.json"));
    assert_eq!(results["complete"], true);
    assert_eq!(results["run"]["seed"], 1);
    let skipped = results["skipped"].as_array().unwrap().len();
    assert_eq!(cells(&results).len() + skipped, 23 + 27 + 24 + 4);
    // The settings measured for the engine are the recommended ones: the same lines except comments.
    let lines = |text: &str| -> Vec<String> { text.lines().filter(|l| !l.starts_with('#')).map(Into::into).collect() };
    let written = std::fs::read_to_string(dir.join("seawall.toml")).unwrap();
    assert_eq!(lines(results["engine"]["seawall_toml"].as_str().unwrap()), lines(&written));
    assert!(results["cells"].as_array().unwrap().iter().all(|c| c["rounds"].as_array().unwrap().len() == 2));
    toml::from_str::<toml::Table>(&std::fs::read_to_string(dir.join("seawall.toml")).unwrap()).unwrap();
    self_contained(&std::fs::read_to_string(dir.join("report.html")).unwrap());

    // The same again from the file alone.
    let file = dir.join("results.json");
    let again =
        seawall(work.path(), ["lab".as_ref(), "report".as_ref(), file.as_os_str(), "--table".as_ref()]).exits(0);
    assert_eq!(again.out, ran.out);
    // Without --table a screenful.
    let short = seawall(work.path(), ["lab".as_ref(), "report".as_ref(), dir.as_os_str()]).exits(0);
    assert!(short.out.lines().count() <= 50 && short.out.contains("settings"), "{}", short.out);
    assert!(short.out.contains("--table shows"), "{}", short.out);
    assert!(again.err.is_empty(), "a report writes nothing unless asked: {}", again.err);
}

/// The page loads nothing from elsewhere.
fn self_contained(html: &str) {
    let html = html.to_lowercase();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"), "{html:.200}");
    for load in
        ["src=\"http", "src='http", "src=\"//", "url(http", "url(\"http", "url(//", "@import", "<link", "<iframe"]
    {
        assert!(!html.contains(load), "the report loads something: {load}");
    }
}

#[test]
fn only_measures_only_that() {
    let (work, disk) = (scratch(), scratch());
    for (only, prefixes) in [
        ("append-overwrite", &["e4/"][..]),
        ("E1,e3", &["e1/", "e3/"]),
        ("baseline", &["base/"]),
        ("e5", &["e5/"]),
        // Together with the disk's own reads, with which it is compared.
        ("range-prefetch", &["e6/", "base/"]),
    ] {
        let results = lab(work.path(), disk.path(), &["--only", only, "--json", "-"]).exits(0).json();
        let cells = cells(&results);
        assert!(!cells.is_empty() && cells.iter().all(|id| prefixes.iter().any(|p| id.starts_with(p))), "{cells:?}");
        assert!(prefixes.iter().all(|p| cells.iter().any(|id| id.starts_with(p))), "{cells:?}");
    }
    assert!(names(work.path()).is_empty(), "--json says where results go");
    let ran = lab(work.path(), disk.path(), &["--only", "nonsense"]).exits(2).measured_nothing();
    let names_known = ["direct-sync (E1)", "log-memory (E2)", "parallel-direct (E3)", "append-overwrite (E4)"];
    for name in names_known.into_iter().chain(["baseline", "commit-levels (E5)", "range-prefetch (E6)", "settings"]) {
        assert!(ran.err.contains(name), "{name} is not named: {}", ran.err);
    }
}

#[test]
fn what_was_asked_for_is_on_record() {
    let (work, disk) = (scratch(), scratch());
    let asked = ["--only", "baseline", "--seed", "42", "--rate", "500", "--json", "r.json", "--html", "r.html"];
    lab(work.path(), disk.path(), &asked).exits(0).shows("random 16 KiB reads/s");
    let results = read_json(&work.path().join("r.json"));
    assert_eq!(results["run"]["seed"], 42);
    assert_eq!(results["run"]["rate"], 500.0);
    assert!(results["run"]["command"].as_str().unwrap().contains("--seed 42"));
    // One operation may come at once, the others follow at the rate.
    for round in results["cells"].as_array().unwrap().iter().flat_map(|c| c["rounds"].as_array().unwrap()) {
        let (operations, seconds) = (round["operations"].as_f64().unwrap(), round["seconds"].as_f64().unwrap());
        assert!(operations <= 500.0 * seconds + 1.0, "{operations} in {seconds} s");
    }
    assert_eq!(names(work.path()), ["r.html", "r.json"]);
    self_contained(&std::fs::read_to_string(work.path().join("r.html")).unwrap());
}

#[test]
fn a_rate_holds_for_all_threads_together() {
    let (work, disk) = (scratch(), scratch());
    let results = lab(work.path(), disk.path(), &["--only", "E1,E2", "--rate", "200", "--json", "-"]).exits(0).json();
    for cell in results["cells"].as_array().unwrap() {
        for round in cell["rounds"].as_array().unwrap() {
            let (operations, seconds) = (round["operations"].as_f64().unwrap(), round["seconds"].as_f64().unwrap());
            assert!(operations <= 200.0 * seconds + 1.0, "{}: {operations} in {seconds} s", cell["id"]);
        }
    }
}

#[test]
fn every_backend_works_when_asked_for() {
    let (work, disk) = (scratch(), scratch());
    for (backend, name) in [("threads", "threads (asked for)"), ("sync", "sync (asked for)"), ("auto", "(")] {
        let args = ["--only", "baseline", "--io-backend", backend, "--json", "-"];
        let results = lab(work.path(), disk.path(), &args).exits(0).json();
        let used = results["run"]["io_backend"].as_str().unwrap();
        assert!(used.contains(name), "{backend}: {used}");
    }
    let ran = lab(work.path(), disk.path(), &["--only", "baseline", "--io-backend", "io_uring", "--json", "-"]);
    match ran.code {
        0 => assert_eq!(ran.json()["run"]["io_backend"], "io_uring (asked for)"),
        _ => drop(ran.exits(2).says("use `threads`, or `auto`")),
    }
    lab(work.path(), disk.path(), &["--io-backend", "aio"]).exits(2).says("auto, io_uring, threads or sync");
}

#[test]
fn sustain_counts_by_the_second() {
    let (work, disk) = (scratch(), scratch());
    let args = ["lab", ".", "--size", "16M", "--force", "--reserve", "1M", "--sustain", "3s"];
    let json = work.path().join("r.json");
    let ran = command(disk.path()).args(args).arg("--json").arg(&json).output().unwrap();
    common::Ran::from(ran).exits(0).shows("random 16K direct writes").shows("median");
    let results = read_json(&json);
    assert!(results["sustain"]["per_second"].as_array().unwrap().len() >= 3, "{}", results["sustain"]);
    assert!(cells(&results).is_empty() && results["complete"] == true);
    assert!(names(disk.path()).is_empty());
    seawall(disk.path(), ["lab", ".", "--sustain", "3s", "--only", "E1"]).exits(2).says("cannot be used with");
}

#[test]
fn observe_watches_and_writes_nothing() {
    let disk = scratch();
    let ran = seawall(disk.path(), ["lab", ".", "--observe=200ms"]);
    if ran.code == 2 {
        ran.says("there is no device to watch");
    } else {
        ran.exits(0).shows("no load added").shows("flushes/s").shows("%");
    }
    assert!(names(disk.path()).is_empty());
    seawall(disk.path(), ["lab", "nowhere", "--observe=1s"]).exits(2).says("check that the path exists");
    seawall(disk.path(), ["lab", ".", "--observe=1s", "--json", "x"]).exits(2).says("cannot be used with");
}

#[test]
fn requirements_decide_the_exit_code() {
    let (work, disk) = (scratch(), scratch());
    let run = |require: &[&str]| {
        let args: Vec<&str> = require.iter().flat_map(|r| ["--require", r]).collect();
        lab(work.path(), disk.path(), &[&["--only", "baseline", "--json", "r.json"], &args[..]].concat())
    };
    run(&["read.p99<1000s", "read_deep.rate>0.1"]).exits(0).says("met: read");
    let ran = run(&["read.p99<1ns", "read.p50<1000s"]).exits(1).says("short: read").says("met: read");
    assert!(ran.out.contains("random 16 KiB reads/s"), "a short run shows its summary as well");
    std::fs::remove_file(work.path().join("r.json")).unwrap();
    run(&["read.p99<1000s", "flush"]).exits(2).measured_nothing().says("'flush.p99<10ms'");
    run(&["speed.p99<1ms"]).exits(2).measured_nothing().says("--require knows").says("flush_under_writes");
    run(&["read.p98<1ms"]).exits(2).measured_nothing().says("p999");
    run(&["read.p99<20k"]).exits(2).measured_nothing();
    run(&["flush.p99<1s"]).exits(2).measured_nothing().says("does not measure").says("--only");
    assert!(names(work.path()).is_empty(), "refused before anything was measured");
}

#[test]
fn a_reader_that_goes_away_changes_nothing() {
    let (work, disk) = (scratch(), scratch());
    for (require, code) in [("read.p99<1000s", 0), ("read.p99<1ns", 1)] {
        let args = ["--only", "baseline", "--json", "r.json", "--require", require];
        // As `| head -c 10`, and as `2>&1 | head`.
        for both in [false, true] {
            let mut child = spawn(lab_command(work.path(), disk.path(), &args));
            if both {
                drop(child.stderr.take());
            }
            drop(child.stdout.take());
            let mut err = String::new();
            if let Some(mut pipe) = child.stderr.take() {
                pipe.read_to_string(&mut err).unwrap();
            }
            assert_eq!(child.wait().unwrap().code(), Some(code), "{err}");
            assert!(!err.contains("panicked"), "{err}");
            assert!(names(disk.path()).is_empty());
            std::fs::remove_file(work.path().join("r.json")).unwrap();
        }
    }
}

#[test]
fn paths_that_cannot_be_measured_are_refused_with_what_to_do() {
    let work = scratch();
    std::fs::write(work.path().join("file"), "mine").unwrap();
    lab(work.path(), Path::new("no/such"), &[]).exits(2).measured_nothing().says("no/such").says("check that the path");
    lab(work.path(), Path::new("file"), &[])
        .exits(2)
        .measured_nothing()
        .says("file is not a directory: give a directory");
    lab(work.path(), Path::new("."), &["--reserve", "1000T"]).exits(2).measured_nothing().says("--reserve");
    lab(work.path(), Path::new("/proc"), &[])
        .exits(2)
        .measured_nothing()
        .says("/proc is on proc")
        .says("give a directory");
    let args = ["lab", ".", "--size", "1M"];
    seawall(work.path(), args).exits(2).measured_nothing().says("at least 16 MiB");
    seawall(work.path(), ["lab", ".", "--size", "huge"]).exits(2).says("such as 512M");
    assert_eq!(names(work.path()), ["file"]);
    assert_eq!(std::fs::read(work.path().join("file")).unwrap(), b"mine");
}

#[test]
fn a_read_only_disk_is_refused() {
    let Some(mount) = Mount::tmpfs("ro") else { return };
    lab(scratch().path(), &mount.path, &[]).exits(2).measured_nothing().says("mounted read-only").says("remount it");
}

#[test]
fn a_full_disk_is_refused() {
    let Some(mount) = Mount::tmpfs("size=1M") else { return };
    std::fs::write(mount.path.join("mine"), vec![1; 1 << 20]).unwrap();
    lab(scratch().path(), &mount.path, &[]).exits(2).measured_nothing().says("0 MiB free").says("free some space");
    assert_eq!(names(&mount.path), ["mine"]);
}

#[test]
fn memory_is_measured_and_called_memory() {
    if !Path::new("/dev/shm").is_dir() {
        skipped("no /dev/shm");
        return;
    }
    let disk = tempfile::tempdir_in("/dev/shm").unwrap();
    let ran = lab(scratch().path(), disk.path(), &["--only", "baseline,E1", "--html", "r.html"]).exits(0);
    assert!(ran.out.contains("tmpfs is memory"), "{}", ran.out);
    assert!(names(disk.path()).is_empty());
}

#[test]
fn a_path_that_is_not_utf8_can_be_measured() {
    use std::os::unix::ffi::OsStrExt as _;
    let (work, disk) = (scratch(), scratch());
    let odd = disk.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    lab(work.path(), &odd, &["--only", "baseline", "--json", "-"]).exits(0).json();
}

#[test]
fn output_that_cannot_be_written_is_refused_before_measuring() {
    let (work, disk) = (scratch(), scratch());
    std::fs::create_dir_all(work.path().join("dir/earlier")).unwrap();
    std::fs::write(work.path().join("dir/seawall.toml"), "# mine\n").unwrap();
    let run = |args: &[&str]| lab(work.path(), disk.path(), &[&["--only", "baseline"], args].concat());
    run(&["--json", "no/such/r.json"]).exits(2).measured_nothing().says("no/such is not a directory");
    run(&["--html", "dir"]).exits(2).measured_nothing().says("dir is a directory");
    run(&["--json", "-", "--html", "-"]).exits(2).measured_nothing();
    run(&["--out", "dir"]).exits(2).measured_nothing().says("seawall.toml exists").says("nothing is overwritten");
    assert_eq!(std::fs::read(work.path().join("dir/seawall.toml")).unwrap(), b"# mine\n");
    run(&["--my-cnf", "no.cnf"]).exits(2).measured_nothing().says("cannot read no.cnf");
    run(&["--my-cnf", "dir"]).exits(2).measured_nothing().says("cannot read dir");
    std::fs::write(work.path().join("bad.cnf"), "innodb_io_capacity = 5\n").unwrap();
    run(&["--my-cnf", "bad.cnf"]).exits(2).measured_nothing().says("line 1").says("[mysqld]");
    std::fs::write(work.path().join("latin1.cnf"), b"[mysqld]\n# caf\xe9\n").unwrap();
    run(&["--my-cnf", "latin1.cnf"]).exits(2).measured_nothing().says("line 2").says("UTF-8");
    run(&["--my-cnf-for", "postgres"]).exits(2).measured_nothing().says("mysql-8.4");
    run(&["--witness", "bad.cnf"]).exits(2).measured_nothing().says("seawall witness verify --json");
    if let Some(mount) = Mount::tmpfs("ro") {
        let ran = lab(&mount.path, disk.path(), &["--only", "baseline"]).exits(2).measured_nothing();
        ran.says("the current directory").says("--out");
    }
    // An earlier run is not replaced.
    run(&["--out", "dir/earlier"]).exits(0).says("2 rounds decide nothing");
    let results = std::fs::read(work.path().join("dir/earlier/results.json")).unwrap();
    run(&["--out", "dir/earlier"]).exits(2).measured_nothing().says("results.json exists");
    assert_eq!(std::fs::read(work.path().join("dir/earlier/results.json")).unwrap(), results);
    assert!(work.path().join("dir/earlier/report.html").exists());
}
