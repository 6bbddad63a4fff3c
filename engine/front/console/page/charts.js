// The four charts: time to the first token, rates, misses by capacity, KV and experts over time.

import { Plane, ticks } from "./chart.js";
import { namesOf, splitHistory } from "./derive.js";
import { el, show } from "./dom.js";
import { clock, limit, percent, rate, seconds, size, whole } from "./units.js";

const TURNS = 60, SPAN_S = 600;

function parts(node, title, hint) {
  if (!node.firstChild) {
    const id = `${node.id}-title`;
    node.append(el("h2", { id }, title), el("div", { class: "tools" }), el("div", { class: "plot" }), el("p", { class: "dim hint" }, hint));
  }
  const plot = node.querySelector(".plot");
  return { tools: node.querySelector(".tools"), plot, width: plot.clientWidth };
}

const nothing = (plot, words) => show(plot, el("p", { class: "none" }, words));

/** Turns of one session, or of all; `chosen` is read from the list of names above. */
export function drawTtft(node, known) {
  const { tools, plot, width } = parts(
    node, "Time to the first token, by turn",
    "\u25cf continued  \u25c6 edited as foreseen  \u2716 prefix broken  - - the client's watchdog. Logarithmic.",
  );
  if (!tools.firstChild) {
    tools.append(el("label", {}, "Session ", el("select", { id: "ttft-of", onchange: () => drawTtft(node, known) }, el("option", { value: "" }, "all"))));
  }
  const select = tools.querySelector("select");
  const names = namesOf(known.get("/v1/sessions")?.sessions ?? []);
  const wanted = ["", ...names.keys()];
  if (wanted.join() !== [...select.options].map((option) => option.value).join()) {
    const kept = select.value;
    select.replaceChildren(...wanted.map((id) => el("option", { value: id }, id ? `${names.get(id)} (${id})` : "all")));
    select.value = wanted.includes(kept) ? kept : "";
  }
  const turns = [...known.turns.values()].filter((t) => t.ttft_s !== null && !t.side && t.kind === null && (!select.value || t.session === select.value)).slice(-TURNS);
  if (!turns.length) return nothing(plot, "No turn has ended yet.");
  const limits = [...new Set(turns.map((turn) => turn.watchdog_s).filter((s) => s > 0))];
  const watchdog = limits.length ? Math.min(...limits) : null;
  const values = [...turns.map((turn) => turn.ttft_s), ...(watchdog === null ? [] : [watchdog])];
  const low = 10 ** Math.floor(Math.log10(Math.max(1e-3, Math.min(...values))) + 1e-9);
  const high = 10 ** Math.ceil(Math.log10(Math.max(...values) * 1.05));
  const plane = new Plane({
    width,
    x: { min: 1, max: Math.max(2, turns.length), show: whole, ticks: ticks(1, Math.max(2, turns.length), 5).filter(Number.isInteger), name: "turn" },
    y: { min: low, max: Math.max(high, low * 10), log: true, show: seconds },
    about: `Time to the first token of the last ${turns.length} turns, the newest ${seconds(turns.at(-1).ttft_s)}${watchdog === null ? "" : `, watchdog ${limit(watchdog)}`}`,
  });
  plane.line(turns.map((turn, at) => [at + 1, turn.ttft_s]), "faint");
  if (watchdog !== null) plane.rule({ y: watchdog, words: `watchdog ${limit(watchdog)}`, kind: "limit" });
  turns.forEach((turn, at) => {
    const kind = !turn.broke_at ? "dot" : turn.broke_at.predicted ? "diamond" : "cross";
    const why = turn.broke_at ? `, ${turn.broke_at.predicted ? "edited" : "broke"} at token ${whole(turn.broke_at.token)}` : "";
    plane.mark(at + 1, turn.ttft_s, kind, `${names.get(turn.session) ?? ""} ${seconds(turn.ttft_s)}, ${whole(turn.prompt_tokens)} tokens, ${whole(turn.cached_tokens)} cached${why}`);
  });
  show(plot, plane.node);
}

