//! `seawall lab --server`, with a fake client and a fake sysbench that only record how they were called: what the run
//! asks of the server, and that nothing stays changed.

mod common;

use common::{Ran, scratch, signal, spawn, wait_until};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Answers as a MariaDB with both engines; the values of the variables are not the defaults.
const CLIENT: &str = r#"#!/bin/sh
for last; do :; done
sql=${last#--execute=}
echo "sql $sql" >>"$CALLS"
case $sql in
  "select version()") echo "${VERSION:-10.11.18-MariaDB-log}" ;;
  *schemata*) [ -z "$LEFT" ] || echo "$LEFT" ;;
  *information_schema.engines*) printf 'InnoDB\nSEAWALL\nMEMORY\n' ;;
  "show global variables"*) printf 'innodb_flush_method\tO_DIRECT\nlog_bin\tOFF\n' ;;
  "select @@global.innodb_buffer_pool_size") echo 134217728 ;;
  "select @@global.seawall_pool_size") echo 64M ;;
  "select name, value"*) [ -z "$GONE" ] || { echo "server has gone away" >&2; exit 1; }; printf 'innodb_flush_log_at_trx_commit\t2\nseawall_durability\twritten\n' ;;
esac
"#;

const SYSBENCH: &str = r#"#!/bin/sh
echo "sysbench $*" >>"$CALLS"
[ "$1" != --version ] || { echo "sysbench 1.0.20"; exit; }
for verb; do :; done
[ "$verb" = run ] || exit 0
case $1 in
  *"$FAILS"*) [ -z "$FAILS" ] || { echo "FATAL: error 1205"; exit 1; } ;;
esac
[ -z "$SLEEPS" ] || { touch "$SLEEPS"; sleep 60; }
echo "    transactions:                        4000   (1000.00 per sec.)"
echo "         99th percentile:                        1.50"
"#;

struct Fake(TempDir);

impl Fake {
    fn new() -> Self {
        let dir = scratch();
        for (name, text) in [("mariadb", CLIENT), ("sysbench", SYSBENCH)] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(dir)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = common::command(self.0.path());
        command.args(["lab", "--server", "/run/s", "--rounds", "5", "--round", "1s"]).args(more);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.0.path().display())).env("TMPDIR", self.0.path());
        command.env("CALLS", self.calls_path()).env_remove("MYSQL_PWD");
        command
    }

    fn run(&self, more: &[&str], set: &[(&str, &str)]) -> Ran {
        self.command(more).envs(set.iter().copied()).output().unwrap().into()
    }

    fn calls_path(&self) -> std::path::PathBuf {
        self.0.path().join("calls")
    }

    fn calls(&self) -> Vec<String> {
        std::fs::read_to_string(self.calls_path()).unwrap().lines().map(str::to_owned).collect()
    }

    /// Asserts that the variables have their values again, then that what was created is gone, and that nothing
    /// follows.
    #[track_caller]
    fn left_nothing(&self) {
        let calls = self.calls();
        let end: Vec<&str> = calls.iter().rev().take(5).rev().map(String::as_str).collect();
        let expected = [
            "sql set global innodb_flush_log_at_trx_commit = 2",
            "sql set global seawall_durability = 'written'",
            "sql drop database if exists seawall_lab_innodb",
            "sql drop database if exists seawall_lab_seawall",
            "sql drop database if exists seawall_lab",
        ];
        assert_eq!(end, expected);
        let mut scripts = std::fs::read_dir(self.0.path()).unwrap();
        assert!(!scripts.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("seawall-lab")));
    }
}

