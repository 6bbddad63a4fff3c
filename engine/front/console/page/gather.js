// What is known of the engine: its newest answers, its records, its events. No question is asked here and nothing is drawn.

const TURNS = 512, EVENTS = 100, POINTS = 600, PACE_S = 20;

/** How fast a count of one request grew within the last 20 s. */
export class Pace {
  samples = [];

  add(at, count) {
    const last = this.samples.at(-1);
    if (last && count <= last[1]) return; // only what was new says how fast it goes
    this.samples.push([at, count]);
    while (this.samples[0][0] < at - PACE_S) this.samples.shift();
  }

  get rate() {
    const first = this.samples[0], last = this.samples.at(-1);
    return this.samples.length < 2 || last[0] <= first[0] ? null : (last[1] - first[1]) / (last[0] - first[0]);
  }

  get last() {
    return this.samples.at(-1)?.[1] ?? null;
  }
}

export class Gathered {
  constructor() {
    this.forget();
    this.prices = null;
  }

  /** Another engine answers: nothing of the one before is its own. */
  forget() {
    this.answers = new Map(); // by route: {told, at}
    this.ready = {};
    this.reachable = false;
    this.aliveAt = null;
    this.lastEvent = 0;
    this.running = new Map(); // records without an end, by request
    this.turns = new Map(); // records with one, oldest first
    this.paces = new Map(); // by request: {prefill, output}
    this.events = []; // newest last
    this.series = { decode: [], hits: [], split: [] }; // points [at, value]
    this.counts = null;
  }

  get(route) {
    return this.answers.get(route)?.told ?? null;
  }

  put(route, told, now) {
    this.answers.set(route, { told, at: now });
    this.aliveAt = now;
    if (route === "/v1/stats") this.stats(told, now);
    if (route === "/v1/engine/memory") this.split(told, now);
  }

  pace(request) {
    if (!this.paces.has(request)) this.paces.set(request, { prefill: new Pace(), output: new Pace() });
    return this.paces.get(request);
  }

  lost() {
    this.reachable = false;
    this.running.clear();
    this.paces.clear();
  }

  record(record) {
    if (record.end === null) {
      this.running.set(record.id, record);
      return;
    }
    this.running.delete(record.id);
    this.paces.delete(record.id);
    this.turns.delete(record.id);
    this.turns.set(record.id, record);
    while (this.turns.size > TURNS) this.turns.delete(this.turns.keys().next().value);
  }

  runs(records, now) {
    this.running = new Map(records.map((record) => [record.id, record]));
    for (const id of [...this.paces.keys()]) if (!this.running.has(id)) this.paces.delete(id);
    for (const record of records) if (record.prefill_done) this.pace(record.id).prefill.add(now, record.prefill_done);
  }

  /** One event of the stream. The names of the answers that are out of date now. */
  event({ id, kind, data }, now) {
    this.reachable = true;
    this.aliveAt = now;
    if (id !== null) {
      if (id <= this.lastEvent) return [];
      this.lastEvent = id;
    }
    const noted = note(kind, data);
    const again = kind === "state" && this.events.findLast((event) => event.kind === "state")?.text === noted.text;
    if (id !== null && noted !== null && !again) {
      this.events.push({ id, kind, at: data.time, session: data.session ?? null, ...noted });
      if (this.events.length > EVENTS) this.events.shift();
    }
    if (kind === "hello") {
      const { kind: _, ...state } = data;
      this.ready = { ...this.ready, ...state };
    } else if (kind === "state") {
      const told = Object.fromEntries(
        ["state", "phase", "code", "message", "hint", "warning", "kv_tokens", "restarts"].map((name) => [name, data[name] || null]),
      );
      this.ready = { ...this.ready, ...told, progress: data.total ? data.done / data.total : null, eta_s: null };
      return ["/v1/engine/life", "/ready"];
    } else if (kind === "prefill") {
      const record = this.running.get(data.request);
      if (record) {
        this.running.set(data.request, { ...record, prefill_done: data.done });
        this.pace(data.request).prefill.add(data.time, data.done);
      }
    } else if (kind === "request") {
      this.record(data);
      return ["/v1/sessions", "/v1/engine/life"];
    } else if (kind === "session") {
      return ["/v1/sessions"];
    } else if (kind === "moved") {
      return ["/v1/engine/memory"];
    } else if (kind === "pause" || kind === "worker_gone") {
      return ["/v1/engine/life"];
    }
    return [];
  }

