// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask mutate`: is every memory ordering needed, and would a test notice if it were missing?
//!
//! A copy of the crates `sync` and `fiber` is built once, in which each ordering goes through a function that
//! can replace it (`hook.rs`). Of `fiber` these are the files that are generic over `Platform`: checkers run
//! no others. A run with `--within` builds the tests of some primitives only. Then each loom
//! test runs as it is, which shows the orderings that it reaches; then, for each ordering and each way to
//! weaken it, the tests that reach it run until one fails. Who survives is explained in `explained.toml`, or
//! this fails.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use wait_timeout::ChildExt;

use crate::sites::{self, Order, Site};

/// Weaken each memory ordering of the algorithms in turn and see whether a test notices
///
/// Exit status 0 if each is noticed or its survival explained in crates/xtask/explained.toml.
#[derive(clap::Args)]
pub struct Options {
    /// Only files whose path below crates/sync/src contains this; fiber/... for those of crates/fiber/src
    #[arg(long, value_name = "TEXT", default_value = "")]
    file: String,
    /// Name the mutants and run nothing
    #[arg(long)]
    list: bool,
    /// Try survivors again with WAKEFUL_LONG=1; takes hours
    #[arg(long)]
    long: bool,
    /// Start no further mutant this many seconds after building; says how many are left
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Run at least this many mutants that a test reaches, or all there are, however long that takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    least: usize,
    /// Run this many tests at once [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

pub fn mutate(options: &Options) -> Result<ExitCode> {
    let start = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let sources = Sources::read(&root)?;
    let explained = Explained::read(&root.join("crates/xtask/explained.toml"))?;
    let mutants: Vec<_> =
        sources.mutants().filter(|mutant| mutant.site.file.contains(&options.file)).collect();
    ensure!(
        !mutants.is_empty(),
        "no ordering to weaken in a file whose path contains {:?}; --list names all",
        options.file
    );
    if options.list {
        let list = |mutant: &Mutant| println!("{} {} {}", mutant.number, mutant.site, mutant.arrow());
        mutants.iter().for_each(list);
        return Ok(ExitCode::SUCCESS);
    }
    let (changed, turn) = (changed_files(&root), turn(&root));
    let files: Vec<&str> = mutants.iter().map(|mutant| mutant.site.file.as_str()).collect();
    let order = in_turn(&files, &changed, turn);
    let all = test_programs(&root)?;
    // A run without time for all needs the tests of some files.
    let least = options.within.map_or(usize::MAX, |_| options.least);
    let some = of_the_first(&files, &order, &all, least);
    let whole = some.len() == all.len();
    let target = std::env::current_exe()?.ancestors().nth(2).context("not in a target directory")?.to_owned();
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let prepare = |names: &BTreeSet<String>| prepare(&root, &target, &sources, names, jobs);
    let kills = Mutex::new(HashMap::new());
    let (begun, done) = (AtomicUsize::new(0), Mutex::new(0));
    let run = |mutant: &Mutant, tests: &[Test]| {
        let mut verdict = try_all(mutant, tests, &kills, false)?;
        if options.long && verdict == Verdict::Survived {
            verdict = try_all(mutant, tests, &kills, true)?;
        }
        let mut done = done.lock().unwrap();
        *done += 1;
        eprintln!("{}/{} {} {}: {}", *done, mutants.len(), mutant.site, mutant.arrow(), verdict.name());
        anyhow::Ok(verdict)
    };

    let tests = prepare(&some)?;
    let end = options.within.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let verdicts = in_parallel(jobs, &order, |&index| {
        // In a run of some tests, others may reach what none of these do.
        let is_reached = || tests.iter().any(|test| test.reaches(&mutants[index]));
        let can_run = whole || some.contains(folder(files[index])) && is_reached();
        let is_late = || {
            let before = begun.fetch_add(1, Relaxed);
            before >= options.least && end.is_some_and(|end| Instant::now() >= end)
        };
        if !can_run || is_late() { Ok(Verdict::NotRun) } else { run(&mutants[index], &tests) }
    })?;
    let mut results: Vec<_> = order.into_iter().zip(verdicts).collect();
    if !whole {
        // Others' tests may come by, and notice what its own do not.
        let is_open = |mutant: &Mutant, verdict: &Verdict| {
            *verdict == Verdict::Survived && explained.find(mutant).is_none()
        };
        let mut open: Vec<_> =
            results.iter_mut().filter(|(index, verdict)| is_open(&mutants[*index], verdict)).collect();
        let tests = if open.is_empty() { Vec::new() } else { prepare(&all)? };
        for (index, verdict) in &mut open {
            *verdict = run(&mutants[*index], &tests)?;
        }
    }
    results.sort_by_key(|&(index, _)| index);
    let results: Vec<_> = results.into_iter().map(|(index, verdict)| (&mutants[index], verdict)).collect();
    Ok(report(&results, &explained, &options.file, start.elapsed()))
}

/// Builds the tests of these names, and runs each with nothing changed.
fn prepare(
    root: &Path,
    target: &Path,
    sources: &Sources,
    names: &BTreeSet<String>,
    jobs: usize,
) -> Result<Vec<Test>> {
    let begun = Instant::now();
    eprintln!("building a copy in which each ordering can be replaced");
    let programs = build(root, target, sources, names)?;
    let built = begun.elapsed().as_secs_f64();
    let tests = measure(&programs, target, jobs)?;
    let so_far = begun.elapsed().as_secs_f64();
    eprintln!("{} tests; building took {built:.0} s of {so_far:.0}", tests.len());
    Ok(tests)
}

/// The first part of a file's path: the primitive, as a rule, and so the name of its tests.
fn folder(file: &str) -> &str {
    file.split('/').next().unwrap_or_default()
}

/// The tests of as many primitives as it takes to have tests for so many mutants, the first ones first.
fn of_the_first(files: &[&str], order: &[usize], all: &BTreeSet<String>, least: usize) -> BTreeSet<String> {
    let mut some = BTreeSet::new();
    let mut covered = 0;
    for folder in order.iter().map(|&index| folder(files[index])) {
        if covered >= least && !some.is_empty() {
            break;
        }
        if all.contains(folder) && some.insert(folder.to_owned()) {
            covered += files.iter().filter(|file| self::folder(file) == folder).count();
        }
    }
    // Some tests are no primitive's.
    if some.is_empty() || covered < least { all.clone() } else { some }
}

/// The programs of `conformance`'s tests.
fn test_programs(root: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root.join("crates/conformance/tests"))? {
        let path = entry?.path();
        if path.is_file() || path.join("main.rs").is_file() {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(names)
}

/// The files that changed lately, the newest first: without a commit, and in the last commits that changed
/// any. Empty where git cannot tell.
fn changed_files(root: &Path) -> Vec<String> {
    const COMMITS: &str = "-n10";
    let sources = ["--", "crates/sync/src", "crates/fiber/src"];
    let mut text = git(root, &[&["diff", "--name-only", "HEAD"], &sources[..]].concat());
    text += &git(root, &[&["log", COMMITS, "--format=", "--name-only"], &sources[..]].concat());
    text.lines().filter_map(|line| CRATES.iter().find_map(|krate| krate.name_of(line))).collect()
}

/// A number that differs from commit to commit, and is always the same for one.
fn turn(root: &Path) -> usize {
    let hash = git(root, &["rev-parse", "HEAD"]);
    hash.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// What git prints; nothing where it fails.
fn git(root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).stdin(Stdio::null()).output();
    output
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// In which order mutants run that stand in these files: those of changed files first, then the others,
/// which a run without time for all begins at another one each `turn`.
fn in_turn(files: &[&str], changed: &[String], turn: usize) -> Vec<usize> {
    let rank = |&index: &usize| changed.iter().position(|file| file == files[index]);
    let (mut first, mut rest): (Vec<_>, Vec<_>) = (0..files.len()).partition(|index| rank(index).is_some());
    first.sort_by_key(rank);
    if !rest.is_empty() {
        let middle = turn % rest.len();
        rest.rotate_left(middle);
    }
    first.extend(rest);
    first
}

// --- the source, and its copy -----------------------------------------------

/// A crate whose orderings are weakened.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Krate {
    name: &'static str,
    /// Before the names of its files.
    prefix: &'static str,
}

const CRATES: [Krate; 2] = [Krate { name: "sync", prefix: "" }, Krate { name: "fiber", prefix: "fiber/" }];

impl Krate {
    /// How a file is called here that has this path in the project.
    fn name_of(self, path: &str) -> Option<String> {
        let path = path.strip_prefix("crates/")?.strip_prefix(self.name)?.strip_prefix("/src/")?;
        Some(format!("{}{path}", self.prefix))
    }

    /// Does a checker run this file on its own atomics?
    fn is_checked(self, text: &str) -> bool {
        self.prefix.is_empty() || text.contains("P::Atomic")
    }
}

/// A file, and the sites in it.
struct Source {
    krate: Krate,
    /// Below the crate's sources.
    path: String,
    text: String,
    sites: Vec<Site>,
}

/// All files of these crates; sites are numbered through all of them.
struct Sources(Vec<Source>);

impl Sources {
    fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for krate in CRATES {
            let folder = root.join("crates").join(krate.name).join("src");
            for entry in walkdir::WalkDir::new(&folder).sort_by_file_name() {
                let path = entry?.into_path();
                if path.extension().is_some_and(|extension| extension == "rs") {
                    let file = path.strip_prefix(&folder)?.to_string_lossy().into_owned();
                    let text = fs::read_to_string(&path)?;
                    let name = format!("{}{file}", krate.prefix);
                    let sites = match krate.is_checked(&text) {
                        true => sites::find(&name, &text).with_context(|| path.display().to_string())?,
                        false => Vec::new(),
                    };
                    files.push(Source { krate, path: file, text, sites });
                }
            }
        }
        Ok(Self(files))
    }

    fn mutants(&self) -> impl Iterator<Item = Mutant<'_>> {
        let sites = self.0.iter().flat_map(|source| &source.sites).enumerate();
        sites.flat_map(|(number, site)| {
            site.weaker().iter().map(move |&weaker| Mutant { number, site, weaker })
        })
    }
}

