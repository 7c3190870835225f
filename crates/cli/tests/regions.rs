// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful profile` on OpenMP programs that wait for a reason that is planted (`c/regions.c`): by gcc's
//! runtime, by clang's, and by one that only a module of the program knows, as Python's wheels have it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

mod profiled;

use profiled::{adds_up, cause, folder, may_record, number, one, profiled, row, skip, wakeful, was_alone};

/// clang with its runtime is no part of every machine.
const CLANGS: [&str; 3] = ["clang", "clang-19", "clang-14"];

fn compile(compiler: &str, folder: &Path, options: &[&str]) -> Option<PathBuf> {
    let program = folder.join(format!("regions-{compiler}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/regions.c");
    let mut compile = Command::new(compiler);
    compile.args(["-O2", "-g", "-fopenmp", "-Wall", "-Wextra"]).args(options).arg("-o");
    let output = compile.args([&program, &source]).output().ok()?;
    output.status.success().then_some(program)
}

/// The program by each compiler that there is, with gcc's runtime and clang's.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let gcc = compile("gcc", folder, &["-Werror"]).expect("gcc with OpenMP");
    let clang = CLANGS.iter().find_map(|clang| compile(clang, folder, &[]));
    if clang.is_none() {
        skip("no clang with OpenMP");
    }
    std::iter::once(gcc).chain(clang).collect()
}

fn regions(records: &[Value]) -> Vec<&Value> {
    records.iter().filter(|one| one["record"] == "region").collect()
}

fn region<'a>(records: &'a [Value], name: &str) -> &'a Value {
    let mut all = regions(records).into_iter();
    all.find(|one| one["place"]["name"] == name).unwrap_or_else(|| panic!("no {name}: {records:#?}"))
}

#[test]
fn one_thread_with_more_work_than_the_others() {
    if !may_record() {
        return;
    }
    let folder = folder();
    for program in programs(folder.path()) {
        let (records, status) = profiled(&[], &program, &["uneven", "30"]);
        assert_eq!(status, Some(0), "{records:#?}");
        let uneven = region(&records, "uneven");
        let three = (uneven["threads"].as_f64(), number(uneven, "most_threads"));
        assert_eq!((number(uneven, "told"), three), (30, (Some(3.0), 3)), "{uneven:#}");
        assert!(uneven["place"]["line"].as_str().unwrap().contains("regions.c:"), "{uneven:#}");
        // Two wait for one, that works or has no processor for it.
        let waited_ns = number(uneven, "waited_ns");
        let told_ns = number(uneven, "imbalance_ns") + number(uneven, "waited_for_preempted_ns");
        // Beside other programs they wait less for it, and more for a processor of their own.
        assert!(told_ns > 30 * 2 * 500_000 && told_ns <= waited_ns, "{uneven:#}");
        // All that its threads had to do, and no more at once than there are threads.
        let (run_ns, elapsed_ns) = (number(uneven, "run_ns"), number(uneven, "elapsed_ns"));
        assert!(run_ns > 30 * 3_400_000 && elapsed_ns > 30 * 3_000_000, "{uneven:#}");
        let processors = uneven["processors"].as_f64().unwrap();
        let is_right = (processors - run_ns as f64 / elapsed_ns as f64).abs() < 0.01 && processors < 3.1;
        assert!(is_right, "{uneven:#}");
        let end = row(&records, "region's end");
        adds_up(end);
        assert_eq!((&end["place"]["name"], number(end, "rounds")), (&Value::from("uneven"), 30), "{end:#}");
        let is_right = match was_alone(&records) {
            true => cause(&records) == "last-running",
            false => cause(&records).starts_with("last-") || cause(&records) == "woken-late",
        };
        assert!(is_right, "{records:#?}");
    }
}

#[test]
fn a_barrier_inside_and_a_critical_section() {
    if !may_record() {
        return;
    }
    let folder = folder();
    for program in programs(folder.path()) {
        let (records, status) = profiled(&[], &program, &["phases", "30"]);
        assert_eq!(status, Some(0), "{records:#?}");
        let inner = row(&records, "OpenMP barrier");
        adds_up(inner);
        assert_eq!(number(inner, "rounds"), 30, "{inner:#}");
        // Both waits belong to the region.
        let all = number(region(&records, "in_phases"), "waited_ns");
        let sum = number(inner, "waited_ns") + number(row(&records, "region's end"), "waited_ns");
        assert!(sum.abs_diff(all) < all / 50 + 100_000, "{sum} of {all}: {records:#?}");

        let (records, status) = profiled(&[], &program, &["critical", "10"]);
        assert_eq!(status, Some(0), "{records:#?}");
        let critical = row(&records, "critical");
        adds_up(critical);
        // A thread without others beside it does all that it has to do in one go.
        let least = if was_alone(&records) { 50 } else { 5 };
        assert!(number(critical, "waits") > least, "{critical:#}");
        let held = number(critical, "holder_running_ns") + number(critical, "holder_preempted_ns");
        let known = held + number(critical, "free_ns") + number(critical, "holder_blocked_ns");
        assert!(held > 0 && known > number(critical, "waited_ns") / 2, "{critical:#}");
        if was_alone(&records) {
            assert!(held > number(critical, "waited_ns") / 2, "{critical:#}");
        }
    }
}

