//! Records the locked versions of redb and fjall, which these crates do not report themselves.

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
    Ok(())
}