struct Mutant<'a> {
    /// Of the site.
    number: usize,
    site: &'a Site,
    weaker: Order,
}

impl Mutant<'_> {
    fn arrow(&self) -> String {
        format!("{:?} -> {:?}", self.site.order, self.weaker)
    }

    fn variable(&self) -> String {
        format!("{}:{:?}", self.number, self.weaker)
    }
}

/// Writes only what is new, so that cargo compiles only that.
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Makes the copy: sources with hooks, and links to all other crates.
fn copy_workspace(root: &Path, copy: &Path, sources: &Sources) -> Result<()> {
    let is_copied = |name: &std::ffi::OsStr| CRATES.iter().any(|krate| name == krate.name);
    fs::create_dir_all(copy.join("crates"))?;
    // What is gone from the source goes from the copy.
    for entry in fs::read_dir(copy.join("crates"))? {
        let entry = entry?;
        let is_link = entry.file_type()?.is_symlink();
        if is_link && (is_copied(&entry.file_name()) || !root.join("crates").join(entry.file_name()).exists())
        {
            fs::remove_file(entry.path())?;
        }
    }
    for krate in CRATES {
        let (folder, own) = (copy.join("crates").join(krate.name), root.join("crates").join(krate.name));
        fs::create_dir_all(folder.join("src"))?;
        for entry in walkdir::WalkDir::new(folder.join("src")) {
            let path = entry?.into_path();
            let file = path.strip_prefix(folder.join("src"))?.to_string_lossy().into_owned();
            let is_there = |source: &Source| source.krate == krate && source.path == file;
            if path.is_file() && file != "hook.rs" && !sources.0.iter().any(is_there) {
                fs::remove_file(path)?;
            }
        }
        write(&folder.join("Cargo.toml"), &fs::read_to_string(own.join("Cargo.toml"))?)?;
        write(&folder.join("src/hook.rs"), include_str!("hook.rs"))?;
    }
    // Two workspaces share their built dependencies here, and cargo knows packages by name and version.
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    ensure!(manifest.contains(&version), "Cargo.toml does not say {version}");
    write(&copy.join("Cargo.toml"), &manifest.replace(&version, "version = \"0.0.0-mutants\""))?;
    // Cargo writes the new versions into the copy of the lock file.
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    for entry in fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        let link = copy.join("crates").join(entry.file_name());
        if !is_copied(&entry.file_name()) && fs::read_link(&link).ok() != Some(entry.path()) {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(entry.path(), link)?;
        }
    }
    let mut number = 0;
    for Source { krate, path, text, sites } in &sources.0 {
        let mut hooked = sites::hooked(text, sites, number);
        if path == "lib.rs" {
            hooked += "extern crate std;\nmod hook;\n";
        }
        write(&copy.join("crates").join(krate.name).join("src").join(path), &hooked)?;
        number += sites.len();
    }
    Ok(())
}

