"use strict";
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
// Where nobody tells apart who had the processor, its colour is that of both.
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

// The verdict.
document.title = D.program + " - wakeful profile";
$("program").textContent = D.program;
$("head").textContent = D.head;
for (const [part, id] of [["words", "words"], ["then", "then"], ["longest", "long"], ["advice", "advice"],
  ["gained", "gained"], ["dear", "dear"], ["stopped", "stopped"]])
  if (D[part]) rich(part === "words" ? D.words[0].toUpperCase() + D.words.slice(1) : D[part], $(id));
  else $(id).hidden = true;

function bar(parts, into) {
  const all = parts.reduce((sum, [, part]) => sum + part, 0);
  const box = make("div", undefined, into);
  box.className = "bar";
  for (const [[name, words], part] of parts) if (part > 0) {
    const one = make("div", undefined, box);
    one.style.cssText = `width:${part * 100 / all}%;background:var(--${name})`;
    one.title = `${words}: ${time(part)}, ${percent(part, all)}`;
  }
  return all;
}
function keys(parts, all, into) {
  const box = make("div", undefined, into);
  box.className = "keys";
  for (const [[name, words], part] of parts) if (part > 0 && part >= all / 200) {
    const one = make("span", undefined, box);
    make("b", undefined, one).style.background = `var(--${name})`;
    one.append(all ? `${words} ${percent(part, all)}` : words);
  }
}
{
  const kinds = D.rows.filter((row) => row.kind !== "condition" && row.kind !== "semaphore").map((row) => row.kind);
  const names = kinds.every(isBarrier) ? D.barrier_parts : kinds.some(isBarrier) ?
    D.parts.map((words, at) => words.startsWith("holder") ? words.replace("holder", "holder or last thread") :
      `${words}, or ${D.barrier_parts[at]}`) : D.parts;
  const behind = D.rows.filter((row) => row.kind !== "condition" && row.kind !== "semaphore")
    .reduce((sum, row) => sum + row.holder_behind_own_ns, 0);
  const parts = whyParts(names, D.shares, behind);
  // A bar of nearly nothing would look like much.
  if (D.shares.some((part) => part > 0) && D.waited >= 0.01) {
    make("p", "What threads that waited for locks and barriers waited for:", $("shares")).className = "hint";
    const all = bar(parts, $("shares"));
    keys(parts, all, $("shares"));
  }
}

// The time line: rows of places, then of threads.
const decode = (text, kinds) => {
  const all = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) all[at] = VALUE.get(text[at]);
  return { all, kinds, length: text.length / kinds };
};
for (const lane of D.lanes) {
  lane.columns = decode(lane.columns, DOES.length);
  lane.vain = decode(lane.vain, 1).all;
  lane.waits = [];
  lane.stretches = [];
  lane.label = (lane.name || "thread") + " " + lane.thread;
}
for (const place of D.places) {
  place.columns = decode(place.columns, HOLDS.length);
  place.total = place.columns.all.reduce((sum, part) => sum + part, 0) * place.most;
  place.isWork = place.kind === "semaphore" || place.kind === "condition";
  place.isBarrier = isBarrier(place.kind);
}
const WAIT_PARTS = D.parts.length;
for (const one of D.waits) {
  const wait = { lane: one[0], place: one[1], from: one[2], length: one[3], held: D.held[one[4]],
    parts: one.slice(5, 5 + WAIT_PARTS), whom: [] };
  for (let at = 5 + WAIT_PARTS; at < one.length; at += 2) wait.whom.push([one[at], one[at + 1]]);
  D.lanes[wait.lane].waits.push(wait);
}
const waits = D.lanes.flatMap((lane) => lane.waits).sort((a, b) => b.length - a.length);
for (const lane of D.lanes) lane.waits.sort((a, b) => a.from - b.from);
for (const [lane, does, from, length, by] of D.stretches) D.lanes[lane].stretches.push([does, from, length, by]);

// Somebody waited for a thread that was blocked then: where, and in what such a thread was seen there.
for (const lane of D.lanes) lane.awaited = [];
for (const wait of waits) {
  const place = D.places[wait.place], [whom] = wait.whom;
  if (!whom || whom[0] === wait.lane || wait.parts[2] < 50 || place && place.isWork) continue;
  const row = place && D.rows.find((one) => one.kind === place.kind && label(one.place) === place.label);
  const seen = row && row.blocked_in.length ? row.blocked_in[0].call : "";
  D.lanes[whom[0]].awaited.push([wait.from, wait.length, seen]);
}

const GUTTER = 230, AXIS = 26, PLACE = 34, HEAD = 24;
const LANE = D.lanes.length > 24 ? 15 : 20;
const shown = D.places.filter((place) => place.total > 0)
  .sort((a, b) => a.isWork - b.isWork || b.total - a.total).slice(0, 10);
const rows = [];
if (shown.length) rows.push({ head: shown.every((place) => place.isBarrier) ?
  "Barriers: how many threads wait, by what the last thread does" : shown.some((place) => place.isBarrier) ?
  "Locks and barriers: how many threads wait, by what the holder or the last thread does" :
  "Locks: how many threads wait, by what the holder does", height: HEAD });
