// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment variables by which the parts of Wakeful, and their users, talk to each other. Each is
//! named here and nowhere else.

use core::ffi::CStr;
use core::fmt;

/// The name of an environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable(&'static CStr);

impl Variable {
    /// For Rust.
    pub const fn name(self) -> &'static str {
        match self.0.to_str() {
            Ok(name) => name,
            // Names are ASCII.
            Err(_) => "",
        }
    }

    /// For C.
    pub const fn c_name(self) -> &'static CStr {
        self.0
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! variables {
    ($($(#[$about:meta])* $name:ident = $text:literal,)*) => {
        $($(#[$about])* pub const $name: Variable = Variable($text);)*

        /// All of them.
        pub const ALL: &[Variable] = &[$($name),*];
    };
}

variables! {
    /// The interposer's mutex.
    LOCK = c"WAKEFUL_LOCK",
    /// The interposer's reader-writer lock.
    RWLOCK = c"WAKEFUL_RWLOCK",
    /// The barrier of the interposer, and of the OpenMP runtime.
    BARRIER = c"WAKEFUL_BARRIER",
    /// The view.
    VIEW = c"WAKEFUL_VIEW",
    /// Where the interposer is, for `wakeful run`.
    PRELOAD = c"WAKEFUL_PRELOAD",
    /// Where the OpenMP runtime is, for what a program starts.
    OPENMP = c"WAKEFUL_OPENMP",
    /// The socket of another server than this machine's, one that was started with `--folder`.
    SERVER = c"WAKEFUL_SERVER",
    /// The number of a descriptor of a partition's block, for the program that `wakeful run` becomes.
    PARTITION = c"WAKEFUL_PARTITION",
    /// Where a preloaded `malloc` takes memory from: `servers`, or a node's number.
    NUMA = c"WAKEFUL_NUMA",
    /// The file that a profiled program writes its waits into.
    PROFILE = c"WAKEFUL_PROFILE",
    /// The observer that a child takes over.
    OBSERVER = c"WAKEFUL_OBSERVER",
}