  stats(told, now) {
    const worker = told.engine ?? {};
    for (const one of worker.requests ?? []) {
      const record = this.running.get(one.rid);
      if (record?.prompt_tokens && one.decoding) this.pace(one.rid).output.add(now, one.tokens - record.prompt_tokens);
    }
    const decode = worker.tokens_per_s?.decode;
    this.point("decode", now, decode > 0 ? decode : null);
    this.point("hits", now, this.hitRate(worker.experts ?? {}));
  }

  /** Of the experts asked for since the stats before; null when none were, or there is no second place to miss from. */
  hitRate({ hits, misses, slots }) {
    if (typeof hits !== "number" || typeof misses !== "number" || typeof slots !== "number") return null;
    const before = this.counts;
    this.counts = [hits, misses];
    if (before === null || !slots) return null;
    const hit = hits - before[0], miss = misses - before[1];
    return hit + miss > 0 ? hit / (hit + miss) : null;
  }

  split(told, now) {
    const last = this.series.split.at(-1)?.[1];
    const { kv_slabs: kv, experts_slabs: experts } = told.arena.split;
    if (!last || last.kv !== kv || last.experts !== experts) this.point("split", now, { kv, experts });
  }

  point(name, at, value) {
    this.series[name].push([at, value]);
    if (this.series[name].length > POINTS) this.series[name].shift();
  }
}

const WARNED = new Set(["warning", "experts-slow", "cores-shared", "fork"]);
const TOLD = new Set([...WARNED, "worker_gone", "state", "session", "moved", "pause", "experts-recovered", "upstream"]);

/** An event in words: {level, text}; null for what the list does not tell. No text of a prompt is in one. */
function note(kind, data) {
  if (kind === "request") return data.end === null ? null : ended(data);
  if (!TOLD.has(kind)) return null;
  const level = WARNED.has(kind) ? "warn" : "info";
  if (kind === "worker_gone") return { level: "error", text: `${data.message} Started again in ${data.restart_in_s} s.` };
  if (kind === "state") {
    const more = data.message || data.phase;
    const text = more && more !== data.state ? `${data.state}: ${more}` : String(data.state);
    return { level: data.state === "crashed" ? "error" : "info", text };
  }
  if (kind === "session") return { level, text: `session ${data.change}` };
  if (kind === "moved") return { level, text: `memory: ${data.reason}` };
  if (kind === "pause") return { level, text: data.on ? "admission is paused" : "admission goes on" };
  if (kind === "fork") return { level, text: `prefix broke at token ${data.broke_at?.token} as no rule explains` };
  return { level, text: String(data.message ?? kind) };
}

function ended(data) {
  const took = data.ttft_s === null ? "" : `, first token after ${data.ttft_s.toFixed(1)} s`;
  if (data.end === "error") return { level: "error", text: String(data.error ?? "failed") };
  if (data.end === "cancelled" || data.end === "client_gone") {
    return { level: "warn", text: `${data.end.replace("_", " ")} after ${(data.total_s ?? 0).toFixed(1)} s` };
  }
  if (data.broke_at && !data.broke_at.predicted && data.replayed_tokens !== 0) {
    const again = data.replayed_tokens === null ? "" : `: ${data.replayed_tokens.toLocaleString("en-US")} tokens computed again`;
    return { level: "warn", text: `prefix broke at token ${data.broke_at.token.toLocaleString("en-US")}${again}${took}` };
  }
  const share = data.prompt_tokens && data.cached_tokens !== null ? `, ${((data.cached_tokens / data.prompt_tokens) * 100).toFixed(1)}% cached` : "";
  return { level: "info", text: `${data.prompt_tokens === null ? "" : data.prompt_tokens.toLocaleString("en-US")} tokens${share}${took}` };
}
