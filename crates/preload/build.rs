// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles what thread cancellation, or an exception, unwinds through, and what has variable arguments.

fn main() {
    // Threads that have waited run a destructor of ours when they end, also after dlclose(3).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // No start of the C compiler's: it would do nothing, in two more pages at a program's start and its end.
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    let mut files = vec!["src/cancel.c", "src/exec.c", "src/once.c", "src/sem.c"];
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
        .use_plt(false)
        .opt_level(2)
        .warnings(true)
        .compile("cancel");
}
