// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the cancellable sleep, the one part that thread cancellation unwinds through.

fn main() {
    println!("cargo::rerun-if-changed=src/cancel.c");
    cc::Build::new()
        .file("src/cancel.c")
        .flag("-fexceptions")
        .flag("-fPIC")
        .flag("-O2")
        .warnings(true)
        .compile("cancel");
}
