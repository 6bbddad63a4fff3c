"""What a model may write, and what each client gets of it: cases 23, 25, 26 and 28, through the SDKs.

The model is a server that says what it is told, one token for each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.language import Language
from tests.engine.api.conftest import READ, Agent
from tests.engine.upstream.servers import Said, front_before, models, said
from tests.serving import Engine

DIALECTS = ["messages", "chat", "responses"]
ASK = "POST /v1/completions"
CALL = '<tool_call>\n{"name": "Read", "arguments": {"file_path": "dir/ä 🎈 b.txt"}}\n</tool_call>'
FOUND = ("call", "Read", {"file_path": "dir/ä 🎈 b.txt"})
HI: Any = [{"role": "user", "content": "hi"}]
TOOLS: dict[str, Any] = {
    "messages": [{"name": "Read", "input_schema": READ}],
    "chat": [{"type": "function", "function": {"name": "Read", "parameters": READ}}],
    "responses": [{"type": "function", "name": "Read", "parameters": READ}],
}
ENDS = {  # (a length stop, a call, an end of its own)
    "messages": ("max_tokens", "tool_use", "end_turn"),
    "chat": ("length", "tool_calls", "stop"),
    "responses": ("incomplete", "completed", "completed"),
}


class Model:
    """`speak` decides what the next answers are."""

    def __init__(self, server: Said, language: Language) -> None:
        self._server = server
        self._language = language

    def speak(self, text: str, ends: bool = True) -> None:
        """Each token by itself; `ends`: it stopped by itself, else at the limit."""
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
        ids = self._language.encode_controls(text)
        events: list[Any] = [self._event(head, token) for token in ids]
        stop = self._language.stop_ids[0]
        last = {"index": 0, "text": "", "token_ids": [stop] if ends else []}
        events.append(
            {**head, "choices": [{**last, "finish_reason": "stop" if ends else "length", "stop_reason": None}]}
        )
        usage = {"prompt_tokens": 20, "completion_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": 0}}
        self._server.answers[ASK] = [*events, {**head, "choices": [], "usage": usage}, "data: [DONE]"]

    def tokens(self, text: str) -> list[str]:
        """The text of each token; broken characters where one took several."""
        return [self._language.decode([token]) for token in self._language.encode_controls(text)]

    def cut(self, text: str, count: int) -> str:
        """What the first `count` tokens say."""
        return self._language.decode(self._language.encode_controls(text)[:count])

    def _event(self, head: dict[str, Any], token: int) -> dict[str, Any]:
        told = {"index": 0, "text": "?", "finish_reason": None, "stop_reason": None, "token_ids": [token]}
        return {**head, "choices": [told]}


@pytest.fixture(scope="module")
def language(models_dir: Path) -> Language:
    return Language.load(models_dir / "tiny-hybrid")


@pytest.fixture(scope="module")
def served(language: Language, models_dir: Path) -> Iterator[tuple[Engine, Model]]:
    answers = {
        "GET /v1/models": models("vllm", max_model_len=4096),
        "POST /tokenize": lambda body: (200, {}, {"tokens": language.encode(body["prompt"])}),
    }
    with said(answers) as server, front_before([server.url], "tiny-hybrid", models_dir) as engine:
        yield engine, Model(server, language)


Blocks = list[tuple[Any, ...]]


def ask(
    engine: Engine, dialect: str, stream: bool, talk: Any = None, agent: Agent | None = None, **more: Any
) -> tuple[Blocks, str]:
    """The blocks of an answer, and how it ended."""
    agent = agent or Agent(engine)
    talk = talk or HI
    if dialect == "messages":
        asked: Any = {"model": "m", "max_tokens": 900, "messages": talk, "tools": TOOLS[dialect], **more}
        asked["thinking"] = {"type": "adaptive"}
        if stream:
            with agent.anthropic.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = agent.anthropic.messages.create(**asked)
        return [_anthropic(block) for block in message.content], message.stop_reason
    if dialect == "responses":
        given: Any = {"model": "m", "input": talk, "tools": TOOLS[dialect], **more}
        if stream:
            with agent.openai.responses.stream(**given) as events:
                response = [event for event in events][-1].response
        else:
            response = agent.openai.responses.create(**given)
        return [_item(item) for item in response.output], response.status
    given = {"model": "m", "messages": talk, "tools": TOOLS[dialect], "max_tokens": 900, **more}
    if stream:
        with agent.openai.chat.completions.stream(**given) as chunks:
            for _ in chunks:
                pass
            choice = chunks.current_completion_snapshot.choices[0]
    else:
        choice = agent.openai.chat.completions.create(**given).choices[0]
    message, blocks = choice.message, []
    if getattr(message, "reasoning_content", None):
        blocks.append(("thinking", message.reasoning_content))
    if message.content:
        blocks.append(("text", message.content))
    calls = message.tool_calls or ()
    blocks += [("call", call.function.name, json.loads(call.function.arguments)) for call in calls]
    return blocks, choice.finish_reason


def _anthropic(block: Any) -> tuple[Any, ...]:
    if block.type == "tool_use":
        return ("call", block.name, block.input)
    return (block.type, getattr(block, block.type))


def _item(item: Any) -> tuple[Any, ...]:
    if item.type == "function_call":
        return ("call", item.name, json.loads(item.arguments))
    if item.type == "reasoning":
        return ("thinking", "".join(part.text for part in item.content or item.summary))
    return ("text", item.content[0].text)


every = pytest.mark.parametrize("dialect", DIALECTS)
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@every
@both
def test_case_23_tokens_that_split_characters(served: tuple[Engine, Model], dialect: str, stream: bool) -> None:
    engine, model = served
    text = "Hm, 🎈 ü.\n</think>\n\nGrüße, 你好.\n" + CALL
    assert any("\ufffd" in token for token in model.tokens(text)), "what the case is about"
    model.speak(text)
    blocks, end = ask(engine, dialect, stream)
    assert blocks == [("thinking", "Hm, 🎈 ü."), ("text", "Grüße, 你好."), FOUND]
    assert end == ENDS[dialect][1]


WRITTEN = [
    CALL,
    f"{CALL}\n{CALL}",
    f"I read it now.\n\n{CALL}",
    f"{CALL}\n\nAnd that was it.",
    CALL.replace("\n", ""),
    CALL.removesuffix("\n</tool_call>"),
    CALL.removesuffix(">"),
    CALL.replace("Read", "Nobody"),
    CALL.replace("Read", "Re\nad"),
    CALL.replace('b.txt"', "b.txt"),
]


@every
@both
def test_case_19_none_is_obeyed_twenty_times_whatever_is_written(
    served: tuple[Engine, Model], dialect: str, stream: bool
) -> None:
    """Tools are there and the model calls them: not one call reaches the client, and no word of what it wrote is lost."""
    engine, model = served
    agent = Agent(engine)
    none = {"tool_choice": {"type": "none"} if dialect == "messages" else "none"}
    model.speak(f"Hm.\n</think>\n\n{CALL}")
    assert ask(engine, dialect, stream, agent=agent)[0][1:] == [FOUND], "what the case is about"
    for written in WRITTEN:
        model.speak(f"Hm.\n</think>\n\n{written}")
        blocks, end = ask(engine, dialect, stream, agent=agent, **none)
        assert (blocks, end) == ([("thinking", "Hm."), ("text", written)], ENDS[dialect][2])
        model.speak(f"Hm.\n{written}")  # and where its thinking was never closed
        blocks, end = ask(engine, dialect, stream, agent=agent, **none)
        assert {kind for kind, *_ in blocks} <= {"thinking", "text"} and end == ENDS[dialect][2], blocks
        assert "".join(text for _, text in blocks).replace("\n", "") == f"Hm.{written}".replace("\n", "")


@every
@both
def test_case_25_a_call_in_open_thinking(served: tuple[Engine, Model], dialect: str, stream: bool) -> None:
    engine, model = served
    model.speak("I should look.\n" + CALL)
    blocks, end = ask(engine, dialect, stream)
    assert blocks == [("thinking", "I should look."), FOUND] and end == ENDS[dialect][1]
    quoted = f"One writes `{CALL.replace(chr(10), ' ')}` for that."
    model.speak(quoted + "\n</think>\n\nDone.")
    blocks, end = ask(engine, dialect, stream)
    assert blocks == [("thinking", quoted), ("text", "Done.")] and end == ENDS[dialect][2]


@every
@both
@pytest.mark.parametrize(
    ("damaged", "called"),
    [
        (CALL.replace("<tool_call>", "<tool_call", 1), True),
        (CALL.removesuffix(">"), True),
        (CALL.removesuffix("\n</tool_call>"), True),
        (CALL.replace("Read", "Re\nad"), False),
        (CALL.replace('b.txt"', "b.txt"), False),
    ],
    ids=["bracket", "last-bracket", "last-tag", "name", "value"],
)
def test_case_26_a_damaged_call_and_the_turn_after(
    served: tuple[Engine, Model], dialect: str, stream: bool, damaged: str, called: bool
) -> None:
    engine, model = served
    agent = Agent(engine)
    model.speak("Hm.\n</think>\n\n" + damaged)
    blocks, end = ask(engine, dialect, stream, agent=agent)
    assert blocks[1:] == ([FOUND] if called else [("text", damaged)])
    assert end == ENDS[dialect][1 if called else 2]
    model.speak("Hm.\n</think>\n\nSeen.")
    blocks, _ = ask(engine, dialect, stream, [*HI, *history(dialect, blocks[1])], agent)
    assert blocks[1:] == [("text", "Seen.")]


def history(dialect: str, block: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What a client sends back of an answer with this block, and what comes after it."""
    kind, *rest = block
    if kind == "text":
        return [{"role": "assistant", "content": rest[0]}, {"role": "user", "content": "And?"}]
    name, arguments = rest
    if dialect == "messages":
        use = {"type": "tool_use", "id": "t1", "name": name, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    text = json.dumps(arguments)
    if dialect == "responses":
        call = {"type": "function_call", "call_id": "t1", "name": name, "arguments": text}
        return [call, {"type": "function_call_output", "call_id": "t1", "output": "text"}]
    function = {"name": name, "arguments": text}
    calls = [{"id": "t1", "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": "t1", "content": "text"}
    return [{"role": "assistant", "content": None, "tool_calls": calls}, result]


@every
@both
def test_case_28_the_limit_inside_a_call(served: tuple[Engine, Model], dialect: str, stream: bool) -> None:
    """At every token: never half an argument, and the stop reason says that there was more."""
    engine, model = served
    text = "Hm.\n</think>\n\nI look.\n" + CALL
    size, agent = len(model.tokens(text)), Agent(engine)
    for count in range(len(model.tokens("Hm.\n</think>\n\nI look.\n")), size, 3):
        model.speak(model.cut(text, count), ends=False)
        blocks, end = ask(engine, dialect, stream, agent=agent)
        calls = [block for block in blocks if block[0] == "call"]
        assert calls in ([], [FOUND]) and end == ENDS[dialect][0], model.cut(text, count)
