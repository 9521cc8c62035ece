//! The engine's dependencies: each has its reason beside it, and with the default features there are few.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Third-party crates compiled for the engine with its default features, build dependencies included.
const MOST: usize = 20;

fn manifest(of: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("Cargo.toml");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn third_party(features: &[&str]) -> BTreeSet<String> {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "-p", "seawall", "-e", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}"])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    // Crates of this workspace have a path; repeated entries end in a star.
    let lines = text.lines().filter(|line| !line.is_empty() && !line.contains("(/"));
    lines.map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn they_are_few() {
    let default = third_party(&[]);
    assert!(default.len() <= MOST, "{} crates: {default:#?}", default.len());
    assert!(default.len() > 5, "{default:#?}");
    let name = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = default.iter().map(name).collect();
    assert_eq!(names.len(), default.len(), "one in two versions: {default:#?}");
    let least = third_party(&["--no-default-features"]);
    assert!(least.len() < default.len() && least.is_subset(&default), "{least:#?}");
    assert!(third_party(&["--features", "serde"]).iter().any(|line| line.starts_with("serde ")));
}

#[test]
fn each_has_its_reason() {
    for of in ["seawall", "seawall-io"] {
        let manifest = manifest(of);
        let lines: Vec<&str> = manifest.lines().skip_while(|line| *line != "[dependencies]").collect();
        let lines = lines.iter().enumerate().skip(1).take_while(|(_, line)| !line.starts_with('['));
        let mut seen = 0;
        let mut before = "";
        for (_, line) in lines {
            if !line.is_empty() && !line.starts_with('#') {
                assert!(before.starts_with("# "), "crates/{of}/Cargo.toml does not say why it needs {line}");
                seen += 1;
            }
            before = line;
        }
        assert!(seen >= 3, "{of}: {seen}");
    }
}
