"""Who may come in, and the routes of launchers and dashboards."""

from __future__ import annotations

import itertools
import json
import stat

import httpx
import openai
import pytest

from tests.engine.api.conftest import DECLARED, Agent, play
from tests.serving import Engine

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def test_only_health_and_ready_are_open(engine: Engine) -> None:
    with httpx.Client(base_url=engine.url, trust_env=False) as stranger:
        health = stranger.get("/health")
        assert health.status_code == 200 and set(health.json()) == {"status", "nonce", "pid", "version"}
        assert health.json()["pid"] == engine.process.pid
        assert stranger.get("/ready").json()["state"] == "ready"
        for path in ("/v1/models", "/v1/stats", "/v1/requests", "/v1/sessions", "/v1/engine/events", "/metrics", "/x"):
            assert stranger.get(path).status_code == 401, path
        assert stranger.post("/v1/engine/stop").status_code == 401
        denied = stranger.post("/v1/messages", json={})
        assert denied.status_code == 401 and denied.json()["error"]["type"] == "authentication_error"
        denied = stranger.post("/v1/chat/completions", json=CHAT)
        assert denied.status_code == 401 and denied.json()["error"]["code"] == "invalid_api_key"


def test_a_token_opens_its_own_session_only(engine: Engine) -> None:
    one, two = Agent(engine).session, Agent(engine).session
    path = f"/s/{one['id']}/v1/chat/completions"
    for headers, status in (
        ({"authorization": f"Bearer {one['token']}"}, 200),
        ({"authorization": "", "x-api-key": one["token"]}, 200),
        ({"authorization": "Bearer stale", "x-api-key": one["token"]}, 200),
        ({"authorization": f"Bearer {two['token']}"}, 401),
        ({"authorization": f"Bearer {engine.admin_token}"}, 401),
        ({"authorization": "", "x-api-key": ""}, 401),
        ({"authorization": f"Basic {one['token']}"}, 401),
    ):
        assert engine.client.post(path, json=CHAT, headers=headers).status_code == status, headers
    own = {"authorization": f"Bearer {one['token']}"}
    assert engine.client.post("/v1/chat/completions", json=CHAT, headers=own).status_code == 401
    assert engine.client.get("/v1/sessions", headers=own).status_code == 401
    assert engine.client.get(f"/s/{one['id']}/v1/sessions", headers=own).status_code == 404
    assert engine.client.post("/v1/chat/completions", json=CHAT).status_code == 200
    engine.client.delete(f"/v1/sessions/{one['id']}").raise_for_status()
    assert engine.client.post(path, json=CHAT, headers=own).status_code == 401


def test_what_an_ended_session_did_stays_readable_for_the_administrator(engine: Engine) -> None:
    one = engine.session(name="over")
    own = {"authorization": f"Bearer {one['token']}"}
    path = f"/s/{one['id']}/v1/chat/completions"
    for text in ("first words", "other words"):
        body = {**CHAT, "messages": [{"role": "user", "content": text}]}
        assert engine.client.post(path, json=body, headers=own).status_code == 200
    alive = engine.get(f"/v1/sessions/{one['id']}")
    assert alive["ended"] is None
    turns = engine.get(f"/v1/sessions/{one['id']}/turns?texts=1")["turns"]
    engine.client.delete(f"/v1/sessions/{one['id']}").raise_for_status()
    facts = engine.get(f"/v1/sessions/{one['id']}")
    assert facts.pop("ended") >= alive["created"]
    assert facts.pop("warm")["tier"] == "gone"  # nothing is kept on disk here
    assert facts == {k: v for k, v in alive.items() if k not in ("ended", "warm")}
    assert engine.get(f"/v1/sessions/{one['id']}/turns?texts=1")["turns"] == turns and len(turns) == 2
    assert one["id"] not in [session["id"] for session in engine.get("/v1/sessions")["sessions"]]
    for way in ("", "/turns"):
        assert engine.client.get(f"/v1/sessions/{one['id']}{way}", headers=own).status_code == 401
    assert engine.client.delete(f"/v1/sessions/{one['id']}").status_code == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("[::1]:{port}", 200),
        ("LOCALHOST", 200),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost:{port}@evil", 403),
        ("", 403),
    ],
)
def test_host_header(engine: Engine, host: str, status: int) -> None:
    answer = engine.client.get("/health", headers={"host": host.format(port=engine.port)})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_models_in_both_shapes(engine: Engine) -> None:
    agent = Agent(engine)
    model = next(iter(agent.openai.models.list()))
    assert model.id == "tiny-hybrid" and model.context_window == agent.session["window"]  # type: ignore[attr-defined]
    assert agent.openai.models.retrieve("tiny-hybrid").id == "tiny-hybrid"
    with pytest.raises(openai.NotFoundError):
        agent.openai.models.retrieve("gpt-x")
    listed = agent.anthropic.models.list()
    assert [m.id for m in listed] == ["tiny-hybrid"] and listed.data[0].type == "model"
    assert agent.session["window"] == engine.get("/ready")["window"]
    assert 0 < agent.session["max_output"] < agent.session["window"]


