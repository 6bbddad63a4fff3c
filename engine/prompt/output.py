"""What a model's output means, in pieces small enough to stream: the events every HTTP dialect turns into its own."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass
from typing import Protocol

_BASE62 = string.ascii_letters + string.digits
_ID_LENGTH = 24


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins. `index` counts the calls of one answer from 0; calls never interleave."""

    index: int
    id: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of call `index`'s argument text; the pieces concatenate to exactly the final arguments (valid JSON)."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    index: int


Event = ThinkingDelta | TextDelta | ToolCallStart | ToolCallDelta | ToolCallEnd


class OutputParser(Protocol):
    """Splits one answer into events. However the text is cut into pieces, the concatenated events are the same."""

    def feed(self, text: str) -> list[Event]:
        """The events that are certain once `text` has been appended. Empty deltas never appear."""

    def finish(self) -> list[Event]:
        """The rest, at the end of the answer; every started call is ended. Call once; `feed` must not follow."""


def new_call_id() -> str:
    """A fresh tool-call id that every dialect accepts: letters and digits only, `call` and 24 random characters."""
    return "call" + "".join(secrets.choice(_BASE62) for _ in range(_ID_LENGTH))
