// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the functions around the C library's own: thread cancellation unwinds through some of them.

fn main() {
    // Threads are inside our functions whenever they wait.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    for file in ["tell.h", "around.c", "openmp.c"] {
        println!("cargo::rerun-if-changed=src/{file}");
    }
    cc::Build::new()
        .files(["src/around.c", "src/openmp.c"])
        .flag("-fexceptions")
        .pic(true)
        .use_plt(false)
        .opt_level(2)
        .warnings(true)
        .compile("around");
}
