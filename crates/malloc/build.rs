// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the library where it is once it is loaded.

fn main() {
    // Blocks that it gave outlive dlclose(3), and a second load would know nothing of them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
