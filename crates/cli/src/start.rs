// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `wakeful` command. It does `wakeful run PROGRAM` itself for most programs. For the rest it becomes
//! `wakeful-run` (`runner.rs`), and for options and other verbs `wakeful-verbs` (`main.rs`). Both lie beside
//! it, or where the interposer may be as well.
//!
//! **Why.** Each start of a program under `wakeful run` pays for the process image before it. A C library
//! takes longer to start than all that is done here: it asks the processor what it is, and in a virtual
//! machine each such question takes 4 us. So there is no C library here, and nothing to be relocated.
//!
//! **What it does itself**: a program that the C library's dynamic linker loads, and that is not linked with
//! an OpenMP runtime, as far as the libraries that it names tell. If anything else is to be looked up, said
//! or refused, who comes next finds that out anew.
//!
//! Other processors than those in `start/kernel.rs` begin with `wakeful-run`.
#![cfg_attr(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")), no_std, no_main)]

#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "start/kernel.rs"]
mod kernel;
#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "start/lean.rs"]
mod lean;
#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "start/memory.rs"]
mod memory;

// No tests are here. `cargo test --bins` and `--all-targets` build and run them all the same, linked as this
// program is: without the C library's start (`build.rs`). So they get one, which ends them.
#[cfg(all(test, target_arch = "x86_64"))]
std::arch::global_asm!(".globl _start", "_start:", "mov eax, 231", "xor edi, edi", "syscall");
#[cfg(all(test, target_arch = "aarch64"))]
std::arch::global_asm!(".globl _start", "_start:", "mov x8, #94", "mov x0, #0", "svc 0");

#[cfg(not(any(test, target_arch = "x86_64", target_arch = "aarch64")))]
fn main() -> std::process::ExitCode {
    use std::os::unix::process::CommandExt;

    let words = std::env::args_os().skip(1);
    let place = std::env::current_exe().unwrap_or_default().with_file_name("wakeful-run");
    let error = std::process::Command::new(&place).args(words).exec();
    eprintln!("wakeful: cannot run {}: {error}", place.display());
    125.into()
}
