// Starts the page: gets in, follows the engine's events, asks no more often than what is shown needs, and draws.

import { Refused, enter, events, forget, get, leave } from "./access.js";
import { drawMisses, drawRates, drawSplit, drawTtft } from "./charts.js";
import { namesOf } from "./derive.js";
import { Gathered } from "./gather.js";
import { Control, drawBar } from "./memory.js";
import { alarm, drawBanner, drawEngine, drawEvents, drawFlight, drawTotals } from "./overview.js";
import { drawSessions } from "./sessions.js";

const HISTORY = 256, LOOK_MS = 1000, DRAW_MS = 500, LONG_MS = 10_000;
const CLOSED = "\u25a0 This page is closed. Open it with: ft console --open";

const known = new Gathered();
const stale = new Set(); // routes whose answers are out of date
const at = (id) => document.getElementById(id);
const seconds = () => Date.now() / 1000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let nonce = null, open = false, control = null;

/** Asked again each `every` ms while the page is seen; with `changed` only when an event said so, or long ago. */
const JOBS = [
  { path: "/v1/requests?running=1", every: 500, wanted: () => known.running.size > 0 },
  { path: "/v1/stats", every: 1000 },
  { path: "/v1/engine/memory", every: 2000, changed: false },
  { path: "/v1/sessions", every: 1000, changed: true },
  { path: "/v1/engine/life", every: 1000, changed: true },
  { path: "/ready", every: 1000, changed: true },
  { path: "/v1/engine/experts", every: 5000, wanted: () => Boolean(known.get("/v1/engine/memory")?.experts) },
];

function due(job, now) {
  if (job.busy || now - (job.at ?? -Infinity) < job.every) return stale.has(job.path) && !job.busy && job.changed === false;
  if (job.wanted && !job.wanted()) return false;
  return !job.changed || stale.has(job.path) || now - job.at > LONG_MS || known.running.size > 0 || job.at === undefined;
}

async function ask(job) {
  job.busy = true;
  job.at = performance.now();
  stale.delete(job.path);
  const asked = nonce;
  try {
    const told = await get(job.path);
    if (asked !== nonce) return;
    if (job.path.startsWith("/v1/requests")) known.runs(told.requests, seconds());
    else if (job.path === "/ready") known.ready = { ...known.ready, ...told };
    else known.put(job.path, told, seconds());
  } catch (refused) {
    if (refused.status === 401 || refused.status === 403) close();
  } finally {
    job.busy = false;
  }
}

function askAll() {
  if (!open || !known.reachable || document.hidden) return;
  const now = performance.now();
  for (const job of JOBS) if (due(job, now)) void ask(job);
}

/** Another process answers since the last look: everything is asked for anew. */
async function find() {
  const answer = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(5000) }).catch(() => null);
  const told = answer?.ok ? await answer.json().catch(() => null) : null;
  if (!told?.nonce) throw new Refused(0, "The engine does not answer.");
  if (told.nonce === nonce) return;
  const about = await get("/about");
  known.forget();
  nonce = told.nonce;
  for (const job of JOBS) job.at = undefined;
  known.prices = about.prices;
  for (const record of (await get(`/v1/requests?limit=${HISTORY}`)).requests) known.record(record);
}

async function follow() {
  while (open) {
    try {
      await find();
      for await (const event of events(known.lastEvent)) {
        for (const route of known.event(event, seconds())) stale.add(route);
        if (!open) return;
      }
    } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      if (refused.status === 401 || refused.status === 403) return close();
    }
    known.lost();
    await pause(LOOK_MS);
  }
}

function draw() {
  if (!open || document.hidden) return;
  const now = seconds(), names = namesOf(known.get("/v1/sessions")?.sessions ?? []);
  at("main").classList.toggle("stale", !known.reachable);
  drawEngine(at("engine"), known, now, closeByHand);
  drawBanner(at("banner"), nonce === null ? "\u25cb looking for the engine \u2026" : alarm(known, names, now));
  drawTotals(at("totals"), known);
  drawSessions(at("sessions-body"), at("sessions-title"), known, now);
  drawFlight(at("flight-body"), known, names, now);
  drawBar(at("memory-bar"), known);
  control.draw(known);
  drawEvents(at("events-body"), known, names);
  drawTtft(at("chart-ttft"), known);
  drawRates(at("chart-rates"), known, now);
  drawMisses(at("chart-misses"), known);
  drawSplit(at("chart-split"), known, now);
}

async function memoryChanged() {
  known.put("/v1/engine/memory", await get("/v1/engine/memory"), seconds());
}

function close(words = CLOSED) {
  open = false;
  forget();
  at("main").hidden = true;
  at("engine").replaceChildren();
  drawBanner(at("banner"), words);
}

async function closeByHand() {
  await leave().catch(() => null);
  close();
}

async function start() {
  try {
    open = await enter();
  } catch (refused) {
    return close(refused.status === 0 ? "\u2716 The engine does not answer. Start it with: ft engine start, then: ft console --open" : CLOSED);
  }
  if (!open) return close();
  control ??= new Control(at("memory-control"), memoryChanged);
  at("main").hidden = false;
  draw();
  await follow();
}

// A new address in the same tab does not load the page again.
addEventListener("hashchange", () => {
  if (location.hash.length > 1) location.reload();
});
document.addEventListener("visibilitychange", draw);
setInterval(askAll, 200);
setInterval(draw, DRAW_MS);
void start();
