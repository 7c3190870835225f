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
  // Locks and barriers apart, as the verdict counts them.
  const kinds = [["locks", D.parts, (kind) => !isBarrier(kind)], ["barriers", D.barrier_parts, isBarrier]]
    .map(([name, words, is], at) => [name, whyParts(words, D.shares[at], D.rows
      .filter(({ kind }) => kind !== "condition" && kind !== "semaphore" && is(kind))
      .reduce((sum, row) => sum + row.holder_behind_own_ns, 0))])
    .filter(([, parts]) => parts.some(([, part]) => part > 0));
  // A bar of nearly nothing would look like much.
  if (kinds.length && D.waited >= 0.01) {
    make("p", "What threads that waited for locks and barriers waited for:", $("shares")).className = "hint";
    const all = bar(kinds.flatMap(([, parts]) => parts), $("shares"));
    for (const [name, parts] of kinds) {
      if (kinds.length > 1)
        make("p", `At ${name}, ${percent(parts.reduce((sum, [, part]) => sum + part, 0), all)}:`, $("shares")).className = "hint";
      keys(parts, all, $("shares"));
    }
  }
}
