// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance table: the programs in `tests/programs`, compiled here, run on the library with teams of
//! 1 to 16. Each checks its own results, and fails with the line that was not so. On the compiler's own
//! runtime they pass as well, which is checked so that nothing is asked for that OpenMP does not promise.

mod support;

use std::fs;
use std::path::Path;

use support::{Toolchain, command, run};

static GCC: Toolchain = Toolchain::new("gcc", "g++", "wakeful-gomp", "libwakeful_gomp.so");

/// Runs a program of the table.
fn conforms(name: &str, settings: &[(&str, &str)]) {
    let program = GCC.compile(name, &[]);
    if let Err(wrong) = run(&mut command(&program, 2, settings)) {
        panic!("{name} asks for more than the compiler's own runtime gives: {wrong}");
    }
    GCC.check(name, &program, settings);
}

#[test]
fn parallel() {
    conforms("parallel.c", &[]);
}

#[test]
fn loops() {
    conforms("loops.c", &[]);
}

/// Once there was a call for each barrier and region.
#[test]
fn system_calls() {
    GCC.counts_calls();
}

#[test]
fn worksharing() {
    conforms("worksharing.c", &[]);
}

#[test]
fn nested() {
    conforms("nested.c", &[]);
}

#[test]
fn routines() {
    conforms("routines.c", &[]);
}

#[test]
fn limit() {
    conforms("limit.c", &[("OMP_THREAD_LIMIT", "5")]);
}

#[test]
fn fortran() {
    conforms("fortran.c", &[("OMP_PLACES", "threads")]);
}

/// At barriers that the user has named: their members sleep, or have a tree, or are those of the default that
/// sleeps. Tasks are done all the same. One that is unknown is the default.
#[test]
fn named_barriers() {
    for name in ["c-block", "com-tree", "b-wakeful-sleep", "nonsense"] {
        for program in ["worksharing.c", "tasks.c"] {
            conforms(program, &[("WAKEFUL_BARRIER", name)]);
        }
    }
}

#[test]
fn passive() {
    conforms("parallel.c", &[("OMP_WAIT_POLICY", "passive")]);
    conforms("tasks.c", &[("OMP_WAIT_POLICY", "passive")]);
}

#[test]
fn tasks() {
    conforms("tasks.c", &[]);
}

#[test]
fn priorities() {
    conforms("tasks.c", &[("OMP_MAX_TASK_PRIORITY", "10")]);
    conforms("detach.c", &[("OMP_MAX_TASK_PRIORITY", "10")]);
}

#[test]
fn detach() {
    conforms("detach.c", &[]);
}

#[test]
fn outlived() {
    conforms("outlived.c", &[]);
    let program = GCC.compile("outlived.c", &[]);
    run(GCC.on_ours(&program, 2, &[]).arg("leaves")).unwrap();
    fs::remove_file(program).unwrap();
}

#[test]
fn cancel() {
    conforms("cancel.c", &[]);
}

#[test]
fn cancelled() {
    conforms("cancelled.c", &[]);
}

#[test]
fn destructors() {
    conforms("destructors.cc", &[]);
}

#[test]
fn depend() {
    conforms("depend.c", &[]);
}

#[test]
fn doacross() {
    conforms("doacross.c", &[]);
}

#[test]
fn device() {
    conforms("device.c", &[]);
}

#[test]
fn target() {
    conforms("target.cc", &[]);
}

/// The host is a device that there is; others are not, and the program insists on them.
#[test]
fn mandatory() {
    let settings = [("OMP_TARGET_OFFLOAD", "mandatory")];
    conforms("host.c", &settings);
    let program = GCC.compile("host.c", &[]);
    let wrong = run(GCC.on_ours(&program, 2, &settings).arg("beyond")).unwrap_err();
    assert!(wrong.contains("no device but the host") && !wrong.contains("beyond"), "{wrong}");
    assert!(run(GCC.on_ours(&program, 2, &[]).arg("beyond")).unwrap().contains("beyond"));
    fs::remove_file(program).unwrap();
}

#[test]
fn memory() {
    conforms("memory.c", &[]);
}

#[test]
fn schedule() {
    conforms("schedule.c", &[]);
}

#[test]
fn order() {
    conforms("order.c", &[]);
}

/// gcc 12's runtime does not know it.
#[test]
fn everything() {
    GCC.check("everything.c", &GCC.compile("everything.c", &[]), &[]);
}

/// libgomp ends the program.
#[test]
fn starved() {
    GCC.check("starved.c", &GCC.compile("starved.c", &["-ldl".as_ref()]), &[]);
}

/// libgomp ends the program.
#[test]
fn short() {
    GCC.runs_short(&[]);
}

