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
$("waits").hidden = !D.waits.length;
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
      on.fillText(fit(place.label, long - 10), Math.max(GUTTER, X(wait.from)) + 5, top + room / 2 + 0.5);
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