for (const place of shown) rows.push({ place, height: PLACE });
const order = D.lanes.map((lane, at) => at)
  .sort((a, b) => D.lanes[a].process - D.lanes[b].process || D.lanes[a].from - D.lanes[b].from);
if (order.length) rows.push({ head: "Threads", height: HEAD });
for (const at of order) rows.push({ lane: at, height: LANE });
let height = AXIS;
for (const row of rows) { row.y = height; height += row.height; }
const rowOf = new Map(rows.filter((row) => row.lane !== undefined).map((row) => [row.lane, row]));

const view = $("view"), canvas = $("time"), pen = canvas.getContext("2d");
const base = document.createElement("canvas");
// What comes after the last thread's end is not the program's.
const LAST = Math.max(0, ...D.lanes.map((lane) => lane.to));
const END = Math.max(1, LAST > 0 ? Math.min(LAST, D.elapsed_ns) : D.elapsed_ns);
if (END < D.elapsed_ns * 0.95)
  $("late").textContent = `The time line ends with the last thread, at ${time(END)}. The program's end was seen at ` +
    `${time(D.elapsed_ns)}.`;
let from = 0, to = END, width = 0, tall = 0, over = null, kept = null, drag = null, chosenPlace = null;
const X = (ns) => GUTTER + (ns - from) * (width - GUTTER) / (to - from);
const T = (x) => from + (x - GUTTER) * (to - from) / (width - GUTTER);
const FONT = '12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';

