"""A runner whose memory is hashes: a page slot holds a hash of every token up to it, a state a hash of every token absorbed,
and the sampled token is a hash of all of them. A wrong resume, a stale page or a mixed-up state changes the output.

Simulations and tests of policies run the real scheduler and caches on it, many times faster than on a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence, Set

from engine.scheduler.step import Sampled, Slice

_PRIME = (1 << 61) - 1
_UNDEFINED = -1


def mix(*parts: object) -> int:
    """A hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def kv_chain(tokens: Iterable[int], before: int = 0) -> list[int]:
    """What the page slots of `tokens` hold, after a position that holds `before`."""
    values = []
    for token in tokens:
        before = (before * 1_000_003 + token + 12_345) % _PRIME
        values.append(before)
    return values


def state_after(tokens: Iterable[int], state: int = 1) -> int:
    """`state` with `tokens` absorbed; 1 is that of an empty sequence."""
    for token in tokens:
        state = (state * 7_368_787 + token + 54_321) % _PRIME
    return state


def choose(kv: Sequence[int], state: int | None, mask: bytes | None, vocab: int) -> int:
    """The token that follows: any wrong number anywhere makes it another."""
    value = mix("token", list(kv), state)
    allowed = [t for t in range(vocab) if mask is None or mask[t // 8] >> (t % 8) & 1]
    return allowed[value % len(allowed)]


def cold(
    tokens: Iterable[int],
    max_tokens: int,
    vocab: int,
    hybrid: bool,
    stop_ids: Sequence[int] = (),
    forced: Sequence[int] | None = None,
) -> tuple[list[int], str]:
    """What a request must yield, computed from its tokens alone: (emitted tokens, reason)."""
    tokens = list(tokens)
    out: list[int] = []
    if forced is not None:
        for i, token in enumerate(forced):
            last = i + 1 == len(forced)
            if last and token in stop_ids:
                return out, "stop"
            out.append(token)
            if last:
                return out, "stop"
            if len(out) == max_tokens:
                return out, "length"
        return out, "stop"
    while True:
        token = choose(kv_chain(tokens), state_after(tokens) if hybrid else None, None, vocab)
        tokens.append(token)
        if token in stop_ids:
            return out, "stop"
        out.append(token)
        if len(out) == max_tokens:
            return out, "length"


class FakeRunner:
    """`layers` is how often a step asks whom to drop; `on_layer` is called before each time, `fail_next` raises once."""

    def __init__(
        self,
        page_tokens: int,
        vocab: int,
        hybrid: bool = False,
        layers: int = 3,
        on_layer: Callable[[], None] = lambda: None,
    ) -> None:
        self.page_tokens, self.vocab, self.hybrid = page_tokens, vocab, hybrid
        self.layers, self.on_layer = layers, on_layer
        self.pages: dict[tuple[int, int], int] = {}
        self.states: dict[int, int] = {}
        self.steps, self.computed_tokens, self.copied_pages = 0, 0, 0
        self.batch_sizes: list[list[int]] = []
        self.fail_next: Exception | None = None

    def step(self, slices: list[Slice], aborted: Callable[[], Set[int]]) -> list[Sampled]:
        self.steps += 1
        self.batch_sizes.append([len(s.tokens) for s in slices])
        if self.fail_next is not None:
            failure, self.fail_next = self.fail_next, None
            raise failure
        assert len({s.seq for s in slices}) == len(slices)
        written = [p for s in slices for p in s.pages[s.start // self.page_tokens :]]
        assert len(set(written)) == len(written), "two rows write one page"
        dropped: set[int] = set()
        for _ in range(self.layers):
            self.on_layer()
            dropped |= set(aborted())
            if len(dropped) == len(slices):
                break
        return [r for s in slices if (r := self._row(s, s.seq in dropped)) is not None]

    def _row(self, s: Slice, dropped: bool) -> Sampled | None:
        assert s.tokens and len(s.pages) == -(-(s.start + len(s.tokens)) // self.page_tokens)
        assert (s.state >= 0) == self.hybrid
        if dropped:
            self._write(s, [_UNDEFINED] * len(s.tokens))
            if self.hybrid:
                self.states[s.state] = _UNDEFINED
                self.states.update((state, _UNDEFINED) for _, state in s.snapshots)
            return None
        self.computed_tokens += len(s.tokens)
        self._write(s, kv_chain(s.tokens, self._read(s, s.start - 1) if s.start else 0))
        if self.hybrid:
            for position, state in s.snapshots:
                assert s.start < position <= s.start + len(s.tokens) and state != s.state
                self.states[state] = state_after(s.tokens[: position - s.start], self.states[s.state])
            self.states[s.state] = state_after(s.tokens, self.states[s.state])
        if s.sample is None:
            return None
        assert s.sample.history[s.start :] == s.tokens
        token = s.sample.forced
        if token is None:
            kv = [self._read(s, position) for position in range(s.start + len(s.tokens))]
            token = choose(kv, self.states[s.state] if self.hybrid else None, s.sample.mask, self.vocab)
        return Sampled(s.seq, token, -1.0, [(token, -1.0)])

    def _read(self, s: Slice, position: int) -> int:
        return self.pages[s.pages[position // self.page_tokens], position % self.page_tokens]

    def _write(self, s: Slice, values: Sequence[int]) -> None:
        for position, value in enumerate(values, s.start):
            self.pages[s.pages[position // self.page_tokens], position % self.page_tokens] = value

    def copy_page(self, source: int, target: int, tokens: int) -> None:
        self.copied_pages += 1
        for i in range(self.page_tokens):
            self.pages[target, i] = self.pages.get((source, i), _UNDEFINED) if i < tokens else _UNDEFINED

    def copy_state(self, source: int, target: int) -> None:
        self.states[target] = self.states[source]

    def zero_state(self, target: int) -> None:
        self.states[target] = 1

    def read_page(self, page: int, tokens: int) -> bytes:
        return b"".join(self.pages[page, i].to_bytes(8, "little", signed=True) for i in range(tokens))

    def write_page(self, page: int, data: bytes, tokens: int) -> None:
        if len(data) != 8 * tokens:
            raise ValueError(f"{len(data)} bytes are no {tokens} positions")
        for i in range(tokens):
            self.pages[page, i] = int.from_bytes(data[8 * i : 8 * i + 8], "little", signed=True)

    def read_state(self, state: int) -> bytes:
        return self.states[state].to_bytes(8, "little", signed=True)

    def write_state(self, state: int, data: bytes) -> None:
        if len(data) != 8:
            raise ValueError(f"{len(data)} bytes are no state")
        self.states[state] = int.from_bytes(data, "little", signed=True)
