#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ours against libgomp and libomp under each of their settings, in turns.

    cargo build --release -p wakeful-gomp
    crates/gomp/bench/compare.py [--foreign N] [--threads N,N...] [--rounds N]
                                [--ms N] [--only WHO,WHO...] [NAME...]

NAME is a construct of overheads.c or a program of programs.c. Without any, all
constructs; with "programs", all programs. Programs check their answers.

A line for each: microseconds (programs: seconds), the median over the rounds,
least and greatest in brackets; in front, ours by the best of the others. On the
idle machine a construct's number is the median of samples, beside foreign load
the mean. Needs gcc, and clang with libomp for the half of it.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CONSTRUCTS = "parallel for parallel-for dynamic barrier single critical lock reduction tasks tasks-by-one taskwait".split()
PROGRAMS = "stencil cg sort queens lu".split()
PATIENCE = 60  # seconds

arguments = argparse.ArgumentParser(usage=__doc__)
arguments.add_argument("--foreign", type=int, default=0)
arguments.add_argument("--threads", default="1,2,4,8,16")
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--ms", default="20")
arguments.add_argument("--only", help="ours and these, of: gomp, gomp-active, gomp-passive, omp, omp-active, omp-passive, omp-0")
arguments.add_argument("--library", default=str(ROOT / "target/release/libwakeful_gomp.so"), help="or several, with commas")
arguments.add_argument("names", nargs="*")
given = arguments.parse_args()

names = []
for name in given.names or CONSTRUCTS:
    names += PROGRAMS if name == "programs" else [name]
if wrong := [name for name in names if name not in CONSTRUCTS + PROGRAMS]:
    sys.exit(f"{wrong[0]}: no such name; there are {' '.join(CONSTRUCTS + PROGRAMS)}")

folder = tempfile.TemporaryDirectory()


def built(compiler, source):
    """The program that a compiler makes of a source, if there is that compiler."""
    path = shutil.which(compiler) or next((found for n in range(30, 10, -1) if (found := shutil.which(f"{compiler}-{n}"))), None)
    program = f"{folder.name}/{source}.{compiler}"
    if path and subprocess.run([path, "-O2", "-fopenmp", "-o", program, HERE / source, "-lm"]).returncode == 0:
        return program
    print(f"no program by {compiler}: its runtime is left out", file=sys.stderr)
    return None


settings = {}
for library in given.library.split(","):
    if not os.path.exists(library):
        sys.exit(f"{library} is not there; cargo build --release -p wakeful-gomp")
    who = "ours" if not settings else f"ours:{os.path.basename(library)}"
    settings[who] = ("gcc", {"LD_PRELOAD": library})
passive, active = {"OMP_WAIT_POLICY": "passive"}, {"OMP_WAIT_POLICY": "active"}
for name, compiler in (("gomp", "gcc"), ("omp", "clang")):
    settings[name] = (compiler, {})
    settings[f"{name}-active"] = (compiler, active)
    settings[f"{name}-passive"] = (compiler, passive)
settings["omp-0"] = ("clang", {"KMP_BLOCKTIME": "0"})
if given.only:
    settings = {who: of for who, of in settings.items() if who.startswith("ours") or who in given.only.split(",")}

programs = {}
for name in names:
    source = "programs.c" if name in PROGRAMS else "overheads.c"
    for compiler, _ in settings.values():
        if (source, compiler) not in programs:
            programs[source, compiler] = built(compiler, source)


def once(who, name, threads):
    """One number, or infinity where it takes too long."""
    compiler, more = settings[who]
    source = "programs.c" if name in PROGRAMS else "overheads.c"
    command = [programs[source, compiler]] + ([name] if name in PROGRAMS else [given.ms, name])
    environment = {**os.environ, **more, "OMP_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return float("inf")
    if done.returncode != 0:
        sys.exit(f"{who}, {name}, {threads} threads: {done.stderr}")
    words = done.stdout.split()
    return float(words[2 if given.foreign and name in CONSTRUCTS else 1])


ratios = []
busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(given.foreign)]
try:
    for name in names:
        for threads in map(int, given.threads.split(",")):
            all_of = {who: [] for who, (compiler, _) in settings.items() if programs["programs.c" if name in PROGRAMS else "overheads.c", compiler]}
            for _ in range(given.rounds):
                for who in all_of:
                    all_of[who].append(once(who, name, threads))
            medians = {who: statistics.median(each) for who, each in all_of.items()}
            best = min((median for who, median in medians.items() if not who.startswith("ours")), default=float("nan"))
            ratios.append(max(medians["ours"] / best, 1e-3))
            shown = [f"{who} {medians[who]:.3g} ({min(each):.3g}-{max(each):.3g})" for who, each in all_of.items()]
            print(f"{name} {threads}: {medians['ours'] / best:.2f}  " + ", ".join(shown), flush=True)
    print(f"geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}, greatest {max(ratios):.2f}")
finally:
    for process in busy:
        process.kill()
        process.wait()
