"""The next prompt computed ahead, end to end with the real worker; and when it is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.front.anticipation import on_battery
from engine.prompt.language import Language
from tests.engine.front.fakes import fake_engine
from tests.serving import Engine, engine_server

TOOL = {"type": "function", "function": {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}}
THOUGHT = "I think about the files and what they say to me. " * 12
STEPS = {
    "turns": [
        {"blocks": [{"thinking": THOUGHT + "First."}, {"tool": "bash", "args": {"command": "ls  -l"}}]},
        {"blocks": [{"thinking": THOUGHT + "Second."}, {"tool": "bash", "args": {"command": "cat a"}}]},
        {"blocks": [{"thinking": THOUGHT + "Third."}, {"text": "There are two files, and both are fine."}]},
        {"blocks": [{"thinking": THOUGHT + "Fourth."}, {"text": "You are welcome."}]},
    ]
}


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "32k", "--anticipate", "on"]) as engine:
        yield engine


@pytest.fixture(scope="module")
def language(models_dir: Path) -> Language:
    return Language.load(models_dir / "tiny-hybrid")


class Chat:
    """A scripted session over the chat dialect that keeps its own history, as an agent does."""

    def __init__(self, engine: Engine, **fields: Any) -> None:
        self.engine = engine
        self.session = engine.session(script=STEPS, **fields)
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"{self.session['id']} works on files. " * 40}
        ]

    def say(self, text: str, wait: bool = True) -> dict[str, Any]:
        """Send user text; the record of the request, once what it makes likely has been computed ahead."""
        self.messages.append({"role": "user", "content": text})
        return self._request(wait)

    def result(self, text: str, wait: bool = True) -> dict[str, Any]:
        """Send a result for the newest call."""
        call = self.messages[-1]["tool_calls"][0]["id"]
        self.messages.append({"role": "tool", "tool_call_id": call, "content": text})
        return self._request(wait)

    def _request(self, wait: bool) -> dict[str, Any]:
        before = self.engine.get("/v1/stats")["anticipation"]["submitted"]
        answer = self.engine.client.post(
            f"/s/{self.session['id']}/v1/chat/completions",
            json={"messages": self.messages, "tools": [TOOL]},
            headers={"authorization": f"Bearer {self.session['token']}"},
        )
        assert answer.status_code == 200, answer.text
        self.messages.append(answer.json()["choices"][0]["message"])
        deadline = time.monotonic() + 180
        while wait and self.engine.get("/v1/stats")["anticipation"]["submitted"] == before:
            assert time.monotonic() < deadline, "nothing was anticipated"
            time.sleep(0.02)
        if wait:
            self.engine.wait_idle()
        return self.turns()[-1]

    def turns(self) -> list[dict[str, Any]]:
        return self.engine.get(f"/v1/sessions/{self.session['id']}/turns?texts=1")["turns"]


def test_after_a_tool_call_only_the_result_is_left_to_compute(engine: Engine, language: Language) -> None:
    """What follows the result is the end of its message and the generation prefix: a few tokens, always the same."""
    behind = set()
    for result in ("a b c", "word " * 200 + "end", "other words of a file\n" * 90 + "end"):
        chat = Chat(engine)
        chat.say("What is here?")
        record = chat.result(result)
        assert record["broke_at"] is None
        assert record["anticipated_tokens"] > 0
        assert record["cached_tokens"] + record["replayed_tokens"] + record["new_tokens"] == record["prompt_tokens"]
        behind.add(record["replayed_tokens"] + record["new_tokens"] - len(language.encode(result)))
    assert len(behind) == 1 and max(behind) < 20, behind


def test_a_template_that_strips_old_thinking_was_anticipated(engine: Engine, language: Language) -> None:
    """At the next query the prompt forks behind the first one, and the suffix without the thinking is there already."""
    chat = Chat(engine, render={"preserve_thinking": False})
    chat.say("What is here?")
    chat.result("a file\n" * 60)
    chat.result("another file\n" * 60)
    record = chat.say("Thank you.")
    assert record["broke_at"]["kind"] == "thinking" and record["broke_at"]["message"] == 2
    assert record["broke_at"]["predicted"] and record["broke_at"]["edge"]
    assert "<think>" in record["texts"]["old"] and "<think>" not in record["texts"]["new"]
    suffix = record["prompt_tokens"] - record["broke_at"]["token"]
    computed = record["replayed_tokens"] + record["new_tokens"]
    assert suffix > 300 and record["anticipated_tokens"] > suffix - 40
    assert computed - len(language.encode("Thank you.")) < 20
    facts = engine.get(f"/v1/sessions/{chat.session['id']}")
    assert facts["anticipated_tokens"] >= record["anticipated_tokens"]
    assert all(score["misses"] == 0 for score in facts["predictions"].values())
    assert sum(score["hits"] for score in facts["predictions"].values()) == 3


def test_with_the_switch_that_keeps_thinking_nothing_forks(engine: Engine) -> None:
    chat = Chat(engine, render={"preserve_thinking": True})
    chat.say("What is here?")
    chat.result("a file\n" * 60)
    chat.result("another file\n" * 60)
    record = chat.say("Thank you.")
    assert record["broke_at"] is None
    assert record["replayed_tokens"] + record["new_tokens"] < 30


def test_an_answer_does_not_depend_on_what_was_anticipated(engine: Engine) -> None:
    """Greedy logits of a real (unscripted) session, with time for anticipation and without."""
    texts = []
    for wait in (True, False):
        session = engine.session(render={"preserve_thinking": False})
        messages: list[dict[str, Any]] = [{"role": "user", "content": "count the words " * 30}]
        for _ in range(3):
            answer = engine.client.post(
                f"/s/{session['id']}/v1/chat/completions",
                json={"messages": messages, "max_tokens": 24, "temperature": 0, "logprobs": True},
                headers={"authorization": f"Bearer {session['token']}"},
            ).json()["choices"][0]
            texts.append((answer["message"], answer["logprobs"]))
            messages += [answer["message"], {"role": "user", "content": "and now again"}]
            if wait:
                time.sleep(0.3)
                engine.wait_idle()
    assert texts[:3] == texts[3:]


def test_counters_are_in_stats_and_metrics(engine: Engine) -> None:
    chat = Chat(engine)
    chat.say("What is here?")
    chat.result("a b")
    stats = engine.get("/v1/stats")["anticipation"]
    assert stats["mode"] == "on" and stats["allowed"]
    assert stats["submitted"] > 0 and stats["computed"] > 0 and stats["used"] > 0
    assert stats["predictions"]["append"]["hits"] > 0
    metrics = engine.client.get("/metrics").text
    assert f"ft_anticipated_tokens_total {float(stats['computed'])}" in metrics
    assert 'ft_tokens_total{kind="anticipated"}' in metrics


def test_a_side_request_anticipates_nothing(models_dir: Path) -> None:
    with fake_engine(models_dir, flags=["--anticipate", "on"]) as (engine, _):
        Chat(engine).say("What is here?")
        before = engine.get("/v1/stats")["anticipation"]["submitted"]
        assert before == 1
        session = engine.session(script=STEPS)
        auth = {"authorization": f"Bearer {session['token']}"}
        body = {"messages": [{"role": "user", "content": "A title, please."}]}
        for _ in range(2):
            answer = engine.client.post(f"/s/{session['id']}/v1/chat/completions", json=body, headers=auth)
            assert answer.status_code == 200
            time.sleep(0.2)
        assert engine.get("/v1/stats")["anticipation"]["submitted"] == before


def test_switched_off_it_predicts_and_computes_nothing(models_dir: Path) -> None:
    with fake_engine(models_dir, flags=["--anticipate", "off"]) as (engine, _):
        chat = Chat(engine)
        chat.say("What is here?", wait=False)
        time.sleep(0.3)
        chat.result("a b", wait=False)
        stats = engine.get("/v1/stats")
        assert stats["anticipation"]["submitted"] == 0 and not stats["anticipation"]["allowed"]
        assert stats["engine"]["submits"] == 2
        assert stats["anticipation"]["predictions"]["append"]["hits"] == 1


def test_what_is_computed_for_another_continuation_is_dropped(models_dir: Path) -> None:
    with fake_engine(models_dir, flags=["--anticipate", "on"], background_silent_s=60) as (engine, control):
        chat = Chat(engine)
        chat.say("What is here?", wait=False)
        _wait_running(engine, 1)  # the background work, which does not end by itself
        control.set()
        chat.messages.pop()
        chat.say("No, something else.")  # the reply was thrown away
        assert engine.get("/v1/stats")["engine"]["running"] == 0


def _wait_running(engine: Engine, count: int) -> None:
    deadline = time.monotonic() + 180
    while engine.get("/v1/stats")["engine"]["running"] != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("supplies", "drained"),
    [
        ({}, False),
        ({"AC": {"type": "Mains", "online": "0"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Charging"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Full"}, "BAT1": {"type": "Battery", "status": "Discharging"}}, True),
        ({"mouse": {"type": "Battery", "scope": "Device", "status": "Discharging"}}, False),
    ],
)
def test_battery(tmp_path: Path, supplies: dict[str, dict[str, str]], drained: bool) -> None:
    for name, files in supplies.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text + "\n")
    assert on_battery(tmp_path) is drained
    assert not on_battery(tmp_path / "missing")


def test_what_the_client_asks_to_clear_is_cleared_while_nobody_waits(engine: Engine) -> None:
    """The engine chooses the moment: after a reply. The request that finds results gone finds the new prefix computed."""
    steps = [{"blocks": [{"tool": "bash", "args": {"command": f"cat {i}"}}]} for i in range(9)]
    session = engine.session(script={"turns": steps})
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 2000},
        "keep": {"type": "tool_uses", "value": 2},
    }
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 100,
        "tools": [{"name": "bash", "input_schema": {"type": "object", "properties": {}}}],
        "context_management": {"edits": [edit]},
        "messages": [{"role": "user", "content": f"{session['id']} go"}],
    }
    cleared = []
    for i in range(9):
        answer = engine.client.post(
            f"/s/{session['id']}/v1/messages", json=body, headers={"authorization": f"Bearer {session['token']}"}
        ).json()
        time.sleep(0.3)
        engine.wait_idle()
        edits = answer["context_management"]["applied_edits"]
        cleared.append(edits[0]["cleared_tool_uses"] if edits else 0)
        output = f"{i} and {session['id']} and a long line of output\n" * 40 + "end"
        result = {"type": "tool_result", "tool_use_id": answer["content"][0]["id"], "content": output}
        body["messages"] += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
    turns = engine.get(f"/v1/sessions/{session['id']}/turns")["turns"]
    changed = [turn for turn, before, now in zip(turns[1:], cleared, cleared[1:], strict=False) if now > before]
    assert changed and len([t for t in turns if t["broke_at"]]) == len(changed)
    result_tokens = max(t["prompt_tokens"] for t in turns[:2]) - turns[0]["prompt_tokens"]
    for turn in changed:
        assert turn["broke_at"]["kind"] == "tool_result" and turn["broke_at"]["predicted"]
        assert turn["anticipated_tokens"] > 500
        assert turn["replayed_tokens"] + turn["new_tokens"] < result_tokens + 20