function fit(words, room) {
  if (pen.measureText(words).width <= room) return words;
  let low = 0, high = words.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(words.slice(0, middle) + "\u2026").width <= room) low = middle; else high = middle - 1;
  }
  return low > 2 ? words.slice(0, low) + "\u2026" : "";
}
// The same for a place: its end tells more, which is the line's number.
function fitEnd(words, room) {
  if (pen.measureText(words).width <= room) return words;
  let low = 0, high = words.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText("\u2026" + words.slice(-middle)).width <= room) low = middle; else high = middle - 1;
  }
  return low > 2 ? "\u2026" + words.slice(-low) : "";
}
function size() {
  const scale = window.devicePixelRatio || 1;
  width = view.clientWidth;
  tall = Math.min(height + 8, Math.max(240, Math.min(window.innerHeight * 0.8, 620)));
  view.style.height = tall + 2 + "px";
  $("tall").style.height = height + 8 + "px";
  for (const one of [canvas, base]) {
    one.width = width * scale;
    one.height = tall * scale;
    one.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
  }
  pen.font = FONT;
  canvas.style.width = width + "px";
  canvas.style.height = tall + "px";
}
function step(span, room) {
  const rough = span / Math.max(1, room / 110), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
}
function tick(ns, one) {
  const [unit, scale] = to >= 1e9 ? ["s", 1e9] : to >= 1e6 ? ["ms", 1e6] : to >= 1e3 ? ["us", 1e3] : ["ns", 1];
  const digits = Math.max(0, -Math.floor(Math.log10(one / scale) + 1e-9));
  return (ns / scale).toFixed(digits) + " " + unit;
}
function drawBase() {
  const on = base.getContext("2d"), top = view.scrollTop;
  on.font = FONT;
  on.textBaseline = "middle";
  on.fillStyle = colours.back;
  on.fillRect(0, 0, width, tall);
  for (const row of rows) {
    const y = row.y - top;
    if (y + row.height < AXIS || y > tall) continue;
    if (row.head) drawHead(on, row, y);
    else if (row.place) drawPlace(on, row, y);
    else drawLane(on, row, y);
  }
  drawAxis(on);
  drawStops(on, tall);
}
function drawHead(on, row, y) {
  on.fillStyle = colours.text;
  on.font = "600 " + FONT;
  on.fillText(row.head, 10, y + row.height / 2 + 2);
  on.font = FONT;
}
function drawAxis(on) {
  on.fillStyle = colours.back;
  on.fillRect(0, 0, width, AXIS);
  on.fillStyle = colours.weak;
  on.strokeStyle = colours.line;
  on.lineWidth = 1;
  on.fillText("time", 10, AXIS / 2);
  const one = step(to - from, width - GUTTER);
  for (let at = Math.ceil(from / one) * one; at <= to; at += one) {
    const x = Math.round(X(at)) + 0.5, words = tick(at, one);
    if (x < GUTTER) continue;
    on.beginPath();
    on.moveTo(x, AXIS - 5);
    on.lineTo(x, AXIS);
    on.stroke();
    if (x + on.measureText(words).width + 8 < width) on.fillText(words, x + 4, AXIS / 2 - 2);
  }
  on.beginPath();
  on.moveTo(0, AXIS - 0.5);
  on.lineTo(width, AXIS - 0.5);
  on.stroke();
  on.fillStyle = colours.quota;
  for (const [start, stop] of D.throttled) if (stop > from && start < to) {
    const x = Math.max(GUTTER, X(start));
    on.fillRect(x, AXIS - 4, Math.max(1, Math.min(width, X(stop)) - x), 4);
  }
}
// The time line goes on without the time for which the program was stopped from outside.
function drawStops(on, bottom) {
  on.strokeStyle = on.fillStyle = colours.text;
  on.lineWidth = 1;
  on.setLineDash([4, 3]);
  for (const [at, length] of D.stops) if (at >= from && at <= to) {
    const x = Math.round(X(at)) + 0.5, words = `stopped for ${time(length)}`;
    on.beginPath();
    on.moveTo(x, 0);
    on.lineTo(x, bottom);
    on.stroke();
    on.fillText(words, Math.min(x + 4, width - on.measureText(words).width - 4), AXIS + 8);
  }
  on.setLineDash([]);
}
// Stacked columns, from the bottom up.
function columns(on, { all, kinds, length }, bottom, room, kindsOf) {
  const first = Math.max(0, Math.floor(from / D.column_ns)), last = Math.min(length, Math.ceil(to / D.column_ns));
  for (let at = first; at < last; at++) {
    const x = Math.max(GUTTER, X(at * D.column_ns)), right = X((at + 1) * D.column_ns);
    let y = bottom;
    for (let kind = 0; kind < kinds; kind++) {
      const part = all[at * kinds + kind];
      if (!part) continue;
      const high = part * room / 63;
      on.fillStyle = colours[kindsOf[kind][0]];
      on.fillRect(x, y - high, right - x + 0.4, high);
      y -= high;
    }
  }
}
function drawPlace(on, row, y) {
  const { place } = row, room = PLACE - 6;
  on.fillStyle = colours.lane;
  on.fillRect(GUTTER, y + 3, width - GUTTER, room);
  columns(on, place.columns, y + 3 + room, room, HOLDS);
  on.fillStyle = chosenPlace === place ? colours.accent : colours.text;
  on.fillText(fitEnd(`${place.kind}: ${place.label}`, GUTTER - 20), 10, y + 12);
  on.fillStyle = colours.weak;
  on.fillText(`full height: ${place.most >= 10 ? Math.round(place.most) : place.most.toFixed(1)} threads`, 10, y + 26);
}
function drawLane(on, row, y) {
  const lane = D.lanes[row.lane], room = LANE - 3, top = y + 1.5;
  const start = Math.max(GUTTER, X(lane.from)), end = Math.min(width, X(lane.to));
  on.fillStyle = colours.lane;
  if (end > start) on.fillRect(start, top, end - start, room);
  columns(on, lane.columns, top + room, room, DOES);
  const part = (name, since, length) => {
    const x = Math.max(GUTTER, X(since)), right = Math.min(width, X(since + length));
    if (right - x < 1) return 0;
    on.fillStyle = colours[name];
    on.fillRect(x, top, right - x, room);
    return right - x;
  };
  for (const [does, since, length] of lane.stretches) {
    part(DOES[does][0], since, length);
    if (isReady(does)) for (const [start, stop] of stops(since, length)) part("quota", start, stop - start);
  }
  for (const [does, since, length] of lane.stretches) if (does === 3)
    for (const [from, room, seen] of lane.awaited) {
      const low = Math.max(since, from), high = Math.min(since + length, from + room);
      const wide = high > low ? part("awaited", low, high - low) : 0;
      if (seen && wide > 30 && LANE > 16) {
        on.fillStyle = colours.onawaited;
        on.fillText(fit(seen, wide - 6), Math.max(GUTTER, X(low)) + 3, top + LANE / 2 - 1);
      }
    }
  for (const wait of lane.waits) {
    const place = D.places[wait.place], long = part(placeColour(place), wait.from, wait.length);
    if (long > 5) {
      on.fillStyle = colours.back;
      on.fillRect(Math.max(GUTTER, X(wait.from)), top, 1, room);
    }
    if (place && long > 60 && LANE > 16) {
      on.fillStyle = place.isWork ? colours.text : place.isBarrier ? "#14171b" : colours.onlock;
      on.fillText(fitEnd(place.label, long - 10), Math.max(GUTTER, X(wait.from)) + 5, top + room / 2 + 0.5);
    }
  }
  drawVain(on, lane, top, room);
  on.fillStyle = colours.text;
  on.fillText(fit(lane.label, GUTTER - 20), 10, top + room / 2 + 0.5);
}
// A thread is woken for a moment: so a mark at the lane's lower edge, at least two points wide.
function drawVain(on, lane, top, room) {
  const first = Math.max(0, Math.floor(from / D.column_ns));
  on.fillStyle = colours.vain;
  for (let at = first; at < lane.vain.length && at * D.column_ns < to; at++) if (lane.vain[at]) {
    const x = Math.max(GUTTER, X(at * D.column_ns)), right = X((at + 1) * D.column_ns);
    on.fillRect(x, top + room * 0.55, Math.max(2, right - x), room * 0.45);
  }
}
const isReady = (does) => does === 1 || does === 2;
// When the quota had stopped the program in that time.
function stops(since, length) {
  let low = 0, high = D.throttled.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (D.throttled[middle][1] <= since) low = middle + 1; else high = middle;
  }
  const all = [];
  for (; low < D.throttled.length && D.throttled[low][0] < since + length; low++)
    all.push([Math.max(since, D.throttled[low][0]), Math.min(since + length, D.throttled[low][1])]);
  return all;
}
function placeColour(place) {
  if (!place) return "lock";
  return place.isWork ? "work" : place.isBarrier ? "barrier" : "lock";
}
// The thread that has the lock at that time. At a barrier that is the one that comes last.
function whomAt(wait, at) {
  const held = wait.held.find(([, since, length]) => since <= at && at <= since + length);
  if (held && held[0] !== wait.lane) return held[0];
  const place = D.places[wait.place], other = wait.whom.find(([lane]) => lane !== wait.lane);
  return place && place.isBarrier && other ? other[0] : undefined;
}
// Whom a wait is for at a time, and whom that one waits for, and so on.
function chain(wait, at) {
  const links = [], seen = new Set([wait.lane]);
  for (let now = wait; now && links.length < 12;) {
    const next = whomAt(now, at);
    if (next === undefined) break;
    const own = D.lanes[next].waits.find((one) => one.from <= at && at < one.from + one.length);
    links.push({ from: now.lane, to: next, wait: now, own });
    if (seen.has(next)) break;
    seen.add(next);
    now = own;
  }
  return links;
}
function drawOver() {
  pen.save();
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.drawImage(base, 0, 0);
  pen.restore();
  pen.font = FONT;
  if (drag) {
    pen.globalAlpha = 0.2;
    pen.fillStyle = colours.accent;
    pen.fillRect(Math.min(drag.x, drag.now), AXIS, Math.abs(drag.now - drag.x), tall - AXIS);
    pen.globalAlpha = 1;
  }
  if (chosenPlace) {
    const at = D.places.indexOf(chosenPlace);
    for (const wait of waits) if (wait.place === at) frame(wait, 1);
  }
  for (const one of [kept, over]) if (one) {
    frame(one.wait, 2);
    for (const link of chain(one.wait, one.at)) arrow(link, one.at);
  }
}
function frame(wait, line) {
  const row = rowOf.get(wait.lane), y = row.y - view.scrollTop + 1;
  const x = Math.max(GUTTER, X(wait.from)), right = Math.min(width, X(wait.from + wait.length));
  if (right < GUTTER || x > width || y < AXIS - LANE) return;
  pen.strokeStyle = colours.text;
  pen.lineWidth = line;
  pen.strokeRect(x, y, Math.max(2, right - x), LANE - 2);
}
function arrow(link, at) {
  const middle = (lane) => rowOf.get(lane).y - view.scrollTop + LANE / 2;
  const x = Math.min(width - 8, Math.max(GUTTER + 4, X(at)));
  const y = Math.max(AXIS, middle(link.from)), end = Math.max(AXIS, middle(link.to)), down = Math.sign(end - y);
  for (const [line, ink] of [[5, colours.back], [2, colours.text]]) {
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = line;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x, end - down * 6);
    pen.stroke();
    pen.beginPath();
    pen.arc(x, y, line === 5 ? 5 : 3.5, 0, 7);
    pen.fill();
    pen.beginPath();
    pen.moveTo(x, end);
    pen.lineTo(x - 5, end - down * 9);
    pen.lineTo(x + 5, end - down * 9);
    pen.closePath();
    if (line === 5) pen.stroke();
    pen.fill();
  }
}
const draw = () => { drawBase(); drawOver(); };

