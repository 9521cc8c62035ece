//! The committed header is the one that the crate's functions have.

/// With `UPDATE=1` in the environment the header is written instead of compared.
#[test]
fn the_header_is_current() {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{root}/cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap().write(&mut made);
    let path = format!("{root}/include/seawall.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/seawall.h is not what the crate has: UPDATE=1 cargo test -p seawall-ffi --test header writes it again"
    );
}
