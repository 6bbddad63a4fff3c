// Who has the memory, and the slider between KV and experts. Every prediction is the engine's own.

import { post } from "./access.js";
import { tenants } from "./derive.js";
import { clean, el, say, show } from "./dom.js";
import { percent, rate, seconds, size, whole } from "./units.js";

const PRESETS = {
  minimum: "KV 4k, one layer of experts",
  chat: "KV 10k, the rest experts",
  agent: "KV 50k or more, two layers of experts or more",
  auto: "the engine decides",
};
const WAIT_MS = 150; // of quiet before a moved slider asks

export function drawBar(node, known) {
  const memory = known.get("/v1/engine/memory");
  const shares = tenants(memory, known.get("/v1/stats"));
  if (!shares.length) {
    show(node, el("p", { class: "none" }, clean(known.ready.cannot?.memory ?? "Unknown until the engine answers.")));
    return;
  }
  const total = shares.reduce((sum, one) => sum + one.bytes, 0);
  const parts = shares.map((one) => el("span", { class: `part ${one.key}`, title: `${one.name} ${size(one.bytes)}` }, one.letter));
  parts.forEach((part, at) => (part.style.flexGrow = (shares[at].bytes / total).toFixed(4)));
  const legend = shares.map((one) =>
    el(
      "li",
      { "data-tenant": one.key },
      el("span", { class: `key ${one.key}` }, one.letter),
      ` ${one.name} ${size(one.bytes)}`,
      one.use ? ` ${whole(one.use[0])} / ${whole(one.use[1])} ${one.use[2]}` : "",
      one.miss !== undefined && one.miss !== null ? `, hit ${percent(1 - one.miss, 1)}` : "",
      one.pinned ? ", set by hand" : "",
    ),
  );
  const mode = `auto ${memory.auto ? "on" : "off"}, preset ${clean(memory.preset ?? "-")}, all experts lie in ${clean(memory.bank ?? "-")}`;
  show(
    node,
    el("div", { class: "bar", role: "img", "aria-label": shares.map((one) => `${one.name} ${size(one.bytes)}`).join(", ") }, ...parts),
    el("ul", { class: "legend" }, ...legend),
    el("p", { class: "dim", "data-fact": "memory-mode" }, mode),
  );
}

/** The slider, the presets and what they would give. `changed` is called after memory changed hands. */
export class Control {
  #asked = null; // what is planned: {kv_tokens} or {preset}
  #turn = 0; // the newest question; answers to earlier ones are dropped
  #timer = 0;

