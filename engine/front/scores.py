"""How well each declared rule predicted what came: hits, misses, and the first block of the newest miss that differed."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.front.lines import Expected, Line, common_prefix
from engine.prompt.conversation import Conversation, Prompt, Text

APPEND = "append"  # what a prediction without a rule is called in reports


@dataclass(slots=True)
class Score:
    """`early` counts edits that were foreseen as likely and had not come yet; `differs` is where the newest miss left the
    prediction: {token, message, block, kind}."""

    hits: int = 0
    misses: int = 0
    early: int = 0
    differs: dict[str, Any] | None = None


@dataclass(slots=True)
class Scores:
    """By rule. Only predictions that can be judged count: those of the kind of continuation that came, and of these those
    that said something which the line's earlier prompts had not said."""

    rules: dict[str, Score] = field(default_factory=dict)

    def judge(self, line: Line, conversation: Conversation, prompt: Prompt) -> Expected | None:
        """Count what `line` expected to come next against what came; the expectation that was met."""
        tokens = array("I", prompt.tokens)
        came = arrived(conversation)
        hit = line.foretold(tokens)
        for one in line.sent[-1].expected:
            if one is hit:
                self._score(one).hits += 1
                break
            if one.expects not in ("", came) or not line.adds(one) or (hit is not None and not one.rule):
                continue
            score = self._score(one)
            if hit is not None and not hit.rule:
                score.early += 1
            else:
                score.misses += 1
                score.differs = _first_difference(one, prompt, tokens)
        return hit

    def json(self) -> dict[str, Any]:
        return {rule: asdict(score) for rule, score in self.rules.items()}

    def _score(self, expected: Expected) -> Score:
        return self.rules.setdefault(expected.rule or APPEND, Score())


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
