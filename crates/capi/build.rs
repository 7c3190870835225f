// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the library its name.

fn main() {
    // The number is that of the ABI, which `tests/abi.rs` keeps.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwakeful.so.1");
    // Helpers run in it until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
