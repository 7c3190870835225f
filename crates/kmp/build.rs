// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the library libgomp's name and both runtimes' versions, and compiles the functions with variable
//! arguments. As for the crate `gomp`, whose `build.rs` says why.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed=versions.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={here}/versions.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgomp.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
    println!("cargo::rerun-if-changed=src/fork.c");
    cc::Build::new().file("src/fork.c").pic(true).opt_level(2).warnings(true).compile("fork");
}
