// A pi extension: each request says which compaction this conversation is in, and that the next one is due.
//
// Two optional fields of the request, which an engine may ignore:
//   epoch       changes whenever pi has rewritten the conversation
//   edit_hints  [{ at, op, after }]: the edge at which the next prompt will fork, what happens there, and when
//
// pi compacts after a run of the agent, before the next user text, once the context exceeds its window less a reserve that
// the user may have changed: a declaration on file cannot know that setting.

const PROVIDER = "ft";
const DEFAULTS = { enabled: true, reserveTokens: 16384 };

export default function editHints(pi) {
  let compaction = DEFAULTS;

  pi.on("session_start", async (_event, ctx) => {
    compaction = await compactionSettings(ctx.cwd);
  });

  pi.on("before_provider_request", (event, ctx) => {
    const payload = event.payload;
    if (ctx.model?.provider !== PROVIDER || !Array.isArray(payload?.messages)) return undefined;
    const fields = { epoch: epochOf(ctx.sessionManager) };
    if (compactionIsDue(ctx, compaction)) {
      fields.edit_hints = [{ at: "head.end", op: "summarize", after: "user" }];
    }
    return { ...payload, ...fields };
  });
}

async function compactionSettings(cwd) {
  try {
    const { SettingsManager } = await import("@mariozechner/pi-coding-agent");
    return { ...DEFAULTS, ...SettingsManager.create(cwd).getCompactionSettings() };
  } catch {
    return DEFAULTS; // another version of pi: its defaults have been these
  }
}

// The context so far already exceeds the limit; the reply can only add to it.
function compactionIsDue(ctx, compaction) {
  const usage = ctx.getContextUsage();
  return compaction.enabled && usage?.tokens > usage?.contextWindow - compaction.reserveTokens;
}

function epochOf(sessionManager) {
  const compactions = sessionManager.getBranch().filter((entry) => entry.type === "compaction");
  return `${sessionManager.getSessionId()}:${compactions.at(-1)?.id ?? ""}`;
}
