"""How soon the first token comes after a cold start, when requests are served while experts are still read and when they wait for
all of them. For bench/load.py, which runs this file once for each start: a worker in a process of its own, which reads a model that
the page cache does not have. Its time begins when everything is imported.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

from engine.bench.rows import Row, row
from engine.protocol import VERSION, Submit

CHUNK_TOKENS, KV_TOKENS, OUTPUT_TOKENS = 512, 4096, 4
TIERS = {
    "cpu": [],
    "emulated": [
        "--device",
        "emulated",
        "--device-memory",
        "3g",
        "--emulate-fill-gbs",
        "8",
        "--emulate-host-gbs",
        "16",
        "--moe-backend",
        "auto",
    ],
}


class Client:
    """The front's end of the worker, in its process: asks once as soon as that is possible, and goes when all is loaded."""

    def __init__(self, prompt: list[int]) -> None:
        self.first_s = self.ready_s = 0.0
        self.output: list[int] = []
        self._prompt, self._asked, self._done = prompt, False, False
        self._start = time.perf_counter()
        self._queue: Queue[dict[str, Any]] = Queue()

    def send(self, message: dict[str, Any]) -> None:
        """What the worker tells."""
        now_s, kind = time.perf_counter() - self._start, message["t"]
        if kind == "state":
            if message["state"] == "failed":
                raise RuntimeError(message["message"])
            if not self._asked and (message["state"] == "ready" or message.get("serves")):
                self._asked = True
                self._queue.put(Submit("r", self._prompt, OUTPUT_TOKENS).message())
            if message["state"] == "ready" and not self.ready_s:
                self.ready_s = now_s
        elif kind == "tokens":
            self.first_s = self.first_s or now_s
            self.output += message["ids"]
        elif kind == "done":
            self._done = True
        elif kind == "error":
            raise RuntimeError(message["message"])
        if self._done and self.ready_s:
            self._queue.put({"t": "shutdown", "drain_s": 0.0})
            self._done = False

    def receive(self, handle: Callable[[dict[str, Any]], None]) -> None:
        """Hand what is asked to the worker."""
        handle({"t": "hello", "version": VERSION})
        while True:
            handle(self._queue.get())


def rows(directory: Path, forget: Callable[[], None], rounds: int, prompt_tokens: int, threads: int) -> list[Row]:
    """Rows `load.first.<tier>`: seconds, beside those of a start that serves when all is read. `forget` empties the page cache of
    the model."""
    made = []
    for tier in TIERS:
        seconds: dict[str, list[float]] = {"early": [], "whole": []}
        ready, outputs = [], set()
        for _ in range(rounds):
            for how in seconds:
                forget()
                command = [sys.executable, __file__, str(directory), tier, how, str(prompt_tokens), str(threads)]
                told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
                seconds[how].append(told["first_s"])
                outputs.add(tuple(told["output"]))
                if how == "early":
                    ready.append(told["ready_s"])
        if len(outputs) > 1:
            raise AssertionError(f"{tier}: answers differ")
        more = {"prompt_tokens": prompt_tokens, "ready_s": [round(s, 3) for s in sorted(ready)]}
        made.append(row(f"load.first.{tier}", "s", seconds["early"], seconds["whole"], **more))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("tier", choices=tuple(TIERS))
    parser.add_argument("how", choices=("early", "whole"))
    parser.add_argument("prompt_tokens", type=int)
    parser.add_argument("threads", type=int)
    args = parser.parse_args()
    from engine.weights.manifest import load_manifest
    from engine.worker import Worker
    from engine.worker_config import parse_config
    from engine.worker_engine import load_engine

    flags = ["--model", str(args.model), "--runtime-dir", ".", "--threads", str(args.threads), "--kv", str(KV_TOKENS)]
    config = parse_config(
        [*flags, "--chunk-tokens", str(CHUNK_TOKENS), "--max-running-requests", "2", *TIERS[args.tier]]
    )
    vocab = load_manifest(args.model).geometry.vocab_size
    client = Client([(7919 * i + 13) % vocab for i in range(args.prompt_tokens)])
    code = Worker(config, client).run(partial(load_engine, early=args.how == "early"))  # type: ignore[arg-type]
    told = {"first_s": client.first_s, "ready_s": client.ready_s, "output": client.output}
    sys.stdout.write(json.dumps(told) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
