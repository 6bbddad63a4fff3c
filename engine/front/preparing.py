"""From a parsed request to what the worker is sent: whose line it is, what it means, its prompt, and where it may change."""

from __future__ import annotations

import hashlib
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import PromptTooLong
from engine.front.clearing import Applied, Clearing, Edits
from engine.front.context import Front
from engine.front.explain import Break, find_break
from engine.front.items import Ask
from engine.front.lines import Line, Sent
from engine.front.observe import Seen
from engine.front.plans import Reply
from engine.front.sessions import Session
from engine.front.sides import side_kind
from engine.prompt.conversation import Conversation, Message, Prompt, Text, ToolResult
from engine.prompt.edits.policy import Turn, Wire
from engine.protocol import EditPoint

COMPACTION = "compaction"
_OPENING_CHARS = 256


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks: what the wire says, the kind of side request (None: a turn of the agent), and its line. `about` is the line
    that a compaction sums up: its own where it goes on from the agent's prompt."""

    wire: Wire
    side: str | None
    line: Line
    about: Line
    headers: Mapping[str, str]


@dataclass(slots=True)
class Prepared:
    """A rendered request. `turn` is what the edit policy sees of it, None for raw text; `texts` are around the break.

    `asked` is the conversation before `clearing`, the client's context edits, left something out of it.
    """

    prompt: Prompt
    edit_points: list[EditPoint]
    sent: Sent
    turn: Turn | None = None
    asked: Conversation | None = None
    clearing: Clearing | None = None
    broke: Break | None = None
    texts: dict[str, str] | None = None
    applied: Applied | None = None
    observed: Seen | None = None

    @property
    def conversation(self) -> Conversation | None:
        return self.turn.conversation if self.turn else None


def origin(front: Front, session: Session, ask: Ask, headers: Mapping[str, str], body: Mapping[str, Any]) -> Origin:
    """Read the wire. Called on the event loop; the line becomes the one used last."""
    wire = session.policy.wire(headers, body)
    side = None
    if ask.conversation is not None:
        side = side_kind(session.declaration, ask.conversation, body, wire.kind)
    key, lines = _key(front, session, ask, wire, side), front.lines
    about = line = lines.get(key, own_id=bool(wire.session))
    if side is not None and not (side == COMPACTION and session.policy.declaration.compacts_in_session):
        line = lines.get(f"{key}/{side}", own_id=True)
    return Origin(wire, side, line, about, headers)


def prepare(
    front: Front, session: Session, ask: Ask, origin: Origin, body: Mapping[str, Any], others: Sequence[Line]
) -> Prepared:
    """Render and explain. Runs beside the event loop. Raises BadRequest for a conversation that cannot be rendered."""
    language = front.language
    if ask.conversation is None:
        _refuse_endless(front, len(ask.text or ""))
        tokens = language.encode(ask.text or "") if ask.tokens is None else list(ask.tokens)
        prompt = Prompt(tokens, end=len(tokens))
        return _explained(front, origin, others, Prepared(prompt, [], Sent.of(prompt, [])))
    conversation = session.rendering(session.policy.canonical(ask.conversation, body))
    if not Edits.parse(body):
        _refuse_endless(front, _characters(conversation))
    rendered, prompt, clearing, _ = _cleared(front, conversation, origin.line, body)
    line, now = origin.line, time.monotonic()
    turn = Turn(
        conversation=rendered,
        prompt=prompt,
        window=session.window or front.window,
        max_output=ask.max_tokens or session.max_output or front.max_output,
        body=body,
        config=session.config,
        hints=origin.wire.hints,
        idle_s=now - line.last if line.last is not None else 0.0,
        marks=origin.wire.marks,
    )
    points = session.policy.anchors(turn)
    prepared = Prepared(prompt, points, Sent.of(prompt, points), turn, conversation, clearing)
    if clearing.edits.asked:
        prepared.applied = clearing.applied(conversation)
    if session.observer is not None:
        prepared.observed = session.observer.asked(
            ask.conversation, len(prompt.tokens), turn.window, ask.api, origin.headers
        )
    return _explained(front, origin, others, prepared)


