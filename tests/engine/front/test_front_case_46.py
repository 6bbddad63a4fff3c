"""A real engine whose worker fails in mid-prefill or in the middle of a move of its memory: everybody who waits is told the
cause in seconds, and the next request is served as if nothing had been."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Engine, engine_server

SERVE = (sys.executable, "-P", str(Path(__file__).parent / "serve_with_faults.py"))
TOLD_S = 5.0
FLAGS = ["--device=emulated", "--moe-backend=offload", "--device-memory=60m", "--chunk-tokens=96"]
FLAGS += ["--emulate-fill-gbs=100", "--emulate-host-gbs=200", "--kv=4k"]
SHORT: dict[str, Any] = {"prompt": "once more " * 100, "max_tokens": 6, "temperature": 0}
CAUSES = {"memory": "can't allocate memory", "kill": "SIGKILL", "hang": "made no progress"}


@pytest.fixture(scope="module")
def served(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Path]]:
    fault = tmp_path_factory.mktemp("fault") / "fault.json"
    with engine_server(
        "tiny-hybrid", models_dir, flags=FLAGS, command=SERVE, environ={"FT_TEST_FAULT": str(fault)}
    ) as engine:
        yield engine, fault


def fail_next(fault: Path, where: str, what: str) -> None:
    new = fault.with_suffix(".new")
    new.write_text(json.dumps({"where": where, "what": what}))
    new.replace(fault)


def stream(engine: Engine, text: str, max_tokens: int, first: threading.Event) -> list[str]:
    """All data lines of a streamed completion; `first` is set at the first with text in it."""
    body = {"prompt": text, "max_tokens": max_tokens, "stream": True, "logit_bias": {"2": -100}}
    lines = []
    with engine.client.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                lines.append(line)
                if '"text":""' not in line.replace(" ", ""):
                    first.set()
    return lines


class Statuses(threading.Thread):
    """Every state that /ready goes through."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self.engine, self.seen, self.over = engine, [], threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            answer = self.engine.client.get("/ready")
            told = answer.json()
            self.seen.append((answer.status_code, told["state"], told["phase"] or "", told["message"] or ""))

    def red(self) -> list[str]:
        """What was said of the cause while not ready."""
        self.over.set()
        self.join()
        return [f"{phase} {message}" for code, _, phase, message in self.seen if code == 503]


@pytest.mark.parametrize("what", CAUSES)
@pytest.mark.parametrize("where", ["prefill", "move"])
def test_case_46_what_fails_is_told_and_the_next_request_is_served(
    served: tuple[Engine, Path], where: str, what: str
) -> None:
    engine, fault = served
    engine.client.post("/v1/engine/memory/apply", json={"kv_tokens": 4096}).raise_for_status()
    before = engine.client.post("/v1/completions", json=SHORT).raise_for_status().json()["choices"]
    restarts = engine.get("/ready")["restarts"]
    survives = (where, what) == ("prefill", "memory")
    statuses, answers, decoding = Statuses(engine), {}, threading.Event()

    def ask(name: str, text: str, max_tokens: int) -> threading.Thread:
        def run() -> None:
            answers[name] = stream(engine, text, max_tokens, decoding), time.monotonic()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    threads = [ask("decodes", "hello", 3500)]
    assert decoding.wait(30)
    statuses.start()
    fail_next(fault, where, what)
    began = time.monotonic()
    if where == "move":

        def move() -> None:
            told = engine.client.post("/v1/engine/memory/apply", json={"kv_tokens": 1000})
            answers["moves"] = [str(told.status_code), told.text], time.monotonic()

        threads.append(threading.Thread(target=move))
        threads[-1].start()
    else:
        threads.append(ask("prefills", "another text " * 300, 5))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not fault.exists(), "nothing failed"
    for name, (lines, ended) in answers.items():
        assert ended - began < TOLD_S, f"{name} waited {ended - began:.1f} s"
        if name == "moves":
            assert lines[0] == "503" and "It is restarted" in lines[1], lines
        else:
            assert CAUSES[what] in lines[-1] or CAUSES[what] in lines[-2], (name, lines[-2:])
    began = time.monotonic()
    after = engine.client.post("/v1/completions", json=SHORT, timeout=120)
    assert after.status_code == 200 and after.json()["choices"] == before
    red = statuses.red()
    assert engine.get("/ready")["restarts"] == restarts + (not survives)
    if not survives:
        told = "exit code 1" if what == "memory" else CAUSES[what]
        assert any(told in each for each in red), red[:3]
