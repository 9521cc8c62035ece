//! What holds for every subcommand: help, version, exit codes.

mod common;

use common::{scratch, seawall};

const COMMANDS: [&[&str]; 34] = [
    &[],
    &["lab"],
    &["lab", "diff"],
    &["lab", "report"],
    &["probe"],
    &["cache"],
    &["cache", "show"],
    &["cache", "drop"],
    &["cache", "watch"],
    &["witness"],
    &["witness", "serve"],
    &["witness", "run"],
    &["witness", "verify"],
    &["init"],
    &["trees"],
    &["get"],
    &["put"],
    &["del"],
    &["scan"],
    &["dump"],
    &["load"],
    &["grow"],
    &["stat"],
    &["doctor"],
    &["backup"],
    &["restore"],
    &["check"],
    &["import"],
    &["options"],
    &["completions"],
    &["man"],
    &["bench"],
    &["bench", "kv"],
    &["bench", "bulk"],
];

#[test]
fn every_subcommand_has_help_and_every_option_a_sentence() {
    let dir = scratch();
    for command in COMMANDS {
        let help = seawall(dir.path(), [command, &["--help"]].concat()).exits(0);
        assert!(help.err.is_empty() && help.out.contains("Usage: "), "{command:?}: {help:#?}");
        let lines: Vec<&str> = help.out.lines().map(str::trim).collect();
        for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
            if line.starts_with("--") && !line.ends_with(')') {
                let described = line.contains("  ") || !(next.is_empty() || next.starts_with('-'));
                assert!(described, "{command:?}: {line:?} says nothing");
            }
        }
    }
}

#[test]
fn help_names_units_and_defaults() {
    let dir = scratch();
    for (command, texts) in [
        (&["lab"][..], &["512M", "[default: 1G]", "800ms", "ms, s, m or h", "K, M, G or T", "flush.p99<10ms"][..]),
        (&["cache", "watch"], &["[default: 5s]", "ms, s, m or h"]),
        (&["witness", "run"], &["[default: 16K]", "[default: 1G]", "[default: 4]", "such as 10m"]),
        (&["witness", "serve"], &["127.0.0.1:7440"]),
    ] {
        let help = seawall(dir.path(), [command, &["--help"]].concat()).exits(0).out;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in texts {
            assert!(help.contains(text), "the help of {command:?} lacks {text:?}: {help}");
        }
    }
}

#[test]
fn the_version_is_the_packages() {
    let expected = format!("seawall {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(seawall(scratch().path(), ["--version"]).exits(0).out, expected);
}

#[test]
fn what_is_no_command_exits_with_2() {
    let dir = scratch();
    for args in
        [&[][..], &["labs"], &["lab"], &["cache"], &["cache", "show"], &["lab", "diff", "one"], &["probe", "--x", "."]]
    {
        let ran = seawall(dir.path(), args).exits(2);
        assert!(ran.out.is_empty() && ran.err.contains("Usage: "), "{args:?}: {ran:#?}");
    }
}

/// The help of a command shows its own flags. `seawall options` lists those of the database, and
/// they work.
#[test]
fn the_help_of_a_command_is_about_the_command() {
    let dir = scratch();
    for command in ["get", "put", "scan", "init", "load"] {
        let help = seawall(dir.path(), [command, "--help"]).exits(0).shows("seawall options").out;
        assert!(!help.contains("--log-capacity") && help.lines().count() < 60, "{command}: {help}");
    }
    let all = seawall(dir.path(), ["options"]).exits(0).out;
    for option in seawall::Options::describe() {
        assert!(all.contains(&format!("{} VALUE", option.flag())), "{} is missing", option.name);
    }
    let one = seawall(dir.path(), ["options", "--", "--log-capacity"]).exits(0).out;
    assert!(one.contains("--log-capacity") && !one.contains("--pool-size"), "{one}");
    seawall(dir.path(), ["options", "nothing"]).exits(2).says("no option");
}

#[test]
fn completions_and_man_pages_name_every_command() {
    let dir = scratch();
    for shell in ["bash", "zsh", "fish"] {
        seawall(dir.path(), ["completions", shell]).exits(0).shows("fragmentation").shows("skip-damaged");
    }
    seawall(dir.path(), ["man", "nowhere"]).exits(2).says("cannot write man pages to nowhere");
    std::fs::create_dir(dir.path().join("man1")).unwrap();
    seawall(dir.path(), ["man", "man1"]).exits(0);
    let pages = common::names(&dir.path().join("man1"));
    for command in COMMANDS {
        let name = [&["seawall"], command].concat().join("-") + ".1";
        assert!(pages.contains(&name), "{name} is missing in {pages:?}");
    }
}
