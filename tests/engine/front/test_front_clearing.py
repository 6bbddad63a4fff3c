"""The server-side context edits, rendered with a real tokenizer and template."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadRequest
from engine.front.clearing import CLEARED_INPUT, PLACEHOLDER, THINKING, TOOL_USES, Clearing, Edits
from engine.prompt.conversation import Conversation, Message, Prompt, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.language import Language

WINDOW = 4096  # a batch is at least 256 tokens
OUTPUT = "one line of output of a tool that says much\n" * 12


@pytest.fixture(scope="module")
def language(models_dir: Path) -> Language:
    return Language.load(models_dir / "tiny-hybrid")


def agent(steps: int, thought: str = "hm") -> Conversation:
    """A task and `steps` rounds of thinking, one call of Read or Search, and its result."""
    messages = [Message("user", (Text("go"),))]
    for i in range(steps):
        name = "Search" if i % 4 == 3 else "Read"
        call = ToolCall(f"id{i}", name, f'{{"file_path": "f{i}"}}')
        messages.append(Message("assistant", (Thinking(f"{thought} {i}"), call)))
        messages.append(Message("tool", (ToolResult(f"id{i}", (Text(f"{i} {OUTPUT}"),)),)))
    return Conversation(tuple(messages), tools=(Tool("Read", "", {}), Tool("Search", "", {})))


def edits(*listed: dict[str, Any]) -> Edits:
    return Edits.parse({"context_management": {"edits": list(listed)}})


def uses(**fields: Any) -> dict[str, Any]:
    return {"type": TOOL_USES, **fields}


def tokens(value: int) -> dict[str, Any]:
    return {"type": "input_tokens", "value": value}


def step(
    language: Language, asked: Edits, conversation: Conversation, cleared: dict[str, int]
) -> tuple[Conversation, Prompt, bool]:
    """One request of a new line as the front makes it: apply, render, clear what is due, apply again."""
    clearing = Clearing(asked, cleared)
    prompt = language.render(clearing.apply(conversation))
    due = clearing.due(conversation, prompt, WINDOW)
    cleared.update(due)
    edited = clearing.apply(conversation)
    return edited, language.render(edited), bool(due)


def results(conversation: Conversation) -> list[str]:
    texts = []
    for message in conversation.messages:
        for block in message.blocks:
            if isinstance(block, ToolResult):
                (part,) = block.content
                assert isinstance(part, Text)
                texts.append("gone" if part.text == PLACEHOLDER else part.text.split()[0])
    return texts


def test_nothing_happens_below_the_trigger(language: Language) -> None:
    conversation, cleared = agent(6), {}
    edited, _, more = step(language, edits(uses(trigger=tokens(100_000))), conversation, cleared)
    assert edited is conversation and not more and not cleared


def test_all_but_the_newest_results_go_and_stay_gone(language: Language) -> None:
    asked, cleared = edits(uses(trigger=tokens(800), keep={"type": "tool_uses", "value": 2})), {}
    edited, prompt, more = step(language, asked, agent(6), cleared)
    assert more and results(edited) == ["gone"] * 4 + ["4", "5"]
    later, longer, more = step(language, asked, agent(7), cleared)
    assert not more and results(later) == ["gone"] * 4 + ["4", "5", "6"]  # one more result is no batch of 256 tokens
    assert longer.tokens[: prompt.end] == prompt.tokens[: prompt.end]


def test_clears_come_in_batches_of_at_least_what_the_client_says(language: Language) -> None:
    wanted = uses(trigger=tokens(400), keep={"type": "tool_uses", "value": 1}, clear_at_least=tokens(600))
    cleared: dict[str, int] = {}
    events = [n for n in range(1, 16) if step(language, edits(wanted), agent(n), cleared)[2]]
    per_result = next(iter(cleared.values()))
    assert events and all(b - a >= 600 // per_result for a, b in itertools.pairwise(events))
    applied = Clearing(edits(wanted), cleared).applied(agent(15))
    assert applied.tool_uses == len(cleared) and applied.tool_tokens == sum(cleared.values()) >= 600


def test_a_nearly_full_window_is_not_made_to_wait_for_a_batch(language: Language) -> None:
    conversation, cleared = agent(3), {}
    asked = edits(uses(trigger=tokens(100), keep={"type": "tool_uses", "value": 2}))
    prompt = language.render(conversation)
    clearing = Clearing(asked, cleared)
    assert not clearing.due(conversation, prompt, 65536)
    assert clearing.due(conversation, prompt, len(prompt.tokens) + 8)


def test_excluded_tools_and_inputs(language: Language) -> None:
    wanted = uses(trigger={"type": "tool_uses", "value": 3}, keep={"type": "tool_uses", "value": 0})
    asked = edits({**wanted, "exclude_tools": ["Search"], "clear_tool_inputs": True})
    edited, _, more = step(language, asked, agent(8), {})
    assert more and results(edited) == ["gone", "gone", "gone", "3", "gone", "gone", "gone", "7"]
    calls = [b for m in edited.messages for b in m.blocks if isinstance(b, ToolCall)]
    assert [c.arguments == CLEARED_INPUT for c in calls] == [True, True, True, False] * 2
    answered = {b.call_id for m in edited.messages for b in m.blocks if isinstance(b, ToolResult)}
    assert {c.id for c in calls} == answered


def test_a_cleared_input_is_not_rendered_as_it_was_generated(language: Language) -> None:
    conversation = agent(4)
    blocks = conversation.messages[1].blocks
    language.remember(blocks, language.script_tokens(blocks, conversation), [])
    wanted = uses(trigger=tokens(10), keep={"type": "tool_uses", "value": 0}, clear_tool_inputs=["Read"])
    _, prompt, _ = step(language, edits(wanted), conversation, {})
    assert "f0" not in language.decode(prompt.tokens)


def test_old_thinking_goes_in_batches(language: Language) -> None:
    conversation, cleared = agent(6, "word " * 80), {}
    asked = edits({"type": THINKING, "keep": {"type": "thinking_turns", "value": 2}})
    edited, _, more = step(language, asked, conversation, cleared)
    thoughts = [b for m in edited.messages for b in m.blocks if isinstance(b, Thinking)]
    assert more and len(thoughts) == 2 and len(cleared) == 4
    applied = Clearing(asked, cleared).applied(conversation)
    assert applied.thinking_turns == 4 and applied.thinking_tokens > 4 * 80
    assert applied.json() == [
        {"type": THINKING, "cleared_thinking_turns": 4, "cleared_input_tokens": applied.thinking_tokens}
    ]
    assert not edits({"type": THINKING, "keep": "all"})
    assert not step(language, asked, agent(4, "a"), {})[2]  # too little to pay for a new prefix


@pytest.mark.parametrize(
    ("management", "named"),
    [
        (5, "context_management"),
        ({"edits": {}}, "context_management.edits"),
        ({"edits": [{}]}, "context_management.edits[0].type"),
        ({"edits": [uses(trigger={"type": "moons", "value": 1})]}, "edits[0].trigger.type"),
        ({"edits": [uses(keep={"type": "tool_uses", "value": -1})]}, "edits[0].keep.value"),
        ({"edits": [uses(clear_at_least={"type": "input_tokens", "value": True})]}, "edits[0].clear_at_least.value"),
        ({"edits": [uses(exclude_tools="Read")]}, "edits[0].exclude_tools"),
        ({"edits": [{"type": THINKING, "keep": "some"}]}, "edits[0].keep.type"),
    ],
)
def test_what_does_not_parse_is_named(management: Any, named: str) -> None:
    with pytest.raises(BadRequest, match=r"context_management") as caught:
        Edits.parse({"context_management": management})
    assert named in caught.value.message


def test_unknown_kinds_and_absence_are_no_edits() -> None:
    assert not Edits.parse({}) and not Edits.parse({}).asked
    unknown = edits({"type": "clear_dreams_20300101"})
    assert not unknown and unknown.asked
