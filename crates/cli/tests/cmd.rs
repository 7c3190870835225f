// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command says and how it ends: the cases are in `tests/cmd`.
//!
//! The interposer is another crate's business, so that a shared library which does nothing stands in for it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

/// An interposer that interposes nothing and has the views perf and none.
const STAND_IN: &str = concat!(
    "#include <stdlib.h>\n#include <string.h>\nconst char *wakeful_preload_view(void) {\n",
    "const char *view = getenv(\"WAKEFUL_VIEW\");\n",
    "return view && !strcmp(view, \"none\") ? \"none\" : \"perf\"; }\n",
    "__attribute__((section(\".note.wakeful\"), used, aligned(4))) static const struct {\n",
    "unsigned name, size, kind; char whose[8], text[32]; } note = { 8, 32, 1, \"wakeful\", \"interposer ",
    env!("CARGO_PKG_VERSION"),
    "\" };\n"
);

fn wakeful(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command.args(arguments).env_remove("WAKEFUL_LOCK").env_remove("WAKEFUL_RWLOCK");
    command.env_remove("WAKEFUL_VIEW").env_remove("WAKEFUL_PRELOAD");
    command
}

/// Without the variables that are ours, or look so: the launcher leaves both to others.
fn without_ours(command: &mut Command) {
    let ours = std::env::vars_os().map(|(name, _)| name);
    ours.filter(|name| name.as_encoded_bytes().starts_with(b"WAKEFUL_")).for_each(|name| {
        command.env_remove(name);
    });
}

fn compile(folder: &Path, output: &str, source: &str, options: &[&str]) {
    let file = folder.join(format!("{output}.c"));
    fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(options).arg("-o").arg(folder.join(output)).arg(&file).status();
    assert!(compiled.expect("a C compiler, as linking Rust needs one").success(), "{output}");
}

fn script(folder: &Path, name: &str, text: &str, mode: u32) {
    fs::write(folder.join(name), text).unwrap();
    fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).unwrap();
}

/// A program with a set-user-ID bit that is not ours: made if we can make it, else one that every system has.
fn set_user_id(folder: &Path) {
    const NOBODY: u32 = 65534;
    let program = folder.join("set-user-id");
    fs::copy(folder.join("dynamic"), &program).unwrap();
    if chown(&program, Some(NOBODY), None).is_ok() {
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    } else {
        fs::remove_file(&program).unwrap();
        let su = ["/bin/su", "/usr/bin/su"].into_iter().find(|path| Path::new(path).exists());
        symlink(su.expect("su"), program).unwrap();
    }
}

#[test]
fn cases() {
    // Not in the machine's folder for temporary files: that may be mounted so that the set-user-ID bit means nothing.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libstand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    compile(
        at,
        "dynamic",
        "#include <stdio.h>\n#include <stdlib.h>\nint main() {\n\
         const char *p = getenv(\"LD_PRELOAD\");\n\
         printf(\"%s\\n\", p && *p ? \"preloaded\" : \"plain\"); }",
        &[],
    );
    compile(at, "static", "#include <stdio.h>\nint main() { puts(\"static\"); return 4; }", &["-static"]);
    set_user_id(at);
    script(at, "no-interpreter", "#!/no/such/interpreter\n", 0o755);
    script(at, "no-hash-bang", "echo from the shell\n", 0o755);
    script(at, "not-executable", "", 0o644);
    fs::create_dir(at.join("folder")).unwrap();

    symlink(env!("CARGO_BIN_EXE_wakeful"), at.join("wakeful")).unwrap();

    let path = std::env::var("PATH").unwrap_or_default();
    let cases = trycmd::TestCases::new();
    cases
        .env("PATH", format!("{}:{path}", at.display()))
        .env("WAKEFUL_PRELOAD", at.join("libstand-in.so").display().to_string())
        .env("LD_PRELOAD", "")
        .env("RUST_BACKTRACE", "0")
        .case("tests/cmd/*.toml");
    cases.insert_var("[FIXTURES]", at.display().to_string()).unwrap();
    cases.run();
}

#[test]
fn without_the_interposer() {
    trycmd::TestCases::new().env("WAKEFUL_PRELOAD", "/no/such/library.so").case("tests/cmd/without/*.toml");
}

