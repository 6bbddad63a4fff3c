"""What the interpreter of declared edits reads and what it says: plain values, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.prompt.conversation import Conversation, Prompt


@dataclass(frozen=True, slots=True)
class Hint:
    """One entry of a request's `edit_hints`: the client itself says what it will change.

    `at` is an edge, `op` an operation of the format. `after` says when: "" or "request" before the next request,
    "user" before the next one that carries new user text. `text` is what will stand there (a placeholder), if known.
    """

    at: str
    op: str
    after: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `conversation` is canonical; `marks` are (message, block) with message -1 for the tools."""

    conversation: Conversation
    prompt: Prompt
    window: int
    max_output: int
    body: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    hints: tuple[Hint, ...] = ()
    idle_s: float = 0.0
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next request as far as it is known: `conversation` ends with the reply, edited, before the unknown part.

    `rule` is the id of the rule that was applied, "" for a plain append; `edge` where it forks from the last prompt;
    `expects` what comes first behind the known part: "tool_result", "user", "assistant" (a summary) or "" (perhaps
    nothing), and `begins` the text that it is known to begin with; `then` is "user" when a user message that the client
    moves along comes behind that. `whenever`: it does not depend on whether the client sends a tool's result or
    a user's text.
    """

    rule: str
    edge: str
    conversation: Conversation
    expects: str
    then: str = ""
    begins: str = ""
    whenever: bool = False


@dataclass(frozen=True, slots=True)
class Wire:
    """What a request says about itself outside its conversation. Empty where it says nothing."""

    session: str = ""
    parent: str = ""
    epoch: str = ""
    kind: str = ""
    marks: tuple[tuple[int, int], ...] = ()
    hints: tuple[Hint, ...] = ()
