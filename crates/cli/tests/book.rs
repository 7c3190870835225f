// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each command of README and the book runs, or has its reason here. One that is neither does not run.
//!
//! A command runs as the page has it, in a folder with stand-ins for the reader's programs. What measures
//! for minutes measures for milliseconds (`SHORTER`). Where a page shows output, at most a paragraph later,
//! the command gives the same words in the same columns, with other numbers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

#[path = "../src/pages/text.rs"]
mod text;

use text::Block;

/// What a command is, by how it begins.
#[derive(Clone, Copy)]
enum Kind {
    /// Does not run, for this reason.
    Excused(&'static str),
    /// Asks the server, and says that there is none. `tests/partition.rs` and the crate `daemon` run it.
    Asks,
}
use Kind::{Asks, Excused};

const ROOT: &str = "changes the machine, as root";
const GATE: &str = "the gate is that, or does that";
const GUEST: &str = "starts a guest machine";
const SCREEN: &str = "needs a terminal; src/top.rs draws into a memory in its tests";

const KINDS: &[(&str, Kind)] = &[
    ("sysctl ", Excused(ROOT)),
    ("echo kernel.", Excused(ROOT)),
    ("wakefuld &", Excused("the crate daemon starts servers in its tests, as root")),
    ("bash .ci/run", Excused(GATE)),
    (".ci/invariants", Excused(GATE)),
    ("cargo build", Excused(GATE)),
    ("cargo run --profile ci -p wakeful-sim", Excused("compiles for minutes; the gate builds examples")),
    ("packaging/", Excused("minutes; the long run of the gate builds and tries the packages")),
    ("sha256sum target/package", Excused("what `packaging/build` has made is not here")),
    (
        "cc program.c $(pkg-config",
        Excused("`packaging/test` has it in a clean root, where the library is installed"),
    ),
    ("apt-get ", Excused(ROOT)),
    ("ldconfig", Excused(ROOT)),
    ("docker ", Excused("changes the machine, and needs an image")),
    (
        "wakeful profile",
        Excused("its output is another one each time; tests/profile.rs runs it on planted programs"),
    ),
    ("wakeful scheduler", Excused("changes the machine, as root; tests/guest.rs runs it in a guest")),
    ("wakeful run --scheduled", Excused("needs that scheduler; tests/guest.rs runs it in a guest")),
    ("wakeful watch", Excused("needs perf events; tests/watch.rs runs it where they are")),
    ("cargo xtask mutate", Excused("minutes; the gate runs a part")),
    ("crates/gomp/bench/compare.py", Excused("minutes, with two other OpenMP runtimes")),
    ("vm/", Excused(GUEST)),
    ("wakeful demo", Excused("a test below looks at what it says, too")),
    ("wakeful sim report", Excused("every figure takes seconds at least; the crate sim tests each")),
    (
        "wakeful sim figure paz5a",
        Excused("seconds for its array; the crate sim tests it, and tr14 runs here"),
    ),
    ("wakeful top", Excused(SCREEN)),
    ("wakeful status", Asks),
    ("wakeful set ", Asks),
    ("wakeful run --cpus", Asks),
    ("wakeful bench grant", Asks),
    ("wakeful bench partition", Asks),
];

/// How the others begin. Whatever begins in another way does not run, and fails the test: a page must not
/// have it done to the machine of whoever tests.
const RUNS: &[&str] = &["wakeful ", "wakefuld --", "cc -O2 -pthread crates/", "printf "];

/// Commands that measure, by their first words, and options that they get here: also in the place of those
/// that the page has.
const SHORTER: &[(&str, &[(&str, &str)])] = &[
    ("wakeful compare", &[("-n", "1"), ("--warm-ups", "0")]),
    ("wakeful bench", &[("--rounds", "1"), ("--seconds", "0.001"), ("--warm-up", "0.001")]),
    ("wakeful bench mutex", &[("--threads", "2")]),
    ("wakeful bench delegate", &[("--threads", "2")]),
    ("wakeful bench barrier", &[("--threads", "2")]),
    ("wakeful bench rwlock", &[("--threads", "2")]),
    ("wakeful bench patterns", &[("--threads", "2")]),
    ("wakeful bench spin", &[("--threads", "2")]),
    ("wakeful bench parallel", &[("--threads", "2")]),
    ("wakeful sim figure", &[("--size", "0.001")]),
    ("wakeful sim claims", &[("--size", "0.001"), ("--samples", "2"), ("--figure", "tr15")]),
    ("wakeful sim auto", &[("--limit", "20ms"), ("--processors", "3"), ("--mix", "scales,one thread")]),
    ("wakeful sim knowledge", &[("--processors", "4"), ("--seeds", "1"), ("--limit", "1ms")]),
    ("wakeful sim lost", &[("--mp", "2"), ("--rounds", "20")]),
];

/// The same, where the page has none: its own grid is small.
const SMALLER: &[(&str, &[(&str, &str)])] = &[
    ("wakeful bench mutex", &[("--critical", "5"), ("--outside", "100")]),
    ("wakeful bench delegate", &[("--critical", "5")]),
    ("wakeful bench spin", &[("--critical", "20")]),
    ("wakeful bench patterns", &[("--outside", "100")]),
    ("wakeful sim defaults", &[("--kind", "barrier"), ("--processors", "8"), ("--limit", "1ms")]),
    ("wakeful sim delegate", &[("--machine", "ppro-4"), ("--clients", "2"), ("--limit", "100us")]),
];

/// What stands for any name, or is not everywhere.
const NAMES: &[(&str, &str)] = &[
    ("--lock NAME", "--lock ticket-block"),
    ("--machine NAME", "--machine epyc-64"),
    // The view bpf needs root, and perf is denied on many machines.
    ("wakeful@bpf,", ""),
    ("@perf", "@none"),
    ("--view perf", "--view none"),
];

const PROGRAM: &str = "#include <pthread.h>\n#include <stdio.h>\n\
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\nstatic long count;\n\
    static void *work(void *x) {\n    for (int i = 0; i < 1000; i++) {\n        pthread_mutex_lock(&lock);\n\
            count++;\n        pthread_mutex_unlock(&lock);\n    }\n    return x;\n}\n\
    int main(void) {\n    pthread_t threads[4];\n\
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);\n\
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);\n\
        return printf(\"%ld\\n\", count) < 0 || count != 4000;\n}\n";

/// Where the built programs are.
fn built() -> &'static Path {
    let folder = Path::new(env!("CARGO_BIN_EXE_wakeful")).parent().unwrap();
    for name in ["libwakeful_preload.so", "wakefuld"] {
        assert!(folder.join(name).exists(), "no {name}: build it with `cargo build --workspace`");
    }
    folder
}

