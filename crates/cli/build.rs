// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the unwinder statically. The shared one is a library more to load before each program that
//! `wakeful run` starts, and its constructor asks the processor what it is, which takes long in a virtual
//! machine. Only a panic's backtrace needs it.

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    let script = std::path::Path::new(&folder).join("libgcc_s.so");
    // What the linker takes for that library: a script, which names others.
    std::fs::write(script, "INPUT(-lgcc_eh)\n").expect("cargo has made the folder");
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rerun-if-changed=build.rs");
}
