//! How the program is linked.

#![allow(clippy::print_stdout, reason = "a build script speaks to cargo")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A policy decision is a process of its own, and half of its time went into relocating a large program that uses a
    // fiftieth of itself. Linked at a fixed address there is nothing to relocate.
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
