// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles what thread cancellation, or an exception, unwinds through, and what has variable arguments.

fn main() {
    const FILES: [&str; 4] = ["src/cancel.c", "src/exec.c", "src/once.c", "src/sem.c"];
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(FILES)
        .flag("-fexceptions")
        .pic(true)
        .use_plt(false)
        .opt_level(2)
        .warnings(true)
        .compile("cancel");
}
