"""Scenarios at a reduced size, end to end: HTTP, the declaration, the hybrid model, work ahead."""

import copy
import itertools
import json
import time

import pytest

from engine.prompt.language import Language
from tests.serving import engine_server

TOOL = {"type": "function", "function": {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}}
PLACEHOLDER = "[output left out]"
KEEP_RESULTS = 2
TURNS, STEPS = 2, 4
CLEAR = {
    "id": "clear",
    "op": "clear_result",
    "at": ["nth_newest(tool_result, n).start"],
    "known": "record",
    "when": "always",
    "params": {"n": KEEP_RESULTS},
    "placeholder": PLACEHOLDER,
}


def declaration(**more):
    keep = [
        {"edge": "head.end", "class": "head", "quota": 2},
        {"edge": "turn[-1].query.end", "class": "turn", "quota": 3},
        {"edge": "prompt.end", "class": "live", "quota": 2},
    ]
    return {"schema": "edits/1", "harness": "test", "versions": ">=1", "wire": {"api": ["chat"]}, "keep": keep, **more}


def words(name, count):
    return " ".join(f"{name}{i}" for i in range(count))


def script():
    turns = []
    for turn in range(TURNS):
        for step in range(STEPS):
            name = f"t{turn}s{step}"
            last = {"text": words(name, 10)} if step + 1 == STEPS else {"tool": "bash", "args": {"command": name}}
            turns.append({"blocks": [{"thinking": words(f"{name}th", 40)}, last]})
    return {"turns": turns}


def as_written(messages):
    return messages


def without_thinking(messages):
    return [{k: v for k, v in m.items() if k not in ("reasoning_content", "reasoning")} for m in messages]


def cleared(messages):
    results = [i for i, m in enumerate(messages) if m["role"] == "tool"]
    made = copy.deepcopy(messages)
    for i in results[:-KEEP_RESULTS]:
        made[i]["content"] = PLACEHOLDER
    return made


def respelled(messages):
    made = copy.deepcopy(messages)
    for call in (call for m in made for call in m.get("tool_calls") or ()):
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps({"background": False, **arguments}, indent=1)
    return made


HEADERS = itertools.count()
HEADER = {"at": "system.block[0]", "re": "^now: ", "action": "strip"}


def with_header(messages):
    """The first block of the system message is another one in each request."""
    blocks = [{"type": "text", "text": f"now: {next(HEADERS)}"}, {"type": "text", "text": messages[0]["content"]}]
    return [{"role": "system", "content": blocks}, *messages[1:]]


REMINDER = {
    "id": "reminder",
    "op": "drop_block",
    "at": ["user[-1].block[0].end"],
    "known": "request",
    "when": "matches(user[-1].block[-1].end, '^<reminder>')",
    "applies": "next_user_turn",
}


def reminded(messages):
    """A reminder stands behind the last user text."""
    made = copy.deepcopy(messages)
    last = max(i for i, m in enumerate(made) if m["role"] == "user")
    texts = [made[last]["content"], "<reminder>" + words("rem", 30)]
    made[last]["content"] = [{"type": "text", "text": text} for text in texts]
    return made


@pytest.fixture(scope="module")
def engine(models_dir):
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "32k", "--anticipate", "on"]) as served:
        yield served


def run(engine, view, declared):
    """The records of a scripted session, each request sent once what is known of it has been computed."""
    session = engine.session(script=script(), declaration=declared)
    history = [{"role": "system", "content": session["id"] + " " + words("head", 200)}]
    results = 0
    for turn in range(TURNS):
        history.append({"role": "user", "content": words(f"ask{turn}", 20)})
        for step in range(STEPS):
            body = {"messages": view(history), "tools": [TOOL]}
            before = engine.get("/v1/stats")["anticipation"]["submitted"]
            answer = engine.client.post(
                f"/s/{session['id']}/v1/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {session['token']}"},
            )
            history.append(answer.raise_for_status().json()["choices"][0]["message"])
            deadline = time.monotonic() + 180
            while engine.get("/v1/stats")["anticipation"]["submitted"] == before:
                assert time.monotonic() < deadline, "nothing was computed ahead"
                time.sleep(0.02)
            engine.wait_idle()
            if step + 1 < STEPS:
                call = history[-1]["tool_calls"][0]["id"]
                history.append({"role": "tool", "tool_call_id": call, "content": words(f"r{results}x", 60)})
                results += 1
    return engine.get(f"/v1/sessions/{session['id']}/turns?texts=1")["turns"]


@pytest.mark.parametrize(
    ("view", "declared", "edits"),
    [
        (without_thinking, declaration(echo={"thinking": "drop_all"}), TURNS * STEPS - 1),
        (cleared, declaration(rule=[CLEAR]), (STEPS - 1) * TURNS - KEEP_RESULTS),
        (respelled, declaration(echo={"args": "json_defaults"}), 0),
        (with_header, declaration(wire={"api": ["chat"], "volatile": [HEADER]}), 0),
        (reminded, declaration(rule=[REMINDER]), TURNS - 1),
    ],
    ids=["strip_all", "clear_tools", "reserialise", "volatile_header", "reminder"],
)
def test_only_new_text_is_computed_while_the_agent_waits(engine, models_dir, view, declared, edits):
    language = Language.load(models_dir / "tiny-hybrid")
    turns = run(engine, view, declared)
    assert len(turns) == TURNS * STEPS
    asked, result = len(language.encode(words("ask0", 20))), len(language.encode(words("r0x", 60)))
    asked += len(language.encode(words("rem", 30))) if view is reminded else 0
    for number, turn in enumerate(turns[1:], 1):
        new = asked if number % STEPS == 0 else result
        assert turn["replayed_tokens"] == 0, number
        assert turn["new_tokens"] <= new + 30, number  # its frame and the generation prefix
    broken = [turn["broke_at"] for turn in turns if turn["broke_at"]]
    assert len(broken) == edits and all(b["predicted"] for b in broken)


def test_a_second_subagent_computes_its_task_only(engine, models_dir):
    language = Language.load(models_dir / "tiny-hybrid")
    session = engine.session(declaration=declaration())
    computed = []
    for task in ("first", "second"):
        body = {
            "max_tokens": 1,
            "messages": [
                {"role": "system", "content": session["id"] + " " + words("shared", 300)},
                {"role": "user", "content": words(task, 40)},
            ],
        }
        path, token = f"/s/{session['id']}/v1/chat/completions", session["token"]
        answer = engine.client.post(path, json=body, headers={"authorization": f"Bearer {token}"})
        usage = answer.raise_for_status().json()["usage"]
        computed.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
    assert computed[0] > 600 and computed[1] <= len(language.encode(words("second", 40))) + 30
