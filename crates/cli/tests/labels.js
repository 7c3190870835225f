// SPDX-License-Identifier: MIT OR Apache-2.0
// Draws the page's histograms of many waits, and looks for labels that lie on each other or outside. Run by
// `profile.rs` with parts of the page's script as its arguments.
"use strict";
const text = process.argv.slice(2).map((file) => require("fs").readFileSync(file, "utf8")).join("");
const part = (from, to) => {
  const at = text.indexOf(from), end = text.indexOf(to, at);
  if (at < 0 || end < 0) throw new Error(`no ${from}`);
  return text.slice(at, end);
};
const parts = [part("function time(ns)", "const percent"), part("const count =", "const colour"),
  part("const long =", "// How many waits"), part("// How many waits", "const locks =")];
let labels = [];
const draws = (tag, settings, into, words) => {
  if (tag === "text") labels.push({ ...settings, words });
  return {};
};
const histogram = new Function("draws", `"use strict"; ${parts.join("")} return histogram;`)(draws);
const WIDE = 400, HIGH = 106;
// A label of 11 px, in the font that a browser takes where there is no better one.
function box({ x, y, words, "text-anchor": anchor }) {
  const wide = words.length * 6.3, left = anchor === "end" ? x - wide : x;
  return { words, anchor, left, right: left + wide, top: y - 9, bottom: y + 2 };
}
function check(lengths) {
  labels = [];
  histogram(lengths, {});
  const boxes = labels.map(box);
  const wrong = boxes.filter((one, at) => one.left < 0 || one.right > WIDE || one.top < 0 || one.bottom > HIGH ||
    boxes.slice(0, at).some((other) => one.left < other.right && other.left < one.right &&
      one.top < other.bottom && other.top < one.bottom));
  // The scale has numbers, the axis times, and a title.
  const units = boxes.every(({ words, anchor }) => (anchor === "end" ? /^[0-9,]+$/ : /^0$|(us|ms|s)$|^number of waits/).test(words));
  if (wrong.length || !units || !boxes.length) {
    console.log(JSON.stringify({ lengths, wrong, boxes }));
    process.exit(1);
  }
}
let seed = 1;
const chance = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
for (let turn = 0; turn < 5000; turn++) {
  const count = 1 + Math.floor(chance() * 32), first = Math.floor(chance() * count), same = chance() < 0.2;
  check(Array.from({ length: count }, (_, at) => at < first ? 0 :
    same || at === count - 1 ? 1 : Math.floor(Math.exp(chance() * 16) - 1)));
}