def test_sessions(engine: Engine) -> None:
    agent = Agent(engine, play({"text": "x"}), name="claude-2", project="/p")
    session = engine.get(f"/v1/sessions/{agent.session['id']}")
    assert session["name"] == "claude-2" and session["scripted"] and session["harness"] == "test"
    assert agent.session["token"] not in json.dumps(engine.get("/v1/sessions"))
    assert agent.session["id"] in [s["id"] for s in engine.get("/v1/sessions")["sessions"]]
    assert engine.client.get("/v1/sessions/s-none").status_code == 404
    for body in ({"name": 5}, {"script": {"turns": [{"blocks": []}]}}, {"script": []}, {"config": 1}):
        assert engine.client.post("/v1/sessions", json=body).status_code == 400


def test_a_wrong_declaration_is_refused_by_field(engine: Engine) -> None:
    keep = {"edge": "head.end", "class": "head"}
    for declaration, named in (
        ({**DECLARED, "keep": [keep, {**keep, "class": "crown"}]}, "declaration.keep[1].class"),
        ({**DECLARED, "keep": [{**keep, "edge": "message[0"}]}, "declaration.keep[0].edge"),
        ({**DECLARED, "moon": 1}, "declaration.moon"),
        ({**DECLARED, "schema": "edits/9"}, "declaration.schema"),
    ):
        refused = engine.client.post("/v1/sessions", json={"declaration": declaration})
        assert refused.status_code == 400 and named in refused.text, refused.text
    taken = engine.session(declaration={**DECLARED, "versions": ">=2, <3", "keep": [keep]}, version="2.5")
    outside = engine.session(declaration={**DECLARED, "versions": ">=2, <3", "keep": [keep]}, version="3.1")
    assert [engine.get(f"/v1/sessions/{s['id']}")["observe"] for s in (taken, outside)] == [False, True]


