// SPDX-License-Identifier: MIT OR Apache-2.0
//! For whose runtime the library stands: libgomp, or with the crate `kmp` LLVM's libomp. Where the standard
//! leaves room, programs get what they have there.

unsafe extern "C" {
    safe fn wakeful_is_llvm() -> bool;
}

/// Decided when the library is linked.
pub fn is_llvm() -> bool {
    wakeful_is_llvm()
}
