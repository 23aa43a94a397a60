//! Builds the supervisor as a static program, which the agent carries inside itself.
//!
//! `LANEYARD_SUPERVISOR` may name a ready one instead (hosts that are not Linux, cross builds).

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest as _, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LANEYARD_SUPERVISOR");
    let embedded = Path::new(&env::var("OUT_DIR")?).join("supervisor");
    let ready = match env::var_os("LANEYARD_SUPERVISOR") {
        Some(ready) => PathBuf::from(ready),
        None => build()?,
    };
    println!("cargo::rerun-if-changed={}", ready.display());
    fs::copy(&ready, &embedded).map_err(|error| format!("cannot embed {}: {error}", ready.display()))?;
    let digest = Sha256::digest(fs::read(&embedded)?);
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=SUPERVISOR_DIGEST={short}"); // computed here, not by every run
    Ok(())
}

fn build() -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    if !target.contains("linux") {
        return Err(
            format!("the supervisor runs on Linux, not on {target}: set LANEYARD_SUPERVISOR to a built one").into()
        );
    }
    let package = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("supervisor");
    for watched in ["src", "Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", package.join(watched).display());
    }
    // A folder of its own: the outer cargo holds the lock of the usual one.
    let folder = Path::new(&env::var("OUT_DIR")?).join("supervisor-target");
    let mut cargo = Command::new(env::var("CARGO")?);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let ours = ["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_TERM_COLOR"].contains(&&*name)
            || ["CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"]
                .iter()
                .any(|keep| name.starts_with(keep));
        let misleading = ["CARGO", "RUSTFLAGS", "RUSTC", "CLIPPY_", "DEP_"].iter().any(|drop| name.starts_with(drop));
        if misleading && !ours {
            cargo.env_remove(&*name);
        }
    }
    let status = cargo
        .args(["build", "--quiet", "--release", "--locked", "--bin", "laneyard-supervisor"])
        .args(["--config", "profile.release.panic=\"abort\"", "--config", "profile.release.opt-level=\"s\""])
        .args(["--config", "profile.release.lto=\"off\"", "--target", &target, "--target-dir"])
        .arg(&folder)
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .status()?;
    if !status.success() {
        return Err(format!("building the supervisor failed: {status}").into());
    }
    Ok(folder.join(target).join("release/laneyard-supervisor"))
}