def test_a_session_says_whether_old_thinking_is_rendered(engine: Engine) -> None:
    past = [{"type": "thinking", "thinking": "a plan of many words", "signature": "s"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": past},
        {"role": "user", "content": "c"},
    ]
    sizes = {}
    for switch in (None, True, False):
        agent = Agent(engine, render={"preserve_thinking": switch})
        counted = agent.anthropic.messages.count_tokens(model="m", messages=messages)  # type: ignore[arg-type]
        agent.anthropic.messages.create(model="m", messages=messages, max_tokens=1)  # type: ignore[arg-type]
        sizes[switch] = agent.turns()[0]["prompt_tokens"]
        assert counted.input_tokens == sizes[switch]
        listed = engine.get(f"/v1/sessions/{agent.session['id']}")
        assert listed["render"] == {"preserve_thinking": switch}
    assert sizes[None] == sizes[True] > sizes[False]
    told = Agent(engine, window=4096, max_output=512).session
    assert told["window"] == engine.get("/ready")["window"], "what the engine has, not what the agent was told"
    listed = engine.get(f"/v1/sessions/{told['id']}")
    assert (listed["window"], listed["max_output"]) == (4096, 512)
    for key, value in (("window", 0), ("max_output", "8k"), ("window", True)):
        refused = engine.client.post("/v1/sessions", json={key: value})
        assert refused.status_code == 400 and key in refused.text
    for render, named in (
        (5, "render"),
        ({"preserve": True}, "render.preserve"),
        ({"preserve_thinking": 1}, "thinking"),
    ):
        refused = engine.client.post("/v1/sessions", json={"render": render})
        assert refused.status_code == 400 and named in refused.text


def test_request_record(engine: Engine) -> None:
    wire = {"session": ["header:x-none", "body:metadata.user_id:json(session_id)"], "parent": []}
    declaration = {**DECLARED, "wire": wire}
    agent = Agent(engine, declaration=declaration)
    body = {**CHAT, "metadata": {"user_id": json.dumps({"session_id": "abc"})}}
    headers = {"authorization": f"Bearer {agent.session['token']}", "user-agent": "probe/1"}
    for _ in range(2):
        path = f"/s/{agent.session['id']}/v1/chat/completions"
        assert engine.client.post(path, json=body, headers=headers).status_code == 200
    first, second = agent.turns()
    assert first["schema"] == "ft.request/1" and first["session"] == agent.session["id"]
    assert (first["harness_id"], first["user_agent"], first["api"]) == ("abc", "probe/1", "chat")
    assert (first["resent"], second["resent"]) == (False, True) and first["prompt_hash"] == second["prompt_hash"]
    assert first["end"] == "length" and first["output_tokens"] == 2 and first["prompt_tokens"] > 0
    assert first["prompt_tokens"] == first["cached_tokens"] + first["replayed_tokens"] + first["new_tokens"]
    assert 0 < first["ttft_s"] <= first["total_s"]
    assert engine.get("/v1/requests?limit=1")["requests"] == [second]
    session = engine.get(f"/v1/sessions/{agent.session['id']}")
    assert session["requests"] == 2 and session["running"] == 0 and session["output_tokens"] == 4


def test_events_resume_by_id(engine: Engine) -> None:
    agent = Agent(engine)
    with engine.client.stream("GET", "/v1/engine/events", timeout=120) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        agent.openai.chat.completions.create(model="m", messages=CHAT["messages"], max_tokens=2)  # type: ignore[arg-type]
        ids = [int(line[4:]) for line in itertools.islice((x for x in lines if x.startswith("id: ")), 2)]
    assert ids[1] == ids[0] + 1
    with engine.client.stream(
        "GET", "/v1/engine/events", headers={"last-event-id": str(ids[0])}, timeout=120
    ) as stream:
        again = next(line for line in stream.iter_lines() if line.startswith("id: "))
    assert again == f"id: {ids[1]}"
    assert engine.client.get("/v1/engine/events?after=x").status_code == 400


def test_metrics_stats_and_embeddings(engine: Engine) -> None:
    Agent(engine).openai.chat.completions.create(model="m", messages=CHAT["messages"], max_tokens=2)  # type: ignore[arg-type]
    text = engine.client.get("/metrics").text
    assert 'ft_requests_total{api="chat",end="length"}' in text and "ft_worker_ready 1.0" in text
    stats = engine.get("/v1/stats")
    assert stats["running"] == 0 and stats["engine"] is not None and stats["worker"]["state"] == "ready"
    refused = engine.client.post("/v1/embeddings", json={"input": "x"})
    assert refused.status_code == 400 and "no embeddings" in refused.json()["error"]["message"]


def test_runtime_files_are_private(engine: Engine) -> None:
    assert stat.S_IMODE(engine.runtime_dir.stat().st_mode) == 0o700
    facts = json.loads((engine.runtime_dir / "engine.json").read_text())
    assert {"pid", "start_time", "port", "nonce", "admin_token", "model", "version"} <= set(facts)
    for name in ("engine.json", "worker.sock", "supervisor.lock"):
        assert stat.S_IMODE((engine.runtime_dir / name).stat().st_mode) == 0o600, name


def test_outside_the_verified_range_a_fork_that_no_rule_explains_is_an_event(engine: Engine) -> None:
    agents = [Agent(engine, declaration={**DECLARED, "versions": "<2"}, version=version) for version in ("1.0", "3.0")]
    for agent in agents:
        for text in ("one thing", "another thing"):
            messages = [{"role": "user", "content": "start"}, {"role": "user", "content": text}]
            agent.openai.chat.completions.create(model="m", messages=messages, max_tokens=1)  # type: ignore[arg-type]
    assert all(agent.turns()[-1]["broke_at"] for agent in agents)
    forks = []
    with engine.client.stream("GET", "/v1/engine/events?after=0", timeout=120) as stream:
        for line in stream.iter_lines():
            event = json.loads(line[6:]) if line.startswith("data: ") else {}
            if event.get("kind") == "fork":
                forks.append(event["session"])
                break
    assert forks == [agents[1].session["id"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"messages": [{"role": "user", "content": "hi"}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("responses", {"input": "hi"}),
    ],
)
def test_hints_and_epochs_are_read_in_every_dialect(engine: Engine, path: str, body: dict[str, object]) -> None:
    agent = Agent(engine)
    url = f"/s/{agent.session['id']}/v1/{path}"
    auth = {"authorization": f"Bearer {agent.session['token']}"}
    sized = {**body, "max_tokens": 1, "max_output_tokens": 1}
    hint = {"at": "head.end", "op": "summarize", "after": "user"}
    taken = engine.client.post(url, json={**sized, "edit_hints": [hint], "epoch": 3}, headers=auth)
    assert taken.status_code == 200, taken.text
    assert agent.turns()[-1]["epoch"] == "3"
    refused = engine.client.post(url, json={**sized, "edit_hints": [{**hint, "op": "vanish"}]}, headers=auth)
    assert refused.status_code == 400 and "edit_hints[0].op" in refused.text
