"""/v1/messages with the official SDK and with raw bytes."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.engine.api.conftest import NO_ARGUMENTS, READ, THINK_READ, Agent, play
from tests.serving import Engine

TOOLS: list[Any] = [
    {"name": "Read", "description": "Read a file", "input_schema": READ},
    {"name": "Now", "input_schema": {"type": "object", "properties": {}}},
]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
HI: Any = [{"role": "user", "content": "hi"}]


def raw_events(agent: Agent, body: dict[str, Any], headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    url = agent.session["base_urls"]["anthropic"] + "/v1/messages?beta=true"
    auth = {"authorization": f"Bearer {agent.session['token']}", **(headers or {})}
    with agent.engine.client.stream("POST", url, json={**body, "stream": True}, headers=auth) as answer:
        assert answer.status_code == 200, answer.read()
        lines = list(answer.iter_lines())
    names = [line[7:] for line in lines if line.startswith("event: ")]
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert names == [event["type"] for event in events]
    return events


def check_order(events: list[dict[str, Any]]) -> None:
    """One block open at a time, indices without gaps, deltas of the open block's kind."""
    assert events[0]["type"] == "message_start"
    assert [e["type"] for e in events[-2:]] == ["message_delta", "message_stop"]
    index, kind = -1, None
    kinds = {
        "text": ["text_delta"],
        "tool_use": ["input_json_delta"],
        "thinking": ["thinking_delta", "signature_delta"],
    }
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert kind is None
            index += 1
            kind = event["content_block"]["type"]
        elif event["type"] == "content_block_stop":
            assert kind is not None
            kind = None
        elif event["type"] == "content_block_delta":
            assert event["delta"]["type"] in kinds[str(kind)]
        else:
            assert event["type"] == "ping"
            continue
        assert event["index"] == index
    assert kind is None


