//! Checks that the committed header matches the crate's functions, and the plugin's variables match the options.

use seawall::{OptionChange, Options};

/// Compares the file with `made`; with `UPDATE=1` in the environment, writes it instead.
fn is_current(path: &str, made: &[u8]) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, made).unwrap();
    }
    let committed = std::fs::read(path).unwrap_or_default();
    assert!(committed == made, "{path} is old: UPDATE=1 cargo test -p seawall-ffi --test header writes it again");
}

#[test]
fn the_plugins_variables_are_current() {
    let mut made = String::from(
        "/* SPDX-License-Identifier: GPL-2.0-only */\n\
         /* The options of a database as variables of the server: name, default, whether it can be changed at run time, text.\n   \
         Made from the options' table by the tests of seawall-ffi; durability is a variable of sessions. */\n",
    );
    for info in Options::describe().iter().filter(|info| info.name != "durability") {
        let running = info.change == OptionChange::Running;
        let text = format!("{} {}", info.help, info.effect);
        // A debug build of the server refuses a text that ends with a full stop.
        let text = text.trim().trim_end_matches('.');
        made += &format!("SEAWALL_OPTION({}, {:?}, {running}, {text:?})\n", info.name, info.default);
    }
    is_current(concat!(env!("CARGO_MANIFEST_DIR"), "/../../mariadb/options.inc"), made.as_bytes());
}

#[test]
fn the_header_is_current() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut config = cbindgen::Config::from_file(format!("{root}/cbindgen.toml")).unwrap();
    let head = std::fs::read_to_string(format!("{root}/src/lib.rs")).unwrap();
    let conventions = head.lines().skip_while(|line| !line.starts_with("//! Conventions"));
    let conventions = conventions.take_while(|line| !line.starts_with("//! The header")).map(|line| &line[3..]);
    let conventions = conventions.collect::<Vec<_>>().join("\n").replace('`', "");
    config.header = config.header.map(|made| format!("{made}\n\n/*{} */", conventions.trim_end()));
    let mut made = Vec::new();
    cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap().write(&mut made);
    is_current(&format!("{root}/include/seawall.h"), &made);
}
