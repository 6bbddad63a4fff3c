"""How well each declared rule predicted what came: hits, misses, and the first block of the newest miss that differed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.front.explain import met
from engine.front.lines import Expected, common_prefix
from engine.prompt.conversation import Conversation, Prompt, Text

APPEND = "append"  # what a prediction without a rule is called in reports


@dataclass(slots=True)
class Score:
    """`differs` is where the newest miss left the prediction: {token, message, block, kind}."""

    hits: int = 0
    misses: int = 0
    differs: dict[str, Any] | None = None


@dataclass(slots=True)
class Scores:
    """By rule. Only predictions that can be judged count: those of the kind of continuation that came."""

    rules: dict[str, Score] = field(default_factory=dict)

    def judge(self, expected: Sequence[Expected], conversation: Conversation, prompt: Prompt) -> Expected | None:
        """Count what was expected against what came; the expectation that was met."""
        tokens = array("I", prompt.tokens)
        came = arrived(conversation)
        hit = met(expected, tokens)
        for one in expected:
            score = self.rules.setdefault(one.rule or APPEND, Score())
            if one is hit:
                score.hits += 1
                break
            if one.expects == came:
                score.misses += 1
                score.differs = _first_difference(one, prompt, tokens)
        return hit

    def json(self) -> dict[str, Any]:
        return {rule: asdict(score) for rule, score in self.rules.items()}


def arrived(conversation: Conversation) -> str:
    """What the newest part of a conversation brings: "user" text, or a "tool_result"."""
    last = conversation.messages[-1]
    has_text = last.role == "user" and any(isinstance(b, Text) for b in last.blocks)
    return "user" if has_text else "tool_result"


def _first_difference(expected: Expected, prompt: Prompt, tokens: array[int]) -> dict[str, Any]:
    at = common_prefix(expected.tokens, tokens)
    span = next((s for s in prompt.spans if s.start <= at < s.end), None)
    where = {"message": span.message, "block": span.block, "kind": span.kind} if span else {}
    return {"token": at, **where}