def test_stream_of_thinking_text_and_call(engine: Engine) -> None:
    agent = Agent(engine, THINK_READ)
    body = {"model": "claude-x", "max_tokens": 32000, "messages": HI, "tools": TOOLS, "thinking": THINKING}
    events = raw_events(agent, body)
    check_order(events)
    starts = [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use"]
    pieces = [e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"]
    assert json.loads("".join(pieces)) == {"file_path": "dir/ä b.txt"}
    usage = events[-2]["usage"]
    assert usage["output_tokens"] > 0
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == agent.turns()[-1]["prompt_tokens"]


def test_sdk_stream_equals_whole_answer(engine: Engine) -> None:
    agent = Agent(engine, THINK_READ)
    ask: dict[str, Any] = {"model": "m", "max_tokens": 500, "messages": HI, "tools": TOOLS, "thinking": THINKING}
    with agent.anthropic.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    whole = agent.anthropic.messages.create(**ask)
    for message in (streamed, whole):
        assert message.stop_reason == "tool_use" and message.model == "m"
        thinking, text, call = message.content
        assert thinking.type == "thinking" and thinking.thinking == "I should look." and thinking.signature
        assert text.type == "text" and text.text.strip() == "Reading it."
        assert call.type == "tool_use" and call.name == "Read" and call.input == {"file_path": "dir/ä b.txt"}
        assert call.id.isalnum()


def test_call_without_arguments_is_an_empty_object(engine: Engine) -> None:
    agent = Agent(engine, NO_ARGUMENTS)
    ask: dict[str, Any] = {"model": "m", "max_tokens": 500, "messages": HI, "tools": TOOLS}
    events = raw_events(agent, ask)
    check_order(events)
    pieces = [e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"]
    assert "".join(pieces) == "{}"
    assert agent.anthropic.messages.create(**ask).content[-1].input == {}


def test_thinking_not_asked_for_is_not_sent(engine: Engine) -> None:
    agent = Agent(engine, THINK_READ)
    events = raw_events(agent, {"max_tokens": 500, "messages": HI, "tools": TOOLS})
    assert [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"] == ["text", "tool_use"]


def test_messages_in_any_order_and_shape(engine: Engine) -> None:
    agent = Agent(engine, play({"text": "Fine."}))
    messages: Any = [
        {"role": "user", "content": "one"},
        {"role": "system", "content": "A reminder in the middle."},
        {"role": "user", "content": [{"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "three"},
        {"role": "system", "content": [{"type": "text", "text": "Another one."}]},
    ]
    system: Any = [{"type": "text", "text": "x-anthropic-billing-header: a=1"}, {"type": "text", "text": "Be brief."}]
    answer = agent.anthropic.messages.create(model="m", max_tokens=50, messages=messages, system=system, tools=TOOLS)
    assert answer.content[0].text == "Fine."


def test_unknown_fields_betas_and_tool_kinds(engine: Engine) -> None:
    agent = Agent(engine, play({"tool": "read", "args": {"path": "x"}}))
    tools = [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "mcp_toolset", "mcp_server_name": "s"},
        {**TOOLS[0], "frobnicate": 1, "defer_loading": False},
    ]
    content = [{"type": "text", "text": "hi", "wobble": {"a": [1]}}]
    body = {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content, "sparkle": True}],
        "tools": tools,
        "context_management": {"edits": []},
        "safeguards": 7,
        "metadata": {"user_id": "u", "zzz": 1},
        "invented": {"deep": {"deeper": None}},
    }
    events = raw_events(agent, body, {"anthropic-beta": "invented-2031-01-01"})
    starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [(b["type"], b["name"]) for b in starts] == [("tool_use", "Read")]


def test_foreign_thinking_images_and_malformed_history(engine: Engine) -> None:
    agent = Agent(engine, play({"text": "ok"}))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    messages: Any = [
        {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Foreign.", "signature": "EqQBCkYIBRgCKkD"},
                {"type": "redacted_thinking", "data": "AAAA"},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": "{broken"},
                {"type": "tool_use", "id": "toolu_2", "name": "Gone", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image], "is_error": True},
                {"type": "tool_result", "tool_use_id": "toolu_2"},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    script = {"turns": [{"blocks": [{"text": "-"}]}, {"blocks": [{"text": "Served."}]}]}
    agent = Agent(engine, script)
    for extra in ([], [{"role": "assistant", "content": "Served."}, {"role": "user", "content": "and now?"}]):
        if extra:
            agent = Agent(engine, {"turns": [*script["turns"], {"blocks": [{"text": "Served."}]}]})
        answer = agent.anthropic.messages.create(
            model="m", max_tokens=50, messages=[*messages, *extra], tools=TOOLS, thinking=THINKING
        )
        assert answer.content[-1].text == "Served."


def test_length_and_stop_sequence(engine: Engine) -> None:
    agent = Agent(engine)
    answer = agent.anthropic.messages.create(model="m", max_tokens=3, messages=HI)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 3
    scripted = Agent(engine, play({"text": "alpha beta gamma delta"}))
    ask: dict[str, Any] = {
        "model": "m",
        "max_tokens": 90,
        "messages": HI,
        "tools": TOOLS,
        "stop_sequences": ["a gam", "zz"],
    }
    whole = scripted.anthropic.messages.create(**ask)
    with scripted.anthropic.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "a gam")
        assert message.content[0].text == "alpha bet"


def test_count_tokens_equals_the_prompt(engine: Engine) -> None:
    agent = Agent(engine)
    counted = agent.anthropic.messages.count_tokens(model="m", messages=HI, tools=TOOLS, system="Be brief.")
    answer = agent.anthropic.messages.create(model="m", max_tokens=1, messages=HI, tools=TOOLS, system="Be brief.")
    assert counted.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_overflow_names_both_numbers(engine: Engine) -> None:
    agent = Agent(engine)
    window = agent.session["window"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        agent.anthropic.messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "word " * (window + 100)}]
        )
    error: Any = caught.value.body
    assert error["error"]["type"] == "invalid_request_error"
    text = error["error"]["message"]
    assert text.startswith("prompt is too long: ") and text.endswith(f" tokens > {window} maximum")
    assert int(text.split()[4]) > window


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text"),
        ({"temperature": "hot"}, "temperature"),
        ({"tools": {"name": "x"}}, "tools"),
        ({"tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_wrong_types_name_the_field(engine: Engine, body: dict[str, Any], field: str) -> None:
    agent = Agent(engine)
    url = agent.session["base_urls"]["anthropic"] + "/v1/messages"
    headers = {"x-api-key": agent.session["token"], "authorization": ""}
    answer = engine.client.post(url, json={"max_tokens": 5, "messages": HI, **body}, headers=headers)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"].startswith(f"{field}:")


def test_not_json_and_unknown_route(engine: Engine) -> None:
    answer = engine.client.post("/v1/messages", content=b"{nope")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    answer = engine.client.post("/v1/messages/batches", json={})
    assert (answer.status_code, answer.json()["type"]) == (404, "error")


def test_hello(engine: Engine) -> None:
    base = Agent(engine).session["base_urls"]["anthropic"]
    for path in ("/api/hello", "/", f"{base}/api/hello", f"{base}/"):
        assert engine.client.head(path).status_code == 200
    assert engine.client.get("/api/hello").status_code == 200