/// Exit status, standard output and standard error.
fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_is_not_the_interposer_is_not_preloaded() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "other.so", "int other;", &["-shared", "-fPIC"]);
    compile(at, "right.so", STAND_IN, &["-shared", "-fPIC"]);
    fs::write(at.join("text.so"), "not a library").unwrap();
    let mut foreign = fs::read(at.join("right.so")).unwrap();
    // e_machine; 0xfe is no processor.
    foreign[18] = 0xfe;
    fs::write(at.join("foreign.so"), &foreign).unwrap();
    fs::write(at.join("short.so"), &foreign[..100]).unwrap();
    for (name, reason) in [
        ("text.so", "is not a shared library"),
        ("short.so", "is not a shared library"),
        ("foreign.so", "another processor or word size"),
        ("other.so", "not wakeful's interposer"),
    ] {
        let path = at.join(name);
        for verb in [vec!["run", "true"], vec!["compare", "true"], vec!["bench", "spin"]] {
            let (status, stdout, stderr) = outcome(wakeful(&verb).env("WAKEFUL_PRELOAD", &path));
            assert_eq!((status, stdout.as_str()), (Some(125), ""), "{name} {verb:?}");
            assert!(
                stderr.contains(reason) && stderr.contains("set WAKEFUL_PRELOAD to"),
                "{name} {verb:?}: {stderr}"
            );
            let path = path.display().to_string();
            assert!(stderr.lines().all(|line| line.len() < 80 || line.contains(&path)), "{name}: {stderr}");
        }
        let (status, stdout, _) = outcome(wakeful(&["doctor"]).env("WAKEFUL_PRELOAD", &path));
        assert_eq!((status, stdout.contains(reason)), (Some(1), true), "{name}: {stdout}");
    }
    let (status, ..) = outcome(wakeful(&["run", "true"]).env("WAKEFUL_PRELOAD", at.join("right.so")));
    assert_eq!(status, Some(0));
}

#[test]
fn nothing_is_compared_where_the_interposer_is_preloaded_already() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    compile(folder.path(), "stand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    let library = folder.path().join("stand-in.so");
    let outcome =
        |verb: &[&str]| outcome(wakeful(verb).env("WAKEFUL_PRELOAD", &library).env("LD_PRELOAD", &library));
    for verb in [&["compare", "true"][..], &["bench", "mutex"], &["bench", "switch"]] {
        let (status, stdout, stderr) = outcome(verb);
        assert_eq!((status, stdout.as_str()), (Some(125), ""), "{verb:?}");
        assert!(stderr.contains("out of LD_PRELOAD"), "{verb:?}: {stderr}");
    }
    assert_eq!(outcome(&["run", "true"]), (Some(0), String::new(), String::new()));
}

#[test]
fn a_lock_of_another_kind_is_told_apart_from_an_unknown_one() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    compile(folder.path(), "stand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    for (option, name, hint) in [
        ("--lock", "rw-native", Some("a reader-writer lock, for --rwlock")),
        ("--lock", "rw-queue", Some("a reader-writer lock, there for `wakeful bench rwlock`")),
        ("--lock", "c-spin", Some("a barrier, for --barrier")),
        ("--lock", "no-such", None),
        ("--rwlock", "native", Some("a mutex, for --lock")),
        ("--rwlock", "mcs-spin", Some("a mutex, there for `wakeful bench mutex`")),
        ("--rwlock", "c-spin", Some("a barrier, for --barrier")),
        ("--lock", "rcl", Some("a delegating lock, there for `wakeful bench delegate`")),
        ("--rwlock", "no-such", None),
        ("--barrier", "native", Some("a mutex, for --lock")),
        ("--barrier", "no-such", None),
    ] {
        let mut run = wakeful(&["run", option, name, "true"]);
        let (status, _, stderr) = outcome(run.env("WAKEFUL_PRELOAD", folder.path().join("stand-in.so")));
        assert_eq!(status, Some(125), "{option} {name}");
        assert!(
            hint.map_or(!stderr.contains("it is"), |hint| stderr.contains(hint)),
            "{option} {name}: {stderr}"
        );
        assert!(stderr.contains("There are: ") && stderr.lines().all(|line| line.len() < 80), "{stderr}");
    }
}

#[test]
fn the_catalogue_marks_what_run_takes() {
    let (_, text, _) = outcome(&mut wakeful(&["locks"]));
    for entry in catalog::MUTEXES.iter().chain(catalog::RWLOCKS) {
        let line = text.lines().find(|line| line.split(' ').next() == Some(entry.name)).unwrap();
        let run = entry.in_place && (entry.timed || catalog::entry(entry.name).is_some());
        assert_eq!(line.split([' ', ',']).any(|word| word == "run"), run, "{line}");
    }
}

