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
    one.textContent = node.name;
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