// What is under the pointer.
function rowAt(y) {
  const at = y + view.scrollTop;
  return y < AXIS ? undefined : rows.find((row) => row.y <= at && at < row.y + row.height);
}
function waitAt(row, x) {
  const at = T(x), near = 2 * (to - from) / (width - GUTTER);
  let best = null;
  for (const wait of D.lanes[row.lane].waits) {
    const off = Math.max(wait.from - at, at - wait.from - wait.length, 0);
    if (off <= near && (!best || off < best.off)) best = { wait, off };
  }
  return best && best.wait;
}
function sayWait(wait, at, into) {
  const place = D.places[wait.place], lane = D.lanes[wait.lane];
  const first = make("div", undefined, into);
  make("b", lane.label, first);
  first.append(` waited ${time(wait.length)} `,
    place ? `at the ${place.kind} in ${place.label}` : "at a place without a lane");
  make("div", "from " + time(wait.from) + " on", into);
  const names = partsOf(place && place.kind);
  const why = wait.parts.map((part, index) => part > 0 ? `${names[index]} ${part} %` : "").filter(Boolean);
  if (why.length && !(place && place.kind === "condition")) make("div", why.join(", "), into);
  const whom = wait.whom.filter(([, part]) => part > 0).map(([other, part]) => `${D.lanes[other].label} ${part} %`);
  if (whom.length) make("div", `for ${whom.join(", ")}${wait.whom.length > 2 ? ", and others" : ""}`, into);
  const links = chain(wait, at);
  if (links.length) make("div", `At ${time(at)}:`, into);
  for (const link of links) {
    const on = link.own && D.places[link.own.place];
    const doing = link.own ? `, which waits itself${on ? " at the " + on.kind + " in " + on.label : ""}` :
      doesAt(link.to, at);
    make("div", `\u2192 ${D.lanes[link.from].label} waits for ${D.lanes[link.to].label}${doing}`, into);
  }
}
function doesAt(index, at) {
  const lane = D.lanes[index];
  const exact = lane.stretches.find(([, since, length]) => since <= at && at < since + length);
  return exact ? ", which " + (exact[0] === 0 ? "runs" : "is " + state(exact)) : "";
}
function state([does, since, length, by]) {
  if (isReady(does) && isThrottled(since, length)) {
    const all = stops(since, length).reduce((sum, [start, stop]) => sum + stop - start, 0);
    return `ready (the quota had stopped the program for ${time(all)} of that)`;
  }
  return by === undefined ? DOES[does][1] : `ready, ${D.lanes[by].label} has the processor`;
}
function sayColumn(row, x, into) {
  const column = Math.floor(T(x) / D.column_ns);
  if (row.place) {
    const { place } = row;
    make("b", `${place.kind}: ${place.label}`, make("div", undefined, into));
    const parts = (place.isBarrier ? COMES : HOLDS).map(([, words], kind) => [words, place.columns.all[column * HOLDS.length + kind] || 0]);
    const all = parts.reduce((sum, [, part]) => sum + part, 0);
    make("div", `${(all * place.most / 63).toFixed(1)} threads wait at ${time(T(x))}`, into);
    for (const [words, part] of parts) if (part) make("div", `${words} ${percent(part, all)}`, into);
    return;
  }
  const lane = D.lanes[row.lane];
  make("b", lane.label, make("div", undefined, into));
  const exact = lane.stretches.find(([, since, length]) => since <= T(x) && T(x) < since + length);
  if (exact) {
    make("div", `${state(exact)} for ${time(exact[2])}`, into);
    return;
  }
  sayVain(lane, column, into);
  make("div", `at ${time(T(x))}, within ${time(D.column_ns)}:`, into);
  for (let kind = 0; kind < DOES.length; kind++) {
    const part = lane.columns.all[column * DOES.length + kind];
    if (part) make("div", `${DOES[kind][1]} ${Math.round(part * 100 / 63)} %`, into);
  }
  const place = D.places[parseInt(lane.places.slice(column * 2, column * 2 + 2), 16)];
  if (place) make("div", `mostly at the ${place.kind} in ${place.label}`, into);
}
function sayVain(lane, column, into) {
  const times = lane.vain[column] || 0;
  if (times) make("div", `woken in vain ${times === 63 ? "63 times or more" : times === 1 ? "once" : times + " times"} ` +
    `within ${time(D.column_ns)}: it waited again at once`, into);
}
function tip(event, say) {
  const box = $("tip");
  if (!say) { box.hidden = true; return; }
  box.replaceChildren();
  say(box);
  box.hidden = box.childNodes.length === 0;
  const { width: wide, height: high } = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(event.clientX + 16, window.innerWidth - wide - 8)) + "px";
  box.style.top = Math.max(4, Math.min(event.clientY + 16, window.innerHeight - high - 8)) + "px";
}
const inside = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = inside(event);
  if (drag) {
    drag.now = Math.max(GUTTER, Math.min(width, x));
    drawOver();
    return;
  }
  const row = rowAt(y), was = over;
  over = null;
  if (!row || row.head || x < GUTTER) tip(event);
  else {
    const wait = row.lane === undefined ? null : waitAt(row, x);
    if (wait) over = { wait, at: Math.max(wait.from, Math.min(wait.from + wait.length - 1, T(x))) };
    tip(event, (box) => {
      if (!wait) return sayColumn(row, x, box);
      sayWait(wait, over.at, box);
      sayVain(D.lanes[row.lane], Math.floor(T(x) / D.column_ns), box);
    });
  }
  if (over || was) drawOver();
});
canvas.addEventListener("pointerleave", (event) => { over = null; tip(event); drawOver(); });
canvas.addEventListener("pointerdown", (event) => {
  const [x] = inside(event);
  if (x >= GUTTER) { drag = { x, now: x }; canvas.setPointerCapture(event.pointerId); }
});
canvas.addEventListener("pointerup", (event) => {
  const [x, y] = inside(event), was = drag;
  drag = null;
  if (was && Math.abs(was.now - was.x) > 4) {
    zoom(T(Math.min(was.x, was.now)), T(Math.max(was.x, was.now)));
    return;
  }
  const row = rowAt(y);
  if (row && row.place) chosenPlace = chosenPlace === row.place ? null : row.place;
  else keep(over);
  draw();
});
function keep(one) {
  kept = one;
  $("chosen").hidden = !one;
  $("chosen").replaceChildren();
  if (one) sayWait(one.wait, one.at, $("chosen"));
}
function zoom(low, high) {
  const least = Math.min(END, 2000), span = Math.max(least, Math.min(END, high - low));
  from = Math.max(0, Math.min(END - span, low));
  to = from + span;
  draw();
}
const around = (times, middle = (from + to) / 2) =>
  zoom(middle - (middle - from) * times, middle + (to - middle) * times);
