"""Runs under the peer's own Python: llama.cpp behind one JSON request a line on stdin, one JSON answer a line on stdout.

Requests: {"op": "prefill", "tokens": [...]} starts a new sequence, {"op": "decode", "steps": n} goes on with it, greedily,
{"op": "feed", "tokens": [...]} too, with given tokens one by one,
{"op": "logits", "path": file} writes those of the last token as raw fp32, {"op": "faults"} counts this process's page faults.
Both timed ones answer {"seconds": ..., "tokens": [...]}: `seconds` holds llama.cpp alone, no JSON and no sampling.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp as api


class Session:
    """One model and one context over it."""

    def __init__(self, options: argparse.Namespace) -> None:
        model = api.llama_model_default_params()
        model.load_mode = api.LLAMA_LOAD_MODE_MMAP if options.mmap else api.LLAMA_LOAD_MODE_NONE
        model.use_extra_bufts = not options.mmap  # repacked weights would be a copy in RAM
        self._model = api.llama_model_load_from_file(options.model.encode(), model)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {options.model}")
        context = api.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = options.context, options.context, options.ubatch
        context.n_threads = context.n_threads_batch = options.threads
        context.no_perf = True
        self._context = api.llama_init_from_model(self._model, context)
        if not self._context:
            raise SystemExit(f"llama.cpp cannot make a context of {options.context} tokens")
        self._vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
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

    def _run(self, tokens: list[int]) -> float:
        array = (api.llama_token * len(tokens))(*tokens)
        start = time.perf_counter()
        code = api.llama_decode(self._context, api.llama_batch_get_one(array, len(tokens)))
        api.llama_synchronize(self._context)
        seconds = time.perf_counter() - start
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
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever llama.cpp prints must not mix with the answers
    quiet = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    session = Session(options)
    print(json.dumps({"version": api.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "prefill":
            answer = session.prefill(request["tokens"])
        elif request["op"] == "decode":
            answer = session.decode(request["steps"])
        elif request["op"] == "feed":
            answer = session.feed(request["tokens"])
        elif request["op"] == "logits":
            answer = session.logits(request["path"])
        else:
            used = resource.getrusage(resource.RUSAGE_SELF)
            answer = {"major": used.ru_majflt, "minor": used.ru_minflt}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