/// A folder as a reader's: the checkout, what it has built, and programs of their own.
fn desk() -> tempfile::TempDir {
    let desk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = desk.path();
    for folder in ["crates", "docs"] {
        symlink(text::root().join(folder), at.join(folder)).unwrap();
    }
    fs::create_dir(at.join("target")).unwrap();
    symlink(built(), at.join("target/release")).unwrap();
    fs::write(at.join("program.c"), PROGRAM).unwrap();
    let compiled =
        Command::new("cc").args(["-pthread", "-o", "program", "program.c"]).current_dir(at).status();
    assert!(compiled.expect("a C compiler, as linking Rust needs one").success());
    for name in ["your-program", "server-benchmark"] {
        symlink("program", at.join(name)).unwrap();
    }
    fs::write(at.join("train.py"), "import threading\nwith threading.Lock(): pass\n").unwrap();
    desk
}

fn shell(at: &Path, line: &str) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    // What does not end is a fault with a name, and not the end of all tests here.
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-c", line]).current_dir(at).stdin(Stdio::null());
    for variable in ["WAKEFUL_LOCK", "WAKEFUL_RWLOCK", "WAKEFUL_VIEW", "WAKEFUL_PRELOAD", "LD_PRELOAD"] {
        shell.env_remove(variable);
    }
    shell.env("PATH", format!("{}:{path}", built().display())).env("WAKEFUL_SERVER", at.join("nobody"));
    shell.output().unwrap()
}

/// The line without the shell's remark, and with us under one name.
fn plain(line: &str) -> String {
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    NAMES.iter().fold(line.replace("./target/release/wakeful", "wakeful"), |line, (name, value)| {
        line.replace(name, value)
    })
}

/// The line with an option, before the program that it may start. One that the page has may stay.
fn with(line: &str, verb: &str, option: &str, value: &str, replace: bool) -> String {
    let (ours, program) = line.find(" -- ").map_or((line, ""), |at| line.split_at(at));
    let place = format!(" {option} ");
    let ours = match ours.find(&place) {
        Some(_) if !replace => ours.to_string(),
        Some(at) => {
            let (before, after) = ours.split_at(at + place.len());
            format!("{before}{value}{}", after.find(' ').map_or("", |at| &after[at..]))
        }
        None => {
            // The word behind `bench` is a verb too.
            let count = if verb == "wakeful bench" { 3 } else { verb.split(' ').count() };
            let words: Vec<&str> = ours.split(' ').collect();
            let (verb, rest) = words.split_at(count.min(words.len()));
            [verb, &[option, value], rest].concat().join(" ")
        }
    };
    ours + program
}

