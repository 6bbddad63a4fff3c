// One way to draw: a plane with two axes, lines, marks and rules, as SVG of the width that is there.

import { svg } from "./dom.js";

const LEFT = 52, RIGHT = 12, TOP = 14, BOTTOM = 30;
const LETTER = 6.5; // about the width of one, to know on which side there is room

/** Round numbers between `low` and `high`, about `many`; powers of ten where `log`. */
export function ticks(low, high, many, log = false) {
  if (log) {
    const found = [];
    for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power += 1) found.push(10 ** power);
    return found;
  }
  const raw = (high - low) / Math.max(1, many), unit = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * unit).find((n) => n >= raw) ?? unit;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

/** `x` and `y`: {min, max, log, ticks, show}. Draw with `line`, `mark` and `rule`, then take `node`. */
export class Plane {
  constructor({ width, height = 180, x, y, about }) {
    this.width = Math.max(220, Math.floor(width));
    this.height = height;
    this.x = x;
    this.y = y;
    this.node = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, width: this.width, height, role: "img", "aria-label": about });
    this.#axes();
  }

  #place(axis, value, from, to) {
    const of = axis.log ? Math.log10 : (n) => n;
    const span = of(axis.max) - of(axis.min) || 1;
    return from + ((of(Math.max(value, axis.log ? axis.min : value)) - of(axis.min)) / span) * (to - from);
  }

  left(value) {
    return this.#place(this.x, value, LEFT, this.width - RIGHT);
  }

  top(value) {
    return this.#place(this.y, value, this.height - BOTTOM, TOP);
  }

  #axes() {
    const bottom = this.height - BOTTOM, right = this.width - RIGHT;
    for (const at of this.y.ticks ?? ticks(this.y.min, this.y.max, 4, this.y.log)) {
      const y = this.top(at).toFixed(1);
      this.node.append(svg("line", { class: "grid", x1: LEFT, x2: right, y1: y, y2: y }));
      this.node.append(svg("text", { class: "tick", x: LEFT - 6, y: Number(y) + 4, "text-anchor": "end" }, this.y.show(at)));
    }
    for (const at of this.x.ticks ?? ticks(this.x.min, this.x.max, this.width > 500 ? 6 : 3)) {
      const anchor = at === this.x.max ? "end" : "middle";
      this.node.append(svg("text", { class: "tick", x: this.left(at).toFixed(1), y: bottom + 16, "text-anchor": anchor }, this.x.show(at)));
    }
    this.node.append(svg("line", { class: "axis", x1: LEFT, x2: right, y1: bottom, y2: bottom }));
    if (this.x.name) this.node.append(svg("text", { class: "tick", x: right, y: this.height - 2, "text-anchor": "end" }, this.x.name));
  }

  /** Points [x, y]; a null y is a gap. `step`: it holds until the next one. */
  line(points, kind, step = false) {
    let path = "", drawn = false;
    for (const [x, y] of points) {
      if (y === null) {
        drawn = false;
        continue;
      }
      const left = this.left(x).toFixed(1), top = this.top(y).toFixed(1);
      path += drawn ? (step ? `H${left}V${top}` : `L${left} ${top}`) : `M${left} ${top}`;
      drawn = true;
    }
    this.node.append(svg("path", { class: `line ${kind}`, d: path }));
  }

  /** A mark with a shape of its own, so that it is told apart without colour; `about` is shown on it. */
  mark(x, y, kind, about) {
    const left = this.left(x), top = this.top(y), r = 4.5;
    const shapes = {
      dot: `M${left - 3} ${top}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0`,
      cross: `M${left - r} ${top - r}L${left + r} ${top + r}M${left + r} ${top - r}L${left - r} ${top + r}`,
      diamond: `M${left} ${top - r - 1}L${left + r} ${top}L${left} ${top + r + 1}L${left - r} ${top}Z`,
    };
    this.node.append(svg("path", { class: `mark ${kind}`, d: shapes[kind] }, svg("title", {}, about)));
  }

  /** A line across at `y`, or upright at `x`, with words. */
  rule({ x = null, y = null, words, kind }) {
    const bottom = this.height - BOTTOM, right = this.width - RIGHT;
    const place = y === null ? { x1: this.left(x), x2: this.left(x), y1: TOP, y2: bottom } : { x1: LEFT, x2: right, y1: this.top(y), y2: this.top(y) };
    this.node.append(svg("line", { class: `rule ${kind}`, ...place }));
    const end = y !== null || this.left(x) + words.length * LETTER > right;
    const at = y === null ? { x: this.left(x) + (end ? -5 : 5), y: TOP + 10 } : { x: right, y: Math.max(10, this.top(y) - 4) };
    this.node.append(svg("text", { class: `words ${kind}`, ...at, "text-anchor": end ? "end" : "start" }, words));
  }
}
