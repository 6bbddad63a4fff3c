"""A prompt that is sent again while it is computed: one computation, and both get the whole answer; and the limit on how
much is held at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from engine.errors import WorkerGone
from engine.front import joining
from engine.front.joining import Computations
from engine.front.supervision.pending import Pending
from engine.protocol import Sampling, Submit
from tests.engine.front.fakes import Control, fake_engine
from tests.serving import Engine, engine_server

WORDS = 40
BODIES: dict[str, dict[str, Any]] = {
    "messages": {"messages": [{"role": "user", "content": "Say it again, please."}], "max_tokens": WORDS},
    "chat/completions": {"messages": [{"role": "user", "content": "Say it again, please."}], "max_tokens": WORDS},
    "responses": {"input": "Say it again, please.", "max_output_tokens": WORDS},
    "completions": {"prompt": "Say it again, please.", "max_tokens": WORDS},
}


@pytest.fixture(scope="module")
def slow(models_dir: Path) -> Iterator[tuple[Engine, Control]]:
    with fake_engine(models_dir, ["--heartbeat-s", "0.3", "--anticipate", "off"]) as pair:
        yield pair


class Client:
    """One session, asked by plain HTTP."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.session = engine.session()
        self._headers = {"authorization": f"Bearer {self.session['token']}"}

    def http(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.engine.url}/s/{self.session['id']}/v1",
            headers=self._headers,
            timeout=60,
            trust_env=False,
        )

    def ask(self, path: str, **more: Any) -> dict[str, Any]:
        with self.http() as http:
            return http.post(f"/{path}", json={**BODIES[path], **more}).raise_for_status().json()

    def turns(self) -> list[dict[str, Any]]:
        return self.engine.get(f"/v1/sessions/{self.session['id']}/turns")["turns"]


def text_of(path: str, answer: dict[str, Any]) -> str:
    """What was generated: thoughts and text."""
    if path == "messages":
        return "".join(b["text"] for b in answer["content"] if b["type"] == "text")
    if path == "responses":
        return "".join(part["text"] for item in answer["output"] for part in item.get("content", item.get("summary")))
    (choice,) = answer["choices"]
    if path == "completions":
        return str(choice["text"])
    return str(choice["message"].get("reasoning_content", "") + choice["message"]["content"])


def until(condition: Any, timeout_s: float = 180.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("path", list(BODIES))
@pytest.mark.parametrize("earlier", ["stays", "leaves"])
def test_a_prompt_sent_again_joins_and_gets_everything(slow: tuple[Engine, Control], path: str, earlier: str) -> None:
    engine, control = slow
    control.set(tokens_per_s=25)
    client = Client(engine)
    before = engine.get("/v1/stats")["engine"]["submits"]
    with ThreadPoolExecutor(2) as pool, client.http() as http:
        request = http.build_request("POST", f"/{path}", json={**BODIES[path], "stream": True})
        first = http.send(request, stream=True)
        lines = first.iter_lines()
        seen = [next(lines) for _ in range(12)]  # it is well on its way
        second = pool.submit(client.ask, path)
        until(lambda: len(client.turns()) == 2 and client.turns()[1]["joined"])
        if earlier == "leaves":
            first.close()
        else:
            seen += list(lines)
        whole = second.result()
    stats = engine.wait_idle()
    assert stats["engine"]["submits"] == before + 1, "never two computations"
    alone = text_of(path, client.ask(path))
    assert text_of(path, whole) == alone and len(alone.split()) > 5
    one, two, three = client.turns()
    assert (one["joined"], two["joined"], three["joined"]) == (None, one["id"], None)
    assert (one["retried"], two["retried"], three["resent"]) == (False, True, True)
    assert one["client_gone"] == (earlier == "leaves") and (two["end"], two["client_gone"]) == ("length", False)
    assert (two["new_tokens"], two["output_tokens"]) == (0, WORDS), "the first is charged with what was computed"


def test_when_the_last_one_leaves_the_work_stops(slow: tuple[Engine, Control]) -> None:
    engine, control = slow
    control.set(tokens_per_s=10)
    client = Client(engine)
    with client.http() as http:
        for count in (1, 2):
            request = http.build_request("POST", "/messages", json={**BODIES["messages"], "stream": True})
            stream = http.send(request, stream=True)
            until(lambda count=count: len(client.turns()) == count)
            if count == 1:
                first = stream
        first.close()
        time.sleep(0.4)
        assert engine.get("/v1/stats")["engine"]["running"] == 1
        stream.close()
    assert engine.wait_idle()["engine"]["running"] == 0
    assert [t["end"] for t in client.turns()] == ["client_gone"] * 2


@pytest.mark.parametrize("other", [{"temperature": 0.5}, {"seed": 7}, {"max_tokens": 30}])
def test_what_is_asked_otherwise_is_computed_for_itself(slow: tuple[Engine, Control], other: dict[str, Any]) -> None:
    engine, control = slow
    control.set(tokens_per_s=100)
    client, before = Client(engine), engine.get("/v1/stats")["engine"]["submits"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda more: client.ask("chat/completions", **more), ({}, other)))
    assert engine.get("/v1/stats")["engine"]["submits"] == before + 2
    assert [t["joined"] for t in client.turns()] == [None, None]


