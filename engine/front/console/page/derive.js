// What the answers amount to: requests in flight, rows of sessions, who has the memory, totals. Pure.

import { clean } from "./dom.js";

const IDLE_S = 600;
const AMBER = 0.5, RED = 0.8; // shares of a limit, never of taste

export const GLYPHS = { ok: "\u2713", amber: "\u25b2", red: "\u2716" };

export function levelOf(used, limit) {
  const share = limit > 0 ? used / limit : 1;
  return share > RED ? "red" : share >= AMBER ? "amber" : "ok";
}

/** How long the client still waits. Silence counts from the start, on a stream from the newest heartbeat, until the first token. */
export function watchdog(record, now) {
  const limit = record.watchdog_s > 0 ? record.watchdog_s : null;
  if (record.ttft_s !== null || record.end !== null) return { limit, silence: null, level: null };
  const heard = Math.max(record.started, record.stream ? (record.last_beat ?? 0) : 0);
  const silence = Math.max(0, now - heard);
  return { limit, silence, level: limit === null ? null : levelOf(silence, limit) };
}

/** A record without an end, with what is done of it. */
export function inFlight(record, pace, names, now) {
  const { prompt_tokens: prompt, cached_tokens: cached, ttft_s: ttft } = record;
  const elapsed = Math.max(0, now - record.started);
  const todo = prompt === null || cached === null ? null : prompt - cached;
  let done = null;
  if (todo !== null) done = ttft !== null ? todo : Math.min(todo, Math.max(0, (record.prefill_done ?? 0) - cached));
  let eta = null;
  if (ttft === null && done && pace.prefill.rate) eta = (todo - done) / pace.prefill.rate;
  else if (ttft === null && record.predicted_ttft_s >= elapsed && record.predicted_ttft_s !== null) eta = record.predicted_ttft_s - elapsed;
  return {
    ...record,
    name: names.get(record.session) ?? record.session ?? "",
    stage: stage(record),
    elapsed,
    todo,
    done,
    progress: todo === null ? null : todo ? done / todo : 1,
    eta,
    prefillRate: pace.prefill.rate,
    decodeRate: pace.output.rate,
    written: pace.output.last,
    watchdog: watchdog(record, now),
  };
}

function stage(record) {
  if (record.ttft_s !== null) return "decode";
  if (record.cached_tokens === null && record.prefill_done === null) return "queue";
  return record.tier === "disk" && record.prefill_done === null ? "restore" : "prefill";
}

export function namesOf(sessions) {
  return new Map(sessions.map((one) => [one.id, clean(one.name || one.harness || one.id)]));
}

/** What the same tokens would have cost at the reference price; null without one. Cached tokens have a price of their own. */
export function costOf(counts, prices) {
  const { prompt_tokens: prompt, cached_tokens: cached, output_tokens: output } = counts ?? {};
  if (!prices || prompt === null || prompt === undefined || output === null || output === undefined) return null;
  const had = cached ?? 0;
  return ((prompt - had) * prices.input + had * prices.cached + output * prices.output) / 1e6;
}

const ORDER = ["prefill", "thinking", "waiting", "prepared", "idle"];

