"use strict";
// The files of this folder are one script, in the order of `page.rs`.
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
const VALUE = new Map([...DIGITS].map((digit, value) => [digit, value]));
// What threads do, holders in a lane of a lock, and why somebody waited: colours and words.
const DOES = [["run", "runs"], ["ready", "ready, another program has the processor"],
  ["behind", "ready, another thread has the processor"], ["blocked", "blocked"], ["lock", "waits for a lock"],
  ["barrier", "waits at a barrier"], ["work", "waits at a semaphore or condition variable"]];
const HOLDS = [["run", "the holder runs"], ["ready", "the holder has no processor: another program"],
  ["behind", "the holder has no processor: another thread"], ["blocked", "the holder is blocked"],
  ["unknown", "the holder is unknown"], ["free", "nobody holds it: waking up"]];
const BARRIERS = ["barrier", "region's end", "OpenMP barrier"];
const isBarrier = (kind) => BARRIERS.includes(kind);
// The same at a barrier; and for a legend of both.
const COMES = HOLDS.map(([name, words]) => [name, name === "free" ? "all have come: waking up" :
  words.replace("the holder", "the last thread")]);
const HOLDS_OR_COMES = HOLDS.map(([name, words]) => [name, name === "free" ?
  "nobody holds it, or all have come: waking up" : words.replace("the holder", "the holder, or the last thread,")]);
const partsOf = (kind) => isBarrier(kind) ? D.barrier_parts : D.parts;
// Where nobody tells apart who had the processor, its colour is between the two.
const whyBy = (parts) => ["run", "lost", "blocked", "free", "unknown"].map((colour, at) => [colour, parts[at]]);
const QUOTA = D.throttled.length ? ", or the quota" : "";
const STOPPED = ["quota", "ready, and the quota has stopped the program"], VAIN = ["vain", "woken in vain"];
// And where somebody does: the time for a thread without a processor in two.
const whyParts = (names, [ran, lost, blocked, free, unknown], behind) => [[["run", names[0]], ran],
  [["ready", `${names[1]}: another program${QUOTA}`], Math.max(0, lost - behind)],
  [["behind", `${names[1]}: another thread of it${QUOTA}`], Math.min(lost, behind)],
  [["blocked", names[2]], blocked], [["free", names[3]], free], [["unknown", names[4]], unknown]];
// Why somebody was ready.
const isThrottled = (since, length) => D.throttled.some(([start, end]) => start < since + length && since < end);
if (D.throttled.length) {
  for (const words of [HOLDS, COMES, HOLDS_OR_COMES]) for (const at of [1, 2]) words[at][1] += ", or the quota";
}

// A name of a call, or words.
const called = (call) => call.includes(" ") ? `a ${call}` : call;
function make(tag, words, into) {
  const one = document.createElement(tag);
  if (words !== undefined) one.textContent = words;
  if (into) into.append(one);
  return one;
}
function time(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
    if (ns >= size) return (ns >= 1000 * size ? count(Math.round(ns / size)) : (ns / size).toPrecision(3)) + " " + unit;
  return Math.round(ns) + " ns";
}
const percent = (part, all) => all > 0 ? Math.round(part * 100 / all) + " %" : "";
const count = (number) => number.toLocaleString("en");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const label = (place) => place.line ? `${place.name} ${place.line}` : `${place.name} ${place.module}`;
let colours = {};
function readColours() {
  for (const name of ["back", "panel", "text", "weak", "line", "lane", "accent", "run", "ready", "behind",
    "blocked", "lock", "barrier", "work", "awaited", "free", "unknown", "onlock", "onawaited", "quota", "vain"])
    colours[name] = colour(name);
}

// What is between backticks is code.
function rich(words, into) {
  words.split("`").forEach((part, at) => at % 2 ? make("code", part, into) : into.append(part));
}

