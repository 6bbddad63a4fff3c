"""The live source against a real front and worker: its numbers are those of the engine, and it outlives every engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ftagent.context import Context
from ftagent.dashboard.live import LiveSource
from ftagent.dashboard.model import Anchor, Frame
from ftagent.dashboard.tree import walk
from ftagent.paths import find_paths
from tests.serving import Engine, engine_server

FLAGS = [
    "--device",
    "emulated",
    "--moe-backend",
    "offload",
    "--device-memory",
    "160m",
    "--kv",
    "16k",
    "--heartbeat-s",
    "0.4",
]
See = Callable[[Callable[[Frame], Any]], Awaitable[Frame]]


def home(tmp_path: Path, *engines: Engine) -> Context:
    """A home whose runtime folder names this engine."""
    env = {"FT_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    paths = find_paths(env)
    paths.runtime.mkdir(parents=True, exist_ok=True)
    for engine in engines:
        paths.engine_file.write_text((engine.runtime_dir / "engine.json").read_text())
    return Context(paths, env, tmp_path, debug=False, colour="never", no_input=True)


@pytest.fixture(scope="module")
def served(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=FLAGS) as engine:
        yield engine


def watching(source: LiveSource, work: Callable[[See], Awaitable[None]], limit_s: float = 180.0) -> None:
    """Run `work` beside the frames; `see(condition)` is the first frame from now on of which it holds."""

    async def both() -> None:
        waiting: list[tuple[Callable[[Frame], Any], asyncio.Future[Frame]]] = []
        last: list[Frame] = []

        async def see(condition: Callable[[Frame], Any]) -> Frame:
            future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
            waiting.append((condition, future))
            try:
                return await asyncio.wait_for(future, limit_s)
            except TimeoutError:
                raise AssertionError(f"not seen in {limit_s} s; last: {last[-1:]}") from None

        async def look() -> None:
            async for frame in source.frames():
                last[:] = [frame]
                for entry in list(waiting):
                    if not entry[1].done() and entry[0](frame):
                        waiting.remove(entry)
                        entry[1].set_result(frame)

        looking = asyncio.create_task(look())
        try:
            await work(see)
        finally:
            await source.close()
            await asyncio.wait_for(looking, 20)

    asyncio.run(both())


async def ask(session: dict[str, Any], **body: Any) -> dict[str, Any]:
    """A whole answer."""
    message = {"messages": [{"role": "user", "content": "count to ten"}], "max_tokens": 24, "stream": False, **body}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        headers = {"authorization": "Bearer " + session["token"]}
        answer = await client.post(session["base_urls"]["openai"] + "/chat/completions", json=message, headers=headers)
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def paused(engine: Engine) -> Iterator[None]:
    """Requests wait, with heartbeats."""
    engine.client.post("/v1/engine/pause", json={"on": True}).raise_for_status()
    try:
        yield
    finally:
        engine.client.post("/v1/engine/pause", json={"on": False}).raise_for_status()


def test_the_numbers_of_a_frame_are_those_of_the_records_and_of_usage(served: Engine, tmp_path: Path) -> None:
    session = served.session(name="shop-1", watchdog_s=300)
    source = LiveSource(home(tmp_path, served), fps=10)

    async def work(see: See) -> None:
        source.show("overview", "turns", "experts", "memory", "anchors")
        first = await see(lambda frame: frame.engine.state == "ready")
        assert first.engine.port == served.port and first.engine.model == "tiny-hybrid"
        before = await see(lambda frame: frame.totals.requests is not None)
        usages = []
        for words in (300, 300, 60):
            answer = await ask(session, messages=[{"role": "user", "content": "count " * words}])
            usages.append(answer["usage"])

        def complete(frame: Frame) -> bool:
            own = [s for s in frame.sessions if s.id == session["id"]]
            return bool(own) and own[0].requests == 3 and own[0].turns == 3 and not frame.in_flight

        seen = await see(
            lambda frame: complete(frame) and (frame.totals.requests or 0) >= (before.totals.requests or 0) + 3
        )
        records = served.get(f"/v1/sessions/{session['id']}/turns")["turns"]
        turns = [turn for turn in seen.turns if turn.session == session["id"]]
        names = (
            "prompt_tokens", "cached_tokens", "replayed_tokens", "new_tokens", "anticipated_tokens", "output_tokens",
            "queue_s", "restore_s", "prefill_s", "ttft_s", "total_s", "expert_hits", "expert_misses", "tier",
        )  # fmt: skip
        assert [{n: getattr(t, n) for n in names} for t in turns] == [{n: r[n] for n in names} for r in records]
        assert [(t.prompt_tokens, t.output_tokens) for t in turns] == [
            (u["prompt_tokens"], u["completion_tokens"]) for u in usages
        ]
        assert [t.cached_tokens for t in turns] == [u["prompt_tokens_details"]["cached_tokens"] for u in usages]
        (own,) = [s for s in seen.sessions if s.id == session["id"]]
        assert own.prompt_tokens == sum(u["prompt_tokens"] for u in usages)
        assert own.output_tokens == sum(u["completion_tokens"] for u in usages)
        assert own.ttft_last_s == records[-1]["ttft_s"] and own.ttft_max_s == max(r["ttft_s"] for r in records)
        assert own.context_tokens == usages[-1]["total_tokens"] and own.name == "shop-1" and own.status == "waiting"
        assert (own.watchdog.limit_s, own.watchdog.source, own.watchdog.silence_s) == (300, "session", None)
        grown = (seen.totals.prompt_tokens or 0) - (before.totals.prompt_tokens or 0)
        assert grown == sum(u["prompt_tokens"] for u in usages)
        broken = turns[-1]
        assert broken.broke_at is not None and "changed at token" in broken.why
        told = await source.explain(broken.request)
        assert told.token == broken.broke_at and told.old and told.new and told.old != told.new

        full = await see(
            lambda f: f.memory.tenants and f.experts.layers and f.experts.curve and f.anchors.roots and f.engine.flags
        )
        memory, stats = served.get("/v1/engine/memory"), served.get("/v1/stats")["engine"]
        kv = next(t for t in full.memory.tenants if t.key == "kv")
        assert (kv.total, kv.most) == (memory["kv"]["tokens"], memory["kv"]["most_tokens"]) and kv.unit == "tokens"
        experts = next(t for t in full.memory.tenants if t.key == "experts")
        assert (experts.used, experts.total) == (memory["experts"]["resident"], memory["experts"]["slots"])
        assert full.experts.hits == stats["experts"]["hits"] and full.experts.misses == stats["experts"]["misses"]
        assert len(list(walk(full.anchors.roots or ()))) == full.anchors.count == stats["checkpoints"]["count"]
        assert {f.name: f.origin for f in full.engine.flags}["moe_backend"] == "flag"
        assert full.memory.told.at is not None and (full.memory.told.age_s(full.now) or 0) < 30

    watching(source, work)


def test_a_request_that_waits_is_seen_waiting_and_the_keys_act_on_it(served: Engine, tmp_path: Path) -> None:
    session = served.session(name="waits", watchdog_s=2)
    source = LiveSource(home(tmp_path, served), fps=10)

    async def work(see: See) -> None:
        await see(lambda frame: frame.engine.state == "ready")
        with paused(served):
            asking = asyncio.create_task(ask(session))  # no stream: heartbeats do not reach it

            def mine(frame: Frame) -> list[Any]:
                return [one for one in frame.in_flight if one.session == session["id"]]

            seen = await see(lambda frame: any(one.watchdog.level == "red" for one in mine(frame)))
            (one,) = mine(seen)
            assert (one.stage, one.cached_tokens, one.ttft_s, one.name) == ("queue", None, None, "waits")
            assert one.watchdog.silence_s == pytest.approx(one.elapsed_s, abs=0.05)
            assert one.prompt_tokens == served.get(f"/v1/sessions/{session['id']}/turns")["turns"][0]["prompt_tokens"]
            (alert,) = [alert for alert in seen.alerts if alert.request == one.request]
            assert alert.session == session["id"]
            assert next(s for s in seen.sessions if s.id == session["id"]).status == "prefill"
            await see(lambda frame: frame.engine.paused)
            assert (await source.act("beat", request=one.request)).done
            assert not (await source.act("cancel", request="req0")).done
            cancelled = await source.act("cancel", request=one.request)
            assert cancelled.done and "again" in cancelled.text
            assert "cancelled" in json.dumps(await asking)
        seen = await see(lambda frame: not mine(frame) and any(e.request == one.request for e in frame.events))
        assert "cancelled" in next(e.text for e in seen.events if e.request == one.request)
        assert not seen.alerts

    watching(source, work)


def test_a_stream_is_silent_only_since_its_newest_heartbeat(served: Engine, tmp_path: Path) -> None:
    session = served.session(name="streams", watchdog_s=60)
    source = LiveSource(home(tmp_path, served), fps=10)

    async def work(see: See) -> None:
        await see(lambda frame: frame.engine.state == "ready")
        with paused(served):
            headers = {"authorization": "Bearer " + session["token"]}
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": True}
            url = session["base_urls"]["openai"] + "/chat/completions"
            async with (
                httpx.AsyncClient(trust_env=False, timeout=60) as client,
                client.stream("POST", url, json=body, headers=headers) as stream,
            ):
                seen = await see(lambda f: any((o.heartbeats or 0) >= 3 for o in f.in_flight))
                one = next(o for o in seen.in_flight if (o.heartbeats or 0) >= 3)
                assert one.beat_age_s is not None and one.elapsed_s is not None
                assert one.watchdog.silence_s == pytest.approx(one.beat_age_s, abs=0.05)
                assert one.watchdog.silence_s < one.elapsed_s
                assert (await source.act("go_on")).done
                assert "[DONE]" in "".join([line async for line in stream.aiter_lines()])

    watching(source, work)


def test_memory_is_predicted_and_applied(served: Engine, tmp_path: Path) -> None:
    source = LiveSource(home(tmp_path, served), fps=10)

    async def work(see: See) -> None:
        source.show("memory")
        await see(lambda frame: frame.memory.tenants)
        told = await source.what_if("KV 20k", kv_tokens=20480)
        assert told.possible and told.kv_tokens == 20480 and told.label == "KV 20k"
        assert served.get("/v1/engine/memory")["kv"]["tokens"] == 16384  # only asked
        refused = await source.what_if("KV 9m", kv_tokens=9 << 20)
        assert refused.possible is False and refused.why
        assert (await source.act("apply", kv_tokens=20480)).done
        seen = await see(lambda f: any(t.key == "kv" and t.total == 20480 for t in f.memory.tenants))
        assert next(t for t in seen.memory.tenants if t.key == "kv").pinned
        assert (await source.act("apply", auto=True)).done

    watching(source, work)


def test_it_outlives_a_worker_that_is_killed_and_an_engine_that_goes_and_comes_back(
    models_dir: Path, tmp_path: Path
) -> None:
    context = home(tmp_path)
    source = LiveSource(context, fps=10)

    async def work(see: See) -> None:
        nothing = await see(lambda frame: True)
        assert nothing.engine.state == "stopped" and nothing.engine.model is None and nothing.engine.uptime_s is None
        assert not (await source.act("cancel", request="req1")).done
        with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
            home(tmp_path, engine)
            await see(lambda frame: frame.engine.state == "ready")
            await ask(engine.session(name="one"))
            seen = await see(lambda frame: len(frame.turns) == 1 and frame.turns[0].ended)
            os.kill(engine.worker_pid(), signal.SIGKILL)
            crashed = await see(lambda frame: frame.engine.crashes)
            assert crashed.engine.crashes[0].restart_in_s == 1.0
            assert any(event.kind == "worker_gone" for event in crashed.events)
            await see(lambda frame: frame.engine.state == "ready" and frame.engine.restarts == 1)
        gone = await see(lambda frame: frame.engine.state == "stopped")
        assert gone.engine.model == "tiny-hybrid" and gone.engine.stopped_at is not None
        assert gone.turns[0].request == seen.turns[0].request and gone.offers == () and gone.in_flight == ()
        with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
            home(tmp_path, engine)
            back = await see(lambda frame: frame.engine.state == "ready")
            assert back.engine.port == engine.port
            await ask(engine.session(name="two"))
            again = await see(lambda frame: len(frame.turns) == 2 and frame.turns[-1].ended)
            assert again.turns[-1].name == "two" or again.turns[-1].session

    watching(source, work)


def test_an_engine_that_is_not_ours_is_not_believed(served: Engine, tmp_path: Path) -> None:
    context = home(tmp_path, served)
    record = json.loads(context.paths.engine_file.read_text())
    context.paths.engine_file.write_text(json.dumps({**record, "nonce": "of another one"}))
    frame = asyncio.run(LiveSource(context).once())
    assert frame.engine.state == "stopped" and frame.sessions == ()


def test_one_frame_is_complete_and_soon(served: Engine, tmp_path: Path) -> None:
    asyncio.run(ask(served.session(name="before")))
    began = time.monotonic()
    frame = asyncio.run(LiveSource(home(tmp_path, served)).once())
    assert time.monotonic() - began < 120
    assert frame.engine.state == "ready" and frame.memory.tenants and frame.turns and frame.events
    assert "before" in {session.name for session in frame.sessions} and frame.totals.requests
    assert {one.label[:4] for one in frame.memory.what_ifs} == {"KV +", "KV -"}
    own = next(session for session in frame.sessions if session.name == "before")
    assert own.cold_s is not None and own.resume_s is not None and own.resume_s > 0


def test_a_dashboard_that_only_reads_does_nothing(served: Engine, tmp_path: Path) -> None:
    source = LiveSource(home(tmp_path, served), readonly=True)
    assert not asyncio.run(source.act("pause")).done
    assert served.get("/v1/engine/life")["paused"] is False
    assert asyncio.run(source.once()).offers == ()


def test_the_tree_of_anchors_branches_where_two_conversations_part(models_dir: Path, tmp_path: Path) -> None:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
        session = engine.session(name="parts")
        system = {"role": "system", "content": "You are brief. " * 20}
        for question in ("What is red?", "Why is it blue?"):
            messages = [system, {"role": "user", "content": question}]
            assert "usage" in asyncio.run(ask(session, messages=messages))
        source = LiveSource(home(tmp_path, engine))
        source.show("anchors")
        roots = asyncio.run(source.once()).anchors.roots
        _by_hand(source, [anchor for _, anchor in walk(roots or ())][-1])
        roots = asyncio.run(source.once()).anchors.roots
        listed = {one["id"]: one for one in engine.get("/v1/stats")["engine"]["checkpoints"]["list"]}
    assert roots
    anchors = [anchor for _, anchor in walk(roots)]
    assert {anchor.id for anchor in anchors} == {str(id_) for id_ in listed} and len(anchors) == len(listed)
    for anchor in anchors:
        assert all(child.position > anchor.position for child in anchor.children)
        assert all(listed[int(child.id)]["parent"] == int(anchor.id) for child in anchor.children)
    forks = [anchor for anchor in anchors if len(anchor.children) > 1]
    assert forks and all("parts" in anchor.sessions for anchor in forks)


def _by_hand(source: LiveSource, anchor: Anchor) -> None:
    """Pinned, let go of, deleted; a second time there is nothing to delete."""
    named = {"id": anchor.id, "position": anchor.position, "line": anchor.line}

    def now() -> list[Anchor]:
        found = [one for _, one in walk(asyncio.run(source.once()).anchors.roots or ())]
        return [one for one in found if (one.id, one.position) == (anchor.id, anchor.position)]

    assert {"pin", "unpin", "drop", "gc"} <= set(asyncio.run(source.once()).offers)
    assert asyncio.run(source.act("pin", **named)).done and now()[0].pinned
    assert asyncio.run(source.act("unpin", **named)).done and not now()[0].pinned
    assert asyncio.run(source.act("drop", **named)).done and now() == []
    again = asyncio.run(source.act("drop", **named))
    assert not again.done and "not there any more" in again.text
    assert asyncio.run(source.act("gc")).done
