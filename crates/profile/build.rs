// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the functions around the C library's own: thread cancellation unwinds through some of them.

fn main() {
    // Threads are inside our functions whenever they wait.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Their callers come to these at once. Where a linker takes the functions of the same names in `lib.rs`
    // instead, those jump to these.
    for name in ["mutex_lock", "mutex_unlock"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym=pthread_{name}=wakeful_{name}");
    }
    for file in ["tell.h", "sample.h", "around.c", "openmp.c"] {
        println!("cargo::rerun-if-changed=src/{file}");
    }
    cc::Build::new()
        .files(["src/around.c", "src/openmp.c"])
        .flag("-fexceptions")
        .pic(true)
        .use_plt(false)
        .opt_level(2)
        // The plain mutex's path then writes nothing to the stack.
        .force_frame_pointer(false)
        .flag("-fomit-frame-pointer")
        .warnings(true)
        .compile("around");
}
