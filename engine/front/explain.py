"""Why tokens were computed again: where a new prompt leaves what its line had sent before, and what was expected."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.front.lines import Line, Sent, common_prefix
from engine.prompt.conversation import Prompt, Span

_BEFORE, _AFTER = 24, 96  # tokens of text shown around a break
_NEAR = 16  # a declared edge this close in front of the break is the one it happened at


@dataclass(frozen=True, slots=True)
class Break:
    """The first difference to the best earlier prompt and reply. `token` counts the tokens before it.

    `message`, `block` and `kind` say which block of the earlier prompt ended there; kind "reply": in the model's own last
    reply. When `predicted`, `rule` is the rule that did, "" for what the template does by itself; else it is the rule that
    had predicted something else.
    """

    token: int
    message: int
    block: int
    kind: str
    edge: str
    predicted: bool
    rule: str
    lost: int  # tokens of the earlier prompt and reply behind the break
    old: tuple[int, ...]
    new: tuple[int, ...]

    def json(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("token", "message", "block", "kind", "edge", "predicted", "rule")
        }

    def texts(self, decode: Callable[[Sequence[int]], str]) -> dict[str, str]:
        """What stood there and what stands there now."""
        return {"old": decode(self.old), "new": decode(self.new)}


def find_break(line: Line, others: Sequence[Line], prompt: Prompt) -> Break | None:
    """Where `prompt` leaves the best earlier prompt of its line; None when it continues or repeats one.

    A line that is new and that the agent did not name may be an old conversation whose beginning changed: it is compared
    with the `others` of its session, the one used last first.
    """
    tokens = array("I", prompt.tokens)
    earlier = list(line.sent)
    if not earlier and not line.own_id:
        earlier = [sent for other in others for sent in other.sent]
    if not earlier:
        return None
    # Of equally long prefixes the newest counts.
    shared, best = max(((common_prefix(s.tokens, tokens), i) for i, s in enumerate(earlier)), default=(0, 0))
    sent = earlier[best]
    if shared >= min(len(sent.tokens), prompt.end):
        return None
    span = _span_at(sent, shared)
    told = line if line.sent else next(other for other in others if other.sent)  # the one used last
    expected = told.foretold(tokens)
    foreseen = expected or next((e for e in told.sent[-1].expected if e.rule), None)
    edge = max(
        (p for p in sent.edit_points if p.edge and shared - _NEAR <= p.position <= shared),
        key=lambda p: p.position,
        default=None,
    )
    return Break(
        token=shared,
        message=span.message if span else -1,
        block=span.block if span else -1,
        kind=span.kind if span else "reply",
        edge=edge.edge if edge else (expected.edge if expected else ""),
        predicted=expected is not None,
        rule=foreseen.rule if foreseen else "",
        lost=len(sent.tokens) - shared,
        old=tuple(sent.tokens[max(0, shared - _BEFORE) : shared + _AFTER]),
        new=tuple(tokens[max(0, shared - _BEFORE) : shared + _AFTER]),
    )


def _span_at(sent: Sent, position: int) -> Span | None:
    """The block of the prompt that holds `position`, or whose frame does. The generation prefix belongs to the reply."""
    span = next((s for s in sent.spans if s.start <= position < s.end), None)
    if span is not None and span.kind == "frame":
        behind = (s for s in sent.spans if s.start >= span.end and s.message == span.message and s.block >= 0)
        span = next(behind, span)
    if span is not None and span.kind == "generation":
        return Span(span.start, span.end, span.message, -1, "reply")
    if span is None and sent.spans:
        return Span(position, position, sent.spans[-1].message, -1, "reply")
    return span