#[test]
fn a_variable_that_does_nothing_is_told() {
    let told = "WAKEFUL_LOK=mcs is ignored, and the default is used. Did you mean WAKEFUL_LOCK?";
    let (status, _, stderr) = outcome(wakeful(&["run", "true"]).env("WAKEFUL_LOK", "mcs"));
    assert_eq!((status, stderr), (Some(0), format!("wakeful: {told}\n")));
    let variables = [("WAKEFUL_LOK", "mcs"), ("WAKEFULL_VIEW", "none"), ("WAKEFUL_NONSENSE", "1")];
    let (_, stdout, _) = outcome(wakeful(&["doctor", "--format", "json"]).envs(variables));
    for part in [told, "Did you mean WAKEFUL_VIEW?", "WAKEFUL_NONSENSE is no variable"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

#[test]
fn a_limit_of_descriptors_is_named() {
    for words in [&["watch", "true"][..], &["profile", "true"], &["run", "-v", "true"], &["top", "1"]] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 4; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_wakeful")]).args(words);
        let (_, _, stderr) = outcome(limited.stdin(std::process::Stdio::null()));
        assert!(stderr.contains("raise `ulimit -n`"), "{words:?}: {stderr}");
    }
}

#[test]
fn an_empty_variable_is_unset() {
    let (unset, empty) = (&mut wakeful(&["doctor"]), &mut wakeful(&["doctor"]));
    for variable in ["WAKEFUL_LOCK", "WAKEFUL_RWLOCK", "WAKEFUL_VIEW", "WAKEFUL_PRELOAD"] {
        empty.env(variable, "");
    }
    // As far as the interposer: how many threads a view has room for may change at any time.
    let head = |(status, out, _): (Option<i32>, String, String)| {
        (status, out.split("Kernel views").next().map(String::from))
    };
    assert_eq!(head(outcome(unset)), head(outcome(empty)));

    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    compile(folder.path(), "stand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    let mut run = wakeful(&["run", "-v", "true"]);
    run.env("WAKEFUL_PRELOAD", folder.path().join("stand-in.so"));
    run.env("WAKEFUL_LOCK", "").env("WAKEFUL_RWLOCK", "").env("WAKEFUL_VIEW", "");
    let (status, _, stderr) = outcome(&mut run);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(
        stderr.contains("lock wakeful\n") && stderr.contains("view perf, the best one here\n"),
        "{stderr}"
    );
}

#[test]
fn shells_complete_the_names_of_locks_and_views() {
    let in_place: Vec<&str> =
        catalog::MUTEXES.iter().filter(|entry| entry.in_place).map(|entry| entry.name).collect();
    assert!(in_place.len() > 1);
    for shell in ["bash", "zsh", "fish"] {
        let (_, script, _) = outcome(&mut wakeful(&["completions", shell]));
        for name in in_place.iter().chain(&["rw-native", "c-sp-blk", "auto", "perf"]) {
            let word = |at: usize| !script[at..].starts_with(|c: char| c.is_alphanumeric() || c == '-');
            let there = script.match_indices(name).any(|(at, _)| word(at + name.len()));
            assert!(there, "{shell}: {name}");
        }
        assert!(!script.contains("array-queue-block"), "{shell}: `run` offers a lock that it does not take");
    }
}

/// In a shell with this script, of which `$0` is the command and `$1` the folder.
fn in_shell(folder: &Path, script: &str) -> (Option<i32>, String, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_wakeful")]).arg(folder);
    shell.env("WAKEFUL_PRELOAD", folder.join("stand-in.so"));
    outcome(
        shell
            .env_remove("WAKEFUL_LOCK")
            .env_remove("WAKEFUL_RWLOCK")
            .env_remove("WAKEFUL_VIEW")
            .env_remove("WAKEFUL_BARRIER"),
    )
}

#[test]
fn a_program_finds_the_streams_closed_that_we_found_closed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    compile(folder.path(), "stand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    let source = "#include <fcntl.h>\nint main() { int open = 0;\n\
                  for (int fd = 0; fd < 3; fd++) open |= (fcntl(fd, F_GETFD) >= 0) << fd;\n\
                  return open; }";
    compile(folder.path(), "streams", source, &[]);
    for (redirections, open) in [("", 7), ("<&-", 6), (">&-", 5), ("2>&-", 3), ("<&- >&- 2>&-", 0)] {
        for command in ["\"$1\"/streams", "\"$0\" run -- \"$1\"/streams"] {
            let (status, ..) = in_shell(folder.path(), &format!("exec {command} {redirections}"));
            assert_eq!(status, Some(open), "{command} {redirections}");
        }
    }
}

#[test]
fn data_that_nobody_gets_are_a_failure_with_a_message() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    compile(folder.path(), "stand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    for (to, reason) in
        [(">&-", "standard output is closed"), (">/dev/full", "cannot write to standard output")]
    {
        for verb in ["locks", "doctor", "sim machines", "compare -n 2 -- true", "--help", "--version"] {
            let (status, _, stderr) = in_shell(folder.path(), &format!("exec \"$0\" {verb} {to}"));
            assert!(status == Some(125) && stderr.contains(reason), "{verb} {to}: {status:?} {stderr}");
        }
    }
}

/// `ulimit -s`: neither do we need more, nor is the program's another.
#[test]
fn a_small_stack_is_enough() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    compile(folder.path(), "stand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    let source = "#include <sys/resource.h>\nint main() { struct rlimit l; getrlimit(RLIMIT_STACK, &l);\n\
                  return l.rlim_cur / 1024; }";
    compile(folder.path(), "limit", source, &[]);
    for command in ["\"$1\"/limit", "\"$0\" run -- \"$1\"/limit"] {
        let (status, _, stderr) = in_shell(folder.path(), &format!("ulimit -s 64; exec {command}"));
        assert_eq!((status, stderr.as_str()), (Some(64), ""), "{command}");
    }
}

