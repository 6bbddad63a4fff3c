"""What to compute ahead after a reply: each predicted next prompt up to its first unknown token."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.front.lines import Answered, Expected, common_prefix
from engine.prompt.conversation import Block, Conversation, Prompt, Span
from engine.prompt.edits.policy import EditPolicy, Prediction, Turn
from engine.prompt.language import Language
from engine.protocol import EditPoint


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply as the client has it."""

    blocks: tuple[Block, ...]
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One prompt to compute ahead."""

    expected: Expected
    edit_points: list[EditPoint]


def plans_of(language: Language, policy: EditPolicy, turn: Turn, reply: Reply) -> list[Plan]:
    """What follows `reply`, as tokens, most probable first, each once. Raises BadRequest as `Language.render` does."""
    return _plans(language, policy, turn, policy.predict(turn, reply.blocks, reply.completion_tokens))


def plans_after_compaction(
    language: Language, policy: EditPolicy, last: Answered, asked: Conversation, summary: tuple[Block, ...] | None
) -> list[Plan]:
    """What follows the request for a summary `asked` beside a line whose `last` turn is given; None: it is being written."""
    predictions = policy.compacted(last.turn, last.blocks, asked, summary)
    return _plans(language, policy, last.turn, predictions)


def _plans(language: Language, policy: EditPolicy, turn: Turn, predictions: Sequence[Prediction]) -> list[Plan]:
    plans: list[Plan] = []
    for prediction in predictions:
        tokens = language.certain(prediction)
        if not tokens or any(list(p.expected.tokens) == tokens for p in plans):
            continue
        expects = "" if prediction.whenever else prediction.expects
        expected = Expected(prediction.rule, prediction.edge, expects, array("I", tokens))
        plans.append(Plan(expected, _points(language, policy, turn, prediction, tokens)))
    return plans


def _points(
    language: Language, policy: EditPolicy, turn: Turn, prediction: Prediction, tokens: list[int]
) -> list[EditPoint]:
    """Where checkpoints belong in a predicted prompt: the edges that it will have once it is sent, and its end."""
    prompt = language.render(prediction.conversation)
    known = common_prefix(array("I", prompt.tokens), array("I", tokens))
    spans = [Span(s.start, min(s.end, known), s.message, s.block, s.kind) for s in prompt.spans if s.start < known]
    known_prompt = Prompt(tokens[:known], spans, known)
    points = policy.anchors(replace(turn, conversation=prediction.conversation, prompt=known_prompt, marks=()))
    kept = {p.position: p for p in points if 0 < p.position < len(tokens)}
    kept[len(tokens)] = EditPoint(len(tokens), "prompt", edge=prediction.edge)
    return [kept[position] for position in sorted(kept)]
