"""Runs under the peer's own Python: llama.cpp behind one JSON request a line on stdin, one JSON answer a line on stdout.

Requests: {"op": "prefill", "tokens": [...]} starts a new sequence, {"op": "decode", "steps": n} goes on with it, greedily,
{"op": "feed", "tokens": [...]} too, with given tokens one by one,
{"op": "logits", "path": file} writes those of the last token as raw fp32, {"op": "faults"} counts this process's page faults.
Both timed ones answer {"seconds": ..., "tokens": [...]}: `seconds` holds llama.cpp alone, no JSON and no sampling.
"""

from __future__ import annotations

import argparse
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama
import llama_cpp as api


class Session:
    """One model and one context over it."""

    def __init__(self, options: argparse.Namespace) -> None:
        model = llama.load(options.model, options.mmap)
        self._context = llama.context(model, options.context, options.threads, options.context, options.ubatch)
        self._vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        self._next = 0

    def prefill(self, tokens: list[int]) -> dict[str, Any]:
        api.llama_memory_clear(api.llama_get_memory(self._context), True)
        seconds = self._run(tokens)
        self._next = self._best()
        return {"seconds": seconds, "tokens": [self._next]}

    def decode(self, steps: int) -> dict[str, Any]:
        seconds, made = 0.0, []
        for _ in range(steps):
            seconds += self._run([self._next])
            self._next = self._best()
            made.append(self._next)
        return {"seconds": seconds, "tokens": made}

    def feed(self, tokens: list[int]) -> dict[str, Any]:
        return {"seconds": sum(self._run([token]) for token in tokens), "tokens": tokens}

    def logits(self, path: str) -> dict[str, Any]:
        row = api.llama_get_logits_ith(self._context, -1)
        Path(path).write_bytes(ctypes.string_at(row, self._vocab * 4))
        return {"vocab": self._vocab}

    def faults(self) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"major": used.ru_majflt, "minor": used.ru_minflt}

    def _run(self, tokens: list[int]) -> float:
        array = (api.llama_token * len(tokens))(*tokens)
        code, seconds = llama.timed(self._context, api.llama_batch_get_one(array, len(tokens)))
        if code:
            raise SystemExit(f"llama_decode answered {code}")
        return seconds

    def _best(self) -> int:
        row = api.llama_get_logits_ith(self._context, -1)
        values = (ctypes.c_float * self._vocab).from_address(ctypes.addressof(row.contents))
        return max(range(self._vocab), key=values.__getitem__)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--ubatch", type=int, default=512)
    parser.add_argument("--mmap", action="store_true", help="leave the weights in the file, as they are")
    options = parser.parse_args()

    def start() -> Callable[[dict[str, Any]], dict[str, Any]]:
        session = Session(options)
        return lambda request: getattr(session, request.pop("op"))(**request)  # type: ignore[no-any-return]

    llama.serve(start)


if __name__ == "__main__":
    main()
