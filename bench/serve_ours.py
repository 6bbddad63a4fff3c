"""Our engine behind the requests of serve_llama.py, without server and scheduler: the runner the worker uses, one sequence.

Besides, {"op": "experts"} gives the executor's counters, {"op": "dram"} reads memory as fast as the same threads can ({"gbs"}),
{"op": "profile", "steps": n} tells where the time of a decode step goes, with "tokens" instead that of a prefill ({"seconds",
"operations": {name: seconds}}), {"op": "score", "tokens": [...], "path": file} writes the logits behind every token.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.device.cpu import allocate_arena
from engine.kernels import _cpu
from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.protocol import Sampling
from engine.runner.load import load
from engine.scheduler.step import SampleSpec, Slice

READ_BYTES = 1 << 30
SCORED_TOGETHER = 128


class Session:
    """One loaded model and one sequence."""

    def __init__(self, options: argparse.Namespace) -> None:
        settings = Settings(
            kv_tokens=options.context,
            max_running=1,
            chunk_tokens=options.chunk,
            moe_backend=options.moe_backend,
            host_memory=options.host_memory,
        )
        made = plan_model(options.model, settings)
        loaded = load(options.model, made, options.threads, options=Options(options.activations))
        self._loaded, self._chunk = loaded, options.chunk
        self._pages = loaded.pools.pages.alloc(-(-options.context // loaded.pools.page_tokens))
        self._state = -1 if loaded.pools.states is None else loaded.pools.states.alloc()
        self._position = self._token = 0
        self._reader = _written(READ_BYTES) if options.dram else None
        self.facts = {
            "activations": loaded.activations,
            "backend": loaded.backend,
            "isa": _cpu.isa(),
            "threads": _cpu.thread_count(),
        }

    def prefill(self, tokens: list[int]) -> dict[str, Any]:
        if self._state >= 0:
            self._loaded.runner.zero_state(self._state)
        self._position = 0
        start = time.perf_counter()
        for at in range(0, len(tokens), self._chunk):
            part = tokens[at : at + self._chunk]
            self._step(part, last=at + len(part) == len(tokens))
        return {"seconds": time.perf_counter() - start, "tokens": [self._token]}

    def decode(self, steps: int) -> dict[str, Any]:
        made = []
        start = time.perf_counter()
        for _ in range(steps):
            self._step([self._token], last=True)
            made.append(self._token)
        return {"seconds": time.perf_counter() - start, "tokens": made}

    def feed(self, tokens: list[int]) -> dict[str, Any]:
        start = time.perf_counter()
        for token in tokens:
            self._step([token], last=True)
        return {"seconds": time.perf_counter() - start, "tokens": tokens}

    def experts(self) -> dict[str, Any]:
        made = self._loaded.experts
        assert made is not None, "a model without experts"
        return {"hits": sum(made.hits), "misses": sum(made.misses), **made.report()}

    def dram(self) -> dict[str, Any]:
        assert self._reader is not None, "started without --dram"
        start = time.perf_counter()
        _cpu.read_loop(self._reader.data_ptr(), self._reader.numel())
        return {"gbs": self._reader.numel() / (time.perf_counter() - start) / 1e9}

    def score(self, tokens: list[int], path: str) -> dict[str, Any]:
        if self._state >= 0:
            self._loaded.runner.zero_state(self._state)
        runner = self._loaded.runner
        with Path(path).open("wb") as file, torch.inference_mode():
            for at in range(0, len(tokens), SCORED_TOGETHER):
                part = tokens[at : at + SCORED_TOGETHER]
                ids, batch = runner.batches.build([Slice(0, part, at, self._pages, self._state)])
                rows = runner.model.forward(ids, batch, torch.arange(len(part)), tuple)
                file.write(np.ascontiguousarray(rows.numpy()).tobytes())
        return {"vocab": rows.shape[1]}

    def profile(self, steps: int = 0, tokens: list[int] | None = None) -> dict[str, Any]:
        """Of a mean decode step, or of the prefill of `tokens`."""
        spent: dict[str, float] = defaultdict(float)
        with _timed(self._loaded.runner.model.ops, spent):
            seconds = (self.prefill(tokens) if tokens else self.decode(steps))["seconds"]
        times = 1 if tokens else steps
        return {"seconds": seconds / times, "operations": {name: s / times for name, s in spent.items()}}

    def _step(self, tokens: list[int], last: bool) -> None:
        sample = SampleSpec(Sampling(), tokens) if last else None
        part = Slice(0, tokens, self._position, self._pages, self._state, sample=sample)
        made = self._loaded.runner.step([part], frozenset)
        self._position += len(tokens)
        if last:
            self._token = made[0].token


@contextmanager
def _timed(ops: Any, spent: dict[str, float]) -> Iterator[None]:
    """Adds the seconds of every call of an operation to `spent`, while it lasts. Calls within calls count for the outer one."""
    kind, inside = type(ops), False
    originals = {name: f for name, f in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(self: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal inside
            if inside:
                return call(self, *arguments, **named)
            inside, start = True, time.perf_counter()
            try:
                return call(self, *arguments, **named)
            finally:
                spent[_label(name, arguments)] += time.perf_counter() - start
                inside = False

        return timed

    for name, call in originals.items():
        setattr(kind, name, wrap(name, call))
    try:
        yield
    finally:
        for name, call in originals.items():
            setattr(kind, name, call)


def _label(name: str, arguments: tuple[Any, ...]) -> str:
    """Products are told apart by their matrix."""
    if name != "linear":
        return name
    matrix = arguments[1]
    return f"linear {matrix.n}x{matrix.k} {matrix.format}"


def _written(size: int) -> torch.Tensor:
    """Memory on pages of 2 MiB that the system has really given."""
    made = allocate_arena(size)
    made.fill_(1)
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--chunk", type=int, default=Settings().chunk_tokens)
    parser.add_argument("--activations", choices=("auto", "f32", "bf16"), default="auto")
    parser.add_argument("--moe-backend", default="auto")
    parser.add_argument(
        "--host-memory", type=int, help="bytes of RAM for experts; fewer than they take: read from disk"
    )
    parser.add_argument("--dram", action="store_true", help="keep memory at hand to measure its speed")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(options.threads)
    session = Session(options)
    print(json.dumps(session.facts), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        if op == "faults":
            used = resource.getrusage(resource.RUSAGE_SELF)
            answer: dict[str, Any] = {"major": used.ru_majflt, "minor": used.ru_minflt}
        else:
            answer = getattr(session, op)(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
