"""One table of cases, asked in every dialect through the official SDKs: what is accepted, how an answer ends, what it is said to
have cost, who is told what. The SDKs parse strictly: an answer of the wrong shape fails here."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.engine.api.conftest import READ, Agent
from tests.engine.front.fakes import fake_engine
from tests.serving import Engine, engine_server

DIALECTS = ["messages", "chat", "responses", "completions"]
TALKING = DIALECTS[:3]
LENGTH = {"messages": "max_tokens", "chat": "length", "responses": "incomplete", "completions": "length"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@dataclass
class Said:
    """An answer in no dialect's words."""

    text: str
    end: str
    model: str
    prompt: int
    cached: int
    output: int


def ask(agent: Agent, dialect: str, messages: Any, limit: int | None, stream: bool, **more: Any) -> Said:
    """Ask through the SDK, streamed or not. `messages` are in the dialect's own shape."""
    if dialect == "messages":
        given = {"model": "m", "max_tokens": limit or 400, "messages": messages, **more}
        if stream:
            with agent.anthropic.messages.stream(**given) as events:
                message = events.get_final_message()
        else:
            message = agent.anthropic.messages.create(**given)
        text = "".join(block.text for block in message.content if block.type == "text")
        usage, cached = message.usage, message.usage.cache_read_input_tokens
        prompt = usage.input_tokens + cached
        return Said(text, message.stop_reason, message.model, prompt, cached, usage.output_tokens)
    if dialect == "responses":
        given = {"model": "m", "input": messages, **({"max_output_tokens": limit} if limit else {}), **more}
        if stream:
            with agent.openai.responses.stream(**given) as events:
                final = [event for event in events][-1].response
        else:
            final = agent.openai.responses.create(**given)
        used = final.usage
        cached = used.input_tokens_details.cached_tokens
        return Said(final.output_text, final.status, final.model, used.input_tokens, cached, used.output_tokens)
    given = {"model": "m", **({"max_tokens": limit} if limit else {}), **more}
    given["prompt" if dialect == "completions" else "messages"] = messages
    create: Callable[..., Any] = agent.openai.chat.completions.create
    if dialect == "completions":
        create = agent.openai.completions.create
    if not stream:
        whole = create(**given)
        (choice,) = whole.choices
        text = choice.text if dialect == "completions" else choice.message.content
        usage = whole.usage
        return Said(text or "", choice.finish_reason, whole.model, *counted(usage))
    chunks = list(create(**given, stream=True))
    choices = [chunk.choices[0] for chunk in chunks]
    text = "".join((c.text if dialect == "completions" else c.delta.content) or "" for c in choices)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    return Said(text, choices[-1].finish_reason, chunks[-1].model, *counted(chunks[-1].usage))


def counted(usage: Any) -> tuple[int, int, int]:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens


def plain(dialect: str, text: str) -> Any:
    return text if dialect in ("responses", "completions") else [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def quick(models_dir: Path) -> Iterator[Engine]:
    with fake_engine(models_dir, ["--anticipate", "off"]) as (engine, _):
        yield engine


@pytest.fixture(scope="module")
def small(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k", "--anticipate", "off"]) as engine:
        yield engine


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
every = pytest.mark.parametrize("dialect", DIALECTS)
talking = pytest.mark.parametrize("dialect", TALKING)


@every
@both
def test_case_28_a_length_stop_is_said_and_counted(quick: Engine, small: Engine, dialect: str, stream: bool) -> None:
    for engine in (quick, small):
        agent = Agent(engine)
        said = ask(agent, dialect, plain(dialect, "Tell me of the sea."), 7, stream)
        (turn,) = agent.turns()
        assert (said.end, said.output) == (LENGTH[dialect], 7)
        assert (turn["end"], turn["output_tokens"]) == ("length", 7)
        assert (said.prompt, said.cached) == (turn["prompt_tokens"], turn["cached_tokens"])


@talking
@both
def test_an_answer_that_ends_by_itself_is_said_and_counted(quick: Engine, dialect: str, stream: bool) -> None:
    agent = Agent(quick, {"turns": [{"blocks": [{"text": "Salt and wind."}]}]})
    tools = {"messages": [{"name": "Read", "input_schema": READ}], "responses": [{"type": "function", "name": "Read"}]}
    chat = [{"type": "function", "function": {"name": "Read", "parameters": READ}}]
    more = {"tools": tools.get(dialect, chat)}
    said = ask(agent, dialect, plain(dialect, "Tell me of the sea."), None, stream, **more)
    (turn,) = agent.turns()
    assert said.text.strip() == "Salt and wind."
    assert said.end == {"messages": "end_turn", "chat": "stop", "responses": "completed"}[dialect]
    assert (said.prompt, said.output) == (turn["prompt_tokens"], turn["output_tokens"]) and said.output > 2


def test_a_response_without_a_limit_may_use_the_whole_window(quick: Engine) -> None:
    """`response.incomplete` ends a Codex session, so nothing but the window may cause it."""
    agent = Agent(quick, {"turns": [], "side": "word " * 9000})
    with agent.openai.responses.stream(model="m", input="hi") as events:
        last = [event for event in events][-1]
    assert last.type == "response.completed" and last.response.usage.output_tokens > 8500


@every
@both
def test_any_model_name_is_served_and_repeated(quick: Engine, dialect: str, stream: bool) -> None:
    agent = Agent(quick)
    for name in ("claude-opus-9", "gpt-9-codex", "tiny-hybrid", "x/y:z"):
        assert ask(agent, dialect, plain(dialect, "hi"), 2, stream, model=name).model == name
    turns = agent.turns()
    assert [t["asked_model"] for t in turns] == ["claude-opus-9", "gpt-9-codex", "tiny-hybrid", "x/y:z"]
    assert {t["model"] for t in turns} == {"tiny-hybrid"}


@every
@both
def test_what_does_not_fit_is_refused_in_the_words_each_client_parses(
    small: Engine, dialect: str, stream: bool
) -> None:
    agent = Agent(small)
    window = agent.session["window"]
    with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)) as refused:
        ask(agent, dialect, plain(dialect, "word " * (window + 100)), 5, stream)
    tokens = agent.turns()[0]["prompt_tokens"]
    body: Any = refused.value.body
    if dialect == "messages":
        assert body["error"] == {
            "type": "invalid_request_error",
            "message": f"prompt is too long: {tokens} tokens > {window} maximum",
        }
    else:
        assert (body["code"], body["type"]) == ("context_length_exceeded", "invalid_request_error")
        assert str(tokens) in body["message"] and f"maximum context length is {window} tokens" in body["message"]
    # A prompt that fits, with more output asked for than there is room, is served with what there is.
    assert ask(agent, dialect, plain(dialect, "hi"), 2, stream).output == 2
    # And one that leaves next to none is told both numbers.
    filler = "word " * (window - tokens + window + 100 - 12)
    with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)) as refused:
        ask(agent, dialect, plain(dialect, filler), 900, stream)
    prompt, body = agent.turns()[-1]["prompt_tokens"], refused.value.body
    assert window - 16 < prompt < window, "what the case is about"
    if dialect == "messages":
        expected = f"input length and `max_tokens` exceed context limit: {prompt} + 900 > {window}"
        assert body["error"]["message"] == expected
    else:
        assert body["code"] == "context_length_exceeded" and f"{prompt + 900} tokens" in body["message"]


INVENTED: dict[str, Any] = {
    "context_management": {"edits": []},
    "output_config": {"effort": "low"},
    "safeguards": {"level": 3},
    "client_metadata": {"turn": 1},
    "service_tier_hint": "x",
    "include": ["reasoning.encrypted_content"],
}


@talking
@both
def test_case_17_invented_fields_at_four_levels(quick: Engine, dialect: str, stream: bool) -> None:
    agent = Agent(quick)
    part = {"type": "input_text" if dialect == "responses" else "text", "text": "hi", "cached": {"deep": [1]}}
    message = {"role": "user", "content": [part], "vibe": "calm"}
    tool: dict[str, Any] = {"name": "Read", "defer": True}
    if dialect == "messages":
        tool["input_schema"] = {**READ, "x-note": 1}
    elif dialect == "chat":
        tool = {"type": "function", "function": {**tool, "parameters": {**READ, "x-note": 1}}, "beta": 2}
    else:
        tool |= {"type": "function", "parameters": {**READ, "x-note": 1}}
    extra = {k: v for k, v in INVENTED.items() if not (dialect == "responses" and k == "include")}
    more = {"extra_body": extra, "extra_headers": {"anthropic-beta": "invented-2031-01-01", "x-new": "1"}}
    assert ask(agent, dialect, [message], 3, stream, tools=[tool], **more).output == 3


@both
def test_case_17_invented_fields_of_a_raw_prompt(quick: Engine, stream: bool) -> None:
    agent = Agent(quick)
    deep = {"vibe": {"calm": {"very": [1, {"so": None}]}}, "stream_options": {"invented": {"deep": True}}}
    more = {
        "extra_body": {**INVENTED, **(deep if stream else {"vibe": deep["vibe"]})},
        "extra_headers": {"openai-beta": "invented=v9", "x-new": "1"},
    }
    said = ask(agent, "completions", "The sea is", 3, stream, **more)
    assert (said.output, said.end) == (3, "length")
    bare = ask(Agent(quick), "completions", "The sea is", 3, stream)
    assert (said.prompt, said.text) == (bare.prompt, bare.text)