#[test]
fn the_name_of_a_family_leads_to_its_members() {
    // Those that `run` takes, and no others.
    for (option, family) in
        [("--lock", "ttas"), ("--lock", "mcs"), ("--lock", "rw"), ("--rwlock", "rw"), ("--barrier", "c")]
    {
        let (status, _, stderr) = outcome(&mut wakeful(&["run", option, family, "true"]));
        assert_eq!(status, Some(125));
        let locks = catalog::MUTEXES.iter().chain(catalog::RWLOCKS);
        let locks = locks.map(|entry| entry.name).chain(catalog::BARRIERS.iter().map(|entry| entry.name));
        for member in locks.filter(|name| name.starts_with(&format!("{family}-"))) {
            let refused = outcome(&mut wakeful(&["run", option, member, "no-such-program"])).0 == Some(125);
            assert_eq!(stderr.contains(&format!("`{member}`")), !refused, "{option} {member}: {stderr}");
        }
        assert!(stderr.lines().all(|line| line.len() < 80), "{stderr}");
    }
}

#[cfg(not(feature = "bpf"))]
#[test]
fn a_build_without_the_scheduler_says_so() {
    let verbs = [
        &["scheduler"][..],
        &["scheduler", "start"],
        &["scheduler", "--help"],
        &["run", "--scheduled", "true"],
    ];
    for verb in verbs {
        let (status, _, stderr) = outcome(&mut wakeful(verb));
        assert_eq!(status, Some(125), "{verb:?}");
        assert!(
            stderr.contains("without the scheduler") && stderr.contains("--features"),
            "{verb:?}: {stderr}"
        );
    }
}

/// A job whose threads the kernel refuses says so, and which limit that is.
#[test]
fn threads_that_cannot_be_started_are_a_message() {
    let job = r#"{"work":{"workload":"mutex","threads":3,"critical":"20","outside":10},"lock":"std",
        "warm_up":{"secs":0,"nanos":0},"interval":{"secs":0,"nanos":1000}}"#;
    // Address space for no more than some: root has no limit of threads.
    let script = format!("ulimit -v 500000; exec \"$0\" bench job '{job}'");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_wakeful")]).env("RUST_MIN_STACK", "300000000");
    let (status, _, stderr) = outcome(&mut command);
    assert_eq!(status, Some(125), "{stderr}");
    assert!(
        stderr.contains("cannot start thread ") && stderr.contains(" of 3: ") && stderr.contains("ulimit"),
        "{stderr}"
    );
}

/// Under a seccomp filter that kills whoever opens an event.
#[test]
fn doctor_survives_what_would_kill_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stddef.h>\n\
        #include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(int n, char **words) {\n\
        struct sock_filter filter[] = {\n\
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };\n\
        struct sock_fprog program = { 4, filter };\n\
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 77;\n\
        execv(words[1], words + 1); return 78; }";
    compile(folder.path(), "deadly", source, &[]);
    let mut doctor = Command::new(folder.path().join("deadly"));
    let (status, stdout, stderr) = outcome(doctor.args([env!("CARGO_BIN_EXE_wakeful"), "doctor"]));
    assert!(matches!(status, Some(0 | 1)), "{status:?} {stderr}");
    assert!(stdout.contains("a seccomp filter ends a program that calls perf_event_open"), "{stdout}");
    assert!(stdout.contains("WAKEFUL_VIEW=none"), "{stdout}");
}

/// The command itself is static, and that is nobody's business.
#[test]
fn run_in_run() {
    let wakeful = env!("CARGO_BIN_EXE_wakeful");
    let mut command = Command::new(wakeful);
    command.args(["run", wakeful, "run", "sh", "-c", "echo ${LD_PRELOAD##*/}"]).env_remove("LD_PRELOAD");
    let expected = (Some(0), "libwakeful_preload.so\n".to_owned(), String::new());
    assert_eq!(outcome(&mut command), expected);
}

