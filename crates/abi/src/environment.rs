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

/// The interposer's mutex.
pub const LOCK: Variable = Variable(c"WAKEFUL_LOCK");
/// The interposer's reader-writer lock.
pub const RWLOCK: Variable = Variable(c"WAKEFUL_RWLOCK");
/// The view.
pub const VIEW: Variable = Variable(c"WAKEFUL_VIEW");
/// Where the interposer is, for `wakeful run`.
pub const PRELOAD: Variable = Variable(c"WAKEFUL_PRELOAD");
/// Where the OpenMP runtime is, for what a program starts.
pub const OPENMP: Variable = Variable(c"WAKEFUL_OPENMP");
/// The socket of another server than this machine's, one that was started with `--folder`.
pub const SERVER: Variable = Variable(c"WAKEFUL_SERVER");
/// The number of a descriptor of a partition's block, for the program that `wakeful run` becomes.
pub const PARTITION: Variable = Variable(c"WAKEFUL_PARTITION");
/// The observer that a child takes over.
pub const OBSERVER: Variable = Variable(c"WAKEFUL_OBSERVER");
