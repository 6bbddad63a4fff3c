"""`context_management` over HTTP: what is cleared is computed no more, counted and reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.api.conftest import Agent
from tests.serving import Engine

OUTPUT = "a line of output that a tool printed on its way\n" * 40
TOOLS = [{"name": "Read", "input_schema": {"type": "object", "properties": {}}}]


def history(steps: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for i in range(steps):
        call = {"type": "tool_use", "id": f"toolu{i}", "name": "Read", "input": {"file_path": f"f{i}"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu{i}", "content": f"{i} {OUTPUT}"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


def body(steps: int, **fields: Any) -> dict[str, Any]:
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 2000},
        "keep": {"type": "tool_uses", "value": 2},
        "clear_at_least": {"type": "input_tokens", "value": 1200},
    }
    management = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}, edit]}
    common = {"model": "m", "tools": TOOLS, "messages": history(steps), "context_management": management}
    return {**common, **fields}


class Poster:
    def __init__(self, engine: Engine) -> None:
        self.agent = Agent(engine)
        self._auth = {"authorization": f"Bearer {self.agent.session['token']}"}

    def __call__(self, path: str, data: dict[str, Any]) -> Any:
        url = self.agent.session["base_urls"]["anthropic"] + path
        answer = self.agent.engine.client.post(url, json=data, headers=self._auth)
        assert answer.status_code == 200, answer.text
        return answer


def test_cleared_results_leave_the_prompt_and_are_reported(engine: Engine) -> None:
    post = Poster(engine)
    plain = post("/v1/messages/count_tokens", body(12, context_management=None)).json()
    assert "context_management" not in plain
    small = post("/v1/messages", body(2, max_tokens=1)).json()
    assert small["context_management"] == {"applied_edits": []}

    post = Poster(engine)
    counted = post("/v1/messages/count_tokens", body(12)).json()
    whole = post("/v1/messages", body(12, max_tokens=1)).json()
    (edit,) = whole["context_management"]["applied_edits"]
    assert (edit["type"], edit["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 10)
    prompt = whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"]
    assert counted["input_tokens"] == prompt < plain["input_tokens"] - 1200
    # What is left of a cleared result is its placeholder.
    assert counted["context_management"]["original_input_tokens"] == prompt + edit["cleared_input_tokens"]
    assert 0 <= prompt + edit["cleared_input_tokens"] - plain["input_tokens"] < 30 * 10

    record = post.agent.turns()[-1]
    assert record["applied_edits"] == [edit] and record["prompt_tokens"] == prompt
    untouched = post("/v1/messages", body(2, max_tokens=1, context_management=None)).json()
    assert "context_management" not in untouched


def test_clears_are_batched_and_stay(engine: Engine) -> None:
    """Between two clears each request continues the one before it."""
    post = Poster(engine)
    cleared, breaks = [], 0
    for steps in range(1, 13):
        answer = post("/v1/messages", body(steps, max_tokens=1)).json()
        edits = answer["context_management"]["applied_edits"]
        cleared.append(edits[0]["cleared_tool_uses"] if edits else 0)
        broke = post.agent.turns()[-1]["broke_at"]
        changed = len(cleared) > 1 and cleared[-1] != cleared[-2]
        if changed:
            assert broke is not None
            breaks += 1
        elif broke is not None:
            assert broke["kind"] == "reply"  # this client throws our replies away
    assert cleared == sorted(cleared) and cleared[-1] >= 6
    assert 1 <= breaks <= 4


def test_the_stream_says_it_in_its_last_delta(engine: Engine) -> None:
    post = Poster(engine)
    answer = post("/v1/messages", body(12, max_tokens=1, stream=True))
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    (delta,) = [e for e in events if e["type"] == "message_delta"]
    (edit,) = delta["context_management"]["applied_edits"]
    assert edit["cleared_tool_uses"] == 10
    assert not any("context_management" in e for e in events if e is not delta)


@pytest.mark.parametrize("edits", [5, [{"type": "clear_tool_uses_20250919", "keep": 3}]])
def test_a_wrong_edit_is_named(engine: Engine, edits: Any) -> None:
    agent = Agent(engine)
    url = agent.session["base_urls"]["anthropic"] + "/v1/messages"
    answer = engine.client.post(
        url,
        json=body(1, max_tokens=1, context_management={"edits": edits}),
        headers={"authorization": f"Bearer {agent.session['token']}"},
    )
    assert answer.status_code == 400 and "context_management.edits" in answer.json()["error"]["message"]