view.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
  event.preventDefault();
  if (event.shiftKey) {
    const by = (event.deltaY || event.deltaX) * (to - from) / 1000;
    zoom(from + by, to + by);
  } else around(event.deltaY > 0 ? 1.25 : 0.8, T(inside(event)[0]));
}, { passive: false });
view.addEventListener("scroll", draw);
view.addEventListener("keydown", (event) => {
  const by = (to - from) / 5;
  const act = { "+": () => around(0.6), "=": () => around(0.6), "-": () => around(1 / 0.6), "0": () => zoom(0, END),
    ArrowLeft: () => zoom(from - by, to - by), ArrowRight: () => zoom(from + by, to + by) }[event.key];
  if (act) { event.preventDefault(); act(); }
});
$("out").onclick = () => zoom(0, END);
$("more").onclick = () => around(0.5);
$("less").onclick = () => around(2);
const holds = shown.every((place) => place.isBarrier) ? COMES : shown.some((place) => place.isBarrier) ?
  HOLDS_OR_COMES : HOLDS;
// Only what there is.
const occurs = (tracks, kind) => tracks.some(({ columns }) => {
  for (let at = kind; at < columns.all.length; at += columns.kinds) if (columns.all[at]) return true;
  return false;
});
const AWAITED = ["awaited", "blocked, and others wait for it"];
keys([...DOES.map((one, kind) => [one, occurs(D.lanes, kind) ? 1 : 0]),
  [AWAITED, D.lanes.some((lane) => lane.awaited.length) ? 1 : 0], [STOPPED, D.throttled.length ? 1 : 0],
  [VAIN, D.lanes.some((lane) => lane.vain.some((times) => times)) ? 1 : 0],
  ...holds.slice(4).map((one, at) => [one, occurs(shown, at + 4) ? 1 : 0])], 0, $("legend"));
