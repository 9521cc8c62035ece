//! Modules import leftward only: `(counted, error, format, mutants) <- log <- buffer <- space <- btree <- txn <- recovery <- db`.
//!
//! 1. Every path in code that starts at the crate's root counts, `crate::` and chains of `super::` alike;
//!    comments, strings and modules under `#[cfg(test)]` at a file's end do not.
//! 2. A top-level module without a place in the order fails the test: its author decides where it belongs.

use std::fs;
use std::path::{Path, PathBuf};

/// The order, lowest first. Modules of one row may import each other.
const ORDER: [&[&str]; 8] = [
    &["counted", "error", "format", "mutants"],
    &["log"],
    &["buffer"],
    &["space"],
    &["btree"],
    &["txn"],
    &["recovery"],
    &["db"],
];

fn rank(module: &str) -> Option<usize> {
    ORDER.iter().position(|row| row.contains(&module))
}

/// Rust source without comments, strings and character literals; each is replaced by a space.
fn bare(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        match rest {
            ['/', '/', ..] => at += rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => {
                let mut depth = 0;
                let mut end = 0;
                while end < rest.len() {
                    match rest[end..] {
                        ['/', '*', ..] => (depth, end) = (depth + 1, end + 2),
                        ['*', '/', ..] => (depth, end) = (depth - 1, end + 2),
                        _ => end += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
                at += end;
            }
            ['r', '#' | '"', ..] if !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
                let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
                if rest.get(1 + hashes) != Some(&'"') {
                    out.push('r');
                    at += 1;
                    continue;
                }
                let mut end = hashes + 2;
                while end < rest.len()
                    && !(rest[end] == '"' && rest[end + 1..].iter().take_while(|&&c| c == '#').count() >= hashes)
                {
                    end += 1;
                }
                at += end + 1 + hashes;
            }
            ['"', ..] => {
                let mut end = 1;
                while end < rest.len() && rest[end] != '"' {
                    end += if rest[end] == '\\' { 2 } else { 1 };
                }
                at += end + 1;
            }
            ['\'', '\\', ..] => at += 3 + rest[3..].iter().position(|&c| c == '\'').unwrap_or(0),
            ['\'', _, '\'', ..] => at += 3,
            _ => {
                out.push(rest[0]);
                at += 1;
                continue;
            }
        }
        out.push(' ');
    }
    out
}

/// The first segments of every path from the crate's root: `crate::a::b` gives `a`, `crate::{a::b, c}` gives `a` and `c`.
fn roots(code: &str, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    let words = tokens(code);
    let mut at = 0;
    while at < words.len() {
        let mut supers = 0;
        let mut next = at;
        if words[at] == "crate" && words.get(at + 1).is_some_and(|word| word == "::") {
            supers = depth;
            next = at + 2;
        } else {
            while words.get(next).is_some_and(|word| word == "super")
                && words.get(next + 1).is_some_and(|word| word == "::")
            {
                (supers, next) = (supers + 1, next + 2);
            }
        }
        if next > at && supers >= depth {
            if words.get(next).is_some_and(|word| word == "{") {
                let (mut level, mut begin, mut inside) = (1, true, next + 1);
                while inside < words.len() && level > 0 {
                    match words[inside].as_str() {
                        "{" => level += 1,
                        "}" => level -= 1,
                        "," if level == 1 => begin = true,
                        word if begin => {
                            found.push(word.to_owned());
                            begin = false;
                        }
                        _ => {}
                    }
                    inside += 1;
                }
            } else if let Some(word) = words.get(next) {
                found.push(word.clone());
            }
        }
        at = next.max(at + 1);
    }
    found
}

fn tokens(code: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' {
            let mut word = String::from(c);
            while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                word.push(c);
            }
            words.push(word);
        } else if c == ':' && chars.next_if_eq(&':').is_some() {
            words.push("::".into());
        } else if !c.is_whitespace() {
            words.push(c.into());
        }
    }
    words
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// A file's top-level module and its depth below the root.
fn place(path: &Path) -> (String, usize) {
    let parts: Vec<String> = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .filter(|part| part != "mod")
        .collect();
    (parts[0].clone(), parts.len())
}

fn faults(module: &str, depth: usize, source: &str) -> Vec<String> {
    let own = rank(module).unwrap_or_else(|| panic!("module {module} has no place in the order of layers"));
    let source = source.find("#[cfg(test)]\nmod ").map_or(source, |end| &source[..end]);
    let known = |root: &String| rank(root).is_some_and(|rank| rank > own);
    roots(&bare(source), depth).into_iter().filter(known).collect()
}

#[test]
fn no_module_imports_rightward() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 5, "the sources are not where they were");
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        let (module, depth) = place(inside);
        if module == "lib" {
            continue;
        }
        for root in faults(&module, depth, &fs::read_to_string(&file).unwrap()) {
            wrong.push(format!("{}: {module} imports {root}", inside.display()));
        }
    }
    assert!(wrong.is_empty(), "imports that go right:\n{}", wrong.join("\n"));
}

#[test]
fn the_check_sees_every_way_to_import() {
    let wrong = [
        "use crate::txn::Transaction;",
        "use crate::{error::Result, txn::{View, Id}};",
        "use super::super::db::Database;",
        "fn f() -> crate::recovery::Report { todo!() }",
        "use crate::{\n    format::PageId,\n    db,\n};",
    ];
    for source in wrong {
        assert_eq!(faults("buffer", 2, source).len(), 1, "{source}");
    }
    let right = [
        "// use crate::txn::Transaction;",
        "/* use /* nested */ crate::txn::Transaction; */",
        "use crate::error::Result;",
        "use super::txn;",
        "const WHY: &str = \"crate::txn is above\";",
        "const WHY: &str = r#\"\"crate::txn\" is above\"#;",
        "use crate::{log::Log, format::{txn, Lsn}};",
        "const QUOTE: char = '\"'; const OTHER: char = '\\'';",
        "#[cfg(test)]\nmod tests { use crate::txn::Transaction; }",
    ];
    for source in right {
        assert_eq!(faults("buffer", 2, source), [""; 0], "{source}");
    }
}
