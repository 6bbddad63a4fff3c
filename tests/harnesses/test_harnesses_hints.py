"""What our pi extension and OpenCode plugin put into a request, run by node with stand-ins for their agents.

The agents themselves load them in tests/agents.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.edits.turn import Hint
from engine.prompt.edits.wire import MAX_HINTS, hints_of

ROOT = Path(__file__).parents[2] / "harnesses"
PLACEHOLDER = "[Old tool result content cleared]"
PI = """
import { readFileSync } from "node:fs";
import extension from "%s";
const handlers = {};
extension({ on: (name, handler) => (handlers[name] = handler) });
const given = JSON.parse(readFileSync(0, "utf8"));
const ctx = {
  cwd: "/nowhere",
  model: { provider: given.provider },
  getContextUsage: () => given.usage ?? undefined,
  sessionManager: { getSessionId: () => "s1", getBranch: () => given.branch },
};
await handlers.session_start({}, ctx);
console.log(JSON.stringify(handlers.before_provider_request({ payload: { messages: [], model: "m" } }, ctx) ?? null));
"""
OPENCODE = """
import { readFileSync } from "node:fs";
import { EditHints } from "%s";
const given = JSON.parse(readFileSync(0, "utf8"));
const hooks = await EditHints({});
await hooks.config(given.config);
await hooks["experimental.chat.messages.transform"]({}, { messages: given.messages });
const output = { options: { kept: true } };
const input = { sessionID: "s1", agent: given.agent, model: { providerID: given.provider } };
await hooks["chat.params"](input, output);
console.log(JSON.stringify(output.options));
"""


def run(program: str, file: str, given: dict[str, Any]) -> Any:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    code = program % (ROOT / file).as_uri()
    argv = ["node", "--input-type=module", "-e", code]
    done = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pi(tokens: int | None, provider: str = "ft", branch: tuple[dict[str, str], ...] = ()) -> Any:
    usage = {"tokens": tokens, "contextWindow": 64000}
    return run(PI, "pi/extension/edit_hints.mjs", {"provider": provider, "usage": usage, "branch": list(branch)})


def test_pi_announces_a_compaction_that_is_due() -> None:
    assert pi(64000 - 16384) == {"messages": [], "model": "m", "epoch": "s1:"}
    due = pi(64000 - 16384 + 1, branch=({"type": "message", "id": "a"}, {"type": "compaction", "id": "c"}))
    assert due["epoch"] == "s1:c"
    assert hints_of(due) == (Hint("head.end", "summarize", "user"),)
    assert "edit_hints" not in pi(None)
    assert pi(60000, provider="another") is None


def user(text: str) -> dict[str, Any]:
    return {"info": {"id": text, "role": "user", "sessionID": "s1"}, "parts": [{"type": "text", "text": text}]}


def reads(ids: str, tokens: int, **info: Any) -> dict[str, Any]:
    parts = [
        {
            "type": "tool",
            "tool": "skill" if call == "s" else "read",
            "callID": call,
            "state": {"status": "error" if call == "e" else "completed", "output": "x" * 4 * tokens, "time": {}},
        }
        for call in ids
    ]
    return {"info": {"id": ids, "role": "assistant", "sessionID": "s1", **info}, "parts": parts}


def opencode(messages: list[dict[str, Any]], prune: bool = True, agent: str = "build", provider: str = "ft") -> Any:
    given = {"config": {"compaction": {"prune": prune}}, "messages": messages, "agent": agent, "provider": provider}
    return run(OPENCODE, "opencode/plugin/edit_hints.mjs", given)


def test_opencode_announces_the_results_it_will_clear() -> None:
    # newest first, without the last two user turns: d and c fill the protected 40,000 tokens, b and a are prunable
    history = [user("1"), reads("aesbcd", 15_000), user("2"), reads("f", 15_000), user("3"), reads("g", 15_000)]
    options = opencode(history)
    assert options["kept"] and options["epoch"] == "s1:"
    expected = [Hint(f"result({call}).start", "clear_result", "user", PLACEHOLDER) for call in "ab"]
    assert list(hints_of(options)) == expected
    assert "edit_hints" not in opencode(history, prune=False)
    assert "edit_hints" not in opencode([user("1"), reads("abc", 20_000), user("2"), user("3")]), "20,000 are too few"
    cleared = [user("1"), reads("abcd", 20_000), user("2"), user("3")]
    cleared[1]["parts"][0]["state"]["time"]["compacted"] = 1
    assert "edit_hints" not in opencode(cleared), "what is cleared already ends the walk"
    summary = reads("", 0, id="sum", summary=True)
    compacted = opencode([user("1"), reads("abcd", 20_000), summary, user("2"), user("3")])
    assert compacted == {"kept": True, "epoch": "s1:sum"}
    assert opencode(history, agent="title") == {"kept": True}
    assert opencode(history, provider="another") == {"kept": True}


def test_a_request_never_has_more_hints_than_an_engine_takes() -> None:
    many = reads("", 0)
    many["parts"] = [
        part for n in range(MAX_HINTS + 50) for part in reads("x", 1000)["parts"] if part.update(callID=f"c{n}") is None
    ]
    options = opencode([user("1"), many, user("2"), user("3")])
    assert len(hints_of(options)) == MAX_HINTS