/// The broken algorithms are nobody's to weaken, and take a third of the time that building takes.
const NO_TWINS: &str = "--no-default-features";

/// Builds the loom tests of these names on the copy; returns their programs, by name.
fn build(
    root: &Path,
    target: &Path,
    sources: &Sources,
    names: &BTreeSet<String>,
) -> Result<BTreeMap<String, PathBuf>> {
    let copy = target.join("mutate");
    copy_workspace(root, &copy, sources)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "-q", "--no-run", "--offline", "--profile=ci", "-pwakeful-conformance", NO_TWINS]);
    cargo.args(["--message-format=json-render-diagnostics", "--target-dir"]).arg(target).current_dir(&copy);
    names.iter().for_each(|name| _ = cargo.arg("--test").arg(name));
    let output = cargo.stderr(Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "the copy in {} does not compile; does the project?", copy.display());

    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let mut programs = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        if let Ok(Message { executable: Some(executable), target: Some(target) }) = serde_json::from_str(line)
        {
            programs.insert(target.name, executable);
        }
    }
    ensure!(!programs.is_empty(), "cargo built no test");
    Ok(programs)
}

// --- the tests --------------------------------------------------------------

struct Test {
    program: PathBuf,
    name: String,
    /// With no mutant chosen.
    took: Duration,
    reaches: HashSet<usize>,
}

