// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the library its name.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwakeful.so");
    // Helpers run in it until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
