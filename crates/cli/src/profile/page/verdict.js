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

