// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles what only a linker can decide: for whose runtime the library stands.

fn main() {
    println!("cargo::rerun-if-changed=src/dialect.c");
    cc::Build::new().file("src/dialect.c").pic(true).opt_level(2).warnings(true).compile("dialect");
}
