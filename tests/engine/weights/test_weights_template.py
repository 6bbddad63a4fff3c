"""The tiny hybrid's chat template, rendered by jinja as the prompt room does, against what it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from engine.weights.seeded import TINY_HYBRID_TOKENS

TOOL = {"type": "function", "function": {"name": "bash", "description": "d", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
TURN = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "a.txt"},
    {"role": "tool", "content": "b.txt"},
]


@pytest.fixture(scope="module")
def render(models_dir: Path) -> Any:
    text = (models_dir / "tiny-hybrid" / "chat_template.jinja").read_text()
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = json.dumps  # as transformers has it; jinja's own escapes HTML
    template = environment.from_string(text)
    return lambda messages, **values: template.render(messages=messages, **{"add_generation_prompt": True, **values})


def test_plain_conversation(render: Any) -> None:
    assert render([{"role": "system", "content": "S"}, {"role": "user", "content": "hi"}]) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )
    assert (
        render([{"role": "user", "content": "hi"}], add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"
    )
    off = render([{"role": "user", "content": "hi"}], enable_thinking=False)
    assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_tools_come_before_the_system_text(render: Any) -> None:
    text = render([{"role": "system", "content": "SYSTEM"}, {"role": "user", "content": "hi"}], tools=[TOOL])
    assert 0 < text.index('"bash"') < text.index("SYSTEM") < text.index("<|im_end|>")
    assert "<tools>" in render([{"role": "user", "content": "hi"}], tools=[TOOL])


def test_a_tool_turn(render: Any) -> None:
    text = render(TURN, tools=[TOOL])
    assert (
        '<|im_start|>assistant\n<think>\nhm\n</think>\n\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n'
        "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\na.txt\n</tool_response>\n<tool_response>\nb.txt\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n"
    ) in text
    verbatim = [{**TURN[1], "tool_calls": [{"function": {"name": "bash", "arguments": '{"command":  "ls"}'}}]}]
    assert '"arguments": {"command":  "ls"}}' in render([TURN[0], *verbatim])


def test_past_thinking_is_stripped_unless_preserved(render: Any) -> None:
    messages = [
        *TURN,
        {"role": "assistant", "content": "done", "reasoning_content": "ok"},
        {"role": "user", "content": "two"},
    ]
    assert "hm" in render(TURN)
    stripped = render(messages)
    assert "hm" not in stripped
    assert stripped.count("<think>") == 1  # the generation prefix
    kept = render(messages, preserve_thinking=True)
    assert "<think>\nhm\n</think>" in kept
    assert "<think>\nok\n</think>\n\ndone" in kept
    # with the switch, a conversation only ever grows
    assert kept.startswith(render(messages[:2], preserve_thinking=True, add_generation_prompt=False))


def test_control_syntax_is_single_tokens(models_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(models_dir / "tiny-hybrid" / "tokenizer.json"))
    for token in (*TINY_HYBRID_TOKENS, "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer.encode(token, add_special_tokens=False).ids) == 1
    assert tokenizer.get_vocab_size() == 49158