function show(wait) {
  const room = wait.length * 0.6;
  zoom(wait.from - room, wait.from + wait.length + room);
  view.scrollTop = Math.max(0, rowOf.get(wait.lane).y - tall / 2);
  keep({ wait, at: wait.from + wait.length / 2 });
  draw();
  view.scrollIntoView({ block: "center" });
}

// Tables.
function table(heads, lines, into, click) {
  const box = make("div", undefined, into), all = make("table", undefined, box);
  box.className = lines.length > 40 ? "scroll" : "";
  const head = make("tr", undefined, make("thead", undefined, all)), body = make("tbody", undefined, all);
  heads.forEach((words, at) => {
    make("th", words, head).className = lines.some((cells) => /^[^0-9]/.test(cells[at])) ? "words" : "";
  });
  lines.forEach((cells, at) => {
    const line = make("tr", undefined, body);
    for (const words of cells) make("td", words, line).className = /^[0-9]|^$/.test(words) ? "" : "words";
    if (click) { line.className = "link"; line.onclick = () => click(at); }
  });
}
const whyOf = (row) => whyParts(partsOf(row.kind), [row.holder_running_ns, row.holder_preempted_ns,
  row.holder_blocked_ns, row.free_ns, row.holder_unknown_ns], row.holder_behind_own_ns);
