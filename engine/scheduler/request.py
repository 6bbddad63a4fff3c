"""One generation request while the worker has it."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.cache.claims import line_of
from engine.cache.node import Checkpoint, token_array
from engine.protocol import Submit

RANKS = {"main": 0, "side": 1, "background": 2}
BACKGROUND = RANKS["background"]


class Matcher(Protocol):
    """A compiled grammar that follows one reply."""

    @property
    def done(self) -> bool:
        """True when the reply is complete and nothing may follow."""

    def mask(self, left: int) -> bytes:
        """Little-endian bit i set: token i may come next, which is the first of the `left` that still may."""

    def advance(self, token: int) -> object:
        """`token` was chosen."""


MatcherFactory = Callable[[str], Matcher]


@dataclass(slots=True)
class Times:
    """Clock readings in seconds; None until it happened."""

    arrived: float
    admitted: float | None = None
    restored_s: float = 0.0
    computed_s: float = 0.0  # its share of the steps until its first token, by tokens
    prefilled: float | None = None
    first_token: float | None = None
    finished: float | None = None

    def summary(self) -> dict[str, float | None]:
        """The `timings` of a `done` message; None where the request never got that far."""

        def between(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else b - a

        return {
            "queue_s": between(self.arrived, self.admitted if self.admitted is not None else self.finished),
            "restore_s": self.restored_s,
            "prefill_s": between(self.admitted, self.prefilled),
            "computed_s": self.computed_s,
            "first_token_s": between(self.arrived, self.first_token),
            "decode_s": between(self.first_token, self.finished),
        }


@dataclass(slots=True, eq=False)
class Request:
    """Tokens are prompt and output so far; the first `computed` of them have their KV in `pages` and are absorbed in the
    live state `state` (-1: none). `planned` are snapshots still to take, `pending` those of the step in flight."""

    submit: Submit
    seq: int
    times: Times
    matcher: Matcher | None = None
    tokens: array[int] = field(init=False)
    history: list[int] = field(init=False)  # the same tokens as a list, which samplers read
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    state: int = -1
    planned: list[tuple[int, str]] = field(default_factory=list)
    pending: list[tuple[int, str, int]] = field(default_factory=list)
    rolling: Checkpoint | None = None  # the state that follows the prefill, see `rolling`
    kept_to: int = 0  # the deepest position whose state is kept
    rank: int = field(init=False)
    expected: int = 0  # prompt tokens to compute, as far as the cache told when it came
    resume_at: int = 0
    seen_tokens: int = 0  # longest common prefix with the cache at admission
    fresh_from: int = 0  # tokens before it were in the cache when this request entered, or are marked
    anticipated: int = 0
    wasted: int = 0
    computed_ahead: int = 0  # what a request that runs ahead computed first, whatever ended it
    looked_up: bool = False  # on disk
    restored: bool = False  # from disk
    accepted: bool = False
    waits_for: tuple[Request, int] | None = None  # (a leader, the tokens it must have computed)
    experts_before: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.tokens = token_array(self.submit.tokens)
        self.history = list(self.submit.tokens)
        self.rank = RANKS[self.submit.priority]

    @property
    def rid(self) -> str:
        return self.submit.rid

    @property
    def prompt_tokens(self) -> int:
        return len(self.submit.tokens)

    @property
    def output_tokens(self) -> int:
        return max(0, len(self.tokens) - self.prompt_tokens)

    @property
    def session(self) -> str:
        """Whose line it is; "" when nobody said."""
        return self.submit.session.partition("/")[0]

    @property
    def side(self) -> bool:
        """Not the main line of its session."""
        return self.rank > 0

    @property
    def line(self) -> str:
        """The line of claims this request belongs to."""
        return line_of(self.submit.session, self.submit.priority)

    @property
    def ahead(self) -> bool:
        """Computes a prompt that may come; it ends with its last token and nothing is sampled."""
        return not self.submit.max_tokens

    @property
    def decoding(self) -> bool:
        """Only the newest token is left to compute."""
        return self.output_tokens > 0 and self.computed == len(self.tokens) - 1

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def order(self) -> tuple[int, int]:
        """Sorts by priority, then by arrival."""
        return self.rank, self.seq

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.history.append(token)

    def truncate(self, tokens: int) -> None:
        """Compute no further than `tokens`."""
        del self.tokens[tokens:], self.history[tokens:]

    def usage(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt_tokens,
            "cached": self.resume_at,
            "replayed": self.seen_tokens - self.resume_at,
            "new": self.computed_ahead if self.ahead else self.prompt_tokens - self.seen_tokens,
            "output": self.output_tokens,
            "anticipated": self.anticipated,
            "wasted": self.wasted,
            "tier": ("disk" if self.restored else "ram") if self.resume_at else None,
        }