#[test]
fn both_experiments_on_both_engines() {
    let fake = Fake::new();
    let ran = fake.run(&["--json", "r.json"], &[]).exits(0).shows("E5 commit-levels").shows("E6 range-prefetch");
    assert!(ran.out.contains("transactional  SEAWALL  1,000 +-0%  1.00x ?  1.00x ?         over 40%"), "{}", ran.out);
    fake.left_nothing();
    let calls = fake.calls();
    let count = |text: &str| calls.iter().filter(|call| call.contains(text)).count();
    // Two engines, three loads, five rounds.
    assert_eq!(count("set global seawall_durability = 'deferred'"), 15);
    assert_eq!(count("set global innodb_flush_log_at_trx_commit = 0"), 15);
    assert_eq!(
        calls.iter().filter(|call| call.starts_with("sysbench") && call.ends_with("run")).count(),
        2 * (9 + 2) * 5
    );
    // Twice the larger pool: 2^21 rows, in eight statements for each engine.
    assert_eq!(count("seawall_lab_seawall.fragmented select"), 8);
    assert_eq!(count("--rows=2097152 run"), 2 * 2 * 5);
    // The values before are kept before the first change.
    let first = |text: &str| calls.iter().position(|call| call.contains(text)).unwrap();
    assert!(first("insert into seawall_lab.settings_before") < first("set global"));
    let results = common::read_json(&fake.0.path().join("r.json"));
    assert_eq!(results["complete"], true);
    assert_eq!(results["cells"].as_array().unwrap().len(), 2 * (9 + 2));
}

#[test]
fn a_load_that_fails_leaves_nothing() {
    let fake = Fake::new();
    let ran = fake.run(&[], &[("FAILS", "tpcc")]).exits(2).says("sysbench tpcc run: FATAL: error 1205");
    assert!(ran.out.contains("sysbench complex, DBT-2"), "what was measured is shown: {}", ran.out);
    fake.left_nothing();
}

#[test]
fn a_server_that_stays_changed_is_said_to_be() {
    let fake = Fake::new();
    let ran = fake.run(&["--only", "E5"], &[("FAILS", "tpcc"), ("GONE", "1")]).exits(2);
    assert!(ran.err.contains("could not be left as it was") && ran.err.contains("settings_before"), "{}", ran.err);
    assert!(!fake.calls().iter().any(|call| call.contains("drop database")), "it has the values before");
}

#[test]
fn ctrl_c_sets_the_variables_as_they_were() {
    let fake = Fake::new();
    let sleeps = fake.0.path().join("sleeps");
    let mut command = fake.command(&["--only", "E5"]);
    command.env("SLEEPS", &sleeps);
    let mut child = spawn(command);
    wait_until(&mut child, || sleeps.exists());
    signal(child, Signal::INT).exits(130).says("nothing is left on the server");
    fake.left_nothing();
}

#[test]
fn a_table_beyond_the_limit_is_left_out_with_the_reason() {
    let fake = Fake::new();
    fake.run(&["--size", "100M"], &[])
        .exits(0)
        .shows("E6 was not measured: beside a pool of 128 MiB")
        .shows("--size allows 100 MiB");
    assert!(!fake.calls().iter().any(|call| call.contains("fragmented")));
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_made() {
    let made_nothing = |fake: &Fake| {
        let path = fake.calls_path();
        assert!(
            !path.exists() || !fake.calls().iter().any(|call| call.contains("create") || call.contains("set global"))
        );
    };
    let fake = Fake::new();
    fake.run(&[], &[("LEFT", "seawall_lab")])
        .exits(2)
        .says("of an earlier run that was killed")
        .says("settings_before");
    made_nothing(&fake);
    fake.run(&[], &[("VERSION", "8.4.11")]).exits(2).says("the server is 8.4.11");
    made_nothing(&fake);
    fake.run(&["--only", "E1"], &[]).exits(2).says("only commit-levels (E5) and range-prefetch (E6)");
    fake.run(&["--full"], &[]).exits(2).says("--server");
    fake.run(&["/tmp"], &[]).exits(2).says("--server");
    made_nothing(&fake);
    remove(fake.0.path(), "sysbench");
    fake.run(&[], &[("PATH", fake.0.path().to_str().unwrap())])
        .exits(2)
        .says("apt-get install mariadb-client sysbench");
    made_nothing(&fake);
    remove(fake.0.path(), "mariadb");
    fake.run(&[], &[("PATH", fake.0.path().to_str().unwrap())]).exits(2).says("mariadb cannot be started");
}

fn remove(dir: &Path, name: &str) {
    std::fs::remove_file(dir.join(name)).unwrap();
}