/// `wakeful` does `run` itself for most programs, and for the rest it needs its other parts.
#[test]
fn run_alone() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libwakeful_preload.so", STAND_IN, &["-shared", "-fPIC"]);
    script(at, "script", "#!/bin/sh\necho script $LD_PRELOAD $1\n", 0o755);
    fs::hard_link(env!("CARGO_BIN_EXE_wakeful"), at.join("wakeful")).unwrap();
    let run = |words: &[&str], variable: &str| {
        let mut command = Command::new(at.join("wakeful"));
        command.args(words).env("PATH", format!("/no/such/folder:{}", at.display()));
        // cargo sets the last, with which a program may find libraries elsewhere.
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        without_ours(&mut command);
        if let Some((name, value)) = variable.split_once('=') {
            command.env(name, value);
        }
        outcome(&mut command)
    };
    let library = at.join("libwakeful_preload.so").display().to_string();
    for words in [&["run", "script", "--"][..], &["run", "--", "script", "--"]] {
        assert_eq!(run(words, ""), (Some(0), format!("script {library} --\n"), String::new()), "{words:?}");
    }
    // One that may load more, and is linked with no OpenMP runtime; and one whose libraries lie elsewhere.
    let opens = "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
                 int main(void) { dlopen(0, RTLD_LAZY); puts(getenv(\"LD_PRELOAD\")); }";
    compile(at, "opens", opens, &["-ldl"]);
    compile(at, "elsewhere", opens, &["-ldl", "-Wl,-rpath,/no/such/folder"]);
    assert_eq!(run(&["run", "opens"], ""), (Some(0), format!("{library}\n"), String::new()));
    assert_eq!(run(&["run", "opens"], "WAKEFUL_SERVER=x").0, Some(0));
    // A misspelt variable is told.
    let others: [(&[&str], &str); 9] = [
        (&["run", "elsewhere"], ""),
        (&["run", "script"], "WAKEFUL_LOCK=mcs"),
        (&["run", "script"], "WAKEFUL_LOK=mcs"),
        (&["run", "script"], "WAKEFUL_LOCKS=mcs"),
        (&["run", "-v", "script"], ""),
        (&["run", "--", "no-such-program"], ""),
        (&["run"], ""),
        (&["run", "--"], ""),
        (&["locks"], ""),
    ];
    for (words, variable) in others {
        let (status, stdout, stderr) = run(words, variable);
        assert_eq!((status, stdout.as_str()), (Some(125), ""), "{words:?}");
        assert!(stderr.starts_with("wakeful: cannot run wakeful-verbs: No such file"), "{words:?}: {stderr}");
    }
}

/// A start is cheap: the launcher has no C library, and maps and reads little. Each fault and read is some
/// tenths of a microsecond to some; with a C library it had 90 faults. Another thing than what is bound here
/// is looked up at the start if this fails.
#[test]
fn a_start_takes_few_faults_and_reads() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libwakeful_preload.so", STAND_IN, &["-shared", "-fPIC"]);
    fs::hard_link(env!("CARGO_BIN_EXE_wakeful"), at.join("wakeful")).unwrap();
    // An exec keeps the counts.
    let source = "#include <stdio.h>\n#include <string.h>\n#include <sys/resource.h>\nint main(void) {\n\
        struct rusage used; getrusage(RUSAGE_SELF, &used); printf(\"%ld\", used.ru_minflt);\n\
        FILE *io = fopen(\"/proc/self/io\", \"r\"); char name[20]; unsigned long value;\n\
        while (io && fscanf(io, \"%19s %lu\", name, &value) == 2)\n\
        if (!strcmp(name, \"syscr:\")) printf(\" %lu\", value);\n}";
    compile(at, "counts", source, &[]);
    let least = |words: &[&str], preload: Option<&str>| -> Vec<u64> {
        let counts = || -> Vec<u64> {
            let mut command = Command::new(at.join(words[0]));
            command.args(&words[1..]).env_remove("LD_PRELOAD");
            without_ours(&mut command);
            let (status, stdout, stderr) = outcome(command.envs(preload.map(|path| ("LD_PRELOAD", path))));
            assert_eq!((status, stderr.as_str()), (Some(0), ""));
            stdout.split(' ').map(|count| count.parse().unwrap()).collect()
        };
        (0..5).map(|_| counts()).min().unwrap()
    };
    let (library, counts) = (at.join("libwakeful_preload.so"), at.join("counts"));
    let by_hand = least(&["counts"], library.to_str());
    let run = least(&["wakeful", "run", counts.to_str().unwrap()], None);
    let more: Vec<u64> = run.iter().zip(&by_hand).map(|(run, hand)| run.saturating_sub(*hand)).collect();
    assert!(more[0] <= 24, "{} page faults", more[0]);
    assert!(more.get(1).is_none_or(|&reads| reads <= 6), "{} reads", more[1]);
}

/// Where packages put the rest: both folders, the other one without it.
#[test]
fn the_parts_are_found_where_packages_put_them() {
    for place in ["lib/wakeful", "lib/x86_64-linux-gnu/wakeful"] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (bin, parts) = (folder.path().join("bin"), folder.path().join(place));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&parts).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_wakeful"), bin.join("wakeful")).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_wakeful-run"), parts.join("wakeful-run")).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_wakeful-verbs"), parts.join("wakeful-verbs")).unwrap();
        script(&bin, "script", "echo $LD_PRELOAD\n", 0o755);
        let run = |words: &[&str]| {
            let mut command = Command::new(bin.join("wakeful"));
            for name in ["WAKEFUL_PRELOAD", "WAKEFUL_LOCK", "WAKEFUL_RWLOCK", "WAKEFUL_VIEW", "LD_PRELOAD"] {
                command.env_remove(name);
            }
            outcome(command.args(words).current_dir(&bin))
        };
        let (status, stdout, stderr) = run(&["--version"]);
        assert!(status == Some(0) && stdout.starts_with("wakeful "), "{place}: {stdout}{stderr}");
        let (status, _, stderr) = run(&["run", "./script"]);
        assert_eq!(status, Some(125), "{place}: {stderr}");
        assert!(stderr.contains("is neither in") && stderr.contains("install the package again"), "{stderr}");
        compile(&parts, "libwakeful_preload.so", STAND_IN, &["-shared", "-fPIC"]);
        let library = parts.join("libwakeful_preload.so").canonicalize().unwrap();
        assert_eq!(run(&["run", "./script"]), (Some(0), format!("{}\n", library.display()), String::new()));
    }
}

