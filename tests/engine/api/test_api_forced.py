"""A tool choice that the served model has to obey, with schemas as tools really have them: open ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.engine.api.conftest import READ, Agent
from tests.serving import Engine, engine_server

WRITE: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "string"}}},
    "required": ["path"],
}
TOOLS = {"Read": READ, "Write": WRITE, "Now": {"type": "object", "properties": {}}}
ASK = "Just chat with me, please. Do not use any tool."
LIMIT = 72


@pytest.fixture(scope="module")
def toy(models_dir: Path) -> Iterator[Engine]:
    with engine_server("smollm2-moe", models_dir, flags=["--kv", "16k"]) as engine:
        yield engine


def body(dialect: str, named: bool, seed: int) -> tuple[str, dict[str, Any]]:
    common = {"model": "m", "temperature": 1, "seed": seed}
    chat = {"messages": [{"role": "user", "content": ASK}]}
    if dialect == "messages":
        tools: list[Any] = [{"name": n, "input_schema": s} for n, s in TOOLS.items()]
        choice: Any = {"type": "tool", "name": "Now"} if named else {"type": "any"}
        return "/v1/messages", {**common, **chat, "tools": tools, "tool_choice": choice, "max_tokens": LIMIT}
    if dialect == "chat":
        tools = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in TOOLS.items()]
        choice = {"type": "function", "function": {"name": "Now"}} if named else "required"
        return "/v1/chat/completions", {**common, **chat, "tools": tools, "tool_choice": choice, "max_tokens": LIMIT}
    tools = [{"type": "function", "name": n, "parameters": s} for n, s in TOOLS.items()]
    choice = {"type": "function", "name": "Now"} if named else "required"
    asked = {"input": ASK, "tools": tools, "tool_choice": choice, "max_output_tokens": LIMIT}
    return "/v1/responses", {**common, **asked}


def call_of(dialect: str, answer: dict[str, Any]) -> tuple[str, Any]:
    if dialect == "messages":
        assert answer["stop_reason"] == "tool_use", answer
        (block,) = answer["content"]
        return block["name"], block["input"]
    if dialect == "chat":
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"], answer
        function = choice["message"]["tool_calls"][0]["function"]
        return function["name"], json.loads(function["arguments"])
    assert answer["status"] == "completed", answer
    (item,) = answer["output"]
    return item["name"], json.loads(item["arguments"])


@pytest.mark.parametrize("dialect", ["messages", "chat", "responses"])
def test_twenty_of_twenty_obey_with_open_schemas(toy: Engine, dialect: str) -> None:
    def ask(seed: int) -> tuple[str, Any]:
        path, asked = body(dialect, seed % 2 == 1, seed)
        return call_of(dialect, toy.client.post(path, json=asked, timeout=300).raise_for_status().json())

    with ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(ask, range(20)))
    assert calls[1::2] == [("Now", {})] * 10
    for name, arguments in calls[::2]:
        properties = TOOLS[name]["properties"]
        assert set(TOOLS[name].get("required", ())) <= set(arguments) <= set(properties)


@pytest.mark.parametrize("dialect", ["messages", "chat", "responses"])
def test_a_call_that_no_budget_could_hold_is_cut_and_not_sent_as_text(toy: Engine, dialect: str) -> None:
    path, asked = body(dialect, True, 0)
    limit = "max_output_tokens" if dialect == "responses" else "max_tokens"
    answer = toy.client.post(path, json={**asked, limit: 4}).raise_for_status().json()
    assert "tool_call>" not in json.dumps(answer) and '"name\\"' not in json.dumps(answer)
    ends = {"messages": "stop_reason", "responses": "status"}
    end = answer["choices"][0]["finish_reason"] if dialect == "chat" else answer[ends[dialect]]
    assert end == {"messages": "max_tokens", "chat": "length", "responses": "incomplete"}[dialect]


@pytest.mark.parametrize("dialect", ["messages", "chat", "responses"])
def test_none_is_obeyed_twenty_times_by_one_that_is_told_to_call(toy: Engine, dialect: str) -> None:
    """Through the SDKs; what it says instead is text, and there is some."""
    agent = Agent(toy)
    told = [{"role": "user", "content": "Call the tool Now at once. Write nothing but the call."}]
    tools: Any = body(dialect, True, 0)[1]["tools"]

    def say(seed: int) -> tuple[bool, str]:
        if dialect == "messages":
            message = agent.anthropic.messages.create(
                model="m",
                max_tokens=24,
                messages=told,
                tools=tools,
                tool_choice={"type": "none"},
                extra_body={"temperature": 1},
            )
            return any(b.type == "tool_use" for b in message.content), "".join(b.text for b in message.content)
        if dialect == "responses":
            response = agent.openai.responses.create(
                model="m", max_output_tokens=24, input=told, tools=tools, tool_choice="none", temperature=1
            )
            return any(item.type == "function_call" for item in response.output), response.output_text
        given: Any = {"messages": told, "tools": tools, "tool_choice": "none", "seed": seed, "temperature": 1}
        said = agent.openai.chat.completions.create(model="m", max_tokens=24, **given).choices[0].message
        return bool(said.tool_calls), said.content or ""

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(say, range(20)))
    assert [called for called, _ in answers] == [False] * 20 and all(text for _, text in answers), answers