def test_other_sessions_and_the_administrator_share_nothing(slow: tuple[Engine, Control]) -> None:
    engine, control = slow
    control.set(tokens_per_s=100)
    before = engine.get("/v1/stats")["engine"]["submits"]
    asks = [Client(engine).ask, Client(engine).ask]
    body = BODIES["chat/completions"]
    asks += [lambda path: engine.client.post(f"/v1/{path}", json=body)] * 2  # type: ignore[list-item,misc]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda ask: ask("chat/completions"), asks))
    assert engine.get("/v1/stats")["engine"]["submits"] == before + 4


def test_one_that_joins_a_lost_worker_hears_of_it_too(slow: tuple[Engine, Control]) -> None:
    engine, control = slow
    client = Client(engine)
    control.set(mode="die", tokens_per_s=2)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(client.ask, "messages") for _ in range(2)]
        for one in asked:
            with pytest.raises(httpx.HTTPStatusError, match="529"):
                one.result()
    engine.wait_ready()


def test_a_real_retry_computes_its_prompt_once(models_dir: Path) -> None:
    """The client leaves after its retry came, as agents do; over a prefill of several seconds."""
    flags = ["--kv", "16k", "--throttle-tokens-per-s", "150", "--anticipate", "off", "--chunk-tokens", "64"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        client = Client(engine)
        long = {"messages": [{"role": "user", "content": "tell me of the sea " * 60}], "max_tokens": 5, "stream": True}
        with client.http() as http, ThreadPoolExecutor(1) as pool:
            first = http.send(http.build_request("POST", "/chat/completions", json=long), stream=True)
            until(lambda: client.turns()[0]["prefill_done"])
            second = pool.submit(client.ask, "chat/completions", **{**long, "stream": False})
            until(lambda: len(client.turns()) == 2 and client.turns()[1]["joined"])
            first.close()
            whole = second.result()
        assert whole["usage"]["completion_tokens"] == 5 and whole["usage"]["prompt_tokens"] > 200
        computed = engine.wait_idle()["engine"]["tokens"]["prefill"]
        assert computed <= whole["usage"]["prompt_tokens"], "each token of the prompt once"


def test_truly_full_is_429_in_every_dialect_and_passes(models_dir: Path) -> None:
    with fake_engine(models_dir, ["--max-requests", "2", "--anticipate", "off"], tokens_per_s=10) as (engine, control):
        holders = [Client(engine) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(holder.ask, "chat/completions") for holder in holders]
            until(lambda: engine.get("/v1/stats")["engine"]["running"] == 2)
            late = Client(engine)
            urls, token = late.session["base_urls"], late.session["token"]
            claude = anthropic.Anthropic(base_url=urls["anthropic"], auth_token=token, max_retries=0)
            gpt = openai.OpenAI(base_url=urls["openai"], api_key=token, max_retries=0)
            hi: Any = [{"role": "user", "content": "hi"}]
            with pytest.raises(anthropic.RateLimitError) as refused:
                claude.messages.create(model="m", max_tokens=5, messages=hi)
            body: Any = refused.value.body
            assert body["error"]["type"] == "rate_limit_error"
            for call in (
                lambda: gpt.chat.completions.create(model="m", messages=hi),
                lambda: gpt.responses.create(model="m", input="hi", stream=True),
                lambda: gpt.completions.create(model="m", prompt="hi"),
            ):
                with pytest.raises(openai.RateLimitError) as limited:
                    call()
                assert limited.value.code == "rate_limit_exceeded"
                assert 1 <= int(limited.value.response.headers["retry-after"]) <= 60
            # A prompt that is being computed takes no further place.
            control.set(tokens_per_s=1000)
            for one in asked:
                one.result()
        # An SDK with its usual retries only waits.
        with ThreadPoolExecutor(2) as pool:
            control.set(tokens_per_s=60)
            asked = [pool.submit(Client(engine).ask, "chat/completions") for _ in range(2)]
            until(lambda: engine.get("/v1/stats")["engine"]["running"] == 2)
            patient = openai.OpenAI(base_url=urls["openai"], api_key=token, max_retries=5)
            done = patient.chat.completions.create(model="m", messages=hi, max_tokens=2)
            assert done.usage.completion_tokens == 2
        assert {t["error"].split(":")[0] for t in late.turns() if t["end"] == "error"} == {"FT-E0429 full"}


class FakeBackend:
    def __init__(self) -> None:
        self.submitted: list[Pending] = []
        self.cancelled: list[str] = []

    def submit(self, submit: Submit) -> Pending:
        self.submitted.append(Pending(submit))
        return self.submitted[-1]

    def cancel(self, rid: str) -> None:
        self.cancelled.append(rid)


def submit(rid: str, **fields: Any) -> Submit:
    return Submit(rid, [1, 2, 3], 8, session="s/a", **fields)


async def drained(share: joining.Share) -> list[dict[str, Any]]:
    messages = []
    while (message := await share.get(0.01)) is not None:
        messages.append(message)
    return messages


async def told_twice() -> None:
    worker = FakeBackend()
    computations = Computations(worker, 9)
    first = computations.submit(submit("a"), True)
    pending = worker.submitted[0]
    pending.put({"t": "accepted", "rid": "a", "cached": 1})
    for done in (1, 2, 3):
        pending.put({"t": "progress", "rid": "a", "done": done, "total": 3})
    pending.put({"t": "tokens", "rid": "a", "ids": [5], "logprobs": [[5, -1.0, []]]})
    pending.put({"t": "tokens", "rid": "a", "ids": [6], "logprobs": None})
    second = computations.submit(submit("b"), True)
    assert (first.joined, second.joined, len(worker.submitted)) == (None, "a", 1)
    pending.put({"t": "tokens", "rid": "a", "ids": [7], "logprobs": None})
    heard = await drained(second)
    assert [m["t"] for m in heard] == ["accepted", "progress", "tokens"]
    assert heard[1]["done"] == 3 and heard[2]["ids"] == [5, 6, 7] and heard[2]["logprobs"] == [[5, -1.0, []]]
    first.leave()
    first.leave()
    assert worker.cancelled == [] and computations.held() == 1
    pending.put({"t": "done", "rid": "a", "reason": "stop"})
    third = computations.submit(submit("c"), True)
    assert third.joined is None, "what has ended is not joined"
    second.leave()
    assert worker.cancelled == []
    third.leave()
    assert worker.cancelled == ["c"] and computations.held() == 0
    for different in ({"sampling": Sampling(temperature=1.0)}, {"grammar": "g"}, {"forced": [1]}, {"stop_ids": [4]}):
        one = computations.submit(submit("d"), True)
        assert computations.submit(submit("e", **different), True).joined is None
        assert computations.submit(submit("f"), False).joined is None
        worker.submitted[-3].put(WorkerGone("gone"))
        one.leave()


def test_the_story_is_told_from_its_start_and_ends_with_the_last_reader() -> None:
    import asyncio

    asyncio.run(told_twice())


def test_prompts_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MAX_TOKENS", 5)
    computations = Computations(FakeBackend(), 9)
    shares = [computations.submit(submit(rid), False) for rid in ("a", "b")]
    assert computations.full()
    shares[0].leave()
    assert not computations.full()


def test_streams_joined_late_are_whole_too(slow: tuple[Engine, Control]) -> None:
    """Both dialect streams of one computation carry the same text and a usage."""
    engine, control = slow
    control.set(tokens_per_s=40)
    client = Client(engine)
    texts: dict[int, str] = {}

    def read(n: int) -> None:
        with (
            client.http() as http,
            http.stream("POST", "/chat/completions", json={**BODIES["chat/completions"], "stream": True}) as answer,
        ):
            chunks = [json.loads(x[6:]) for x in answer.iter_lines() if x.startswith("data: {")]
        deltas = [c["choices"][0]["delta"] for c in chunks]
        texts[n] = "".join(d.get("reasoning_content", "") + d.get("content", "") for d in deltas)
        assert chunks[-1]["usage"]["completion_tokens"] == WORDS

    threads = [threading.Thread(target=read, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    assert texts[0] == texts[1] == texts[2] != ""
    assert len({t["joined"] for t in client.turns()} - {None}) == 1
