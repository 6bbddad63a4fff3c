"""The declared edges are where real renderings fork: random sessions through each shared model's own template, every two
consecutive prompts compared token by token."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.conversation import Block, Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.edits.places import shared
from engine.prompt.edits.policy import EditPolicy, Turn
from engine.prompt.language import Language

BASH = Tool("bash", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
CLEARED = "[Old tool result content cleared]"
DECLARED: dict[str, dict[str, Any]] = {
    "append": {},
    "drop_all": {"echo": {"thinking": "drop_all"}},
    "drop_before_query": {"echo": {"thinking": "drop_before_query"}},
    "clear": {
        "rule": [
            {
                "id": "clear",
                "op": "clear_result",
                "at": ["oldest(tool_result, not_cleared).start"],
                "known": "record",
                "when": "always",
                "select": {"kind": "tool_result", "keep_newest": 3},
                "placeholder": CLEARED,
            }
        ]
    },
    "clear_in_batches": {
        "rule": [
            {
                "id": "clear",
                "op": "clear_result",
                "at": ["oldest(tool_result, not_cleared).start"],
                "known": "record",
                "when": "always",
                "params": {"n": 2, "polling": 3},
                "placeholder": CLEARED,
            }
        ]
    },
    "reminder": {
        "rule": [
            {
                "id": "reminder",
                "op": "drop_block",
                "at": ["user[-1].block[0].end"],
                "known": "request",
                "when": "matches(user[-1].block[-1].end, '^<system-reminder>')",
                "applies": "next_user_turn",
            }
        ]
    },
    "carrier": {
        "rule": [
            {"id": "carrier", "op": "move_tail", "at": ["last.start"], "known": "request", "when": "always"},
        ]
    },
}
KEEP = [
    {"edge": "head.end", "class": "head", "quota": 2},
    {"edge": "turn[-1].query.end", "class": "turn", "quota": 3},
    {"edge": "prompt.end", "class": "live", "quota": 2},
]


def declaration(name: str) -> dict[str, Any]:
    return {"schema": "edits/1", "harness": "test", "versions": ">=1", "keep": KEEP, **DECLARED[name]}


@cache
def language_of(path: Path, preserve: bool) -> Language:
    return Language.load(path, preserve_thinking=preserve)


class Session:
    """An agent whose history is edited in one of the declared ways."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng
        self.history: list[Message] = []
        self.calls = 0

    def words(self, most: int) -> str:
        return (
            " ".join(self.rng.choices(["alpha", "beta", "x = 1", "\n", "é", "file.py:3", "[b]"], k=1 + most)).strip()
            or "w"
        )

    def say(self) -> None:
        texts = [Text(self.words(9))]
        if self.name == "reminder":
            texts.append(Text("<system-reminder>" + self.words(4)))
        self.history.append(Message("user", tuple(texts)))

    def reply(self, last: bool) -> tuple[Block, ...]:
        blocks: list[Block] = [Thinking(self.words(12))]
        if last or self.rng.random() < 0.5:
            blocks.append(Text(self.words(6)))
        for _ in range(0 if last else self.rng.choice([1, 1, 2])):
            self.calls += 1
            blocks.append(ToolCall(f"call{self.calls}", "bash", json.dumps({"command": self.words(3)})))
        return tuple(blocks)

    def results(self, reply: tuple[Block, ...]) -> None:
        blocks = [ToolResult(b.id, (Text(self.words(20)),)) for b in reply if isinstance(b, ToolCall)]
        self.history.append(Message("tool", tuple(blocks)))

    def sent(self) -> Conversation:
        messages = [self._view(i, m) for i, m in enumerate(self.history)]
        if self.name == "carrier":
            messages.append(Message("user", (Text("carried " + self.words(5)),)))
        return Conversation((Message("system", (Text("You work."),)), *messages), (BASH,))

    def _view(self, index: int, message: Message) -> Message:
        newest = max(i for i, m in enumerate(self.history) if m.role == "user")
        drops = self.name == "drop_all" or (self.name == "drop_before_query" and index < newest)
        if message.role == "assistant" and drops:
            return replace(message, blocks=tuple(b for b in message.blocks if not isinstance(b, Thinking)))
        if self.name == "reminder" and message.role == "user" and index != newest:
            return replace(message, blocks=message.blocks[:1])
        if self.name.startswith("clear") and message.role == "tool":
            cleared = self._cleared()
            blocks = tuple(
                replace(b, content=(Text(CLEARED),)) if isinstance(b, ToolResult) and b.call_id in cleared else b
                for b in message.blocks
            )
            return replace(message, blocks=blocks)
        return message

    def _cleared(self) -> set[str]:
        ids = [b.call_id for m in self.history for b in m.blocks if isinstance(b, ToolResult)]
        keep, batch = (3, 1) if self.name == "clear" else (2, 3)
        return set(ids[: max(0, len(ids) - keep) // batch * batch])


@pytest.mark.parametrize("preserve", [True, False], ids=["preserving", "stripping"])
@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("model", ["tiny-hybrid", "smollm2-moe"])
def test_every_fork_is_a_declared_edge_and_was_predicted(
    models_dir: Path, model: str, name: str, preserve: bool
) -> None:
    language = language_of(models_dir / model, preserve)
    policy = EditPolicy.compose(declaration(name), language.template)
    # Without thinking in its template, `<think>` and `<tool_call>` are text and start with the same token.
    slack = {0, 1} if model == "smollm2-moe" else {0}
    for seed in range(3):
        rng = random.Random(f"{name} {seed}")
        session = Session(name, rng)
        forks = 0
        turn, reply, generated, certain = None, (), [], []
        for _ in range(3):
            session.say()
            steps = rng.randint(2, 3)
            for step in range(steps):
                conversation = policy.canonical(session.sent(), {})
                prompt = language.render(conversation)
                if turn is not None:
                    before = turn.prompt.tokens + generated
                    fork = shared(before, prompt.tokens)
                    edges = {point.position for point in policy.anchors(turn)}
                    assert fork >= len(turn.prompt.tokens) or {fork - s for s in slack} & edges, (
                        seed,
                        fork,
                        sorted(edges),
                    )
                    forks += fork < len(turn.prompt.tokens)
                    assert prompt.tokens[: len(certain)] == certain, (seed, "the prediction missed")
                turn = Turn(conversation, prompt, 10_000, 1_000)
                reply = session.reply(step == steps - 1)
                generated = language.script_tokens(reply, conversation)
                language.remember(reply, generated, prompt.tokens)
                certain = language.certain(policy.predict(turn, reply, len(generated))[0])
                session.history.append(Message("assistant", reply))
                if step < steps - 1:
                    session.results(reply)
        if name in ("carrier", "clear", "reminder"):
            assert forks, "the session never forked: this test would prove nothing"
