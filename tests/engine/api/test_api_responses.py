"""/v1/responses with the official SDK and with raw bytes."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.engine.api.conftest import DECLARED, NO_ARGUMENTS, READ, THINK_READ, Agent, play
from tests.serving import Engine

TOOLS: list[Any] = [
    {"type": "function", "name": "Read", "description": "Read a file", "parameters": READ, "strict": False},
    {"type": "function", "name": "Now", "parameters": {"type": "object", "properties": {}}},
]


def raw_events(agent: Agent, **body: Any) -> list[dict[str, Any]]:
    url = agent.session["base_urls"]["openai"] + "/responses"
    headers = {"authorization": f"Bearer {agent.session['token']}"}
    body = {"model": "m", "input": "hi", "stream": True, **body}
    with agent.engine.client.stream("POST", url, json=body, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        lines = list(answer.iter_lines())
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [e["type"] for e in events]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    return events


def test_full_event_sequence(engine: Engine) -> None:
    agent = Agent(engine, THINK_READ)
    events = raw_events(agent, tools=TOOLS)
    kinds = [e["type"] for e in events]
    folded = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    assert folded == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    final = events[-1]["response"]
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert final["output"] == done and [i["type"] for i in done] == ["reasoning", "message", "function_call"]
    assert [e["output_index"] for e in events if e["type"] == "response.output_item.added"] == [0, 1, 2]
    pieces = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(pieces) == done[2]["arguments"] and json.loads(done[2]["arguments"]) == {"file_path": "dir/ä b.txt"}
    texts = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert texts == done[1]["content"][0]["text"] and texts.strip() == "Reading it."
    record = agent.turns()[-1]
    assert final["usage"]["input_tokens"] == record["prompt_tokens"]
    assert final["usage"]["input_tokens_details"]["cached_tokens"] == record["cached_tokens"]
    assert final["usage"]["output_tokens"] == record["output_tokens"]
    assert 0 < final["usage"]["output_tokens_details"]["reasoning_tokens"] < record["output_tokens"]


def test_sdk_stream_and_whole_answer(engine: Engine) -> None:
    agent = Agent(engine, THINK_READ)
    ask: dict[str, Any] = {"model": "m", "input": "hi", "tools": TOOLS}
    whole = agent.openai.responses.create(**ask)
    with agent.openai.responses.stream(**ask) as stream:
        streamed = stream.until_done().get_final_response()
    for response in (whole, streamed):
        assert response.status == "completed" and response.output_text.strip() == "Reading it."
        reasoning, _, call = response.output
        assert reasoning.summary[0].text == "I should look."
        assert json.loads(call.arguments) == {"file_path": "dir/ä b.txt"} and call.call_id.isalnum()


def test_call_without_arguments_is_an_empty_object(engine: Engine) -> None:
    agent = Agent(engine, NO_ARGUMENTS)
    assert agent.openai.responses.create(model="m", input="x", tools=TOOLS).output[-1].arguments == "{}"
    assert raw_events(agent, tools=TOOLS)[-1]["response"]["output"][-1]["arguments"] == "{}"


def test_namespace_tools_and_others(engine: Engine) -> None:
    declaration = {**DECLARED, "tools": {"task": [{"name": "spawn_agent", "args": {"message": "{prompt}"}}]}}
    agent = Agent(engine, play({"tool": "task", "args": {"prompt": "go", "description": "d"}}), declaration=declaration)
    spawn = {"type": "function", "name": "spawn_agent", "parameters": {"type": "object", "properties": {}}}
    tools = [
        {"type": "web_search", "external_web_access": False},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "multi_agent_v1", "description": "d", "tools": [spawn]},
        {"type": "mcp", "server_label": "x"},
        *TOOLS,
    ]
    events = raw_events(agent, tools=tools, client_metadata={"a": 1}, include=["reasoning.encrypted_content"])
    for item in (events[-1]["response"]["output"][-1], events[-2]["item"]):
        assert (item["type"], item["namespace"], item["name"]) == ("function_call", "multi_agent_v1", "spawn_agent")
        assert json.loads(item["arguments"]) == {"message": "go"}


def test_round_trip_of_items(engine: Engine) -> None:
    agent = Agent(engine, {"turns": [*THINK_READ["turns"], {"blocks": [{"text": "Done."}]}], "side": "-"})
    first = agent.openai.responses.create(model="m", input="hi", tools=TOOLS, store=False)
    items: Any = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "developer", "content": "And kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "x"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA-foreign"},
        *[item.model_dump() for item in first.output],
        {"type": "function_call", "call_id": "c9", "name": "Read", "arguments": "{malformed"},
        {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "text"},
        {
            "type": "function_call_output",
            "call_id": "c9",
            "output": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": "y"}],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    answer = agent.openai.responses.create(model="m", input=items, tools=TOOLS, instructions="Work.")
    assert answer.output_text == "Done."


def test_previous_response(engine: Engine) -> None:
    agent = Agent(engine, {"turns": [{"blocks": [{"text": f"Turn {i}."}]} for i in range(3)], "side": "-"})
    previous, prompts = None, []
    for i in range(3):
        answer = agent.openai.responses.create(model="m", input="next", tools=TOOLS, previous_response_id=previous)
        assert answer.output_text == f"Turn {i}."
        previous = answer.id
        prompts.append(answer.usage.input_tokens)
    assert prompts[0] < prompts[1] < prompts[2]
    for unknown in ("resp_gone", Agent(engine).openai.responses.create(model="m", input="x", max_output_tokens=1).id):
        with pytest.raises(openai.BadRequestError, match="not found") as caught:
            agent.openai.responses.create(model="m", input="x", previous_response_id=unknown)
        assert caught.value.code == "previous_response_not_found"


def test_length_is_incomplete(engine: Engine) -> None:
    agent = Agent(engine)
    answer = agent.openai.responses.create(model="m", input="hi", max_output_tokens=2)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert raw_events(agent, max_output_tokens=2)[-1]["type"] == "response.incomplete"


def test_errors(engine: Engine) -> None:
    agent = Agent(engine)
    with pytest.raises(openai.BadRequestError) as caught:
        agent.openai.responses.create(model="m", input="word " * (agent.session["window"] + 100))
    assert caught.value.code == "context_length_exceeded"
    for body, field in (
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call", "name": "x"}]}, "input[0].call_id"),
        ({"input": "x", "max_output_tokens": True}, "max_output_tokens"),
        ({"input": "x", "tools": [{"type": "namespace"}]}, "tools[0].name"),
    ):
        answer = engine.client.post("/v1/responses", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"].startswith(f"{field}:"), answer.text