impl Test {
    fn reaches(&self, mutant: &Mutant) -> bool {
        self.reaches.contains(&mutant.number)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // What the caller's environment says is for other runs.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WAKEFUL_") || name.to_string_lossy().starts_with("LOOM_") {
                command.env_remove(name);
            }
        }
        command
            .args(["--exact", &self.name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// The loom tests of a program: those of which a part of the name begins with `loom`. A twin's say nothing of
/// an ordering.
fn names(path: &Path) -> Result<Vec<String>> {
    let output = Command::new(path).args(["--list", "--format=terse"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names = names
        .filter(|name| name.split("::").any(|part| part.starts_with("loom")) && !name.starts_with("twins::"));
    Ok(names.map(str::to_owned).collect())
}

/// Runs each test with nothing changed: it has to pass, and shows what it reaches and how long it takes.
fn measure(programs: &BTreeMap<String, PathBuf>, target: &Path, jobs: usize) -> Result<Vec<Test>> {
    let mut all = Vec::new();
    for path in programs.values() {
        for name in names(path)? {
            all.push((all.len(), path, name));
        }
    }
    ensure!(!all.is_empty(), "no loom test found");
    in_parallel(jobs, &all, |(number, path, name)| {
        let mut test = Test {
            program: path.to_path_buf(),
            name: name.clone(),
            took: Duration::ZERO,
            reaches: HashSet::new(),
        };
        let reached = target.join(format!("mutate/reached-{number}"));
        let _ = fs::remove_file(&reached);
        let start = Instant::now();
        let status = test.command().env("WAKEFUL_REACHED", &reached).status()?;
        ensure!(
            status.success(),
            "fails with nothing changed, mend that first: {} --exact {name}",
            path.display()
        );
        test.took = start.elapsed();
        for line in fs::read_to_string(&reached).unwrap_or_default().lines() {
            test.reaches.insert(line.parse()?);
        }
        let _ = fs::remove_file(&reached);
        Ok(test)
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// By this test.
    Caught(String),
    TimedOut(String),
    Survived,
    /// No test comes by.
    NotReached,
    /// No time left.
    NotRun,
}

impl Verdict {
    fn name(&self) -> String {
        match self {
            Self::Caught(test) => format!("caught by {test}"),
            Self::TimedOut(test) => format!("timed out in {test}"),
            Self::Survived => "survived".to_owned(),
            Self::NotReached => "not reached by any test".to_owned(),
            Self::NotRun => "not run".to_owned(),
        }
    }
}

fn try_all(
    mutant: &Mutant,
    tests: &[Test],
    kills: &Mutex<HashMap<String, u32>>,
    long: bool,
) -> Result<Verdict> {
    let mut tests: Vec<_> = tests.iter().filter(|test| test.reaches(mutant)).collect();
    if tests.is_empty() {
        return Ok(Verdict::NotReached);
    }
    {
        let kills = kills.lock().unwrap();
        tests.sort_by_key(|test| {
            (std::cmp::Reverse(kills.get(&test.name).copied().unwrap_or(0).min(1)), test.took)
        });
    }
    for test in tests {
        let mut command = test.command();
        command.env("WAKEFUL_MUTANT", mutant.variable());
        let patience = if long {
            command.env("WAKEFUL_LONG", "1");
            Duration::from_secs(1800)
        } else {
            Duration::from_secs(30) + test.took * 20
        };
        let mut child = command.spawn()?;
        match child.wait_timeout(patience)? {
            Some(status) if status.success() => {}
            Some(_) => {
                *kills.lock().unwrap().entry(test.name.clone()).or_insert(0) += 1;
                return Ok(Verdict::Caught(test.name.clone()));
            }
            None => {
                child.kill()?;
                child.wait()?;
                // At the long bounds most do not end: then this test has not noticed it, and the next is
                // tried.
                if !long {
                    return Ok(Verdict::TimedOut(test.name.clone()));
                }
            }
        }
    }
    Ok(Verdict::Survived)
}

/// Runs `work` on each item, some at a time; results in the order of the items.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Relaxed)).filter(|&at| at < items.len()) {
                    *results[at].lock().unwrap() = Some(work(&items[at]));
                }
            });
        }
    });
    results.into_iter().map(|result| result.into_inner().unwrap().expect("each was worked on")).collect()
}

