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
// Who comes last to a barrier has its own wait, until it is out.
function whomOf(wait, lane) {
  const place = D.places[wait.place];
  return lane !== wait.lane ? D.lanes[lane].label : place && place.isBarrier ? "itself, which came last" : "itself";
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
  const whom = wait.whom.filter(([, part]) => part > 0).map(([other, part]) => `${whomOf(wait, other)} ${part} %`);
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