/// Members say where they are on the standard error, once.
#[test]
fn displays() {
    let program = GCC.compile("displays.c", &[]);
    let settings = [("OMP_DISPLAY_AFFINITY", "true"), ("OMP_AFFINITY_FORMAT", "at %n of %N")];
    let own = support::streams(&mut command(&program, 2, &settings));
    let ours = support::streams(&mut GCC.on_ours(&program, 2, &settings));
    assert_eq!(ours, own);
    assert!(ours.1.contains("at 2 of 3"), "{ours:?}");
    fs::remove_file(program).unwrap();
}

/// If a stack cannot be had, the team does without that thread and says so once. libgomp ends the program.
#[test]
fn stack() {
    let program = GCC.compile("parallel.c", &[]);
    for threads in [1, 4] {
        let said = run(&mut GCC.on_ours(&program, threads, &[("OMP_STACKSIZE", "1000000g")])).unwrap();
        assert_eq!(said.matches("OMP_STACKSIZE").count(), 1, "{said}");
    }
    fs::remove_file(program).unwrap();
}

#[test]
fn places() {
    conforms("places.c", &[("OMP_PLACES", "threads")]);
}

#[test]
fn directives() {
    GCC.check("directives.c", &GCC.compile("directives.c", &[]), &[]);
}

#[test]
fn objects() {
    conforms("objects.cc", &[]);
}

/// Linked with our library: libgomp 12 has no locks with hints.
#[test]
fn api() {
    GCC.check("api.c", &GCC.compile("api.c", &[GCC.library().as_os_str()]), &[]);
}

#[test]
fn environment_of_4_5() {
    conforms("environment.c", &[]);
}

#[test]
fn exceptions() {
    conforms("exceptions.cc", &[]);
}

/// The programs by which runtimes are compared: the same answers, which they check.
#[test]
fn answers() {
    let program = GCC.compile("../../bench/programs.c", &["-lm".as_ref()]);
    for name in ["stencil", "cg", "sort", "queens", "lu"] {
        for threads in [1, 2, 4, 8] {
            if let Err(wrong) = run(GCC.on_ours(&program, threads, &[]).arg(name)) {
                panic!("{name}, {threads} threads: {wrong}");
            }
        }
    }
    fs::remove_file(program).unwrap();
}

/// What must not hang.
#[test]
fn faults() {
    let program = GCC.compile("faults.c", &[]);
    for what in ["fork", "exit", "large", "nested", "signal", "threads"] {
        if let Err(wrong) = run(GCC.on_ours(&program, 4, &[]).arg(what)) {
            panic!("{what}: {wrong}");
        }
    }
    fs::remove_file(program).unwrap();
}

/// Found under libgomp's name; and what it says of devices is said once, and by it.
#[test]
fn by_name() {
    let program = GCC.compile("device.c", &[]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("by-name.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(GCC.library(), folder.join("libgomp.so.1")).unwrap();
    let said = run(command(&program, 2, &[]).env("LD_LIBRARY_PATH", &folder)).unwrap();
    assert_eq!(said, "wakeful: there is no offloading to devices here; target regions run on the host\n");
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(program).unwrap();
}

/// What the environment says means what it does on libgomp.
#[test]
fn variables() {
    let own: &[&[(&str, &str)]] = &[
        &[("OMP_SCHEDULE", "STATIC,0")],
        &[("OMP_PROC_BIND", "true,close")],
        &[("GOMP_CPU_AFFINITY", "0"), ("OMP_PLACES", "threads")],
        &[("GOMP_CPU_AFFINITY", "0"), ("OMP_PROC_BIND", "false")],
    ];
    GCC.agrees("variables.c", own);
}

/// What the environment says is heard, and what makes no sense is named.
#[test]
fn environment() {
    let program = GCC.compile("parallel.c", &[]);
    let shown =
        run(&mut GCC.on_ours(&program, 3, &[("OMP_DISPLAY_ENV", "true"), ("OMP_SCHEDULE", "guided,7")]))
            .unwrap();
    for line in ["OMP_NUM_THREADS = '3'", "OMP_SCHEDULE = 'GUIDED,7'", "OMP_CANCELLATION = 'TRUE'"] {
        assert!(shown.contains(line), "{line} is not in:\n{shown}");
    }
    let wrong = run(&mut GCC.on_ours(&program, 2, &[("OMP_SCHEDULE", "sideways")])).unwrap();
    assert_eq!(
        wrong,
        "wakeful: OMP_SCHEDULE=sideways is ignored; give static, dynamic, guided or auto, and perhaps a comma and a chunk\n"
    );
    fs::remove_file(program).unwrap();
}