// --- the report -------------------------------------------------------------

/// Survivors that are right to survive.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    #[serde(default)]
    survivor: Vec<Survivor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    file: String,
    /// As the report prints it, without the line.
    place: String,
    /// `Release -> Relaxed`.
    mutation: String,
    why: String,
}

impl Explained {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let all: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for survivor in &all.survivor {
            if survivor.why.len() < 40 {
                bail!("{}: {}: {}: that is no explanation", path.display(), survivor.file, survivor.place);
            }
        }
        Ok(all)
    }

    fn find(&self, mutant: &Mutant) -> Option<(usize, &Survivor)> {
        self.survivor.iter().enumerate().find(|(_, survivor)| {
            survivor.file == mutant.site.file
                && survivor.place == mutant.site.place
                && survivor.mutation == mutant.arrow()
        })
    }
}

/// What is wrong with these results, and how many there are of each kind.
fn judge<'a>(
    results: &[(&Mutant, Verdict)],
    explained: &Explained,
    file: &str,
) -> (BTreeMap<&'a str, usize>, Vec<String>) {
    let mut counts = BTreeMap::new();
    let mut problems = Vec::new();
    let mut used = HashSet::new();
    let mut ran = 0;
    for (mutant, verdict) in results {
        let explanation = explained.find(mutant);
        used.extend(explanation.map(|(number, _)| number));
        let (kind, problem) = match (verdict, explanation) {
            (Verdict::Caught(_), None) => ("caught", None),
            (Verdict::Caught(_), Some(_)) => {
                ("caught", Some("caught, so delete its entry in explained.toml".to_owned()))
            }
            (Verdict::Survived, Some(_)) if mutant.site.commented => ("explained", None),
            (Verdict::Survived, Some(_)) => (
                "explained",
                Some("explained, but no ORDER: comment beside it says why it stands".to_owned()),
            ),
            (Verdict::Survived, None) => ("survived", Some(verdict.name())),
            (Verdict::NotReached, _) => ("not reached", Some(verdict.name())),
            (Verdict::TimedOut(_), _) => ("timed out", Some(verdict.name())),
            (Verdict::NotRun, _) => ("not run", None),
        };
        ran += usize::from(*verdict != Verdict::NotRun);
        *counts.entry(kind).or_insert(0) += 1;
        problems.extend(problem.map(|problem| format!("{} {}: {problem}", mutant.site, mutant.arrow())));
    }
    if ran == 0 {
        problems.push("no mutant ran, so nothing is shown: give it more time".to_owned());
    }
    for (number, survivor) in explained.survivor.iter().enumerate() {
        if survivor.file.contains(file) && !used.contains(&number) {
            problems.push(format!(
                "explained.toml: {} {} {}: there is no such ordering, delete the entry",
                survivor.file, survivor.place, survivor.mutation
            ));
        }
    }
    (counts, problems)
}

