// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header and its Rust twin are the same bytes.
//!
//! The macros below list every struct, field, enumerator and constant once. A list that forgets a Rust field or variant
//! does not compile (the patterns have no `..`); one that forgets a name of the header fails `every_name_of_the_header_is_compared`.
//! The header itself is compiled with the C compiler, so its padding is the compiler's and not our opinion of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str = include_str!("../include/intf.h");

/// What C prints -> what Rust says. The key is a C expression.
type Facts = BTreeMap<String, u64>;

fn field_size<S, F>(_: fn(&S) -> &F) -> u64 {
    size_of::<F>() as u64
}

macro_rules! structs {
    ($facts:ident: $($rust:ident = $c:ident { $($field:ident),+ $(,)? })+) => {$(
        let _every_field = |abi::$rust { $($field: _),+ }: abi::$rust| ();
        $facts.insert(format!("sizeof(struct {})", stringify!($c)), size_of::<abi::$rust>() as u64);
        $facts.insert(format!("_Alignof(struct {})", stringify!($c)), align_of::<abi::$rust>() as u64);
        $(
            $facts.insert(
                format!("offsetof(struct {}, {})", stringify!($c), stringify!($field)),
                offset_of!(abi::$rust, $field) as u64,
            );
            $facts.insert(
                format!("sizeof(((struct {} *)0)->{})", stringify!($c), stringify!($field)),
                field_size(|whole: &abi::$rust| &whole.$field),
            );
        )+
    )+};
}

macro_rules! enums {
    ($facts:ident: $($rust:ident = $c:ident { $($variant:ident = $name:ident),+ $(,)? })+) => {$(
        let _every_variant = |value| match value { $(abi::$rust::$variant => ()),+ };
        $facts.insert(format!("sizeof(enum {})", stringify!($c)), size_of::<abi::$rust>() as u64);
        $($facts.insert(stringify!($name).into(), abi::$rust::$variant as u64);)+
    )+};
}

macro_rules! constants {
    ($facts:ident: $($rust:ident = $name:ident),+ $(,)?) => {
        $($facts.insert(stringify!($name).into(), abi::$rust as u64);)+
    };
}

fn rust_facts() -> Facts {
    let mut facts = Facts::new();
    constants! { facts:
        MAGIC = WAKEFUL_MAGIC,
        VERSION = WAKEFUL_ABI_VERSION,
        MAX_THREADS = WAKEFUL_MAX_THREADS,
        MAX_PROCESSORS = WAKEFUL_MAX_PROCESSORS,
        PRIORITIES = WAKEFUL_PRIORITIES,
        RUN_STATE_MASK = WAKEFUL_RUN_STATE_MASK,
        WISH_SHIFT = WAKEFUL_WISH_SHIFT,
    }
    enums! { facts:
        RunState = wakeful_run_state {
            Unknown = WAKEFUL_UNKNOWN,
            Running = WAKEFUL_RUNNING,
            Preempted = WAKEFUL_PREEMPTED,
            Blocked = WAKEFUL_BLOCKED,
        }
        Wish = wakeful_wish {
            Preemptable = WAKEFUL_PREEMPTABLE,
            UnpreemptableSelf = WAKEFUL_UNPREEMPTABLE_SELF,
            UnpreemptableOther = WAKEFUL_UNPREEMPTABLE_OTHER,
        }
        Priority = wakeful_priority {
            BarrierWaiter = WAKEFUL_BARRIER_WAITER,
            LockWaiter = WAKEFUL_LOCK_WAITER,
            Running = WAKEFUL_RUNNING_PRIORITY,
            LockImmediateWaiter = WAKEFUL_LOCK_IMMEDIATE_WAITER,
            LockHolder = WAKEFUL_LOCK_HOLDER,
            AwaitedHolder = WAKEFUL_AWAITED_HOLDER,
        }
        View = wakeful_view {
            Unset = WAKEFUL_VIEW_UNSET,
            None = WAKEFUL_VIEW_NONE,
            Perf = WAKEFUL_VIEW_PERF,
            Bpf = WAKEFUL_VIEW_BPF,
        }
    }
    structs! { facts:
        Partition = wakeful_partition { processors, generation, threads_per_processor, reserved, ids }
        Arena = wakeful_arena {
            magic, version, arena_size, thread_size, max_threads, view, scheduled, reserved, partition, preempted, pad,
        }
        Thread = wakeful_thread {
            state, cpu, warning, reserved, preemptions, blocks, lease, lease_reserved, kernel_reserved,
            tid, priority, owner_reserved,
        }
    }
    facts
}

