// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it takes to start a program with the interposer preloaded: where the interposer is ([`library`]),
//! what the program's file is ([`program`]) and loads ([`closure`]), what this machine offers
//! ([`probe`]), and the start itself ([`Launch`]).
//!
//! Both programs of the command start programs by this, and the benchmarks put their contenders under the
//! interposer by it ([`interposer`]). It prints nothing, and parses no arguments.

pub mod closure;
mod elf;
pub mod interposer;
pub mod library;
pub mod names;
pub mod probe;
pub mod program;
pub mod sigpipe;
pub mod stack;
mod start;
pub mod streams;
pub mod suggest;

pub use start::{
    CannotRun, Launch, Taken, Target, VIEW_VERB, When, become_program, cannot_run, check_not_preloaded,
    shell_words, taken_view,
};