fn report(results: &[(&Mutant, Verdict)], explained: &Explained, file: &str, took: Duration) -> ExitCode {
    let mut last = usize::MAX;
    for (mutant, verdict) in results {
        if last != mutant.number {
            println!("{}", mutant.site);
            last = mutant.number;
        }
        match explained.find(mutant) {
            Some((_, survivor)) if *verdict == Verdict::Survived => {
                println!("    {}: explained:\n        {}", mutant.arrow(), survivor.why.trim());
            }
            _ => println!("    {}: {}", mutant.arrow(), verdict.name()),
        }
    }
    let (counts, problems) = judge(results, explained, file);
    println!();
    for (kind, count) in &counts {
        println!("{count:4} {kind}");
    }
    if !problems.is_empty() {
        println!("\nto do (weaken it in the source, add a test that notices, or explain it):");
        for problem in &problems {
            println!("  {problem}");
        }
    }
    eprintln!("{} mutants in {:.0} s", results.len(), took.as_secs_f64());
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn lock() {\n// ORDER: Acquire.\nword.load(Acquire); }\n\n\n\n\n\n\n\n\n\n\nfn unlock() { word.store(1, Release) }";
    const EXPLAINED: &str = r#"
        survivor = [{ file = "a.rs", place = "lock: load", mutation = "Acquire -> Relaxed", why = "because loom runs one step after another" }]
    "#;

    /// The counts, as text, and the problems, of these verdicts on the two orderings above.
    fn judged(explained: &str, first: Verdict, second: Verdict) -> (String, Vec<String>) {
        let sites = sites::find("a.rs", TEXT).unwrap();
        let [lock, unlock] = &sites[..] else { panic!("{sites:?}") };
        let mutants = [lock, unlock].map(|site| Mutant { number: site.line, site, weaker: Order::Relaxed });
        let results = [(&mutants[0], first), (&mutants[1], second)];
        let (counts, problems) = judge(&results, &toml::from_str(explained).unwrap(), "");
        (format!("{counts:?}"), problems)
    }

    fn caught() -> Verdict {
        Verdict::Caught("a test".into())
    }

    #[test]
    fn who_is_caught_or_explained_is_no_problem() {
        assert_eq!(judged("", caught(), caught()), (r#"{"caught": 2}"#.into(), vec![]));
        let (counts, problems) = judged(EXPLAINED, Verdict::Survived, caught());
        assert_eq!((counts.as_str(), problems.len()), (r#"{"caught": 1, "explained": 1}"#, 0));
    }

    #[test]
    fn who_survives_or_is_not_reached_is_a_problem() {
        for verdict in [Verdict::Survived, Verdict::NotReached, Verdict::TimedOut("a test".into())] {
            let (_, problems) = judged(EXPLAINED, Verdict::Survived, verdict.clone());
            assert_eq!(problems, [format!("a.rs:14 unlock: store Release -> Relaxed: {}", verdict.name())]);
        }
    }

    #[test]
    fn a_run_of_no_mutant_is_a_problem() {
        let (_, problems) = judged("", Verdict::NotRun, Verdict::NotRun);
        assert!(problems[0].contains("no mutant ran"), "{problems:?}");
        assert!(judged("", Verdict::NotRun, caught()).1.is_empty());
    }

    #[test]
    fn changed_files_come_first_and_the_others_take_turns() {
        let (files, changed) = (["a", "b", "b", "c", "d"], ["d", "b"].map(str::to_owned));
        assert_eq!(in_turn(&files, &changed, 0), [4, 1, 2, 0, 3]);
        assert_eq!(in_turn(&files, &changed, 3), [4, 1, 2, 3, 0]);
        assert_eq!(in_turn(&files, &[], 7), [2, 3, 4, 0, 1]);
        assert!(in_turn(&[], &changed, 7).is_empty());
    }

    #[test]
    fn a_short_run_has_the_tests_of_its_first_mutants() {
        let all: BTreeSet<_> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let files = ["wait/x", "b/x", "b/y", "a/x", "c/x"];
        let some =
            |least| of_the_first(&files, &[0, 1, 2, 3, 4], &all, least).into_iter().collect::<String>();
        assert_eq!((some(0), some(2), some(3)), ("b".into(), "b".into(), "ab".into()));
        assert_eq!(some(9), "abcd", "d is no primitive's");
        assert_eq!(of_the_first(&["wait/x"], &[0], &all, 1), all);
    }

    #[test]
    fn an_explanation_has_to_be_true_and_beside_the_source() {
        let (_, problems) = judged(EXPLAINED, caught(), caught());
        assert!(problems[0].contains("delete its entry"), "{problems:?}");
        let (_, problems) = judged(&EXPLAINED.replace("lock: load", "lock: swap"), caught(), caught());
        assert!(problems[0].contains("no such ordering"), "{problems:?}");
        let elsewhere =
            EXPLAINED.replace("lock: load", "unlock: store").replace("Acquire -> R", "Release -> R");
        let (_, problems) = judged(&elsewhere, caught(), Verdict::Survived);
        assert!(problems[0].contains("ORDER: comment"), "{problems:?}");
    }
}
