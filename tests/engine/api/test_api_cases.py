"""Two cases in every dialect: the order and sums of a stream (22), and a cache that grows turn by turn (15)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.api.conftest import NO_ARGUMENTS, READ, THINK_READ, Agent
from tests.serving import Engine

CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": "Read", "parameters": READ}},
    {"type": "function", "function": {"name": "Now", "parameters": {"type": "object", "properties": {}}}},
]
TOOLS: Any = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in CHAT_TOOLS]
FLAT_TOOLS: Any = [{"type": "function", **tool["function"]} for tool in CHAT_TOOLS]
HI: Any = [{"role": "user", "content": "hi"}]


def streamed_arguments(agent: Agent, dialect: str) -> tuple[list[str], str, Any]:
    """(kinds of blocks in the order of the stream, the sum of argument deltas, the SDK's final arguments)."""
    order: list[str] = []
    total = ""
    if dialect == "messages":
        with agent.anthropic.messages.stream(
            model="m", max_tokens=500, messages=HI, tools=TOOLS, thinking={"type": "adaptive"}
        ) as stream:
            for event in stream:
                if event.type == "content_block_start":
                    order.append(event.content_block.type)
                elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    total += event.delta.partial_json
            return order, total, stream.get_final_message().content[-1].input
    if dialect == "responses":
        with agent.openai.responses.stream(model="m", input="hi", tools=FLAT_TOOLS) as events:
            for event in events:
                if event.type == "response.output_item.added":
                    assert event.output_index == len(order)
                    order.append(event.item.type)
                elif event.type == "response.function_call_arguments.delta":
                    total += event.delta
            return order, total, json.loads(events.get_final_response().output[-1].arguments)
    with agent.openai.chat.completions.stream(model="m", messages=HI, tools=CHAT_TOOLS) as chunks:
        for event in chunks:
            for choice in event.chunk.choices if event.type == "chunk" else ():
                kinds = {"reasoning_content": "thinking", "content": "text", "tool_calls": "tool_use"}
                found = [k for name, k in kinds.items() if getattr(choice.delta, name, None)]
                order += [kind for kind in found if kind not in order[-1:]]
                for call in choice.delta.tool_calls or ():
                    assert call.index == 0
                    total += call.function.arguments or ""
        final = chunks.get_final_completion().choices[0].message.tool_calls[0]
        return order, total, json.loads(final.function.arguments)


@pytest.mark.parametrize("dialect", ["messages", "chat", "responses"])
def test_case_22_order_and_sums_through_the_sdk(engine: Engine, dialect: str) -> None:
    order, total, final = streamed_arguments(Agent(engine, THINK_READ), dialect)
    assert json.loads(total) == final == {"file_path": "dir/ä b.txt"}
    names = ["reasoning", "message", "function_call"] if dialect == "responses" else ["thinking", "text", "tool_use"]
    assert order == names
    _, total, final = streamed_arguments(Agent(engine, NO_ARGUMENTS), dialect)
    assert (total, final) == ("{}", {})


@pytest.mark.parametrize("engine", ["real"], indirect=True)
@pytest.mark.parametrize("dialect", ["messages", "chat", "responses"])
def test_case_15_cached_tokens_grow_turn_by_turn(engine: Engine, dialect: str) -> None:
    agent = Agent(engine, {"turns": [{"blocks": [{"text": f"Answer {i}."}]} for i in range(4)]})
    messages: Any = [{"role": "system", "content": f"Be brief in {dialect}."}]
    cached = []
    for turn in range(4):
        messages += [{"role": "user", "content": f"Question {turn}, with words to compute."}]
        messages += [{"role": "user", "content": "And one more."}]
        messages += [{"role": "system", "content": f"Reminder {turn}."}] if turn % 2 else []
        if dialect == "messages":
            answer = agent.anthropic.messages.create(model="m", max_tokens=50, messages=messages, tools=TOOLS)
            text, usage = answer.content[0].text, answer.usage.cache_read_input_tokens
        elif dialect == "chat":
            done = agent.openai.chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)
            text, usage = done.choices[0].message.content, done.usage.prompt_tokens_details.cached_tokens
        else:
            response = agent.openai.responses.create(model="m", input=messages, tools=FLAT_TOOLS)
            text, usage = response.output_text, response.usage.input_tokens_details.cached_tokens
        assert text.strip() == f"Answer {turn}."
        messages += [{"role": "assistant", "content": text}]
        cached.append(usage)
    assert 0 < cached[1] < cached[2] < cached[3], cached