/// In libgomp's place, and with what a region asks of it.
const GOMP_STAND_IN: &str = "const char *wakeful_omp_version(void) { return \"\"; }\n\
    void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags) { run(data); }";

/// Without /proc nobody says where a program's file is, but the words by which it was started.
#[test]
fn the_interposer_is_found_without_proc() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    // A filter stands for the mount that is missing: no link can be read.
    let source = "#include <errno.h>\n#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stddef.h>\n\
        #include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(int n, char **words) {\n\
        struct sock_filter filter[] = {\n\
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlink, 1, 0),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlinkat, 0, 1),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };\n\
        struct sock_fprog program = { 5, filter };\n\
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 77;\n\
        execvp(words[1], words + 1); return 78; }";
    compile(at, "blind", source, &[]);
    compile(at, "libwakeful_preload.so", STAND_IN, &["-shared", "-fPIC"]);
    fs::hard_link(env!("CARGO_BIN_EXE_wakeful"), at.join("wakeful")).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_wakeful-run"), at.join("wakeful-run")).unwrap();
    let there = at.join("wakeful").display().to_string();
    for (name, path) in [(there.as_str(), ""), ("./wakeful", ""), ("wakeful", ".")] {
        let mut command = Command::new(at.join("blind"));
        command
            .args([name, "run", "--", "/bin/sh", "-c", "echo $LD_PRELOAD"])
            .current_dir(at)
            .env("PATH", path);
        let (status, stdout, stderr) =
            outcome(command.env_remove("WAKEFUL_PRELOAD").env_remove("LD_PRELOAD"));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name}");
        assert!(stdout.trim_end().ends_with("/libwakeful_preload.so"), "{name}: {stdout}");
    }
}

/// A program that can load nothing has no OpenMP runtime, unless another library is preloaded, which may want
/// it. What it starts is told where the runtime is.
#[test]
fn closed_programs_have_no_openmp() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libstand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    compile(at, "libgomp_wakeful.so", GOMP_STAND_IN, &["-shared", "-fPIC"]);
    let list = "extern char **environ; int puts(const char *);\n\
                int main(void) { for (char **at = environ; *at; at++) puts(*at); }";
    compile(at, "list", list, &[]);
    let ours = at.join("libstand-in.so").display().to_string();
    let runtime = at.join("libgomp_wakeful.so").display().to_string();
    let environment = |preloaded: &str, option: &str| {
        let program = at.join("list").display().to_string();
        let mut command = wakeful(&["run", option, "--", &program]);
        command.env("WAKEFUL_PRELOAD", &ours).env("LD_PRELOAD", preloaded).env("WAKEFUL_OPENMP", "/old");
        let (_, stdout, _) = outcome(&mut command);
        let value = |name: &str| stdout.lines().find_map(|line| line.strip_prefix(name)).map(String::from);
        (value("WAKEFUL_OPENMP="), value("LD_PRELOAD="))
    };
    let both = format!("{runtime}:{ours}");
    let with = |list: &str| (Some(runtime.clone()), Some(list.to_string()));
    assert_eq!(environment("", "--openmp=auto"), with(&ours));
    assert_eq!(environment("", "--openmp=always"), with(&both));
    assert_eq!(environment("", "--openmp=never"), (None, Some(ours.clone())));
    assert_eq!(environment("libc.so.6", "--openmp=auto"), with(&format!("{both}:libc.so.6")));
}

