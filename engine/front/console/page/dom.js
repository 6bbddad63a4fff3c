// Making and changing elements. Everything that comes from outside becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and those that turn the direction of what follows or hide within words.
const ODD = /[\u0000-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Text of somebody else's making: one line, in its own direction only. */
export function clean(text) {
  return String(text ?? "").replace(ODD, "\u00b7");
}

/** An element; `children` are strings, elements, or null for nothing. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Replace what `node` holds, unless it would look the same: the focus and a selection stay where nothing changed. */
export function show(node, ...children) {
  const fresh = document.createDocumentFragment();
  fresh.append(...children.flat().filter((child) => child !== null && child !== undefined));
  const probe = node.cloneNode(false);
  probe.append(fresh);
  if (!probe.isEqualNode(node)) node.replaceChildren(...probe.childNodes);
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name that somebody gave: cut by the style, whole in the hint. */
export function named(text, more = "") {
  const shown = clean(text) || "-";
  return el("bdi", { class: `name ${more}`.trim(), title: shown }, shown);
}
