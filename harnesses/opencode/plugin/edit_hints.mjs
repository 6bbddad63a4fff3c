// An OpenCode plugin: each request says which tool results OpenCode will clear after this user turn.
//
// Two optional fields of the request, which an engine may ignore:
//   epoch       changes whenever OpenCode has rewritten the conversation
//   edit_hints  [{ at, op, after, text }]: the edge at which the next prompt will fork, what happens there, when, and the
//               text that will stand there
//
// OpenCode prunes only where its user asked for it (compaction.prune), and counts characters of its own records: a
// declaration on file can know neither. What is pruned at the end of a user turn is settled when the turn begins, because
// the last two user turns are exempt.

const AGENTS_BESIDE = new Set(["title", "summary", "compaction"]);
const PROTECTED_TOKENS = 40_000; // the newest results outside the exempt turns
const MINIMUM_TOKENS = 20_000; // less than this is not worth a prune
const EXEMPT_TOOLS = new Set(["skill"]);
const EXEMPT_TURNS = 2;
const MOST_HINTS = 256; // what an engine takes in one request
const PLACEHOLDER = "[Old tool result content cleared]";

export const EditHints = async () => {
  let prunes = false;
  const histories = new Map(); // session id -> { epoch, hints } of the prompt that is being made

  return {
    config: async (config) => {
      prunes = config.compaction?.prune === true;
    },
    "experimental.chat.messages.transform": async (_input, { messages }) => {
      const session = messages.at(-1)?.info.sessionID;
      if (session === undefined) return;
      const summary = messages.findLast(({ info }) => info.role === "assistant" && info.summary);
      histories.set(session, { epoch: `${session}:${summary?.info.id ?? ""}`, hints: prunes ? clearedNext(messages) : [] });
    },
    "chat.params": async (input, output) => {
      const history = histories.get(input.sessionID);
      const agent = typeof input.agent === "string" ? input.agent : input.agent?.name;
      if (input.model.providerID !== "ft" || history === undefined || AGENTS_BESIDE.has(agent)) return;
      output.options.epoch = history.epoch;
      if (history.hints.length > 0) output.options.edit_hints = history.hints;
    },
  };
};

// The results that the prune at the end of this user turn will clear, oldest first.
function clearedNext(messages) {
  const cleared = [];
  let userTurns = 0;
  let total = 0;
  let prunable = 0;
  walk: for (const { info, parts } of messages.toReversed()) {
    if (info.role === "user") userTurns += 1;
    if (userTurns >= EXEMPT_TURNS && info.role === "assistant" && info.summary) break;
    for (const part of parts.toReversed()) {
      if (part.type !== "tool") continue;
      if (userTurns < EXEMPT_TURNS || part.state.status !== "completed" || EXEMPT_TOOLS.has(part.tool)) continue;
      if (part.state.time.compacted) break walk;
      const tokens = Math.round(part.state.output.length / 4);
      total += tokens;
      if (total <= PROTECTED_TOKENS) continue;
      prunable += tokens;
      cleared.push(part.callID);
    }
  }
  if (prunable <= MINIMUM_TOKENS) return [];
  return cleared
    .toReversed()
    .slice(0, MOST_HINTS)
    .map((id) => ({ at: `result(${id}).start`, op: "clear_result", after: "user", text: PLACEHOLDER }));
}
