"""What the scheduler asks of the hardware: one step, some copies. Torch-free, so that policies run against a fake."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Protocol

from engine.protocol import Sampling


@dataclass(slots=True)
class SampleSpec:
    """How to choose this slice's next token. `history` is every token so far, prompt and output (for penalties)."""

    sampling: Sampling
    history: list[int]
    forced: int | None = None  # scripted replay: choose this token, whatever the logits say
    mask: bytes | None = None  # grammar: little-endian bit i set = token i allowed
    index: int = 0  # how many tokens this request has generated; with the seed it names the random draw


@dataclass(slots=True)
class Slice:
    """One sequence's part of a step: a prefill chunk, or the one newest token of a decode.

    `pages` are the KV page ids that cover positions [0, start + len(tokens)), in order; page `p` of the list holds
    positions [p * page_tokens, (p+1) * page_tokens). `state` is the live recurrent state's id (-1 when the model has no
    recurrent layers); it is advanced in place. `snapshots` lists (position, state id): once exactly `position` tokens
    are absorbed, start < position <= start + len(tokens), the state is also stored there.
    """

    seq: int
    tokens: list[int]
    start: int
    pages: list[int]
    state: int = -1
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    sample: SampleSpec | None = None


@dataclass(slots=True)
class Sampled:
    """The token chosen for one slice. `logprob` and `top` are None/empty unless asked for."""

    seq: int
    token: int
    logprob: float | None = None
    top: list[tuple[int, float]] = field(default_factory=list)


class Runner(Protocol):
    """One model on one device. Not thread-safe; called from the scheduling loop only."""

    def step(self, slices: list[Slice], aborted: Callable[[], Set[int]]) -> list[Sampled]:
        """Run one forward over all slices; mutates KV pages, live states and snapshot states.

        `aborted` is asked between layers; rows of sequences in it are dropped from the batch (their KV and state are then
        undefined from `start` on) and they do not appear in the result. Returns one Sampled for each surviving slice with
        a `sample`, in slice order. The result of a row never depends on which other rows share the step.
        """

    def copy_page(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` positions of a KV page, all layers."""

    def copy_state(self, source: int, target: int) -> None:
        """Copy a recurrent state (all linear layers, convolution windows included)."""

    def zero_state(self, target: int) -> None:
        """Set a state to that of an empty sequence."""

    def read_page(self, page: int, tokens: int) -> bytes:
        """The first `tokens` positions of a KV page, all layers, in a form that `write_page` of the same model takes."""

    def write_page(self, page: int, data: bytes, tokens: int) -> None:
        """Fill the first `tokens` positions of a KV page. Raises ValueError when `data` has another size."""

    def read_state(self, state: int) -> bytes:
        """A recurrent state, all linear layers, in a form that `write_state` of the same model takes."""

    def write_state(self, state: int, data: bytes) -> None:
        """Set a recurrent state. Raises ValueError when `data` has another size."""