fn shorter(line: &str) -> String {
    let mut line = line.to_string();
    for (table, replace) in [(SHORTER, true), (SMALLER, false)] {
        let of_line = table.iter().filter(|(verb, _)| format!("{line} ").starts_with(&format!("{verb} ")));
        let options = of_line.flat_map(|(verb, options)| options.iter().map(move |option| (verb, option)));
        for (verb, (option, value)) in options.collect::<Vec<_>>() {
            line = with(&line, verb, option, value, replace);
        }
    }
    line
}

fn kind(line: &str) -> Option<usize> {
    KINDS.iter().position(|(beginning, _)| line.starts_with(beginning))
}

/// What is wrong with a run.
fn fault(kind: Option<Kind>, is_prose: bool, output: &Output) -> Option<String> {
    let talk = String::from_utf8_lossy(&output.stderr);
    let well = match kind {
        Some(Asks) => output.status.code() == Some(125) && talk.contains("no processor server"),
        _ => output.status.success(),
    };
    // Prose names a command without all that it needs.
    let lacks =
        ["required arguments were not", "a value is required", "requires a subcommand", "Usage: wakeful"];
    let lacks = lacks.iter().any(|words| talk.contains(words));
    let is_name = is_prose && output.status.code() == Some(125) && lacks;
    (!well && !is_name).then(|| format!("{}\n{talk}", output.status))
}

/// Words and numbers: of a number, that it is one.
fn shape(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let number = word.trim_matches(|letter| "(),;:.".contains(letter));
        let number = number.strip_suffix(['k', 'M', 'G']).unwrap_or(number).parse::<f64>().is_ok();
        let is_view = words.last().is_some_and(|last| last == "view");
        words.push(if number || is_view { "N".to_string() } else { word.to_string() });
    }
    words.join(" ")
}

/// How verdicts begin; which one it is depends on the machine.
const VERDICTS: &[&str] = &["Faster with", "Slower with", "No difference beyond"];

fn same_shape(shown: &[String], output: &str) -> bool {
    let body = |lines: Vec<&str>| -> Vec<String> {
        let verdict = lines.iter().position(|line| VERDICTS.iter().any(|words| line.starts_with(words)));
        let end = verdict.unwrap_or(lines.len());
        let rest = if verdict.is_some() { Some("verdict".to_string()) } else { None };
        lines[..end].iter().map(|line| shape(line)).chain(rest).collect()
    };
    body(shown.iter().map(String::as_str).collect()) == body(output.lines().collect())
}

/// The commands of a line of a shell, with what they need.
fn commands(line: &str) -> Vec<String> {
    plain(line).split(" && ").map(String::from).filter(|line| !line.is_empty()).collect()
}

/// What came of the commands so far.
struct Book<'a> {
    desk: &'a Path,
    /// By which pages.
    done: BTreeMap<String, PathBuf>,
    /// Which of `KINDS`.
    used: Vec<usize>,
    bad: Vec<String>,
}

impl<'a> Book<'a> {
    fn new(desk: &'a Path) -> Self {
        Self { desk, done: BTreeMap::new(), used: Vec::new(), bad: Vec::new() }
    }

    /// Runs a command, unless it has a reason not to, or another page has it. `exactly`: not shortened.
    fn run(&mut self, page: &Path, line: &str, is_prose: bool, exactly: bool) -> Option<Output> {
        let kind = kind(line).inspect(|kind| self.used.push(*kind)).map(|kind| KINDS[kind].1);
        if kind.is_none() && !RUNS.iter().any(|beginning| format!("{line} ").starts_with(beginning)) {
            self.bad.push(format!("{}: {line}\nneither RUNS nor KINDS has that", page.display()));
            return None;
        }
        let line = if exactly || kind.is_some() { line.to_string() } else { shorter(line) };
        if let Some(Excused(reason)) = kind {
            println!("{}: does not run: {line}: {reason}", page.display());
        }
        let is_new = self.done.insert(line.clone(), page.to_path_buf()).is_none();
        if matches!(kind, Some(Excused(_))) || !is_new && !exactly {
            return None;
        }
        let began = Instant::now();
        let output = shell(self.desk, &line);
        println!("{:.2} s: {line}", began.elapsed().as_secs_f64());
        let fault = fault(kind, is_prose, &output);
        self.bad.extend(fault.map(|why| format!("{}: {line}\n{why}", page.display())));
        Some(output)
    }

