// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the library libgomp's name and versions, and compiles what has to be in C.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed=versions.map");
    // Not `rustc-cdylib-link-arg`, which cargo applies to the libraries of dependent packages as well; to
    // the tests all this means nothing.
    println!("cargo::rustc-link-arg=-Wl,--version-script={here}/versions.map");
    // The dynamic linker takes a preloaded library of this name for the one that a program wants, and does
    // not load another.
    println!("cargo::rustc-link-arg=-Wl,-soname,libgomp.so.1");
    // There is no end to the threads that run in it.
    println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
    // GNU ld refuses to join this script with the one that rustc brings.
    println!("cargo::rustc-link-arg=-fuse-ld=lld");
    let mut files = vec!["src/doacross.c"];
    // Arm's own exception handling has other functions.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|name| name != "arm") {
        files.push("../linux/src/unwind.c");
    }
    for file in &files {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(files)
        .flag("-fexceptions")
        .pic(true)
        .opt_level(2)
        .warnings(true)
        .compile("doacross");
}