/** Rows of the table: those at work first, then by their last request. */
export function sessionRows(known, now) {
  const newest = new Map();
  for (const turn of known.turns.values()) if (!turn.side && turn.kind === null) newest.set(turn.session, turn);
  const running = Map.groupBy(known.running.values(), (record) => record.session);
  const rows = (known.get("/v1/sessions")?.sessions ?? []).map((fact) => {
    const own = running.get(fact.id) ?? [];
    const turn = newest.get(fact.id);
    const counts = fact.stats?.prompt_tokens !== null && fact.stats ? fact.stats : fact;
    const waits = own.map((record) => watchdog(record, now)).sort((a, b) => (b.silence ?? -1) - (a.silence ?? -1))[0];
    const prompt = own.find((record) => record.prompt_tokens)?.prompt_tokens;
    const last = Math.max(fact.last_request ?? 0, turn?.started ?? 0) || null;
    return {
      id: fact.id,
      name: clean(fact.name || fact.harness || fact.id),
      agent: clean([fact.harness, fact.version].filter(Boolean).join(" ")),
      project: clean(String(fact.project ?? "").split("/").pop()),
      status: statusOf(own, last, now),
      since: last === null ? null : Math.max(0, now - last),
      context: prompt ?? (turn?.prompt_tokens ? turn.prompt_tokens + (turn.output_tokens ?? 0) : (fact.warm?.tokens ?? null)),
      window: fact.window ?? known.ready.window ?? null,
      ttftLast: turn?.ttft_s ?? null,
      ttftP95: fact.stats?.ttft_p95_s ?? null,
      watchdog: waits ?? { limit: fact.watchdog_s > 0 ? fact.watchdog_s : null, silence: null, level: null },
      warm: { memory: "ram" }[fact.warm?.tier] ?? fact.warm?.tier ?? null,
      prompt: counts.prompt_tokens ?? null,
      cached: counts.cached_tokens ?? null,
      output: counts.output_tokens ?? null,
      cost: costOf(counts, known.prices),
      last,
    };
  });
  return rows.sort((a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status) || (b.last ?? 0) - (a.last ?? 0));
}

function statusOf(running, last, now) {
  if (running.length) return running.some((record) => record.ttft_s === null) ? "prefill" : "thinking";
  if (last === null) return "prepared";
  return now - last > IDLE_S ? "idle" : "waiting";
}

/** Who has the memory, in bytes, in the order of the bar. */
export function tenants(memory, stats) {
  if (!memory) return [];
  const { arena, kv, experts, states } = memory;
  const slab = arena.slab_bytes ?? 0, split = arena.split;
  const planned = stats?.engine?.plan?.tenants ?? {};
  const kvBytes = split.kv_slabs * slab;
  const used = kv.tokens ? kvBytes * Math.min(1, kv.used_tokens / kv.tokens) : 0;
  const found = [
    { key: "dense", letter: "D", name: "dense", bytes: planned.dense ?? 0 },
    { key: "kv", letter: "K", name: "KV used", bytes: used, use: [kv.used_tokens, kv.tokens, "tokens"], pinned: kv.pinned },
    { key: "kvfree", letter: "k", name: "KV free", bytes: kvBytes - used },
  ];
  if (states) found.push({ key: "state", letter: "S", name: "state", bytes: split.state_slabs * slab, use: [states.used, states.total, "states"] });
  if (experts) {
    found.push({
      key: "experts", letter: "E", name: "experts", bytes: split.experts_slabs * slab, use: [experts.resident, experts.slots, "slots"],
      pinned: experts.pinned, miss: experts.miss_rate,
    });
  }
  if (planned.workspace) found.push({ key: "work", letter: "W", name: "work", bytes: planned.workspace });
  if (arena.lent_slabs) found.push({ key: "lent", letter: "O", name: "given back", bytes: arena.lent_slabs * slab });
  found.push({ key: "free", letter: "\u00b7", name: "free", bytes: (arena.free_slabs ?? 0) * slab });
  return found.filter((one) => one.bytes > 0 || one.use);
}

/** KV and experts over time, in slabs, from the moves that the engine remembers and what was seen since: [at, {kv, experts}]. */
export function splitHistory(memory, seen, since, now) {
  if (!memory) return [];
  const point = (at, split) => [at, { kv: split.kv_slabs, experts: split.experts_slabs }];
  const moves = memory.moves.filter((move) => move.after && move.at);
  const told = moves.map((move) => point(move.at, move.after));
  const first = moves[0]?.before ?? (moves.length ? null : memory.arena.start_split);
  const from = told[0]?.[0] ?? seen[0]?.[0] ?? now;
  if (first) told.unshift(point(Math.min(since ?? from, from), first));
  const newest = told.at(-1)?.[0] ?? 0;
  return [...told, ...seen.filter(([at]) => at > newest), point(now, memory.arena.split)];
}