#[test]
fn each_shape_of_a_region_goes_on_as_it_does_and_is_told() {
    let folder = folder();
    for program in programs(folder.path()) {
        for options in [&[][..], &["--wakeful"]] {
            let (records, status) = profiled(options, &program, &["shapes", "20"]);
            assert_eq!(status, Some(0), "{records:#?}");
            let all: u64 = regions(&records).iter().map(|one| number(one, "told")).sum();
            assert!(regions(&records).len() >= 8 && all > 20, "{records:#?}");
            let (records, status) = profiled(options, &program, &["crash"]);
            assert_eq!(status, Some(-libc::SIGABRT), "{records:#?}");
            assert_eq!(regions(&records).len(), 1, "{records:#?}");
        }
    }
}

/// Of regions that are over at once, each is counted, and some are told.
#[test]
fn short_regions_are_told_now_and_then() {
    let folder = folder();
    for program in programs(folder.path()) {
        let (records, status) = profiled(&[], &program, &["short", "20000"]);
        assert_eq!(status, Some(0), "{records:#?}");
        let short = region(&records, "shortly");
        let (told, untold) = (number(short, "told"), number(short, "untold"));
        // Those behind the last one that was told have nobody who counts them.
        let all = told + untold;
        assert!(all <= 20_000 && all > 19_800 && told > 20_000 / 200, "{short:#}");
        // Their threads wait as those do that were told: the verdict is about all.
        let waited = one(&records, "verdict")["waited"].as_f64().unwrap();
        let all_ns = ["run_ns", "ready_ns", "blocked_ns"].map(|part| number(one(&records, "profile"), part));
        let waited_ns = number(short, "waited_ns") + number(short, "untold_waited_ns");
        let share = waited_ns as f64 / all_ns.iter().sum::<u64>() as f64;
        assert!(waited >= share * 0.99 && number(short, "untold_waited_ns") > 0, "{share}: {records:#?}");
    }
}

/// A program that loads a module, which has `regions` in a function. It calls that 20 times, and ends with
/// status 0 if that has added 40 to `sum`.
fn with_module(folder: &Path, compiler: &str, options: &[&str], main: &[&str]) -> Option<[PathBuf; 2]> {
    let module = "#include <unistd.h>\nint sum, omp_get_thread_num(void);\n\
        __attribute__((noinline)) void in_module(void) {\n\
        _Pragma(\"omp parallel num_threads(2)\") { usleep(omp_get_thread_num() ? 1000 : 5000);\n\
        _Pragma(\"omp barrier\") ;\n\
        __atomic_add_fetch(&sum, 1, 0); } __asm__ volatile(\"\"); }\n\
        #ifdef AT_ONCE\n\
        __attribute__((constructor)) static void at_once(void) { in_module(); sum = 0; }\n\
        #endif\n";
    let program = "#include <dlfcn.h>\nint main(int n, char **words) {\n\
        void *module = dlopen(words[n - 1], 2), (*f)(void) = 0;\n\
        if (!module) return 9;\n\
        f = (void (*)(void))dlsym(module, \"in_module\");\n\
        for (int i = 0; i < 20; i++) f();\n\
        _Pragma(\"omp parallel num_threads(2)\") n++;\n\
        return *(int *)dlsym(module, \"sum\") != 40; }";
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let (source, program) = (write("module.c", module), write("program.c", program));
    let [library, path] = ["module.so", "main"].map(|name| folder.join(name));
    let compile = |compiler: &str, options: &[&str], from: &Path, to: &Path| {
        let mut compile = Command::new(compiler);
        compile.args(["-g", "-O2", "-w"]).args(options).arg("-o").arg(to).arg(from).arg("-ldl");
        compile.output().is_ok_and(|output| output.status.success())
    };
    let shared = [&["-fopenmp", "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"], options].concat();
    assert!(compile("gcc", main, &program, &path));
    compile(compiler, &shared, &source, &library).then_some([path, library])
}

