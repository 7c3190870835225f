// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaussian elimination, LU and a stencil: the same result with our barrier as with pthread's in C, with
//! any number of threads.

#[path = "../examples/barrier_programs/kernels.rs"]
mod kernels;

use std::path::Path;
use std::process::Command;

/// The checksum that the C program prints.
fn in_c(program: &Path, kernel: &str, threads: usize) -> u64 {
    let output =
        Command::new(program).args([kernel, &threads.to_string(), "64"]).output().expect("it was built");
    assert!(output.status.success(), "{kernel} in C: {output:?}");
    u64::from_str_radix(String::from_utf8_lossy(&output.stdout).trim(), 16).expect("a checksum")
}

#[test]
fn rust_and_c_agree_to_the_last_bit() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("barrier-programs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/barrier_programs/programs.c");
    let built = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread", source, "-o"])
        .arg(&program)
        .status()
        .expect("a C compiler is there");
    assert!(built.success());
    let mut results = Vec::new();
    for kernel in kernels::KERNELS {
        let alone = in_c(&program, kernel, 1);
        for threads in [1, 2, 7, 16] {
            assert_eq!(in_c(&program, kernel, threads), alone, "{kernel} in C, {threads} threads");
            assert_eq!(kernels::run(kernel, 64, threads), Some(alone), "{kernel}, {threads} threads");
        }
        results.push(alone);
    }
    // Elimination and LU apply the same steps to each number in the same order, in another order of numbers.
    assert_eq!(results[0], results[1], "gauss and lu");
    assert_ne!(results[0], results[2], "gauss and stencil");
    assert_eq!(kernels::run("nonesuch", 64, 1), None);
}
