// The way to the engine: the code in the address is changed for a key, every question carries it, and the cookie goes along unseen.

const HOME = "/dashboard";
const KEPT = "ft-console-key";

/** Nobody answers (`status` 0), or the engine refuses. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Whether this page has a key. A code in the address is used up here, and taken out of the address in any case. */
export async function enter() {
  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", HOME);
    try {
      sessionStorage.setItem(KEPT, (await ask("POST", "/enter", { code })).key);
    } catch (refused) {
      if (!has()) throw refused;
    }
  }
  return has();
}

function has() {
  return Boolean(sessionStorage.getItem(KEPT));
}

/** The engine knows this page no more. */
export function forget() {
  sessionStorage.removeItem(KEPT);
}

export async function leave() {
  await ask("POST", "/leave", {}).finally(forget);
}

function headers(body) {
  const sent = { "x-ft-console": sessionStorage.getItem(KEPT) ?? "" };
  return body === undefined ? sent : { ...sent, "content-type": "application/json" };
}

/** The JSON of a good answer. Throws Refused. */
export async function ask(method, path, body, limitMs = 40_000) {
  let answer;
  try {
    answer = await fetch(HOME + path, {
      method,
      headers: headers(body),
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(limitMs),
    });
  } catch {
    throw new Refused(0, "The engine does not answer.");
  }
  const told = await answer.json().catch(() => null);
  if (answer.ok && told !== null) return told;
  // /ready tells its state with a 503
  if (path === "/ready" && told?.state) return told;
  throw new Refused(answer.status, told?.error?.message ?? `The engine answered ${answer.status}.`);
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);

const SILENCE_MS = 60_000;

/** Events after `after`, one by one: {id, kind, data}. Ends with the stream, or when nothing comes for a minute. Throws Refused. */
export async function* events(after) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), SILENCE_MS);
  let answer;
  try {
    answer = await fetch(`${HOME}/v1/engine/events?after=${after}`, {
      headers: headers(),
      credentials: "same-origin",
      cache: "no-store",
      signal: stop.signal,
    });
  } catch {
    throw new Refused(0, "The engine does not answer.");
  }
  if (!answer.ok) throw new Refused(answer.status, `The engine answered ${answer.status}.`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = parse(part);
        if (event) yield event;
      }
    }
  } catch {
    throw new Refused(0, "The engine does not answer.");
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

function parse(text) {
  const fields = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (!fields.data) return null;
  return { id: fields.id ? Number(fields.id) : null, kind: fields.event ?? "", data: JSON.parse(fields.data) };
}
