// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that load OpenMP later, as Python does with wheels: libraries here have a runtime of their own under such a name, which says so when it is used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::CLANG as OURS;

/// Stands for a runtime that a wheel brings.
const BUNDLED: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
    #define THEIRS(name) int name(void) { puts(\"bundled: \" #name); exit(3); }\n\
    THEIRS(GOMP_parallel) THEIRS(omp_get_thread_num) THEIRS(omp_get_max_threads) THEIRS(omp_set_num_threads)\n\
    THEIRS(GOACC_parallel_keyed) int bundled_only(void) { return 1; }";

/// Stands for a wheel's extension.
const EXTENSION: &str = "#include <omp.h>\nvoid GOACC_parallel_keyed(void);\n\
    int sum(void) { int sum = 0;\n_Pragma(\"omp parallel reduction(+ : sum)\")\nsum += omp_get_thread_num() + 1;\nreturn sum; }\n\
    void accelerate(void) { GOACC_parallel_keyed(); }";

/// Opens the extension by its path, then the runtime as threadpoolctl does.
const PROGRAM: &str = "#include <dlfcn.h>\n#include <stdio.h>\n#include <string.h>\n\
    int main(int count, char **words) {\n\
    void *before = dlopen(words[2], RTLD_NOW | RTLD_NOLOAD);\n\
    void *extension = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);\n\
    if (!extension) return puts(dlerror()), 1;\n\
    int (*sum)(void) = dlsym(extension, \"sum\");\n\
    if (count > 3) ((void (*)(void))dlsym(extension, \"accelerate\"))();\n\
    void *runtime = dlopen(words[2], RTLD_NOW | RTLD_NOLOAD);\n\
    if (!runtime) return puts(\"no runtime\"), 2;\n\
    int all = sum(), most = ((int (*)(void))dlsym(runtime, \"omp_get_max_threads\"))();\n\
    ((void (*)(int))dlsym(runtime, \"omp_set_num_threads\"))(1);\n\
    printf(\"before %d, sum %d, most %d, limited %d, theirs %d, none %d\\n\", before != 0, all, most, sum(),\n\
    dlsym(runtime, \"bundled_only\") != 0, dlopen(\"libgomp-none.so\", RTLD_NOW) != 0); }";

fn build(output: &Path, source: &str, options: &[&str]) {
    let file = output.with_extension("c");
    fs::write(&file, source).unwrap();
    let built = Command::new("gcc").args(["-O1", "-o"]).args([output, &file]).args(options).status();
    assert!(built.is_ok_and(|status| status.success()), "{}: apt-get install gcc", output.display());
}

struct Wheel {
    folder: PathBuf,
    extension: PathBuf,
    runtime: PathBuf,
    program: PathBuf,
}

/// A wheel whose runtime has this name.
fn wheel(name: &str) -> Wheel {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wheel.{name}.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (runtime, extension, program) =
        (folder.join(name), folder.join("extension.so"), folder.join("program"));
    let shared = ["-shared", "-fPIC"];
    build(&runtime, BUNDLED, &[&shared[..], &[&format!("-Wl,-soname,{name}")]].concat());
    // The compiler's own runtime is not linked in: the wheel's is, where the extension looks for it.
    let library = runtime.display().to_string();
    build(&extension, EXTENSION, &[&shared[..], &["-fopenmp", "-foffload=disable", "-c"]].concat());
    let object = folder.join("extension.o");
    fs::rename(&extension, &object).unwrap();
    let link = [&shared[..], &["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", &library]].concat();
    let linked = Command::new("gcc").args(link).arg("-o").args([&extension, &object]).status();
    assert!(linked.unwrap().success());
    build(&program, PROGRAM, &[]);
    Wheel { folder, extension, runtime, program }
}

impl Wheel {
    fn run(&self, preload: bool, more: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(&self.program);
        command.args([&self.extension, &self.runtime]).args(more).env("OMP_NUM_THREADS", "3");
        if preload {
            command.env("LD_PRELOAD", OURS.library());
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn wheels() {
    for name in [
        "libgomp-e985bcbb.so.1.0.0",
        "libgomp-a34b3233.so.1",
        "libomp.so",
        "libomp-b8e5bcfb.so",
        "libiomp5.so",
    ] {
        let wheel = wheel(name);
        assert_eq!(
            wheel.run(false, &[]).1,
            "bundled: GOMP_parallel\n",
            "{name}: the runtime of the wheel is one"
        );
        let said = wheel.run(true, &[]);
        let expected = "before 0, sum 6, most 3, limited 1, theirs 0, none 0\n";
        assert_eq!(said, (Some(0), expected.to_string(), String::new()), "{name}");
        // What we lack does not come from there.
        let (status, stdout, stderr) = wheel.run(true, &["accelerate"]);
        assert_eq!((status, stdout.as_str()), (None, ""), "{name}");
        assert!(
            stderr.contains("calls GOACC_parallel_keyed, which") && stderr.contains("--openmp=never"),
            "{stderr}"
        );
        fs::remove_dir_all(wheel.folder).unwrap();
    }
}

/// Other libraries keep their handles.
#[test]
fn others() {
    let wheel = wheel("libgomp_other.so");
    let (status, stdout, _) = wheel.run(true, &[]);
    assert_eq!((status, stdout.as_str()), (Some(3), "bundled: omp_get_max_threads\n"));
    fs::remove_dir_all(wheel.folder).unwrap();
}

/// A program that never calls OpenMP hears nothing of it, whatever the variables say.
#[test]
fn silent() {
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", OURS.library()).env("OMP_DISPLAY_ENV", "true").env("OMP_SCHEDULE", "sideways");
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// threadpoolctl goes by the beginning of a file's name, links resolved.
#[test]
fn the_file_has_the_name_of_a_runtime() {
    let file = OURS.library().canonicalize().unwrap();
    assert!(file.file_name().unwrap().to_str().unwrap().starts_with("libgomp"));
}

/// What MKL calls.
#[test]
fn atomics() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("atomics.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let types = [("fixed4", "int"), ("fixed8", "long"), ("float4", "float"), ("float8", "double")];
    let (mut declared, mut called) = (String::new(), String::new());
    for (name, of) in types {
        for (operation, sign) in [("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/")] {
            let function = format!("__kmpc_atomic_{name}_{operation}");
            declared += &format!("void {function}(void *, int, {of} *, {of});\n");
            called += &format!(
                "{{ {of} x = 12; {function}(0, 0, &x, 5); if (x != ({of})12 {sign} ({of})5) return 1; }}\n"
            );
        }
    }
    called += "double sum = 0;\n_Pragma(\"omp parallel for\")\n\
               for (int i = 0; i < 100000; i++) __kmpc_atomic_float8_add(0, 0, &sum, 1);\nreturn sum != 100000;";
    let program = folder.join("program");
    let library = OURS.library().display().to_string();
    build(&program, &format!("{declared}int main(void) {{ {called} }}"), &["-fopenmp", &library]);
    let status =
        Command::new(&program).env("LD_PRELOAD", &library).env("OMP_NUM_THREADS", "4").status().unwrap();
    assert!(status.success(), "{status}");
    fs::remove_dir_all(folder).unwrap();
}
