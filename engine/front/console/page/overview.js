// The engine's line, the totals, what is in flight, and what has happened.

import { clean, el, named, say, show } from "./dom.js";
import { GLYPHS, costOf, inFlight } from "./derive.js";
import { clock, limit, money, percent, rate, seconds, size, tokens, whole } from "./units.js";

const STATES = { ready: "\u25cf", crashed: "\u2716", stopped: "\u25a0" };

/** A number with its name; `fact` is what a reader of the page's source calls it. */
export function fact(label, value, name, hint) {
  return el("span", { class: "fact", title: hint }, el("span", { class: "label" }, label), " ", el("span", { class: "value", "data-fact": name }, value));
}

export function drawEngine(node, known, now, leave) {
  const { ready } = known;
  const stats = known.get("/v1/stats"), memory = known.get("/v1/engine/memory"), worker = stats?.engine ?? {};
  const at = known.answers.get("/v1/stats")?.at ?? now;
  const state = known.reachable ? (ready.state ?? "starting") : "stopped";
  const foreign = memory?.foreign ?? {};
  const used = foreign.total_bytes && foreign.available_bytes !== undefined ? foreign.total_bytes - foreign.available_bytes : null;
  const parts = [el("strong", {}, "ft "), named(ready.model ?? stats?.model ?? "", "model")];
  parts.push(el("span", { class: `state ${state}`, "data-fact": "state" }, `${STATES[state] ?? "\u25cb"} ${state.toUpperCase()}`));
  if (ready.progress !== null && ready.progress !== undefined && state !== "ready") parts.push(fact(ready.phase ?? "", percent(ready.progress), "progress"));
  parts.push(fact("up", seconds(stats && known.reachable ? stats.uptime_s + now - at : null), "uptime"));
  parts.push(fact("port", location.port, "port"), fact("device", clean(memory?.device ?? "-"), "device"));
  parts.push(fact("window", tokens(ready.window), "window"), fact("RAM", `${size(used)} / ${size(foreign.total_bytes)}`, "ram"));
  parts.push(fact("running", whole(worker.running ?? stats?.running), "running"), fact("waiting", whole(worker.waiting), "waiting"));
  parts.push(fact("version", clean(stats?.version ?? "-"), "version"));
  if (known.get("/v1/engine/life")?.paused) parts.push(el("span", { class: "amber" }, `${GLYPHS.amber} admission paused`));
  let close = node.querySelector("button");
  if (!close) {
    node.append(el("div", { class: "facts" }), (close = el("button", { type: "button", onclick: leave, title: "This page's grant ends" }, "Close")));
  }
  show(node.querySelector(".facts"), ...parts);
}

export function drawTotals(node, known) {
  const totals = known.get("/v1/engine/life")?.totals ?? {};
  const worker = known.get("/v1/stats")?.engine ?? {};
  const { prices } = known;
  const share = totals.prompt_tokens ? totals.cached_tokens / totals.prompt_tokens : null;
  const words = prices
    ? `at ${prices.input} / ${prices.cached} / ${prices.output} per million prompt / cached / output tokens; electricity is not taken off`
    : "no reference price is set: ft config set price_input, price_output, then ft console";
  const decode = known.series.decode.at(-1)?.[1] ?? null, hits = known.series.hits.findLast(([, value]) => value !== null)?.[1] ?? null;
  show(
    node,
    fact("requests", whole(totals.requests), "requests"),
    fact("prompt tokens", whole(totals.prompt_tokens), "prompt_tokens"),
    fact("of them cached", `${whole(totals.cached_tokens)} (${percent(share, 1)})`, "cached_tokens"),
    fact("output tokens", whole(totals.output_tokens), "output_tokens"),
    fact("computed ahead", `${whole(totals.anticipated_tokens)} used, ${whole(totals.wasted_tokens)} wasted`, "anticipated"),
    fact("prefilled", whole(worker.tokens?.prefill), "prefill_total", "tokens that the worker has computed of prompts"),
    fact("decoded", whole(worker.tokens?.decode), "decode_total", "tokens that the worker has written"),
    fact("decode now", `${rate(decode)} tok/s`, "decode_rate"),
    fact("expert hits", percent(hits, 1), "hit_rate"),
    fact("saved", money(costOf(totals, prices)), "saved", words),
    fact("energy", "-", "energy", "no part of the engine measures it"),
    el("span", { class: "hint" }, prices ? `saved: ${words}` : words),
  );
}