fn tells_the_module(told: u64, [program, library]: &[PathBuf; 2]) -> Vec<Value> {
    let (records, status) = profiled(&[], program, &[library.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{records:#?}");
    let region = region(&records, "in_module");
    assert_eq!((number(region, "told"), number(region, "most_threads")), (told, 2), "{region:#}");
    assert_eq!(number(row(&records, "OpenMP barrier"), "rounds"), told, "{records:#?}");
    records
}

/// A module with a runtime of its own, which the program does not know.
#[test]
fn a_runtime_that_only_a_module_knows() {
    let folder = folder();
    let Some(path) = gcc_runtime() else {
        skip("no libgomp.so.1");
        return;
    };
    fs::copy(path, folder.path().join("libgomp.so.1")).unwrap();
    let records = tells_the_module(20, &with_module(folder.path(), "gcc", &[], &["-pthread"]).unwrap());
    assert_eq!(regions(&records).len(), 1, "{records:#?}");
}

/// The program's own runtime is gcc's, and has none of the functions that the module calls.
#[test]
fn two_runtimes_in_one_program() {
    let folder = folder();
    let modules = CLANGS.iter().find_map(|clang| with_module(folder.path(), clang, &[], &["-fopenmp"]));
    let Some(both) = modules else {
        skip("no clang with OpenMP");
        return;
    };
    let records = tells_the_module(20, &both);
    assert_eq!(number(region(&records, "main"), "most_threads"), 2, "{records:#?}");
}

/// The thread that loads the module has the loader's lock until the region is over.
#[test]
fn a_region_in_a_constructor() {
    let folder = folder();
    let clang = CLANGS.iter().find_map(|clang| with_module(folder.path(), clang, &["-DAT_ONCE"], &[]));
    for both in clang.into_iter().chain(with_module(folder.path(), "gcc", &["-DAT_ONCE"], &[])) {
        tells_the_module(21, &both);
    }
}

/// A runtime runs tasks at its barriers: that is no waiting.
#[test]
fn tasks_that_are_done_at_a_barrier_are_work() {
    if !may_record() {
        return;
    }
    let folder = folder();
    for program in programs(folder.path()) {
        let (records, status) = profiled(&[], &program, &["tasks", "20"]);
        assert_eq!(status, Some(0), "{records:#?}");
        for name in ["by_tasks", "by_loops_of_tasks"] {
            let region = region(&records, name);
            // A thread sleeps when no task is left. Beside other programs that may be for long: the last
            // one has no processor, or who sleeps gets none.
            let theirs_ns = number(region, "waited_for_preempted_ns") + number(region, "free_ns");
            let waited_ns = number(region, "waited_ns").saturating_sub(theirs_ns);
            assert!(waited_ns < number(region, "team_ns") / 2, "{region:#}");
            assert_eq!(number(region, "imbalance_ns"), 0, "{region:#}");
        }
        for kind in ["region's end", "OpenMP barrier"] {
            adds_up(row(&records, kind));
        }
    }
}

/// A place of a call that the table has no room for is looked up each time, and keeps nothing.
#[test]
fn places_beyond_the_table_cost_no_memory() {
    let folder = folder();
    for program in programs(folder.path()) {
        let (records, status) = profiled(&[], &program, &["places", "40"]);
        assert_eq!(status, Some(0), "{records:#?}");
        assert!(number(row(&records, "OpenMP barrier"), "rounds") >= 1280, "{records:#?}");
    }
}

/// The section's other threads are not in the child. clang's runtime hands the section on to one of them.
#[test]
fn a_child_that_is_forked_in_a_critical_section_waits_for_nobody() {
    let folder = folder();
    let (records, status) = profiled(&[], &programs(folder.path())[0], &["fork"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let of_child = |one: &&Value| one["record"] == "waits" && one["place"]["name"] == "alone_in_a_child";
    assert_eq!(records.iter().find(of_child), None);
}

fn gcc_runtime() -> Option<PathBuf> {
    let output = Command::new("gcc").arg("-print-file-name=libgomp.so.1").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

#[test]
fn regions_are_in_the_text_and_on_the_page() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = programs(folder.path()).remove(0);
    let html = folder.path().join("page.html");
    let mut command = wakeful();
    let output = command.args(["profile", "--html"]).arg(&html).arg(&program).args(["uneven", "30"]).output();
    let talk = String::from_utf8(output.unwrap().stderr).unwrap();
    let words: Vec<&str> = talk.split_whitespace().collect();
    let is_there = words.join(" ").contains("region's end in uneven");
    assert!(talk.contains("\nOPENMP REGION ") && is_there, "{talk}");
    assert!(talk.lines().all(|line| line.chars().count() < 80) && talk.lines().count() < 45, "{talk}");
    let text = fs::read_to_string(&html).unwrap();
    let (_, data) = text.split_once("id=\"data\">").unwrap();
    let page: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(page["regions"][0]["place"]["name"], "uneven", "{page:#}");
    assert!(page["places"].as_array().unwrap().iter().any(|place| place["kind"] == "region's end"));
    // A program without regions has no such table.
    let (records, _) = profiled(&[], Path::new("true"), &[]);
    assert!(regions(&records).is_empty() && one(&records, "profile")["openmp"].is_null(), "{records:#?}");
}