def toolset(dialect: str) -> list[dict[str, Any]]:
    named = {"name": "Read", "description": "Reads."}
    if dialect == "messages":
        return [{"type": "web_search_20250305", "name": "web_search"}, {**named, "input_schema": READ}]
    if dialect == "chat":
        custom = {"type": "custom", "custom": {"name": "Patch", "format": {"type": "grammar"}}}
        return [custom, {"type": "web_search"}, {"type": "function", "function": {**named, "parameters": READ}}]
    inner = {"type": "function", "name": "spawn", "parameters": READ}
    return [
        {"type": "web_search"},
        {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:1/"},
        {"type": "custom", "name": "Patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "agents", "tools": [inner]},
        {"type": "function", **named, "parameters": READ},
    ]


@talking
def test_case_18_tools_that_are_no_functions_are_left_out(quick: Engine, dialect: str) -> None:
    kept = [t for t in toolset(dialect) if t.get("type", "function") in ("function", "namespace")]
    agent, plainer = Agent(quick), Agent(quick)
    with_all = ask(agent, dialect, plain(dialect, "hi"), 2, False, tools=toolset(dialect))
    assert with_all.prompt == ask(plainer, dialect, plain(dialect, "hi"), 2, False, tools=kept).prompt
    assert with_all.prompt > ask(Agent(quick), dialect, plain(dialect, "hi"), 2, False, tools=kept[1:]).prompt


def history(dialect: str, what: str) -> list[dict[str, Any]]:
    """A conversation with an image, foreign thinking or malformed arguments in it, ending with a user's text."""
    if dialect == "messages":
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}
        thoughts = [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVkIGJ5IGFub3RoZXI="},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
        ]
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
        if what == "image":
            result["content"] = [image]
        if what == "malformed":
            call["input"] = {"raw": '{"file_path": "a'}
        first = [{"type": "text", "text": "look"}, *([image] if what == "image" else [])]
        turn = [*(thoughts if what == "thinking" else []), call]
        return [
            {"role": "user", "content": first},
            {"role": "assistant", "content": turn},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "Seen."},
            {"role": "user", "content": "And now?"},
        ]
    arguments = '{"file_path": "a' if what == "malformed" else '{"file_path": "a"}'
    url = f"data:image/png;base64,{PIXEL}"
    if dialect == "chat":
        shown: Any = [{"type": "text", "text": "look"}]
        answer: dict[str, Any] = {"role": "assistant", "content": None}
        answer["tool_calls"] = [{"id": "t1", "type": "function", "function": {"name": "Read", "arguments": arguments}}]
        result = {"role": "tool", "tool_call_id": "t1", "content": "text"}
        if what == "image":
            picture = {"type": "image_url", "image_url": {"url": url}}
            shown, result["content"] = [*shown, picture], [picture]
        if what == "thinking":
            answer |= {"reasoning_content": "Hm.", "reasoning_details": [{"signature": "x", "data": "y"}]}
        closing = [{"role": "assistant", "content": "Seen."}, {"role": "user", "content": "And now?"}]
        return [{"role": "user", "content": shown}, answer, result, *closing]
    content: list[dict[str, Any]] = [{"type": "input_text", "text": "look"}]
    picture = {"type": "input_image", "image_url": url}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FBQUFB"}
    return [
        {"role": "user", "content": [*content, *([picture] if what == "image" else [])]},
        *([reasoning] if what == "thinking" else []),
        {"type": "function_call", "call_id": "t1", "name": "Read", "arguments": arguments},
        {"type": "function_call_output", "call_id": "t1", "output": [picture] if what == "image" else "text"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Seen."}]},
        {"role": "user", "content": "And now?"},
    ]


@talking
@both
@pytest.mark.parametrize("what", ["image", "thinking", "malformed"])
def test_cases_20_21_24_histories_with_what_is_not_ours(quick: Engine, dialect: str, stream: bool, what: str) -> None:
    agent = Agent(quick)
    messages = history(dialect, what)
    asked = messages[: 3 if dialect != "responses" else -2]
    with_it = ask(agent, dialect, asked, 3, stream)
    assert ask(agent, dialect, messages, 3, stream).prompt > with_it.prompt
    if what == "image":
        bare = ask(Agent(quick), dialect, history(dialect, "none"), 3, stream)
        assert ask(agent, dialect, messages, 3, stream).prompt > bare.prompt, "the model is told of the images"


@talking
def test_case_16_a_reminder_that_changes_costs_itself(small: Engine, dialect: str) -> None:
    agent = Agent(small)
    talk: list[dict[str, Any]] = [{"role": "user", "content": f"What {dialect} knows of the sea. " * 40}]
    cached, prompts = [], []
    for turn in range(4):
        reminder = {"role": "system", "content": f"<system-reminder>It is {turn} past.</system-reminder>"}
        said = ask(agent, dialect, [*talk, reminder], 4, False)
        cached.append(said.cached)
        prompts.append(said.prompt)
        talk += [{"role": "assistant", "content": said.text or "So."}, {"role": "user", "content": "Go on."}]
    # From the third turn on the reminder's edge is known: what lies before it is never computed again.
    assert cached[0] < 20
    assert all(later > prompts[0] * 3 // 4 for later in cached[2:]), (cached, prompts)


def test_case_27_thirty_rounds_a_restart_and_no_amnesia(models_dir: Path) -> None:
    """A worker that restarts forgets nothing; an engine that restarts says so."""
    rounds = [{"blocks": [{"text": f"Round {i}."}, {"tool": "read", "args": {"path": f"{i}"}}]} for i in range(32)]
    tools: Any = [{"type": "function", "name": "Read", "parameters": READ}]
    with fake_engine(models_dir, ["--anticipate", "off"]) as (engine, _):
        agent = Agent(engine, {"turns": rounds})
        previous, given, prompts = None, "begin", []
        for i in range(30):
            answer = agent.openai.responses.create(model="m", input=given, tools=tools, previous_response_id=previous)
            assert answer.output[-2].content[0].text.strip() == f"Round {i}."
            call = answer.output[-1]
            given = [{"type": "function_call_output", "call_id": call.call_id, "output": f"line {i}"}]
            previous = answer.id
            prompts.append(answer.usage.input_tokens)
            if i == 15:
                os.kill(engine.worker_pid(), signal.SIGKILL)
                deadline = time.monotonic() + 180
                while engine.get("/health") and engine.client.get("/ready").json()["restarts"] < 1:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                engine.wait_ready()
        assert prompts == sorted(set(prompts)), "the whole history, each time"
    with fake_engine(models_dir, ["--anticipate", "off"]) as (engine, _):
        agent = Agent(engine, {"turns": rounds})
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match="send the whole conversation") as refused:
                agent.openai.responses.create(
                    model="m", input=given, tools=tools, previous_response_id=previous, stream=stream
                )
            assert refused.value.code == "previous_response_not_found"


BEATS = {
    "messages": lambda e: e["type"] == "ping",
    "chat": lambda e: e["choices"][0]["delta"] == {"content": ""},
    "responses": lambda e: e["type"] == "response.in_progress",
    "completions": lambda e: e["choices"][0]["text"] == "",
}


@every
def test_a_throttled_prefill_is_lived_through_with_beats(throttled: Engine, dialect: str) -> None:
    """Headers and the first event at once, then a sign of life of the kind that the client counts until the answer, and not one
    request more."""
    agent = Agent(throttled)
    path = {"chat": "chat/completions"}.get(dialect, dialect)
    body: dict[str, Any] = {"stream": True, "max_tokens": 3, "max_output_tokens": 3}
    text = f"{dialect} of the sea " * 40
    body |= {"prompt": text} if dialect == "completions" else {"messages": [{"role": "user", "content": text}]}
    body |= {"input": text} if dialect == "responses" else {}
    url = f"/s/{agent.session['id']}/v1/{path}"
    began, times, events = time.monotonic(), [], []
    auth = {"authorization": f"Bearer {agent.session['token']}"}
    with throttled.client.stream("POST", url, json=body, headers=auth) as answer:
        headers_s = time.monotonic() - began
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                times.append(time.monotonic() - began)
                events.append(json.loads(line[6:]))
    (turn,) = agent.turns()
    assert headers_s <= times[0] < turn["ttft_s"]
    assert turn["ttft_s"] > 2 and turn["prefill_s"] > 2, "it was slow"
    assert sum(map(BEATS[dialect], events)) >= turn["heartbeats"] >= 4
    assert max(b - a for a, b in zip([0.0, *times], times, strict=False)) < 10
    assert (turn["end"], turn["resent"], turn["output_tokens"]) == ("length", False, 3)


@pytest.fixture(scope="module")
def throttled(models_dir: Path) -> Iterator[Engine]:
    flags = ["--kv", "16k", "--throttle-tokens-per-s", "60", "--heartbeat-s", "0.5", "--anticipate", "off"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        yield engine
