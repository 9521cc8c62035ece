//! What the documentation cites exists: traps, files, pages and their headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the README, which is also the crate's page, refers to the repository.
const REPOSITORY: &str = "https://github.com/seawall-db/seawall/blob/main/";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file of the project with one of these extensions.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
                dirs.push(path);
            } else if path.is_file() && extensions.iter().any(|of| path.extension().is_some_and(|is| is == *of)) {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 10, "the files are not where they were");
    found
}

/// The numbers of the traps that a text cites, also across the line breaks of a comment.
fn cited(text: &str) -> BTreeSet<u32> {
    let leader = |word: &&str| !matches!(*word, "//" | "///" | "//!" | "#");
    let words: Vec<String> = text.split_whitespace().filter(leader).map(str::to_lowercase).collect();
    let number = |pair: &[String]| {
        let before = pair[0].trim_start_matches(|c: char| !c.is_alphanumeric());
        let digits: String = pair[1].chars().take_while(char::is_ascii_digit).collect();
        if before == "trap" { digits.parse().ok() } else { None }
    };
    words.windows(2).filter_map(number).collect()
}

/// The cells of the table of traps, by number.
fn defined() -> BTreeMap<u32, Vec<String>> {
    let page = fs::read_to_string(root().join("docs/invariants.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<String> = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
        Some((cells[0].parse().ok()?, cells))
    };
    page.lines().filter(|line| line.starts_with("| ")).filter_map(row).collect()
}

#[test]
fn every_cited_trap_is_defined_and_names_where_it_is_held() {
    let defined = defined();
    let numbers: Vec<u32> = defined.keys().copied().collect();
    assert_eq!(numbers, (1..=29).collect::<Vec<_>>(), "one line a trap");
    let mut all = BTreeSet::new();
    for path in files(&["rs", "md"]) {
        let found = cited(&fs::read_to_string(&path).unwrap());
        let unknown: Vec<_> = found.iter().filter(|number| !defined.contains_key(number)).collect();
        assert!(unknown.is_empty(), "{}: traps {unknown:?} are not in docs/invariants.md", path.display());
        if !path.ends_with("docs/invariants.md") {
            all.extend(found);
        }
    }
    assert!(all.len() > 20, "the citations are not where they were: {all:?}");
    for (number, cells) in defined {
        assert_eq!(cells.len(), 5, "trap {number}: what, rule, held in, shown by");
        for cell in &cells[3..] {
            let paths: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!paths.is_empty(), "trap {number} names no file: {cell}");
            for path in paths {
                assert!(root().join("crates").join(path).is_file(), "trap {number}: there is no crates/{path}");
            }
        }
    }
}

#[test]
fn citations_are_found_across_lines() {
    let text = "//! 1. a slot (trap\n//!    26). Trap 4: two areas, \"trap 19\"; the traps.rs, trap x, (trap 7).";
    assert_eq!(cited(text), BTreeSet::from([4, 7, 19, 26]));
}

/// A heading's name in a link.
fn anchor(heading: &str) -> String {
    let keep = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim_start_matches('#').trim().to_lowercase().chars().filter(keep).collect::<String>().replace(' ', "-")
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

#[test]
fn every_link_between_pages_has_a_target() {
    let mut seen = 0;
    for page in files(&["md"]) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (from, link) = match link.strip_prefix(REPOSITORY) {
                Some(inside) => (root(), inside),
                None if link.contains("://") || link.contains("::") => continue,
                None => (page.parent().unwrap().to_owned(), link),
            };
            let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
            let target = if path.is_empty() { page.clone() } else { from.join(path) };
            assert!(target.exists(), "{}: there is no {link}", page.display());
            if let Some(heading) = heading {
                let found = fs::read_to_string(&target).unwrap();
                let mut headings = found.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| anchor(line) == heading), "{}: {link} has no such heading", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} links");
}

#[test]
fn every_page_that_code_names_exists() {
    for path in files(&["rs", "toml", "md"]) {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let name: String = text[at..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'))
                .collect();
            let name = name.trim_end_matches('.');
            let other_place =
                text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/') && !text[..at].ends_with(REPOSITORY);
            if name.ends_with(".md") && !other_place {
                assert!(root().join(name).is_file(), "{} names {name}", path.display());
            }
        }
    }
}

/// Paths in backticks, below `crates/`, or below the engine's sources when they begin with a layer.
#[test]
fn every_source_file_that_a_page_names_exists() {
    const LAYERS: [&str; 8] = ["btree/", "buffer/", "db/", "format/", "log/", "recovery/", "space/", "txn/"];
    let mut seen = 0;
    for page in ["ARCHITECTURE.md", "docs/invariants.md", "docs/recovery.md", "crates/seawall/DESIGN.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for name in text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && !name.contains('{')) {
            let below = match LAYERS.iter().any(|layer| name.starts_with(layer)) {
                true => "crates/seawall/src",
                false if name.starts_with("seawall") => "crates",
                false => continue,
            };
            assert!(root().join(below).join(name).is_file(), "{page}: there is no {below}/{name}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} paths");
}

/// rustfmt does not break comments. Tables, diagrams and code in them are as wide as they are.
#[test]
fn comments_are_as_wide_as_code() {
    for path in files(&["rs"]) {
        let mut in_block = false;
        for (line, at) in fs::read_to_string(&path).unwrap().lines().zip(1..) {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            in_block ^= comment.trim_start_matches(['/', '!', ' ']).starts_with("```");
            let wide = line.chars().count() > 120 && !in_block && !line.contains("| ");
            assert!(!wide, "{}:{at}: a comment of more than 120 columns: {line}", path.display());
        }
    }
}