    /// Runs a block, and compares what it says with the block that shows that.
    fn block(&mut self, page: &Path, block: &Block, shown: Option<&Block>) {
        let mut last = None;
        for line in &block.lines {
            for command in commands(line) {
                let faults = self.bad.len();
                last = self.run(page, &command, false, shown.is_some());
                if self.bad.len() > faults {
                    break;
                }
            }
        }
        let (Some(shown), Some(output)) = (shown, last) else { return };
        let said = String::from_utf8(output.stdout).unwrap();
        if !same_shape(&shown.lines, &said) {
            self.bad.push(format!("{}: what is shown is another output than\n{said}", page.display()));
        }
    }

    fn page(&mut self, page: &Path, text: &str) {
        let (blocks, quoted) = text::code(text);
        let ours = |line: &&String| ["wakeful ", "wakefuld "].iter().any(|us| line.starts_with(us));
        for line in quoted.iter().filter(ours) {
            self.run(page, &plain(line), true, false);
        }
        for (index, block) in blocks.iter().enumerate().filter(|(_, block)| block.kind == "sh") {
            let shown = blocks.get(index + 1).filter(|next| next.kind == "text" && next.gap < 2);
            self.block(page, block, shown);
        }
    }
}

#[test]
fn each_command_of_the_book_runs_or_has_a_reason() {
    let desk = desk();
    let mut book = Book::new(desk.path());
    text::pages().iter().for_each(|(page, text)| book.page(page, text));
    assert!(book.bad.is_empty(), "{}", book.bad.join("\n\n"));
    for (index, (beginning, _)) in KINDS.iter().enumerate() {
        assert!(book.used.contains(&index), "no command begins with `{beginning}`: take it out of KINDS");
    }
    let done = book.done.len();
    assert!(done > 60, "{done} commands: are they written in another way?");
}

#[test]
fn what_does_not_run_is_seen() {
    let desk = desk();
    for (text, faults) in [
        ("```sh\nwakeful run -- ./program # fine\n```\n", 0),
        ("```sh\nwakeful run -- ./no-such-program\n```\n", 1),
        ("```sh\n./no-such-tool && wakeful locks\n```\n", 1),
        ("Prose has `wakeful run`, and `wakeful locks`.\n", 0),
        ("Prose has `wakeful run --lock no-such -- ./program`.\n", 1),
        ("```sh\nwakeful run\n```\n", 1),
        ("```sh\nwakeful status\n```\n", 0),
        ("```sh\nprintf 'a  1.5k\\nview none'\n```\n\n```text\na 20\nview perf\n```\n", 0),
        ("```sh\nprintf 'b 1'\n```\n\n```text\na 20\n```\n", 1),
        ("```sh\nprintf 'b 1'\n```\nIt\nsays:\n\n```text\na 20\n```\n", 1),
        ("```sh\nprintf 'b 1'\n```\n\nThat is all.\n\nMore:\n\n```text\na 20\n```\n", 0),
        ("```sh\necho 1\n```\n", 1),
        ("```sh\nsysctl a=1\n```\n", 0),
    ] {
        let mut book = Book::new(desk.path());
        book.page(Path::new("planted.md"), text);
        assert_eq!(book.bad.len(), faults, "{text}{:?}", book.bad);
    }
}

#[test]
fn shorter_commands_keep_the_program() {
    for (line, short) in [
        ("wakeful compare -n 7 -- ./x -n 7", "wakeful compare --warm-ups 0 -n 1 -- ./x -n 7"),
        ("wakeful locks", "wakeful locks"),
        (
            "wakeful bench spin --threads 4 --rounds 5",
            "wakeful bench spin --critical 20 --warm-up 0.001 --seconds 0.001 --threads 2 --rounds 1",
        ),
    ] {
        assert_eq!(shorter(line), short);
    }
}

/// The interposer comes into the programs of the demonstration: what it says of its view is shown.
#[test]
fn the_demonstration_says_what_it_saw() {
    let desk = desk();
    let output = shell(desk.path(), "WAKEFUL_VIEW=none LC_ALL=C wakeful demo -n 1 --seconds 0.001");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.lines().all(|line| line.len() < 80), "{text}");
    let bars = |name| text.lines().filter(|line| line.starts_with(&format!("  {name} "))).count();
    assert_eq!((bars("plain"), bars("wakeful"), text.matches("times plain").count()), (5, 5, 5), "{text}");
    // Without the interposer a program of pthread's locks has no view at all.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["Medians of 1 pair;", "Lock wakeful, view none.", "take -n 5.", "The environment chooses"] {
        assert!(words.contains(said), "{said}: {text}");
    }
    assert!(text.ends_with("\nTry your own: wakeful compare -- ./program\n"), "{text}");
}
