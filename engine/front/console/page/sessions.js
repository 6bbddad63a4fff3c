// The table of sessions; on a narrow screen each row is a card.

import { sessionRows } from "./derive.js";
import { el, named, show } from "./dom.js";
import { dog } from "./overview.js";
import { age, money, percent, seconds, tokens, whole } from "./units.js";

const STATUS = { prefill: "\u25b6", thinking: "\u25c6", waiting: "\u25a1", idle: "\u25cb", prepared: "\u25cc" };
const COLUMNS = ["Name", "Agent", "Status", "Context", "TTFT last / p95", "Watchdog", "Warm", "Prompt", "Cached", "Output", "Saved"];

export function drawSessions(node, title, known, now) {
  const rows = sessionRows(known, now);
  title.textContent = `Sessions ${rows.length || ""}`.trim();
  if (!rows.length) {
    show(node, el("p", { class: "none" }, "No session is open. Start one with: ft launch"));
    return;
  }
  const head = el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)));
  show(node, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.map(row))));
}

function row(one) {
  const share = one.context !== null && one.window ? one.context / one.window : null;
  const context = [
    `${tokens(one.context)} / ${tokens(one.window)} `,
    share === null ? null : el("meter", { min: 0, max: 1, high: 0.8, value: Math.min(1, share).toFixed(3), "aria-label": "context used" }),
    ` ${percent(share)}`,
  ];
  const cells = [
    [named(one.name)],
    [named(one.agent || "-")],
    [`${STATUS[one.status]} ${one.status} ${one.status === "waiting" || one.status === "idle" ? age(one.since) : ""}`.trim()],
    context,
    [`${seconds(one.ttftLast)} / ${seconds(one.ttftP95)}`],
    [dog(one.watchdog)],
    [one.warm ?? "-"],
    [whole(one.prompt)],
    [`${whole(one.cached)}${one.prompt && one.cached !== null ? ` (${percent(one.cached / one.prompt)})` : ""}`],
    [whole(one.output)],
    [money(one.cost)],
  ];
  return el(
    "tr",
    { "data-session": one.id },
    ...cells.map((parts, at) => el(at ? "td" : "th", { scope: at ? null : "row", "data-label": COLUMNS[at] }, ...parts)),
  );
}
