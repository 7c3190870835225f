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
// With the name of the variable, if it is one alone.
const titled = (row) => `${row.kind}${row.name && row.objects === 1 ? " " + row.name : ""}: ${label(row.place)}`;
function more(row) {
  const all = [];
  if (row.objects > 1)
    all.push(`${count(row.objects)} different ones` + (row.name ? `, above all ${row.name}` : ""));
  if (row.sites.length > 1) all.push("also from " + row.sites.slice(1, 4).map(label).join(", "));
  if (row.blocked_in.length) {
    const all_looks = row.blocked_in.reduce((sum, one) => sum + one.looks, 0), first = row.blocked_in[0];
    all.push(`who was blocked was seen in ${called(first.call)} in ${label(first.place)} (${first.looks} of ` +
      `${all_looks} samples)`);
  }
  if (row.kind !== "condition" && row.worked_in.length && row.holder_running_ns * 10 >= row.waited_ns) {
    const looks = row.worked_in.reduce((sum, one) => sum + one.looks, 0);
    all.push(`who ${isBarrier(row.kind) ? "came last" : "had it"} was seen at work in ` + row.worked_in.slice(0, 3)
      .map((one) => `${label(one.place)}${one.callers.length ? " (called by " + one.callers.join(", ") + ")" : ""} in ` +
        `${one.looks} of ${looks} samples`).join(", "));
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
  make("h3", titled(row), card);
  make("p", `waited ${count(row.waits)} ${row.waits === 1 ? "time" : "times"}, ${time(row.waited_ns)} together, ` +
    `${time(row.longest_ns)} at most`, card);
  const parts = whyOf(row);
  keys(parts, bar(parts, card), card);
  if (row.turns_words) make("p", row.turns_words, card);
  const words = more(row);
  if (words) make("p", words, card);
  if (row.lengths.length) histogram(row.lengths, card);
}
$("waited").hidden = !locks.length;
if (locks.length > 6) {
  make("h2", "The other places", $("rest"));
  table(["Waited at", "times", "time", "longest", "no processor", "blocked", "ran", "nobody", "unknown"],
    locks.slice(6).map((row) => [`${titled(row)}${more(row) ? "; " + more(row) : ""}`,
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
      first.whom.length ? whomOf(first, first.whom[0][0]) : ""];
  }), $("longest"), (at) => show(some[at].first));
  $("longs").hidden = !some.length;
}
$("who").hidden = !D.threads.length;
table(["Thread", "ran", "ready", "blocked", "waited", "lost its processor"], D.threads.map((one) => [
  `${one.name} ${one.thread}`, time(one.run_ns), time(one.ready_ns), time(one.blocked_ns), time(one.waited_ns),
  count(one.preemptions)]), $("threads"));
if (D.threads.length) make("p", "Waited is what it waited for locks, semaphores and barriers. That is a part of the " +
  "other three: blocked while it slept, ready until it had a processor again, ran while it went to sleep or spun.",
  $("threads")).className = "hint";
for (const words of D.remarks) rich(words, make("p", undefined, $("remarks")));
make("p", `wakeful ${D.version}`, $("remarks"));