/// The OpenMP runtime is preloaded into programs that can call it, unless that asks for more than it has.
#[test]
fn openmp() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libstand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    let list = "#include <stdio.h>\n#include <stdlib.h>\nint dlopen(), (*opens)() = dlopen;\n\
                int main(void) {\n#ifdef _OPENMP\n#pragma omp parallel\n;\n#endif\nputs(getenv(\"LD_PRELOAD\")); }";
    compile(at, "parallel", list, &["-fopenmp"]);
    compile(at, "plain", list, &["-ldl"]);
    let ours = at.join("libstand-in.so").display().to_string();
    let runtime = at.join("libgomp_wakeful.so").display().to_string();
    let run = |arguments: &[&str], program: &str| {
        let program = at.join(program).display().to_string();
        let mut command = wakeful(&[arguments, &[&program]].concat());
        command
            .current_dir(at)
            .env("WAKEFUL_PRELOAD", &ours)
            .env("WAKEFUL_VIEW", "none")
            .env_remove("LD_PRELOAD");
        outcome(&mut command)
    };
    // Not there: said where somebody listens, and an error where it was asked for.
    let (status, stdout, stderr) = run(&["run", "-v"], "parallel");
    assert_eq!((status, stdout), (Some(0), format!("{ours}\n")));
    assert!(stderr.contains("OpenMP regions run on libgomp:") && stderr.contains("cargo build"), "{stderr}");
    let (status, _, stderr) = run(&["run", "--openmp"], "plain");
    assert!(status == Some(125) && stderr.contains("cargo build"), "{stderr}");
    assert_eq!(run(&["run"], "plain"), (Some(0), format!("{ours}\n"), String::new()));

    compile(at, "libgomp_wakeful.so", GOMP_STAND_IN, &["-shared", "-fPIC"]);
    let both = format!("{runtime}:{ours}\n");
    let (status, stdout, stderr) = run(&["run", "-v"], "parallel");
    assert_eq!((status, &stdout), (Some(0), &both));
    assert!(stderr.contains(&format!("wakeful: OpenMP regions run on {runtime}\n")), "{stderr}");
    for option in ["--openmp", "--openmp=auto", "--openmp=always"] {
        assert_eq!(run(&["run", option], "plain"), (Some(0), both.clone(), String::new()));
    }
    for program in ["plain", "parallel"] {
        assert_eq!(run(&["run", "--openmp=never"], program), (Some(0), format!("{ours}\n"), String::new()));
    }
    // What is not linked with a runtime may load one later, or start such a program.
    assert_eq!(run(&["run"], "plain"), (Some(0), both, String::new()));
    let (_, _, stderr) = run(&["run", "-v"], "plain");
    let words = "OpenMP regions of what it loads or starts run on";
    assert!(stderr.contains(&format!("wakeful: {words} {runtime}\n")), "{stderr}");
    let (_, stdout, _) = run(&["doctor"], "plain");
    assert!(stdout.contains("regions of what it loads or starts run on"), "{stdout}");
    let (status, stdout, _) = run(&["doctor"], "parallel");
    assert!(status == Some(0) && stdout.contains("OpenMP") && stdout.contains(&runtime), "{stdout}");
    // What it has in name only is lacking as well.
    let absent = format!("{GOMP_STAND_IN} const char WAKEFUL_OMP_ABSENT[] = \"omp_x GOMP_parallel omp_y\";");
    compile(at, "libgomp_wakeful.so", &absent, &["-shared", "-fPIC"]);
    let (status, stdout, stderr) = run(&["run", "-v"], "parallel");
    assert_eq!((status, stdout), (Some(0), format!("{ours}\n")));
    assert!(
        stderr.contains("OpenMP regions run on libgomp:") && stderr.contains("GOMP_parallel"),
        "{stderr}"
    );
    // In libgomp's place, with nothing in it: the program would not start.
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libgomp.so.1"];
    compile(at, "libgomp_wakeful.so", "const char *wakeful_omp_version(void) { return \"\"; }", &flags);
    let (status, stdout, stderr) = run(&["run", "-v"], "parallel");
    assert_eq!((status, stdout), (Some(0), format!("{ours}\n")));
    assert!(
        stderr.contains("OpenMP regions run on libgomp:") && stderr.contains("GOMP_parallel"),
        "{stderr}"
    );
    let (_, stdout, _) = run(&["doctor"], "plain");
    assert!(stdout.contains("those of pthread are replaced"), "{stdout}");
    let (status, _, stderr) = run(&["doctor"], "none");
    assert!(status == Some(127) && stderr.contains("there is no file"), "{stderr}");
    // What is no program.
    let no_program = |name: &str| run(&["doctor"], name);
    let (status, _, stderr) = no_program("/etc/passwd");
    assert!(status == Some(126) && stderr.contains("may not be executed"), "{stderr}");
    let (status, _, stderr) = no_program("/");
    assert!(status == Some(126) && stderr.contains("is a folder"), "{stderr}");
}

