"""Runs under the peer's own Python: llama.cpp with the slots of its server, one JSON request a line, one JSON answer a line.

{"prompt": [...], "output": [...]} -> {"cached", "prefill_s", "decode_s"}: the prompt goes to the slot that shares most with it, what is
shared stays, the rest is computed, and the output is fed token by token, so that both engines decode the very same text. Seconds
hold llama.cpp alone: no HTTP, no tokenizing, no sampling. As in its server a slot of a model with recurrent layers goes back to the
newest state it kept in front of a change: every 8,192 tokens, a batch before the end of each prompt, and shortly before it.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp as api

sys.path.insert(0, str(Path(__file__).parents[1]))
import llama

SIMILAR = 0.1  # share of a prompt that a slot must have to be chosen for it
BEFORE_END = 4  # tokens between the last kept state and the end of the prompt
STEP = 8192  # tokens between kept states of a long prompt
KEPT_STATES = 32
PARTIAL = 1  # only what cannot be cut: recurrent state


class Slot:
    def __init__(self, number: int) -> None:
        self.number, self.tokens, self.used = number, [], 0
        self.states: list[tuple[int, ctypes.Array[ctypes.c_uint8]]] = []

    def common(self, prompt: list[int]) -> int:
        count = 0
        for one, other in zip(self.tokens, prompt, strict=False):
            if one != other:
                break
            count += 1
        return count


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self.ubatch = 512
        self._model = llama.load(options.model)
        self._context = llama.context(
            self._model, options.context, options.threads, options.batch, self.ubatch, options.slots
        )
        self._memory = api.llama_get_memory(self._context)
        self._batch, self._size = api.llama_batch_init(options.batch, 0, 1), options.batch
        self._slots = [Slot(number) for number in range(options.slots)]
        self._clock = 0

    def serve(self, prompt: list[int], output: list[int]) -> dict[str, Any]:
        self._clock += 1
        slot = self._choose(prompt)
        slot.used = self._clock
        begin = time.perf_counter()
        cached = self._reuse(slot, min(slot.common(prompt), len(prompt) - 1))
        spent = time.perf_counter() - begin
        slot.tokens = prompt[:cached]
        near = len(prompt) - BEFORE_END
        places = {near, near - self.ubatch, *range(cached + STEP, near, STEP)}
        prefill_s = spent
        for place in sorted(place for place in places if place > cached):
            prefill_s += self._run(slot, prompt[len(slot.tokens) : place])
            prefill_s += self._keep(slot)
        prefill_s += self._run(slot, prompt[len(slot.tokens) :])
        decode_s = sum(self._run(slot, [token]) for token in output[:-1])
        return {"cached": cached, "prefill_s": prefill_s, "decode_s": decode_s}

    def _choose(self, prompt: list[int]) -> Slot:
        best = max(self._slots, key=lambda slot: slot.common(prompt))
        if best.common(prompt) > SIMILAR * len(prompt):
            return best
        return min(self._slots, key=lambda slot: slot.used)

    def _reuse(self, slot: Slot, common: int) -> int:
        """Cut the slot to `common` tokens, or to fewer where its states do not allow that; returns how many stay."""
        if common == len(slot.tokens) or api.llama_memory_seq_rm(self._memory, slot.number, common, -1):
            slot.states = [kept for kept in slot.states if kept[0] <= common]
            return common
        fitting = [kept for kept in slot.states if kept[0] <= common]
        slot.states = fitting
        if fitting:
            position, data = fitting[-1]
            restored = api.llama_state_seq_set_data_ext(self._context, data, len(data), slot.number, PARTIAL)
            if restored and api.llama_memory_seq_rm(self._memory, slot.number, position, -1):
                return position
        slot.states = []
        api.llama_memory_seq_rm(self._memory, slot.number, -1, -1)
        return 0

    def _keep(self, slot: Slot) -> float:
        """Keep the recurrent state, where there is one; the seconds that took."""
        if not api.llama_model_is_recurrent(self._model) and not api.llama_model_is_hybrid(self._model):
            return 0.0
        begin = time.perf_counter()
        size = api.llama_state_seq_get_size_ext(self._context, slot.number, PARTIAL)
        data = (ctypes.c_uint8 * size)()
        api.llama_state_seq_get_data_ext(self._context, data, size, slot.number, PARTIAL)
        slot.states = [*slot.states, (len(slot.tokens), data)][-KEPT_STATES:]
        return time.perf_counter() - begin

    def _run(self, slot: Slot, tokens: list[int]) -> float:
        seconds = 0.0
        for at in range(0, len(tokens), self._size):
            part = tokens[at : at + self._size]
            for i, token in enumerate(part):
                self._batch.token[i], self._batch.pos[i] = token, len(slot.tokens) + i
                self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, slot.number
                self._batch.logits[i] = i == len(part) - 1
            self._batch.n_tokens = len(part)
            code, spent = llama.timed(self._context, self._batch)
            seconds += spent
            while code == 1 and self._forget(slot):
                code, spent = llama.timed(self._context, self._batch)
                seconds += spent
            if code:
                raise SystemExit(f"llama_decode answered {code}")
            slot.tokens = slot.tokens + part
        return seconds

    def _forget(self, needed: Slot) -> bool:
        """Empty the slot that was used longest ago; False when there is none."""
        others = [slot for slot in self._slots if slot is not needed and slot.tokens]
        if not others:
            return False
        oldest = min(others, key=lambda slot: slot.used)
        api.llama_memory_seq_rm(self._memory, oldest.number, -1, -1)
        oldest.tokens, oldest.states = [], []
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=4)
    options = parser.parse_args()

    def start() -> Callable[[dict[str, Any]], dict[str, Any]]:
        server = Server(options)
        return lambda request: server.serve(request["prompt"], request["output"])

    llama.serve(start)


if __name__ == "__main__":
    main()