function more(row) {
  const all = [];
  if (row.objects > 1) all.push(`${count(row.objects)} of them`);
  if (row.sites.length > 1) all.push("also from " + row.sites.slice(1, 4).map(label).join(", "));
  if (row.blocked_in.length) {
    const all_looks = row.blocked_in.reduce((sum, one) => sum + one.looks, 0), first = row.blocked_in[0];
    all.push(`who was blocked was seen in ${called(first.call)} in ${label(first.place)} (${first.looks} of ` +
      `${all_looks} looks)`);
  }
  if (row.kind !== "condition" && row.worked_in.length && row.holder_running_ns * 10 >= row.waited_ns) {
    const looks = row.worked_in.reduce((sum, one) => sum + one.looks, 0);
    all.push(`who ${isBarrier(row.kind) ? "came last" : "had it"} was seen at work in ` + row.worked_in.slice(0, 3)
      .map((one) => `${label(one.place)}${one.callers.length ? " (called by " + one.callers.join(", ") + ")" : ""} in ` +
        `${one.looks} of ${looks} looks`).join(", "));
  }
  if (row.callers.length) all.push("called by " + row.callers.slice(0, 4).map((one) => one.name).join(", "));
  if (row.rounds && row.last.length) {
    const last = row.last[0];
    all.push(`${last.name || "thread"} ${last.thread} came last in ${percent(last.rounds, row.rounds)} of ` +
      `${count(row.rounds)} rounds`);
  }
  return all.join("; ");
}
function draws(tag, settings, into, words) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(settings)) one.setAttribute(name, value);
  if (words !== undefined) one.textContent = words;
  into.append(one);
  return one;
}
// About how long a label is, in the units of the picture.
const long = (words) => words.length * 6.5;
// How many waits were how long.
function histogram(lengths, into) {
  const most = Math.max(...lengths), last = lengths.length - 1, first = lengths.findIndex((one) => one > 0);
  const left = Math.max(16, 10 + long(count(most))), bottom = 32;
  const classes = last - first + 1, W = 400, H = 106, gap = Math.min(40, (W - left - 4) / classes);
  const box = draws("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Lengths of waits" }, into);
  for (let at = first; at <= last; at++) {
    const low = at === 0 ? 0 : 1000 * 2 ** (at - 1), high = 1000 * 2 ** at, x = left + (at - first) * gap;
    const tallest = H - bottom - 14;
    const high_px = lengths[at] ? Math.max(1.5, lengths[at] * tallest / most) : 0;
    const one = draws("rect", { x: x + 0.5, y: H - bottom - high_px, width: gap - 1.5, height: high_px,
      style: "fill:var(--accent)" }, box);
    draws("title", {}, one, `${time(low)} to ${time(high)}: ${count(lengths[at])} waits`);
    const words = low === 0 ? "0" : short(low);
    if ((gap >= 36 || (at - first) % Math.ceil(40 / gap) === 0) && x + 1 + long(words) <= W) {
      draws("line", { x1: x + 0.5, x2: x + 0.5, y1: H - bottom, y2: H - bottom + 4, style: "stroke:var(--line)" },
        box);
      draws("text", { x: x + 1, y: H - bottom + 14 }, box, words);
    }
  }
  for (const [value, y] of [[most, 14], [0, H - bottom]])
    draws("text", { x: left - 4, y: y + 4, "text-anchor": "end" }, box, count(value));
  draws("line", { x1: left, x2: left, y1: 14, y2: H - bottom, style: "stroke:var(--line)" }, box);
  draws("text", { x: left, y: H - 3 }, box, "number of waits, by their length");
  draws("line", { x1: left, x2: W - 4, y1: H - bottom, y2: H - bottom, style: "stroke:var(--line)" }, box);
}
const short = (ns) => ns >= 1e9 ? Math.round(ns / 1e9) + "s" : ns >= 1e6 ? Math.round(ns / 1e6) + "ms" :
  Math.round(ns / 1e3) + "us";
const locks = D.rows.filter((row) => row.kind !== "condition");
for (const row of locks.slice(0, 6)) {
  const card = make("div", undefined, $("rows"));
  card.className = "card";
  make("h3", `${row.kind}: ${label(row.place)}`, card);
  make("p", `waited ${count(row.waits)} ${row.waits === 1 ? "time" : "times"}, ${time(row.waited_ns)} together, ` +
    `${time(row.longest_ns)} at most`, card);
  const parts = whyOf(row);
  keys(parts, bar(parts, card), card);
  const words = more(row);
  if (words) make("p", words, card);
  if (row.lengths.length) histogram(row.lengths, card);
}
$("waited").hidden = !locks.length;
if (locks.length > 6) {
  make("h2", "The other places", $("rest"));
  table(["Waited at", "times", "time", "longest", "no processor", "blocked", "ran", "nobody", "unknown"],
    locks.slice(6).map((row) => [`${row.kind}: ${label(row.place)}${more(row) ? "; " + more(row) : ""}`,
      count(row.waits), time(row.waited_ns), time(row.longest_ns), percent(row.holder_preempted_ns, row.waited_ns),
      percent(row.holder_blocked_ns, row.waited_ns), percent(row.holder_running_ns, row.waited_ns),
      percent(row.free_ns, row.waited_ns), percent(row.holder_unknown_ns, row.waited_ns)]), $("rest"));
}
if (D.regions.length) {
  make("h2", "OpenMP regions", $("regions"));
  const part = (row, ns) => percent(ns, row.team_ns) || "0 %";
  table(["Begun in", "times", "time", "threads", "processors at work", "fork", "join", "waiting", "for one that worked",
    "for one without a processor", "for a blocked one", "waking up"],
    D.regions.map((row) => [label(row.place), count(row.told + row.untold),
      time(row.elapsed_ns + row.untold_ns), row.threads.toFixed(1),
      row.processors === null ? "unknown" : row.processors.toFixed(2),
      time(row.fork_ns / Math.max(1, row.told * row.threads)), time(row.join_ns / Math.max(1, row.told)),
      part(row, row.waited_ns), part(row, row.imbalance_ns), part(row, row.waited_for_preempted_ns),
      part(row, row.waited_for_blocked_ns), part(row, row.free_ns)]), $("regions"));
  make("p", "Fork: until a thread begins its part. Join: from the end of the last part on. Waiting: at barriers " +
    "inside and at the end, of the threads' time, and why.", $("regions"));
}
// What is most of the loss comes first.
if (D.cause === "vain") $("waited").before($("conditions"));
const conditions = D.rows.filter((row) => row.kind === "condition");
if (conditions.length) {
  make("h2", "Condition variables", $("conditions"));
  table(["Waited in", "times", "time", "timeouts", "in vain", "processor time for that"],
    conditions.map((row) => [`${label(row.place)}${more(row) ? "; " + more(row) : ""}`, count(row.waits),
      time(row.waited_ns), count(row.timeouts), count(row.vain), time(row.vain_run_ns)]), $("conditions"));
}
{
  const groups = new Map();
  for (const wait of waits) {
    const place = D.places[wait.place], why = wait.parts.indexOf(Math.max(...wait.parts));
    if (place && place.isWork) continue;
    const name = `${wait.place} ${why}`, group = groups.get(name);
    if (group) { group.count++; group.sum += wait.length; }
    else groups.set(name, { first: wait, place, why, count: 1, sum: wait.length });
  }
  // The longest wait of each: the waits come so.
  const some = [...groups.values()].slice(0, 12);
  table(["Waited at", "mostly", "waits", "together", "longest", "of", "from", "for"], some.map((group) => {
    const { first, place, why } = group;
    return [place ? `${place.kind}: ${place.label}` : "elsewhere", partsOf(place && place.kind)[why],
      count(group.count), time(group.sum), time(first.length), D.lanes[first.lane].label, time(first.from),
      first.whom.length ? D.lanes[first.whom[0][0]].label : ""];
  }), $("longest"), (at) => show(some[at].first));
  $("longs").hidden = !some.length;
}
$("who").hidden = !D.threads.length;
table(["Thread", "ran", "ready", "blocked", "waited", "lost its processor"], D.threads.map((one) => [
  `${one.name} ${one.thread}`, time(one.run_ns), time(one.ready_ns), time(one.blocked_ns), time(one.waited_ns),
  count(one.preemptions)]), $("threads"));
