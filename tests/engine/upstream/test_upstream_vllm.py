"""The front before vLLM, which computes a tiny model of random weights on the CPU. Its start takes a minute."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.prompt.language import Language
from tests.engine.upstream.peers import Peer, turns_of_a_conversation, vllm
from tests.engine.upstream.servers import front_before
from tests.serving import Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Path:
    """As published on a hub: our test models' tokenizer and template, and weights of vLLM's own kind."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    folder, source = tmp_path_factory.mktemp("hub") / "tiny", models_dir / "tiny-hybrid"
    ends = json.loads((source / "ftw.json").read_text())["eos_token_ids"]
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, head_dim=32, vocab_size=49158, max_position_embeddings=8192, eos_token_id=ends[0])
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(folder)
    for name in ("tokenizer.json", "chat_template.jinja"):
        shutil.copy(source / name, folder / name)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with vllm(tmp_path_factory.mktemp("vllm"), model) as peer:
        yield peer


@pytest.fixture(scope="module")
def front(server: Peer, model: Path) -> Iterator[Engine]:
    with front_before([server.url], str(model), model.parent) as made:
        yield made


def test_tokens_go_in_and_come_out_as_they_are(front: Engine, server: Peer, models_dir: Path) -> None:
    language = Language.load(models_dir / "tiny-hybrid")
    for text in ("Once upon a time", "naïve 你好 <|im_end|> 🎈"):
        ask: dict[str, Any] = {"model": "tiny", "max_tokens": 24, "temperature": 0}
        own = {**ask, "prompt": language.encode(text), "skip_special_tokens": False, "add_special_tokens": False}
        direct = httpx.post(f"{server.url}/v1/completions", json=own, trust_env=False, timeout=60).raise_for_status()
        through = front.client.post("/v1/completions", json={**ask, "prompt": text}).raise_for_status()
        assert through.json()["choices"][0]["text"] == direct.json()["choices"][0]["text"]
        assert through.json()["usage"]["prompt_tokens"] == len(own["prompt"])
        assert through.json()["usage"]["completion_tokens"] == direct.json()["usage"]["completion_tokens"]


def test_a_conversation_grows_and_what_it_had_is_told(front: Engine) -> None:
    turns = turns_of_a_conversation(front, 300)
    for before, turn in itertools.pairwise(turns):
        assert before["prompt_tokens"] - 128 <= turn["cached_tokens"] <= turn["prompt_tokens"], "its blocks are of 128"
    ready = front.get("/ready")
    assert ready["window"] == 4096 and not {"exact_tokens", "cached_tokens"} & set(ready["cannot"])
    (replica,) = front.get("/v1/stats")["engine"]["upstream"]
    assert (replica["kind"], replica["model"], replica["failed"]) == ("vllm", "tiny", 0)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_a_hang_up_stops_it(front: Engine, server: Peer, path: str) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], "input": "hi", "max_tokens": 3500}
    with front.client.stream("POST", path, json={"model": "m", **asked, "stream": True, "temperature": 1.5}) as answer:
        next(line for line in answer.iter_lines() if "delta" in line)
    began = time.monotonic()
    assert front.wait_idle()["at_worker"] == 0
    while _running(server):
        assert time.monotonic() - began < 120
        time.sleep(0.1)


def _running(server: Peer) -> float:
    told = httpx.get(f"{server.url}/metrics", trust_env=False).text
    found = re.search(r"^vllm:num_requests_running\{.*\} ([0-9.]+)$", told, re.MULTILINE)
    assert found is not None
    return float(found[1])
