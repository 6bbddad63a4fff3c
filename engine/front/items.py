"""What goes into a generation and what comes out of it, in no dialect's words."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.prompt.conversation import Conversation
from engine.prompt.output import Event
from engine.protocol import Sampling


@dataclass(frozen=True, slots=True)
class Ask:
    """What a dialect read from a request. Exactly one of `conversation`, `text` (raw completion) and `tokens` (the same, as ids) is set."""

    api: str
    model: str
    stream: bool
    conversation: Conversation | None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    shows_thinking: bool = True  # False: thinking is generated and counted, never sent


@dataclass(slots=True)
class Usage:
    """Token counts of one request; `cached` of the `prompt` tokens were not computed again."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    thinking: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """Nothing happened for one heartbeat interval."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """One generated token: its text and log-probability, and the most likely alternatives."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last item. `reason`: stop, stop_string, tool_use or length."""

    reason: str
    stop_string: str | None
    usage: Usage


Item = Event | Beat | Logprob | Finished