/// What a start costs: of a library its headers are read and what it asks for, and no page is mapped. The
/// system's libraries are not even opened, but for those that the program names.
#[test]
fn many_libraries_are_looked_at_by_few_reads() {
    const LIBRARIES: u64 = 32;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libstand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    compile(at, "libgomp_wakeful.so", GOMP_STAND_IN, &["-shared", "-fPIC"]);
    let near = format!("-Wl,-rpath,{}", at.display());
    let mut below = None;
    for number in 0..LIBRARIES {
        // Its middle is far from both ends.
        let source = format!("char middle_{number}[1 << 18] = {{ 1 }};");
        let name = format!("libmany{number}.so");
        let mut options = vec!["-shared", "-fPIC", "-Wl,--no-as-needed", &near];
        options.extend(below.as_deref());
        compile(at, &name, &source, &options);
        below = Some(at.join(name).display().to_string());
    }
    let source = "#include <stdio.h>\n#include <string.h>\n#include <sys/resource.h>\nint main(void) {\n\
        struct rusage used; getrusage(RUSAGE_SELF, &used); printf(\"%ld\", used.ru_minflt);\n\
        FILE *io = fopen(\"/proc/self/io\", \"r\"); char name[20]; unsigned long value;\n\
        while (io && fscanf(io, \"%19s %lu\", name, &value) == 2)\n\
        if (!strcmp(name, \"rchar:\") || !strcmp(name, \"syscr:\")) printf(\" %lu\", value);\n}";
    compile(at, "many", source, &["-Wl,--no-as-needed", &near, below.as_deref().unwrap()]);
    // An exec keeps the counts of faults, bytes read and reads.
    let counts = |option: &str| -> Vec<u64> {
        let program = at.join("many").display().to_string();
        let mut run = wakeful(&["run", option, &program]);
        run.env("WAKEFUL_PRELOAD", at.join("libstand-in.so")).env_remove("LD_PRELOAD");
        let (status, stdout, stderr) = outcome(&mut run);
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        stdout.split(' ').map(|count| count.parse().unwrap()).collect()
    };
    let (with, without) = (counts("--openmp=auto"), counts("--openmp=never"));
    let more: Vec<u64> =
        with.iter().zip(&without).map(|(with, without)| with.saturating_sub(*without)).collect();
    let (faults, read) = more.split_first().unwrap();
    assert!(*faults < LIBRARIES, "{faults} page faults");
    if let [bytes, reads] = read {
        assert!(
            *bytes < (LIBRARIES + 8) * 8192 && *reads < (LIBRARIES + 8) * 4,
            "{bytes} bytes, {reads} reads"
        );
    }
}

/// A program linked with libomp gets the runtime with LLVM's interface, under whatever name libomp goes there, if that has all that the program asks for.
#[test]
fn openmp_of_llvm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libstand-in.so", STAND_IN, &["-shared", "-fPIC"]);
    let libomp = "void __kmpc_barrier(void) {} void __kmpc_single(void) {}";
    let flags = |name: &'static str| ["-shared", "-fPIC", name];
    compile(at, "libiomp5.so", libomp, &flags("-Wl,-soname,libiomp5.so"));
    let program = "#include <stdio.h>\n#include <stdlib.h>\nvoid __kmpc_barrier(void); void __kmpc_single(void);\n\
                   int main(void) { __kmpc_barrier(); __kmpc_single(); puts(getenv(\"LD_PRELOAD\") ?: \"\"); }";
    let near = format!("-Wl,-rpath,{}", at.display());
    let library = at.join("libiomp5.so").display().to_string();
    compile(at, "regions", program, &["-Wl,--no-as-needed", &library, &near]);
    let ours = at.join("libstand-in.so").display().to_string();
    let runtime = at.join("libgomp_wakeful.so").display().to_string();
    let run = |verb: &[&str]| {
        let program = at.join("regions").display().to_string();
        let mut command = wakeful(&[verb, &[&program]].concat());
        command
            .current_dir(at)
            .env("WAKEFUL_PRELOAD", &ours)
            .env("WAKEFUL_VIEW", "none")
            .env_remove("LD_PRELOAD");
        outcome(&mut command)
    };
    let version = "const char *wakeful_omp_version(void) { return \"\"; }";
    compile(
        at,
        "libgomp_wakeful.so",
        &format!("{version} void __kmpc_barrier(void) {{}}"),
        &flags("-Wl,-z,now"),
    );
    let (status, stdout, stderr) = run(&["run", "-v"]);
    assert_eq!((status, stdout), (Some(0), format!("{ours}\n")));
    assert!(
        stderr.contains("OpenMP regions run on libomp:") && stderr.contains("regions: __kmpc_single"),
        "{stderr}"
    );
    let (_, stdout, _) = run(&["doctor"]);
    assert!(stdout.contains("libomp") && stdout.contains("__kmpc_single"), "{stdout}");

    compile(at, "libgomp_wakeful.so", &format!("{version} {libomp}"), &flags("-Wl,-z,now"));
    let (status, stdout, stderr) = run(&["run", "-v"]);
    assert_eq!((status, stdout), (Some(0), format!("{runtime}:{ours}\n")));
    assert!(stderr.contains(&format!("wakeful: OpenMP regions run on {runtime}\n")), "{stderr}");
    let (status, stdout, stderr) = run(&["compare", "-n", "1"]);
    assert!(
        status == Some(0) && stdout.contains("OpenMP on libomp, and with wakeful on libgomp_wakeful.so"),
        "{stderr}{stdout}"
    );
}
