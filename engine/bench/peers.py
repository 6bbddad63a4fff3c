"""What other engines would compute in the same sessions: a model of where each keeps recurrent states, token by token.

No engine runs here. The rules are read from the engines' sources at their defaults; KV and states are never evicted, except
where a number is named, and requests are served one after another: the best case for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.front.lines import common_prefix

CHUNK = 8192


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it was sent. `users`: where user messages begin."""

    prompt: array[int]
    reply: array[int]
    users: tuple[int, ...] = ()


@dataclass(slots=True)
class Peer(ABC):
    """Sequences served so far, each with the positions after which a state is kept."""

    kept: list[tuple[array[int], set[int]]] = field(default_factory=list)

    def serve(self, sent: Sent) -> int:
        """The tokens of this prompt that are computed."""
        prompt = sent.prompt
        shared = [(common_prefix(prompt, tokens), positions) for tokens, positions in self.kept]
        common = min(max((n for n, _ in shared), default=0), len(prompt) - 1)
        start = max((p for n, positions in shared for p in positions if p <= self.matched(min(n, common))), default=0)
        positions = self.placed(len(prompt), start, common) | self.placed_in_reply(len(prompt), len(sent.reply))
        self.kept.append((prompt + sent.reply[:-1], positions))
        return len(prompt) - start

    def matched(self, common: int) -> int:
        """How much of a common prefix is found."""
        return common

    @abstractmethod
    def placed(self, length: int, start: int, common: int) -> set[int]:
        """Where states are kept while a prompt is computed from `start`."""

    def placed_in_reply(self, prompt: int, reply: int) -> set[int]:
        return set()


class SGLang(Peer):
    """Behind each chunk and at a fork, on a grid of 64; in a reply every 256 tokens."""

    def placed(self, length: int, start: int, common: int) -> set[int]:
        made, at = set(), start
        fork = common // 64 * 64
        while at < length:
            end = min(at + CHUNK, length)
            if end - at >= 64:
                inside = at < fork < end and (fork - at) % 64 == 0
                made.add(fork if inside else at + (end - at) // 64 * 64)
            at = end
        return made

    def placed_in_reply(self, prompt: int, reply: int) -> set[int]:
        last = (prompt + reply - 1) // 256 * 256
        return {last} if last > prompt else set()


class VLLM(Peer):
    """At the last whole block of a prompt and at a fork; a block holds as many bytes of KV as a state."""

    block = 1056

    def matched(self, common: int) -> int:
        return common // self.block * self.block

    def placed(self, length: int, start: int, common: int) -> set[int]:
        fork, last = self.matched(common), self.matched(length - 1)
        return {p for p in (fork if fork > start else 0, last) if p}


@dataclass(slots=True)
class LlamaCpp:
    """One slot: at the last user message, shortly before the prompt's end, and at others far enough from the one before."""

    most: int = 32
    step: int = CHUNK
    batch: int = 512
    slot: array[int] = field(default_factory=lambda: array("I"))
    kept: list[tuple[int, int]] = field(default_factory=list)  # (position, number of its request)
    requests: int = 0

    def serve(self, sent: Sent) -> int:
        """The tokens of this prompt that are computed."""
        self.requests += 1
        prompt, length = sent.prompt, len(sent.prompt)
        common = min(common_prefix(prompt, self.slot), length - 1)
        start = common
        if common < len(self.slot):
            start = max((position for position, _ in self.kept if position <= common), default=0)
            self.kept = [entry for entry in self.kept if entry[0] <= start]
        near = length - 4 - self.batch
        for position in sorted({u for u in sent.users if u > start} | {near, length - 4}):
            if start < position < length and (
                position >= near
                or position == max(sent.users)
                or not self.kept
                or position > self.kept[-1][0] + self.step
            ):
                self._keep(position)
        self.slot = prompt + sent.reply[:-1]
        return length - start

    def _keep(self, position: int) -> None:
        last, i = -1, 0
        while len(self.kept) + 1 >= self.most and i < len(self.kept):
            at, request = self.kept[i]
            if request != self.requests and last >= 0 and at <= last + self.step:
                del self.kept[i]
                continue
            last, i = at, i + 1
        del self.kept[: max(0, len(self.kept) + 1 - self.most)]
        self.kept = sorted([entry for entry in self.kept if entry[0] != position] + [(position, self.requests)])


PEERS = {"sglang": SGLang, "vllm": VLLM, "llama_cpp": LlamaCpp}


def computed(name: str, requests: Iterable[Sent]) -> list[int]:
    """The tokens that each request computes in a fresh engine of that kind."""
    peer = PEERS[name]()
    return [peer.serve(sent) for sent in requests]
