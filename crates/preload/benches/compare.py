#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plain against preloaded, interleaved; medians, ratio and spread of each cell, geometric mean of all.

Usage: compare.py [cond|spin|mutex|pingpong ...] [--rounds N] [--seconds S] [--lib FILE]
"""
import argparse, math, os, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "../../../target/release/libwakeful_preload.so")

parser = argparse.ArgumentParser()
parser.add_argument("what", nargs="*", default=["cond", "pingpong", "spin", "mutex"])
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=float, default=0.5)
parser.add_argument("--threads", type=lambda s: [int(n) for n in s.split(",")])
parser.add_argument("--lib", default=LIB)
args = parser.parse_args()


def cells(what):
    s = str(args.seconds)
    if what == "cond":
        return "bounded_buffer", [(str(n), c, s) for c in ("16", "128") for n in args.threads or (2, 4, 8, 16, 32)]
    if what == "pingpong":
        return "ping_pong", [(s,)]
    lengths = ("0", "100", "1000", "10000")
    return "spin", [(what, str(n), ns, s) for ns in lengths for n in args.threads or (1, 2, 4, 8, 32)]


with tempfile.TemporaryDirectory() as build:
    for what in args.what:
        program, rows = cells(what)
        binary = os.path.join(build, program)
        subprocess.run(["cc", "-O2", "-pthread", "-o", binary, os.path.join(HERE, program + ".c")], check=True)
        logs = []
        for row in rows:
            runs = {False: [], True: []}
            for turn in range(args.rounds):
                for ours in (False, True) if turn % 2 else (True, False):
                    env = dict(os.environ, LD_PRELOAD=args.lib) if ours else os.environ
                    out = subprocess.run([binary, *row], env=env, check=True, capture_output=True, text=True, timeout=60)
                    runs[ours].append(float(out.stdout))
            plain, ours = statistics.median(runs[False]), statistics.median(runs[True])
            logs.append(math.log(ours / plain))
            low, high = min(runs[True]) / max(runs[False]), max(runs[True]) / min(runs[False])
            print(f"{program} {' '.join(row):22} plain {plain:9.1f}  ours {ours:9.1f}  x{ours / plain:5.2f} [{low:.2f} {high:.2f}]", flush=True)
        print(f"{what}: geometric mean x{math.exp(sum(logs) / len(logs)):.2f}", flush=True)
