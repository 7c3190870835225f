// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links `wakeful` without a C library (`start.rs`), and the others with the unwinder inside. The shared
//! unwinder is a library more to load before each program that `wakeful run` starts, and its constructor asks
//! the processor what it is, which takes long in a virtual machine. Only a panic's backtrace needs it.

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    let script = std::path::Path::new(&folder).join("libgcc_s.so");
    // What the linker takes for that library: a script, which names others.
    std::fs::write(script, "INPUT(-lgcc_eh)\n").expect("cargo has made the folder");
    println!("cargo::rustc-link-search=native={folder}");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if ["x86_64", "aarch64"].contains(&arch.as_str()) {
        // At a fixed place: then there is nothing to relocate, and nothing to be protected after that.
        for word in ["-nostartfiles", "-static", "-no-pie", "-Wl,-z,norelro"] {
            println!("cargo::rustc-link-arg-bin=wakeful={word}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
