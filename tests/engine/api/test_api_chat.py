"""/v1/chat/completions and /v1/completions with the official SDK."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.engine.api.conftest import NO_ARGUMENTS, READ, THINK_READ, Agent, play
from tests.serving import Engine

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "Read", "description": "Read a file", "parameters": READ}},
    {"type": "function", "function": {"name": "Now"}},
]
HI: Any = [{"role": "user", "content": "hi"}]
# The fake worker has neither cache nor grammar.
only_real = pytest.mark.parametrize("engine", ["real"], indirect=True)


def test_stream_equals_whole_answer(engine: Engine) -> None:
    agent = Agent(engine, THINK_READ)
    ask: dict[str, Any] = {"model": "gpt-x", "messages": HI, "tools": TOOLS, "max_completion_tokens": 300}
    message = agent.openai.chat.completions.create(**ask).choices[0].message
    content, reasoning, arguments, ids, finish, usage = "", "", "", [], None, None
    chunks = list(agent.openai.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    for chunk in chunks:
        assert chunk.model == "gpt-x" and chunk.id == chunks[0].id
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert finish is None
            finish = choice.finish_reason
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                ids += [call.id] if call.id else []
                arguments += call.function.arguments or ""
    assert finish == "tool_calls" and len(ids) == 1 and ids[0].isalnum()
    assert content == message.content and content.strip() == "Reading it."
    assert reasoning == message.reasoning_content == "I should look."
    assert json.loads(arguments) == json.loads(message.tool_calls[0].function.arguments) == {"file_path": "dir/ä b.txt"}
    record = agent.turns()[-1]
    assert usage.prompt_tokens == record["prompt_tokens"] and usage.completion_tokens == record["output_tokens"]
    assert usage.prompt_tokens_details.cached_tokens == record["cached_tokens"] > 0


def test_usage_is_in_the_last_chunk_when_not_asked_for_apart(engine: Engine) -> None:
    agent = Agent(engine)
    chunks = list(agent.openai.chat.completions.create(model="m", messages=HI, max_tokens=2, stream=True))
    assert all(chunk.choices for chunk in chunks)
    assert chunks[-1].usage.completion_tokens == 2 and chunks[-1].choices[0].finish_reason == "length"


def test_call_without_arguments_is_an_empty_object(engine: Engine) -> None:
    agent = Agent(engine, NO_ARGUMENTS)
    message = agent.openai.chat.completions.create(model="m", messages=HI, tools=TOOLS).choices[0].message
    assert message.tool_calls[0].function.arguments == "{}"


def test_messages_in_any_order_and_unknown_fields(engine: Engine) -> None:
    agent = Agent(engine, play({"text": "ok"}))
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "And kind."}]},
        {"role": "user", "content": "one", "name": "x", "cache_control": {"type": "ephemeral"}},
        {"role": "user", "content": [{"type": "text", "text": "two", "odd": 1}]},
        {"role": "developer", "content": "Now a reminder."},
    ]
    tools = [{"type": "web_search"}, {"type": "custom", "custom": {"name": "g"}}, *TOOLS]
    extra = {"invented": {"a": {"b": []}}, "store": True, "reasoning_effort": "high"}
    answer = agent.openai.chat.completions.create(model="m", messages=messages, tools=tools, extra_body=extra)
    assert answer.choices[0].message.content == "ok"


def test_history_with_malformed_arguments_and_images(engine: Engine) -> None:
    agent = Agent(engine, {"turns": [{"blocks": [{"text": "-"}]}, {"blocks": [{"text": "Served."}]}]})
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"file_path": "a'}}
    messages: Any = [
        {"role": "user", "content": [image, {"type": "text", "text": "look"}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "failed"}, image]},
    ]
    answer = agent.openai.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    assert answer.choices[0].message.content == "Served."


@only_real
def test_cached_tokens_grow_turn_by_turn(engine: Engine) -> None:
    agent = Agent(engine, {"turns": [{"blocks": [{"text": f"Answer {i}."}]} for i in range(4)]})
    messages: Any = [{"role": "system", "content": "Be brief."}]
    cached = []
    for turn in range(4):
        messages += [{"role": "user", "content": f"Question {turn}, with words to compute."}]
        messages += [{"role": "system", "content": f"Reminder {turn}."}] if turn % 2 else []
        answer = agent.openai.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        messages += [{"role": "assistant", "content": answer.choices[0].message.content}]
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert cached[1] < cached[2] < cached[3] and cached[1] > 0


def test_stop_length_and_logprobs(engine: Engine) -> None:
    agent = Agent(engine, play({"text": "alpha beta gamma"}))
    ask: dict[str, Any] = {"model": "m", "messages": HI, "tools": TOOLS}
    choice = agent.openai.chat.completions.create(**ask, stop="ta g").choices[0]
    assert (choice.message.content, choice.finish_reason) == ("alpha be", "stop")
    free = Agent(engine)
    choice = free.openai.chat.completions.create(
        model="m", messages=HI, max_tokens=4, logprobs=True, top_logprobs=2
    ).choices[0]
    assert choice.finish_reason == "length" and len(choice.logprobs.content) == 4
    for entry in choice.logprobs.content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 2


@only_real
def test_required_and_named_tools_are_obeyed(engine: Engine) -> None:
    closed = {"type": "object", "additionalProperties": False}
    path = {**closed, "properties": {"file_path": {"enum": ["a", "b"]}}, "required": ["file_path"]}
    tools: Any = [
        {"type": "function", "function": {"name": "Read", "parameters": path}},
        {"type": "function", "function": {"name": "Now", "parameters": {**closed, "properties": {}}}},
    ]
    agent = Agent(engine)
    for seed in range(20):
        choice: Any = ["required", {"type": "function", "function": {"name": "Now"}}][seed % 2]
        answer = agent.openai.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Just chat with me, please. Do not use any tool."}],
            tools=tools,
            tool_choice=choice,
            temperature=1,
            seed=seed,
            max_tokens=100,
            extra_body={"enable_thinking": False},
        ).choices[0]
        assert answer.finish_reason == "tool_calls", answer
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in answer.message.tool_calls]
        allowed = (
            [("Now", {})] if seed % 2 else [("Now", {}), ("Read", {"file_path": "a"}), ("Read", {"file_path": "b"})]
        )
        assert all(call in allowed for call in calls)
    none = agent.openai.chat.completions.create(
        model="m", messages=HI, tools=tools, tool_choice="none", max_tokens=20, temperature=1, seed=1
    )
    assert not none.choices[0].message.tool_calls


@only_real
def test_json_schema_is_enforced(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    answer = Agent(engine).openai.chat.completions.create(
        model="m", messages=HI, response_format=form, max_tokens=200, extra_body={"enable_thinking": False}
    )
    value = json.loads(answer.choices[0].message.content)
    assert set(value) == {"ok", "n"} and isinstance(value["ok"], bool) and value["n"] in (1, 2)


def test_several_choices_are_refused(engine: Engine) -> None:
    with pytest.raises(openai.BadRequestError, match="only one choice"):
        Agent(engine).openai.chat.completions.create(model="m", messages=HI, n=2)


def test_overflow_has_the_code_that_agents_know(engine: Engine) -> None:
    agent = Agent(engine)
    long: Any = [{"role": "user", "content": "word " * (agent.session["window"] + 100)}]
    with pytest.raises(openai.BadRequestError) as caught:
        agent.openai.chat.completions.create(model="m", messages=long, stream=True)
    assert caught.value.code == "context_length_exceeded"
    assert f"maximum context length is {agent.session['window']} tokens" in str(caught.value)


def test_script_that_runs_out_is_an_error(engine: Engine) -> None:
    agent = Agent(engine, play({"text": "only one"}, side="A title"))
    title = agent.openai.chat.completions.create(model="m", messages=HI)
    assert title.choices[0].message.content == "A title"
    history: Any = [*HI, {"role": "assistant", "content": "only one"}, {"role": "user", "content": "more"}]
    with pytest.raises(openai.BadRequestError, match="run out"):
        agent.openai.chat.completions.create(model="m", messages=history, tools=TOOLS)
    answer = agent.openai.chat.completions.with_raw_response.create(model="m", messages=HI, tools=TOOLS)
    assert answer.headers["x-ft-scripted"] == "true"
    assert [t["side"] for t in agent.turns()] == [True, None, False]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": None}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": HI, "tool_choice": 3}, "tool_choice"),
        ({"messages": HI, "max_tokens": -1}, "max_tokens"),
        ({"messages": HI, "top_p": 2}, "top_p"),
        ({"messages": HI, "stop": [1]}, "stop"),
        ({"messages": HI, "logit_bias": {"x": 1}}, "logit_bias"),
        ({"messages": HI, "response_format": {"type": "xml"}}, "response_format.type"),
    ],
)
def test_wrong_types_name_the_field(engine: Engine, body: dict[str, Any], field: str) -> None:
    answer = engine.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{field}:")
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_raw_completion(engine: Engine) -> None:
    agent = Agent(engine)
    whole = agent.openai.completions.create(model="m", prompt="Once upon a time", max_tokens=5)
    chunks = list(
        agent.openai.completions.create(
            model="m", prompt=["Once upon a time"], max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text != ""
    assert whole.choices[0].finish_reason == "length" and chunks[-1].usage.completion_tokens == 5
    with pytest.raises(openai.BadRequestError, match="echo"):
        agent.openai.completions.create(model="m", prompt="x", echo=True)