export function drawRates(node, known, now) {
  const { plot, width } = parts(node, "Decode rate, expert hits", "The last ten minutes. A gap is a time in which nothing was computed, or nothing is known.");
  const recent = (name) => known.series[name].filter(([when]) => when >= now - SPAN_S);
  const decode = recent("decode"), hits = recent("hits");
  const most = Math.max(0, ...decode.map(([, value]) => value ?? 0));
  if (!most) return nothing(plot, "Nothing was decoded in the last ten minutes.");
  const from = Math.min(decode[0][0], now - 60);
  const x = { min: from, max: now, ticks: [from, (from + now) / 2, now], show: clock };
  const last = decode.findLast(([, value]) => value !== null)[1];
  const top = new Plane({ width, height: 130, x, y: { min: 0, max: most * 1.15, show: rate }, about: `Decode rate, lately ${rate(last)} tokens a second` });
  top.line(decode, "main");
  top.rule({ y: last, words: `${rate(last)} tok/s`, kind: "quiet" });
  const drawn = [el("h3", {}, "tok/s"), top.node];
  const hit = hits.findLast(([, value]) => value !== null)?.[1];
  if (hit !== undefined) {
    const below = new Plane({ width, height: 110, x, y: { min: 0, max: 1, ticks: [0, 0.5, 1], show: percent }, about: `Expert hits, lately ${percent(hit, 1)}` });
    below.line(hits, "second");
    below.rule({ y: hit, words: percent(hit, 1), kind: "quiet" });
    drawn.push(el("h3", {}, "expert hits"), below.node);
  }
  show(plot, ...drawn);
}

export function drawMisses(node, known) {
  const { plot, width } = parts(node, "Misses by number of expert slots", "From the routing as it happened. Marked: the slots there are now, and what the balancer would choose with nothing set by hand.");
  const picture = known.get("/v1/engine/experts"), curve = picture?.curve;
  const slots = known.get("/v1/engine/memory")?.experts?.slots ?? null;
  if (slots === null && picture) return nothing(plot, "Experts are computed where they lie: there are no slots.");
  if (!curve?.length) return nothing(plot, "Nothing was routed yet.");
  const most = Math.max(0.01, ...curve.map(([, miss]) => miss));
  const plane = new Plane({
    width,
    x: { min: 0, max: picture.total, show: whole, name: "slots" },
    y: { min: 0, max: most, show: percent },
    about: `Share of experts that miss by slots; ${whole(slots)} slots now, ${percent(at(curve, slots), 1)} miss`,
  });
  plane.line(curve, "main");
  if (picture.optimum_slots !== null) plane.mark(picture.optimum_slots, at(curve, picture.optimum_slots), "diamond", `the balancer would choose ${whole(picture.optimum_slots)} slots`);
  if (slots !== null) {
    plane.rule({ x: slots, words: `${whole(slots)} slots, ${percent(at(curve, slots), 1)} miss`, kind: "present" });
    plane.mark(slots, at(curve, slots), "dot", `${whole(slots)} slots now`);
  }
  show(plot, plane.node);
}

/** Between two points of the curve in a straight line. */
function at(curve, slots) {
  const next = curve.findIndex(([n]) => n >= slots);
  if (next <= 0) return curve[next === 0 ? 0 : curve.length - 1][1];
  const [n0, m0] = curve[next - 1], [n1, m1] = curve[next];
  return m0 + ((m1 - m0) * (slots - n0)) / (n1 - n0);
}

export function drawSplit(node, known, now) {
  const { plot, width } = parts(node, "KV and experts over time", "\u2014 KV  - - experts, in bytes of the arena, from the moves that the engine remembers.");
  const memory = known.get("/v1/engine/memory");
  if (!memory?.arena.slab_bytes) return nothing(plot, "Unknown until the engine answers.");
  const uptime = known.get("/v1/stats")?.uptime_s;
  const history = splitHistory(memory, known.series.split, uptime === undefined ? null : now - uptime, now);
  const slab = memory.arena.slab_bytes;
  const bytes = (name) => history.map(([when, split]) => [when, split[name] * slab]);
  const most = Math.max(...history.map(([, split]) => Math.max(split.kv, split.experts))) * slab;
  const from = history[0][0], to = Math.max(now, from + 1);
  const plane = new Plane({
    width,
    x: { min: from, max: to, ticks: [from, (from + to) / 2, to], show: clock },
    y: { min: 0, max: most * 1.1 || 1, ticks: ticks(0, most / 2 ** 20 || 1, 4).map((n) => n * 2 ** 20), show: size },
    about: `KV ${size(bytes("kv").at(-1)[1])}, experts ${size(bytes("experts").at(-1)[1])}, ${memory.moves.length} moves`,
  });
  plane.line(bytes("kv"), "main", true);
  if (memory.experts) plane.line(bytes("experts"), "second dashed", true);
  show(plot, plane.node);
}