def after(front: Front, prepared: Prepared, reply: Reply) -> Turn:
    """The turn as its prediction starts from it. What the client's edits let go of now, while nobody waits, is let go of.

    Runs beside the event loop. Raises BadRequest as rendering does.
    """
    turn, clearing, asked = prepared.turn, prepared.clearing, prepared.asked
    assert turn is not None
    if not clearing or not clearing.edits or asked is None:
        return turn
    whole = replace(asked, messages=(*asked.messages, Message("assistant", reply.blocks)))
    prompt = front.language.render(clearing.apply(whole))
    due = clearing.due(whole, prompt, front.window)
    if not due:
        return turn
    clearing.cleared.update(due)
    return replace(turn, conversation=clearing.apply(asked))


def count(front: Front, session: Session, ask: Ask, origin: Origin, body: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of the prompt, and without the client's context edits. Changes nothing."""
    assert ask.conversation is not None
    conversation = session.rendering(session.policy.canonical(ask.conversation, body))
    line = replace(origin.line, cleared=dict(origin.line.cleared))
    _, prompt, _, original = _cleared(front, conversation, line, body)
    return len(prompt.tokens), original


def _cleared(
    front: Front, conversation: Conversation, line: Line, body: Mapping[str, Any]
) -> tuple[Conversation, Prompt, Clearing, int]:
    """The conversation after the client's context edits, its prompt, and the tokens it would have had without them."""
    clearing = Clearing(Edits.parse(body), line.cleared)
    if not clearing.edits:
        prompt = front.language.render(conversation)
        return conversation, prompt, Clearing(clearing.edits), len(prompt.tokens)
    rendered = clearing.apply(conversation)
    prompt = front.language.render(rendered)
    due = clearing.due(conversation, prompt, front.window)
    # A prefix that exists is better left for the pause after the reply, unless there was one or there is no room.
    waits = bool(due) and bool(line.sent) and not line.overdue and len(prompt.tokens) < front.window * 3 // 4
    line.overdue = waits
    if due and not waits:
        clearing.cleared.update(due)
        rendered = clearing.apply(conversation)
        prompt = front.language.render(rendered)
    applied = clearing.applied(conversation)
    return rendered, prompt, clearing, len(prompt.tokens) + applied.tool_tokens + applied.thinking_tokens


def _refuse_endless(front: Front, characters: int) -> None:
    """Raises PromptTooLong for what cannot fit whatever its tokens are: tokenising it would take minutes."""
    least = characters // front.language.longest_token
    if least > front.window:
        raise PromptTooLong(least, front.window)


def _characters(conversation: Conversation) -> int:
    """Of what every template renders; reasoning and tool definitions may be left out by one."""
    total = 0
    for message in conversation.messages:
        for block in message.blocks:
            parts = block.content if isinstance(block, ToolResult) else (block,)
            total += sum(len(part.text) for part in parts if isinstance(part, Text))
    return total


def _explained(front: Front, origin: Origin, others: Sequence[Line], prepared: Prepared) -> Prepared:
    prepared.broke = find_break(origin.line, others, prepared.prompt)
    if prepared.broke is not None:
        prepared.texts = prepared.broke.texts(front.language.decode)
    return prepared


def _key(front: Front, session: Session, ask: Ask, wire: Wire, side: str | None) -> str:
    """The name of the agent's line: what the client says, else how its conversation begins. One that says nothing and
    begins with a summary, or asks for one, goes on with the line used last."""
    said = ask.conversation
    if not wire.session and said is not None and (side == COMPACTION or session.policy.summarised(said)):
        going = next((line for line in front.lines.of(session.id) if line.answered is not None), None)
        if going is not None:
            return going.key
    thread = wire.session or _opening(ask)
    return f"{session.id}/{thread}" if thread else session.id


def _opening(ask: Ask) -> str:
    """A name for the line of a client that gives none: how its conversation begins."""
    text = ask.text or str(ask.tokens or "")[:_OPENING_CHARS]
    for message in ask.conversation.messages if ask.conversation else ():
        text = next((b.text for b in message.blocks if isinstance(b, Text)), "") if message.role == "user" else ""
        if text:
            break
    return "~" + hashlib.blake2b(text[:_OPENING_CHARS].encode(), digest_size=5).hexdigest() if text else ""


def prompt_hash(tokens: Sequence[int]) -> str:
    """Tells prompts apart in the records."""
    return hashlib.sha256(array("I", tokens).tobytes()).hexdigest()[:16]
