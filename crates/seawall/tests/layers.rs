//! Modules import leftward only: `(blocking, counted, error, format, mutants, spare) <- log <- buffer <- space <- btree
//! <- txn <- recovery <- db`.
//!
//! 1. Every path in code that starts at the crate's root counts: `crate::` and chains of `super::`; in arguments of
//!    macros only `crate::`. Modules under `#[cfg(test)]` do not count.
//! 2. A top-level module without a place in the order fails the test: its author decides where it belongs.

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Macro, Path, UseName, UseRename, UseTree};

/// The order, lowest first. Modules of one row may import each other.
const ORDER: [&[&str]; 8] = [
    &["blocking", "counted", "error", "format", "mutants", "spare"],
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

/// Collects the first segment after the crate's root of every path: `crate::a::b` gives `a`, `crate::{a::b, c}` gives
/// `a` and `c`.
struct Roots {
    /// Modules between the crate's root and the code that is visited.
    depth: usize,
    found: Vec<String>,
}

impl Roots {
    fn path(&mut self, segments: &[String]) {
        let supers = segments.iter().take_while(|segment| *segment == "super").count();
        let inside = match segments.first() {
            Some(first) if first == "crate" => segments.get(1),
            _ if supers >= self.depth => segments.get(supers),
            _ => None,
        };
        self.found.extend(inside.cloned());
    }

    fn use_tree(&mut self, tree: &UseTree, mut before: Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.use_tree(&path.tree, before);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, before.clone())),
            UseTree::Name(UseName { ident, .. }) | UseTree::Rename(UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.path(&before);
            }
            UseTree::Glob(_) => self.path(&before),
        }
    }
}

impl<'ast> Visit<'ast> for Roots {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_test = |attribute: &Attribute| {
            attribute.path().is_ident("cfg") && attribute.parse_args::<Path>().is_ok_and(|path| path.is_ident("test"))
        };
        if !module.attrs.iter().any(is_test) {
            self.depth += 1;
            visit::visit_item_mod(self, module);
            self.depth -= 1;
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.use_tree(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&segments);
        visit::visit_path(self, path);
    }

    /// The arguments of a macro are tokens, not paths: their text has spaces around `::`, that of a literal has
    /// none.
    fn visit_macro(&mut self, called: &'ast Macro) {
        let text = called.tokens.to_string();
        for (at, _) in text.match_indices("crate :: ") {
            let root = text[at + "crate :: ".len()..].split_whitespace().next().unwrap_or_default();
            self.path(&["crate".to_owned(), root.to_owned()]);
        }
        visit::visit_macro(self, called);
    }
}

fn sources(dir: &FilePath, into: &mut Vec<PathBuf>) {
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
fn place(path: &FilePath) -> (String, usize) {
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
    let file = syn::parse_file(source).unwrap_or_else(|e| panic!("module {module}: {e}"));
    let mut roots = Roots { depth, found: Vec::new() };
    roots.visit_file(&file);
    roots.found.retain(|root| rank(root).is_some_and(|rank| rank > own));
    roots.found.sort();
    roots.found.dedup();
    roots.found
}

#[test]
fn no_module_imports_rightward() {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src");
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
        "fn f() { assert!(crate::txn::is_open(), \"crate::txn\"); }",
        "mod inner { use super::super::super::db::Database; }",
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
        "fn f() { panic!(\"crate::txn is above\"); }",
        "mod inner { use super::super::txn; }",
        "#[cfg(test)]\nmod tests { use crate::txn::Transaction; }",
    ];
    for source in right {
        assert_eq!(faults("buffer", 2, source), [""; 0], "{source}");
    }
}