  constructor(node, changed) {
    this.changed = changed;
    this.slider = el("input", { type: "range", id: "kv", "aria-describedby": "kv-ends", oninput: () => this.#slid() });
    this.value = el("output", { for: "kv", id: "kv-value" }, "-");
    this.ends = el("span", { class: "dim", id: "kv-ends" });
    this.presets = Object.entries(PRESETS).map(([name, about]) =>
      el("button", { type: "button", title: about, "aria-pressed": "false", "data-preset": name, onclick: () => this.#plan({ preset: name }) }, name),
    );
    this.apply = el("button", { type: "button", id: "apply", class: "primary", disabled: true, onclick: () => this.#apply() }, "Apply");
    this.reset = el("button", { type: "button", id: "reset", disabled: true, onclick: () => this.#forget() }, "As it is");
    this.told = el("div", { id: "plan", role: "status", "aria-live": "polite" });
    node.addEventListener("keydown", (event) => event.key === "Escape" && this.#forget());
    node.append(
      el("div", { class: "slide" }, el("label", { for: "kv" }, "KV more, experts less \u2192 "), this.value, this.slider, this.ends),
      el("div", { class: "buttons", role: "group", "aria-label": "Presets" }, ...this.presets),
      el("div", { class: "buttons" }, this.apply, this.reset),
      this.told,
    );
    this.node = node;
  }

  /** Where memory is now; a slider that somebody moved stays. */
  draw(known) {
    const kv = known.get("/v1/engine/memory")?.kv;
    const usable = Boolean(kv?.most_tokens) && known.reachable && !known.ready.cannot?.memory;
    this.node.classList.toggle("off", !usable);
    for (const one of [this.slider, ...this.presets]) one.disabled = !usable;
    if (!usable) return;
    const step = kv.most_tokens > 65_536 ? 1024 : 256;
    this.now = kv.tokens;
    for (const [name, of] of [["min", step], ["max", Math.floor(kv.most_tokens / step) * step], ["step", step]]) {
      if (this.slider[name] !== String(of)) this.slider[name] = of;
    }
    say(this.ends, `now ${whole(kv.tokens)}, at most ${whole(kv.most_tokens)} tokens over all sessions`);
    if (this.#asked === null) this.#point(kv.tokens);
  }

  #point(tokens) {
    if (document.activeElement !== this.slider || this.#asked === null) this.slider.value = tokens;
    say(this.value, `${whole(tokens)} tokens`);
    this.slider.setAttribute("aria-valuetext", `${whole(tokens)} tokens of KV`);
  }

  #slid() {
    const tokens = Number(this.slider.value);
    this.#asked = { kv_tokens: tokens };
    this.apply.disabled = true;
    this.#press(null);
    say(this.value, `${whole(tokens)} tokens`);
    this.slider.setAttribute("aria-valuetext", `${whole(tokens)} tokens of KV`);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#plan({ kv_tokens: tokens }), WAIT_MS);
  }

  async #plan(asked) {
    clearTimeout(this.#timer);
    this.#asked = asked;
    this.#press(asked.preset ?? null);
    this.apply.disabled = true;
    this.reset.disabled = false;
    const turn = ++this.#turn;
    show(this.told, el("p", { class: "dim" }, "asking the engine \u2026"));
    try {
      const answer = await post("/v1/engine/memory/plan", asked);
      if (turn !== this.#turn) return;
      this.apply.disabled = !answer.possible;
      if (asked.preset) this.#point(answer.then.kv_tokens);
      show(this.told, ...prediction(answer, asked));
    } catch (refused) {
      if (turn === this.#turn) this.#refused(refused);
    }
  }

  async #apply() {
    const asked = this.#asked, turn = ++this.#turn;
    if (asked === null) return;
    this.apply.disabled = true;
    show(this.told, el("p", { class: "dim" }, "at the next step \u2026"));
    try {
      const answer = await post("/v1/engine/memory/apply", asked);
      await this.changed();
      if (turn !== this.#turn) return;
      this.#forget();
      const rest = answer.waits_for ? `\u25b2 It waits for ${clean(answer.waits_for)}.` : "\u25b2 It goes on between the next steps.";
      const done = answer.complete === false ? rest : "\u2713 Memory is shared out anew.";
      show(this.told, el("p", { id: "applied" }, done), ...(answer.why ? [el("p", { class: "dim" }, clean(answer.why))] : []));
    } catch (refused) {
      if (turn === this.#turn) this.#refused(refused);
    }
  }

  #refused(refused) {
    show(this.told, el("p", { class: "amber" }, `\u25b2 not possible: ${clean(refused.message)}`));
  }

  #forget() {
    clearTimeout(this.#timer);
    this.#turn += 1;
    this.#asked = null;
    this.#press(null);
    this.apply.disabled = this.reset.disabled = true;
    this.told.replaceChildren();
    if (this.now) this.#point(this.now);
  }

  #press(name) {
    for (const one of this.presets) one.setAttribute("aria-pressed", String(one.dataset.preset === name));
  }
}

/** `ft.memory-move/1` as rows of now and then. */
function prediction(answer, asked) {
  const { now = {}, then = {} } = answer;
  const rows = [
    ["KV tokens", whole(now.kv_tokens), whole(then.kv_tokens), "kv_tokens"],
    ["expert slots", whole(now.moe_slots), whole(then.moe_slots), "moe_slots"],
    ["window", whole(now.window_tokens), whole(then.window_tokens), "window_tokens"],
    ["decode, tok/s", rate(now.decode_tokens_per_s), rate(then.decode_tokens_per_s), "decode"],
    ["expert hits", hits(now.miss_rate), hits(then.miss_rate), "hits"],
  ];
  const head = el("tr", {}, ...["", "now", "then"].map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map(([name, before, after, fact]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, before), el("td", { "data-then": fact }, after)));
  const words = [`takes ${seconds(answer.seconds_to_apply)}`];
  if (answer.waits_for) words.push(`waits for ${clean(answer.waits_for)}`);
  return [
    el("table", { class: "plan" }, el("thead", {}, head), el("tbody", {}, ...body)),
    el("p", { class: answer.possible ? "dim" : "amber" }, answer.possible ? `Nothing has changed yet; ${words.join(", ")}.` : "\u25b2 not possible"),
    ...(asked.kv_tokens > then.kv_tokens ? [el("p", { class: "amber" }, `\u25b2 no more than ${whole(then.kv_tokens)} tokens are to be had now`)] : []),
    ...(answer.why ? [el("p", { class: answer.possible ? "dim" : "amber" }, clean(answer.why))] : []),
  ];
}

const hits = (miss) => percent(miss === null || miss === undefined ? null : 1 - miss, 1);