export function drawFlight(node, known, names, now) {
  const running = [...known.running.values()].sort((a, b) => a.started - b.started);
  show(node, ...(running.length ? running.map((one) => card(inFlight(one, known.pace(one.id), names, now))) : [el("p", { class: "none" }, "Nothing is in flight.")]));
}

function card(one) {
  const share = one.prompt_tokens && one.cached_tokens !== null ? ` (${percent(one.cached_tokens / one.prompt_tokens, 1)})` : "";
  const progress =
    one.stage === "decode"
      ? el("p", {}, `first token after ${seconds(one.ttft_s)}, ${rate(one.decodeRate)} tok/s, ${whole(one.written)} tokens so far`)
      : el(
          "p",
          { class: "progress" },
          one.progress === null ? null : el("progress", { max: 1, value: one.progress.toFixed(3), "aria-label": "computed of the prompt" }),
          ` ${percent(one.progress)} ${whole(one.done)} of ${whole(one.todo)}, ${rate(one.prefillRate)} tok/s, ETA ${seconds(one.eta)}`,
        );
  return el(
    "article",
    { class: "card", "data-request": one.id },
    el("h3", {}, named(one.name), ` ${one.stage} `, el("span", { class: "dim" }, `${seconds(one.elapsed)}${one.kind ? ` (${clean(one.kind)})` : ""}`)),
    el(
      "p",
      { class: "split" },
      `prompt ${whole(one.prompt_tokens)} = cached ${whole(one.cached_tokens)}${share} + replayed ${whole(one.replayed_tokens)} + new ${whole(one.new_tokens)}; anticipated ${whole(one.anticipated_tokens)}`,
    ),
    progress,
    el("p", { class: "dim" }, `queue ${seconds(one.queue_s)}  restore ${seconds(one.restore_s)}  heartbeats ${whole(one.heartbeats)}  `, dog(one.watchdog)),
  );
}

/** Silence against its limit: glyph, word and numbers. */
export function dog({ limit: most, silence, level }) {
  if (most === null) return el("span", { class: "dim" }, silence === null ? "-" : `silent ${seconds(silence)}, limit unknown`);
  if (silence === null) return el("span", { class: "dim" }, `limit ${limit(most)}`);
  const word = { ok: "ok", amber: "half gone", red: "nearly over" }[level];
  return el("span", { class: level }, `${GLYPHS[level]} ${word}: ${seconds(silence)} of ${limit(most)}`);
}

const MARKS = { info: " ", warn: `${GLYPHS.amber} warning `, error: `${GLYPHS.red} error ` };

export function drawEvents(node, known, names) {
  const rows = known.events.slice(-60).reverse().map((event) =>
    el("li", { class: event.level }, el("time", {}, clock(event.at)), el("span", { class: "mark" }, MARKS[event.level]), event.session ? named(names.get(event.session) ?? event.session) : "", " ", clean(event.text)),
  );
  show(node, rows.length ? el("ol", { class: "events" }, ...rows) : el("p", { class: "none" }, "Nothing has happened yet."));
}

/** What a person must know before anything else; null: nothing. */
export function alarm(known, names, now) {
  const { ready } = known;
  if (!known.reachable) {
    const last = known.aliveAt === null ? "" : ` It was last heard of at ${clock(known.aliveAt)}; what is shown is from then.`;
    return `${GLYPHS.red} The engine has stopped, or does not answer.${last} Start it with: ft engine start. This page goes on by itself.`;
  }
  if (ready.state === "crashed") return `${GLYPHS.red} ${clean(ready.message ?? "The engine has crashed.")} ${clean(ready.hint ?? "")}`;
  const urgent = [...known.running.values()].map((one) => inFlight(one, known.pace(one.id), names, now)).filter((one) => one.watchdog.level === "red");
  if (urgent.length) {
    const { name, watchdog: d } = urgent.sort((a, b) => a.watchdog.limit - a.watchdog.silence - (b.watchdog.limit - b.watchdog.silence))[0];
    return `${GLYPHS.red} ${name} gives up in ${seconds(Math.max(0, d.limit - d.silence))} (limit ${limit(d.limit)}). Rescue it in: ft top`;
  }
  return ready.warning ? `${GLYPHS.amber} ${clean(ready.warning)}` : null;
}

export function drawBanner(node, text) {
  node.hidden = text === null;
  say(node, text ?? "");
}