/// Compiles and runs a program that prints the value of each key of `facts`, with the given text as the header.
fn c_facts(header: &str, facts: &Facts) -> Facts {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let prints: String = facts
        .keys()
        .map(|key| format!("\tprintf(\"%llu %s\\n\", (unsigned long long)({key}), \"{key}\");\n"))
        .collect();
    std::fs::write(at("intf.h"), header).expect("the header can be written");
    let program = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"intf.h\"\nint main(void)\n{{\n{prints}\treturn 0;\n}}\n"
    );
    std::fs::write(at("twin.c"), program).expect("the program can be written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([at("twin"), at("twin.c")])
        .output()
        .unwrap_or_else(|error| panic!("`{compiler}`: {error}; install a C compiler or name one in CC"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    run(&at("twin"))
}

fn run(program: &Path) -> Facts {
    let output = Command::new(program).output().expect("the program runs");
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8(output.stdout).expect("it prints ASCII");
    text.lines()
        .map(|line| {
            let (value, key) = line.split_once(' ').expect("a value and a key");
            (key.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// Every `#define` with a value, enumerator, struct and struct field that the header declares, as keys of [`Facts`].
fn names(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").expect("a comment ends").1;
    }
    code.push_str(rest);

    let mut names = BTreeSet::new();
    let mut inside: Option<(String, String)> = None;
    for line in code.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (&inside, words.as_slice()) {
            (None, ["#define", name, _, ..]) => {
                names.insert((*name).to_owned());
            }
            (None, [kind @ ("struct" | "enum"), name, "{"]) => {
                names.insert(format!("sizeof({kind} {name})"));
                inside = Some(((*kind).to_owned(), (*name).to_owned()));
            }
            (Some(_), ["};"]) => inside = None,
            (Some((kind, _)), [name, "=", ..]) if kind == "enum" => {
                names.insert((*name).to_owned());
            }
            (Some((kind, whole)), [.., _]) if kind == "struct" && line.contains(';') => {
                let declared = line.split(';').next().expect("split has a first part");
                let field =
                    declared.split('[').next().expect("split has a first part").split_whitespace().last();
                names.insert(format!("offsetof(struct {whole}, {})", field.expect("a field has a name")));
            }
            (Some(_), [_, ..]) => panic!("this test cannot read the header's line `{line}`"),
            _ => {}
        }
    }
    names
}

fn drifts(header: &str) -> Vec<String> {
    let rust = rust_facts();
    let c = c_facts(header, &rust);
    rust.iter()
        .filter(|(key, value)| c.get(*key) != Some(value))
        .map(|(key, value)| format!("{key}: C {:?}, Rust {value}", c.get(key)))
        .collect()
}

#[test]
fn every_size_offset_and_value_is_the_same_in_c_and_rust() {
    let drifts = drifts(HEADER);
    assert!(drifts.is_empty(), "header and twin differ:\n{}", drifts.join("\n"));
}

#[test]
fn every_name_of_the_header_is_compared() {
    let rust = rust_facts();
    let missing: Vec<_> = names(HEADER).into_iter().filter(|name| !rust.contains_key(name)).collect();
    assert!(missing.is_empty(), "in intf.h but not in this test: {missing:?}");
}

/// The two tests above can fail: one drift of each kind, and each is seen.
#[test]
fn a_drift_of_each_kind_is_caught() {
    for (from, to) in [
        ("#define WAKEFUL_ABI_VERSION 2u", "#define WAKEFUL_ABI_VERSION 3u"),
        ("WAKEFUL_PREEMPTED = 2", "WAKEFUL_PREEMPTED = 4"),
        ("__u64 blocks;", "__u32 blocks;"),
        ("__u32 owner_reserved[14];", "__u32 owner_reserved[16];"),
        ("\t__u32 pad[4];\n", ""),
    ] {
        assert!(HEADER.contains(from), "the header has no `{from}`");
        let caught = std::panic::catch_unwind(|| drifts(&HEADER.replace(from, to)));
        assert!(!matches!(caught, Ok(ref drifts) if drifts.is_empty()), "`{to}` for `{from}` went unnoticed");
    }
    let swapped =
        HEADER.replace("__u32 tid; ", "__u32 PRIORITY; ").replace("__u32 priority; ", "__u32 tid; ");
    let swapped = swapped.replace("__u32 PRIORITY; ", "__u32 priority; ");
    assert_eq!(drifts(&swapped).len(), 2, "two fields that changed places");
    for (at, new) in [
        ("struct wakeful_thread {\n", "\t__u32 novel;\n"),
        ("enum wakeful_wish {\n", "\tWAKEFUL_NOVEL = 9,\n"),
        ("#define WAKEFUL_PRIORITIES 8u\n", "#define WAKEFUL_NOVEL 1\n"),
    ] {
        let grown = HEADER.replace(at, &format!("{at}{new}"));
        assert_eq!(names(&grown).difference(&names(HEADER)).count(), 1, "`{new}` went unnoticed");
    }
}
