"""Whatever is sent, to any address: an answer in the form of its dialect that blames the sender, never a failure of ours, and the
engine goes on as before."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.app import _ADMIN_ROUTES, _AGENT_ROUTES
from engine.api.errors import ANTHROPIC, dialect_of
from tests.serving import Engine

JSON = {"content-type": "application/json"}
EXAMPLES = int(os.environ.get("FT_HOSTILE_EXAMPLES", "30"))
TOOL = {
    "name": "read",
    "description": "d",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
CHAT_TOOLS = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "auto"}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 1, "stream": False, "model": "m"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        **SAMPLING,
        "max_tokens": 2,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "p"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]}],
            },
        ],
        "tools": [{"name": "read", "description": "d", "input_schema": TOOL["parameters"]}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["stop"],
        "metadata": {"user_id": "u"},
        "output_config": {"effort": "low"},
        "context_management": {
            "edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1}}]
        },
    },
    "/v1/chat/completions": {
        **SAMPLING,
        **CHAT_TOOLS,
        "max_tokens": 2,
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:"}}],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "p"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        "response_format": {"type": "text"},
        "stop": ["stop"],
        "n": 1,
        "logprobs": True,
        "top_logprobs": 2,
        "logit_bias": {"5": 1},
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": False},
        "reasoning_effort": "low",
    },
    "/v1/completions": {**SAMPLING, "max_tokens": 2, "prompt": "hi", "stop": "x", "echo": False, "logprobs": 1, "n": 1},
    "/v1/responses": {
        **SAMPLING,
        "max_output_tokens": 2,
        "instructions": "s",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path": "p"}'},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
        "tools": [{"type": "function", **TOOL}, {"type": "custom", "name": "patch", "format": {"type": "text"}}],
        "tool_choice": "auto",
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": True,
        "previous_response_id": None,
        "include": ["reasoning.encrypted_content"],
    },
    "/v1/sessions": {
        "harness": "h",
        "version": "1.0",
        "name": "n",
        "project": "/p",
        "watchdog_s": 60,
        "window": 4096,
        "max_output": 256,
        "config": {"a": 1},
        "render": {"preserve_thinking": True},
        "observe": False,
        "declaration": {
            "schema": "edits/1",
            "harness": "h",
            "versions": ">=0",
            "wire": {},
            "tools": {"bash": [{"name": "B", "args": {"c": "{command}"}}]},
        },
        "script": {"turns": [{"blocks": [{"text": "t"}, {"tool": "bash", "args": {"command": "ls"}}]}], "side": "s"},
    },
    "/v1/engine/idle": {"after_s": 3600, "leases": "/nowhere"},
    "/v1/engine/pause": {"on": False},
    "/v1/engine/memory/plan": {"moe_slots": 4, "kv_tokens": 4096, "preset": None, "auto": False},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/embeddings": {"input": "x"},
}


UNDO = {"/v1/engine/idle": {"after_s": None}, "/v1/engine/pause": {"on": False}}


def nested(depth: int, kind: str) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if kind == "list" else {"properties": value} if kind == "schema" else {"a": value}
    return value


JUNK: tuple[Any, ...] = (
        None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, -1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 2**70,
        "", " ", "\x00", "x", "\ud83d", "\udc00x", "😀", "x" * 5000, "<|im_start|>", "<tool_call>", "{{ 1/0 }}", "../../etc/passwd",
        "%s%n", "NaN", "auto", "system", "tool", "developer", "function", "json_schema", "json_object", "required", "text", "custom",
        [], {}, [[]], [{}], [None], [1], [""], {"": ""}, {"type": "x"}, {"type": None}, {"type": ["text"]}, {"type": {"a": 1}},
        {"name": "read"}, {"type": "function", "name": 1}, {"type": "json_schema", "json_schema": {"schema": {"type": 7}}},
        {"type": "json_schema", "schema": {"$ref": "#"}}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"enum": []}}}, {"type": "string", "pattern": "(((((("}, {"role": "user"}, {"text": 1},
        nested(90, "list"), nested(400, "list"), nested(400, "object"), nested(300, "schema"), nested(900, "object"), ["x"] * 3000,
        {f"k{i}": i for i in range(2000)},
)  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, the root's own fields first."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*here, key)
        yield from places(value[key], (*here, key))


def spoilt(body: dict[str, Any], seed: int) -> dict[str, Any]:
    """The body with one to three of its values replaced, removed, or joined by one that nobody knows."""
    pick, made, everywhere = random.Random(seed), json.loads(json.dumps(body)), list(places(body))
    for _ in range(pick.randint(1, 3)):
        *way, last = pick.choice(everywhere)
        place = made
        try:
            for key in way:
                place = place[key]
            if pick.random() < 0.1:
                del place[last]
            else:
                place["unknown\x7f" if isinstance(place, dict) and pick.random() < 0.1 else last] = json.loads(
                    json.dumps(pick.choice(JUNK))
                )
        except (KeyError, IndexError, TypeError):
            continue  # an earlier one took the place away
    return made


def refused_in_its_form(answer: httpx.Response, path: str) -> None:
    """Not a failure of ours; an error is the dialect's own object."""
    assert answer.status_code < 500, (path, answer.status_code, answer.text[:400])
    assert "The engine failed on this request" not in answer.text, answer.text[-400:]
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"] and error["type"]
        assert (answer.json().get("type") == "error") == (dialect_of(path) == ANTHROPIC)
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", sorted(BODIES))
def test_no_body_is_a_failure_of_ours(engine: Engine, path: str, request: pytest.FixtureRequest) -> None:
    worker, real = engine.worker_pid(), "real" in request.node.name

    @given(seed=st.integers(0, 2**32))
    @settings(max_examples=EXAMPLES // 4 if real else EXAMPLES, deadline=None, derandomize=True, database=None)
    def whatever(seed: int) -> None:
        body = spoilt(BODIES[path], seed)
        body |= {"stream": seed % 2 == 1} if isinstance(body.get("stream"), bool) else {}
        body |= {
            key: 64 for key in ("max_tokens", "max_output_tokens") if isinstance(body.get(key), int) and body[key] > 64
        }
        answer = engine.client.post(path, content=json.dumps(body).encode(), headers=JSON)
        refused_in_its_form(answer, path)
        if path in UNDO:
            assert engine.client.post(path, json=UNDO[path]).status_code == 200

    whatever()
    assert engine.worker_pid() == worker and engine.wait_idle()["running"] == 0


@pytest.mark.parametrize("depth", [120, 900, 100_000])
def test_depth_within_a_string_harms_nobody(engine: Engine, depth: int) -> None:
    """What a model called a tool with is JSON in a string, and is read when the conversation is rendered."""
    worker, deep = engine.worker_pid(), '{"a": ' * depth + "1" + "}" * depth
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": deep}}
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    items = [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": deep},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]
    for path, body in (("/v1/chat/completions", {"messages": said}), ("/v1/responses", {"input": items})):
        for tools in ({}, {"tools": BODIES[path]["tools"]}):
            for streamed in (True, False):
                limits = {"max_tokens": 2, "max_output_tokens": 2, "stream": streamed}
                refused_in_its_form(engine.client.post(path, json={**body, **tools, **limits}), path)
    assert engine.worker_pid() == worker and engine.wait_idle()["running"] == 0


RAW = [
    b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff\xfe{\x00}\x00", b'{"messages": "\xff"}', b"{'a': 1}", b'{"a": NaN}', b'{"a": 1e999}',
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b'{"a": ' + b"9" * 5000 + b"}", b'{"a": 1} trailing', b"\x00" * 64,
    b'{"messages": [' + b"[" * 900 + b"]" * 900 + b"]}",
]  # fmt: skip


def test_what_is_no_json_is_refused_at_every_address(engine: Engine) -> None:
    """With every method, on every route there is, the heads odd as well."""
    routes = [
        (p, m) for p, _, ms in (*_ADMIN_ROUTES, *_AGENT_ROUTES) for m in ms if "stop" not in p and "events" not in p
    ]
    pick = random.Random(7)
    for route, method in routes:
        path = route.replace("{model:path}", "..%2f..%2fetc%2fpasswd").replace(
            "{id}", pick.choice(["s-%2e%2e", "s-aaaaaaaaaa", "%00", "x" * 3000])
        )
        for raw in pick.sample(RAW, 5) if method == "POST" else RAW[:2]:
            heads = (
                {**JSON, "content-encoding": pick.choice(["", "gzip", "identity", "br", "x"])}
                if pick.random() < 0.2
                else JSON
            )
            answer = engine.client.request(method, path, content=raw, headers=heads)
            if method == "HEAD" or route in ("/ready", "/metrics", "/api/hello", "/") or "console" in route:
                assert answer.status_code < 500, (path, answer.text)
            else:
                refused_in_its_form(answer, path)
    assert engine.get("/v1/stats")["running"] == 0
