"""Continuing and forking a conversation: the arguments of each agent, and where it keeps what was said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harnesses.contract import HarnessError, LaunchContext
from harnesses.registry import load

MakeContext = Callable[..., LaunchContext]
ID = "0199-the-agents-own-id"


def contains(argv: list[str], *words: str) -> bool:
    """Whether `words` stand in `argv` one behind the other."""
    return any(argv[at : at + len(words)] == list(words) for at in range(len(argv)))


@pytest.mark.parametrize(
    ("agent", "args", "fork", "words"),
    [
        ("claude", [], False, ["--resume", ID]),
        ("claude", ["-p", "go on"], True, ["--resume", ID, "--fork-session", "--session-id"]),
        ("codex", [], False, ["resume", ID]),
        ("codex", ["go on"], False, ["resume", ID, "go on"]),
        ("codex", ["--search"], True, ["fork", ID, "--search"]),
        ("codex", ["exec", "-s", "read-only", "--json", "go on"], False, ["--json", "resume", ID, "go on"]),
        ("codex", ["exec", "-C", "/there"], True, ["exec", "-C", "/there", "fork", ID]),
        ("opencode", [], False, ["--session", ID, "--model", "ft/tiny"]),
        ("opencode", ["run", "go on"], True, ["run", "--session", ID, "--fork", "--model", "ft/tiny", "go on"]),
        ("openclaw", [], False, ["tui", "--local", "--session", ID]),
        ("openclaw", ["agent", "--message", "go on"], False, ["agent", "--local", "--session-id", ID, "--message"]),
        ("pi", [], False, ["--session", ID]),
        ("pi", ["-p", "go on"], True, ["--fork", ID]),
    ],
)
def test_the_conversation_is_chosen(
    agent: str, args: list[str], fork: bool, words: list[str], make_context: MakeContext
) -> None:
    injection = load(agent).adapter.inject(make_context(args=args, resume=ID, fork=fork))
    assert contains(injection.argv, *words), injection.argv
    if not fork:
        assert injection.harness_ids in ([ID], []), injection.harness_ids
    else:
        assert ID not in injection.harness_ids, "a fork has an id of its own"


@pytest.mark.parametrize(
    ("agent", "args", "fork"),
    [
        ("claude", ["--resume", "other"], False),
        ("claude", ["mcp"], False),
        ("codex", ["resume", "other"], False),
        ("codex", ["exec", "--json", "resume", "other"], False),
        ("codex", ["login"], False),
        ("opencode", ["-s", "other"], False),
        ("opencode", ["stats"], False),
        ("openclaw", [], True),
        ("openclaw", ["agent", "--session-id", "other"], False),
        ("pi", ["--continue"], False),
        ("pi", ["list"], False),
        ("mini", ["go on"], False),
    ],
)
def test_what_cannot_be_continued_is_refused(
    agent: str, args: list[str], fork: bool, make_context: MakeContext
) -> None:
    with pytest.raises(HarnessError):
        load(agent).adapter.inject(make_context(args=args, resume=ID, fork=fork))


@pytest.mark.parametrize(
    ("agent", "path"),
    [
        ("claude", ".claude/projects/{cwd}/ID.jsonl"),
        ("codex", ".codex/sessions/2026/01/02/rollout-2026-01-02T03-04-05-ID.jsonl"),
        ("pi", ".pi/agent/sessions/-{cwd}--/2026-01-02_ID.jsonl"),
    ],
)
def test_where_a_conversation_is_kept(agent: str, path: str, make_context: MakeContext) -> None:
    context = make_context()
    folder = str(context.cwd).replace("/", "-").replace("_", "-" if agent == "claude" else "_")
    file = context.home / path.replace("{cwd}", folder).replace("ID", ID)
    adapter: Any = load(agent).adapter
    assert adapter.transcript(context, ID) in (None, file), "not there yet"
    file.parent.mkdir(parents=True)
    file.touch()
    assert adapter.transcript(context, ID) == file
    assert adapter.transcript(context, "another") != file
