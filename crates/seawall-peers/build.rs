//! Compiles the shims for WiredTiger's methods and for what RocksDB's C interface lacks. Also records the
//! locked versions of redb and fjall, which these crates do not report themselves.

use std::path::Path;

fn main() -> Result<(), String> {
    let dir = std::env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let lock = Path::new(&dir).join("../../Cargo.lock");
    let text = std::fs::read_to_string(&lock).map_err(|error| format!("cannot read {}: {error}", lock.display()))?;
    println!("cargo:rerun-if-changed={}", lock.display());
    for name in ["redb", "fjall"] {
        let after = format!("name = \"{name}\"\nversion = \"");
        let version = text.split_once(&after).and_then(|(_, rest)| rest.split('"').next());
        let version = version.ok_or_else(|| format!("{} does not name {name}", lock.display()))?;
        println!("cargo:rustc-env=SEAWALL_PEERS_{}={version}", name.to_uppercase());
    }
    println!("cargo:rerun-if-changed=src/wiredtiger/shim.c");
    cc::Build::new().file("src/wiredtiger/shim.c").warnings(true).compile("seawall_wiredtiger_shim");
    println!("cargo:rerun-if-changed=src/rocksdb/shim.cc");
    cc::Build::new().cpp(true).std("c++17").file("src/rocksdb/shim.cc").warnings(true).compile("seawall_rocksdb_shim");
    println!("cargo:rustc-link-lib=rocksdb");
    // After the shim, which depends on it.
    println!("cargo:rustc-link-lib=wiredtiger");
    Ok(())
}
