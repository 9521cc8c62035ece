//! C programs use the interface. They are compiled with all warnings and run; the first runs twice on one database.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the libraries: cargo builds them beside the tests.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().into()
}

fn compile(source: &str, to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let said = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror"])
        .arg(root.join(source))
        .arg(format!("-I{}", root.join("include").display()))
        .arg(libraries().join("libseawall_ffi.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(to)
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn a_program_in_c_moves_an_amount() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("accounts");
    compile("examples/accounts.c", &program);
    for (round, charles) in [(0, 30), (1, 60)] {
        let said = Command::new(&program).arg(dir.path().join("db")).output().unwrap();
        assert!(said.status.success(), "round {round}: {}", String::from_utf8_lossy(&said.stderr));
        let text = String::from_utf8(said.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["refused: 77 is not a valid seawall_lock", "ada 70", &format!("charles {charles}")]);
    }
    // A file in place of the directory gives a status and a text, not a crash.
    let file = dir.path().join("file");
    std::fs::write(&file, b"no database").unwrap();
    let said = Command::new(&program).arg(&file).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).starts_with("open: "));
}

#[test]
fn what_a_handle_lent_is_an_argument_of_its_next_call() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("lent");
    compile("tests/lent.c", &program);
    let said = Command::new(&program).arg(dir.path().join("db")).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn the_header_is_good_for_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("all.cc");
    std::fs::write(&source, "#include \"seawall.h\"\nint main() { return seawall_version() == nullptr; }\n").unwrap();
    let include = format!("-I{}/include", env!("CARGO_MANIFEST_DIR"));
    let said = Command::new("cc")
        .args(["-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", &include])
        .arg(&source)
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
