// SPDX-License-Identifier: MIT OR Apache-2.0
// The library with LLVM's interface has a variable by which this one, of which it is made, knows it.

__attribute__((weak, visibility("hidden"))) extern const char wakeful_has_llvm_interface;

__attribute__((visibility("hidden"))) _Bool wakeful_is_llvm(void) { return &wakeful_has_llvm_interface != 0; }