for (const words of D.remarks) rich(words, make("p", undefined, $("remarks")));
make("p", `wakeful ${D.version}`, $("remarks"));

// The flame graph.
const CAUSES = Object.fromEntries([...whyBy(D.parts), ...whyBy(D.barrier_parts)].map(([name, words]) => [words, name]));
let top = null;
function tree(isAll) {
  const root = { name: "all waiting", value: 0, children: new Map() };
  const child = (node, name, value) => {
    let next = node.children.get(name);
    if (!next) node.children.set(name, next = { name, value: 0, children: new Map(), parent: node });
    next.value += value;
    return next;
  };
  for (const [functions, kind, parts] of D.stacks) {
    const isWork = kind === "semaphore" || kind === "condition", value = parts.reduce((sum, part) => sum + part, 0);
    if (isWork && !isAll || !value) continue;
    root.value += value;
    let node = root;
    for (const number of functions) node = child(node, D.names[number], value);
    node = child(node, `[${kind}]`, value);
    if (kind !== "condition")
      parts.forEach((part, at) => { if (part > 0) {
        const words = partsOf(kind)[at];
        child(node, words, part).colour = CAUSES[words];
      } });
  }
  return root;
}
function tint(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.charCodeAt(0)) % 997;
  return `hsl(${205 + sum % 30} ${30 + sum % 20}% ${72 + sum % 12}%)`;
}
function flame() {
  const box = $("flame");
  box.replaceChildren();
  if (!top.value) {
    box.style.height = "auto";
    make("p", "Nothing was waited for.", box);
    return;
  }
  const put = (node, left, share, depth) => {
    const one = make("div", undefined, box);
    // Stripes are hard to read on.
    if (node.colour === "lost") make("span", node.name, one); else one.textContent = node.name;
    one.style.cssText = `left:${left * 100}%;width:calc(${share * 100}% - 1px);top:${depth * 20}px;` +
      `background:${node.colour ? `var(--${node.colour})` : tint(node.name)}`;
    one.onclick = () => { top = node; flame(); };
    one.onpointermove = (event) => tip(event, (into) => {
      make("b", node.name, make("div", undefined, into));
      make("div", `${time(node.value)}, ${percent(node.value, top.root.value)} of the waiting`, into);
    });
    one.onpointerleave = (event) => tip(event);
  };
  const path = [];
  for (let node = top; node; node = node.parent) path.unshift(node);
  top.root = path[0];
  path.forEach((node, depth) => put(node, 0, 1, depth));
  let deepest = path.length;
  const walk = (node, left, share, depth) => {
    let at = left;
    const children = [...node.children.values()].sort((a, b) => b.value - a.value);
    for (const one of children) {
      const part = share * one.value / node.value;
      if (part > 0.0015) {
        put(one, at, part, depth);
        deepest = Math.max(deepest, depth + 1);
        walk(one, at, part, depth + 1);
      }
      at += part;
    }
  };
  if (top.value > 0) walk(top, 0, 1, path.length);
  box.style.height = deepest * 20 + "px";
}
$("work").onchange = () => { top = tree($("work").checked); flame(); };
$("root").onclick = $("work").onchange;

function begin() { readColours(); size(); draw(); }
$("theme").onclick = () => { document.documentElement.classList.toggle("dark"); begin(); };
if (window.matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
window.addEventListener("resize", begin);
$("when").hidden = !D.lanes.length;
begin();
top = tree(false);
if (!top.value) { $("work").checked = true; top = tree(true); }
$("stacks").hidden = !top.value;
flame();
document.documentElement.dataset.ready = Math.round(performance.now());
})();
