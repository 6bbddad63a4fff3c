"""The front before llama.cpp's own server: tokens as they are, counts of what it had, its slots, and hang-ups."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.prompt.language import Language
from tests.engine.upstream.peers import Peer, llama_server, turns_of_a_conversation
from tests.engine.upstream.servers import front_before
from tests.serving import Engine

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with llama_server(tmp_path_factory.mktemp("llama-server")) as peer:
        yield peer


@pytest.fixture(scope="module")
def front(server: Peer, models_dir: Path) -> Iterator[Engine]:
    with front_before([server.url], "smollm2-moe", models_dir) as made:
        yield made


def own(server: Peer, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{server.url}{path}", json=body, trust_env=False, timeout=60)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def test_tokens_go_in_and_come_out_as_they_are(front: Engine, server: Peer, models_dir: Path) -> None:
    language = Language.load(models_dir / "smollm2-moe")
    for text in ("Once upon a time", "naïve 你好 <|im_end|> 🎈"):
        prompt = language.encode(text)
        direct = own(server, "/completion", prompt=prompt, n_predict=24, temperature=0, cache_prompt=False)
        ask = {"model": "m", "max_tokens": 24, "temperature": 0, "prompt": text}
        through = front.client.post("/v1/completions", json=ask).raise_for_status().json()
        assert through["choices"][0]["text"] == direct["content"]
        assert through["usage"]["prompt_tokens"] == len(prompt) == direct["tokens_evaluated"]
        assert through["usage"]["completion_tokens"] == direct["tokens_predicted"]


def test_a_conversation_grows_and_what_it_had_is_told(front: Engine) -> None:
    turns = turns_of_a_conversation(front, 200)
    for before, turn in itertools.pairwise(turns):
        assert before["prompt_tokens"] - 4 <= turn["cached_tokens"] < turn["prompt_tokens"], turns
    ready = front.get("/ready")
    assert ready["window"] == 4096, "of one slot"
    assert "cached_tokens" not in ready["cannot"]
    (replica,) = front.get("/v1/stats")["engine"]["upstream"]
    assert (replica["kind"], replica["failed"]) == ("llama-server", 0)


def test_as_many_at_once_as_it_has_slots(front: Engine) -> None:
    def ask(number: int) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": f"Name {number} animals."}], "max_tokens": 48}
        answer = front.client.post("/v1/chat/completions", json={**body, "temperature": 0})
        return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, range(2, 6)))
    assert all(together) and front.get("/v1/stats")["engine"]["upstream"][0]["failed"] == 0


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_a_hang_up_stops_it(front: Engine, server: Peer, path: str) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], "input": "hi", "max_tokens": 3500}
    with front.client.stream("POST", path, json={"model": "m", **asked, "stream": True, "temperature": 1.5}) as answer:
        next(line for line in answer.iter_lines() if "delta" in line)
    began = time.monotonic()
    assert front.wait_idle()["at_worker"] == 0
    while any(slot["is_processing"] for slot in httpx.get(f"{server.url}/slots", trust_env=False).json()):
        assert time.monotonic() - began < 120
        time.sleep(0.1)
