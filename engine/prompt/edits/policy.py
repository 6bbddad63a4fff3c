"""Harness × chat template: where a request's prompt may fork, and what the next request will be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.prompt.conversation import Block, Conversation, Message, Prompt, Text
from engine.prompt.edits import declaration as declarations
from engine.prompt.edits import wire as wires
from engine.prompt.edits.anchors import Anchors, context_of, default_keeps
from engine.prompt.edits.declaration import Declaration, Rule, Volatile
from engine.prompt.edits.edges import parse_edge
from engine.prompt.edits.outline import Outline, Place, block_at
from engine.prompt.edits.places import Places
from engine.prompt.edits.predict import Predictor
from engine.prompt.edits.template import Template
from engine.prompt.edits.turn import Hint, Prediction, Turn, Wire
from engine.protocol import EditPoint

__all__ = ["EditPolicy", "Hint", "Prediction", "Turn", "Wire"]
_SUMMARY = parse_edge("summary.start", "policy")


class EditPolicy:
    """Immutable. `observe` is True when the client's version lies outside the range its declaration was verified for:
    the declared edges are kept beside the default ones, and forks that no rule explains are worth a report."""

    def __init__(self, declaration: Declaration | None, template: Template, observe: bool = False) -> None:
        self.declaration = declaration or Declaration()
        self.template = template
        self.declared = declaration is not None
        self.observe = observe

    @staticmethod
    def compose(
        declaration: Mapping[str, Any] | None, template: Template, version: str | None = None, observe: bool = False
    ) -> EditPolicy:
        """The policy of a session. None: a client that declares nothing. Raises BadRequest naming the field at fault."""
        if declaration is None:
            return EditPolicy(None, template, observe)
        parsed = declarations.parse(declaration)
        return EditPolicy(parsed, template, observe or (version is not None and not parsed.covers(version)))

    def canonical(self, conversation: Conversation, body: Mapping[str, Any]) -> Conversation:
        """The conversation to render: without volatile text, late system messages and deferred tools as declared."""
        for entry in self.declaration.volatile:
            conversation = _without(conversation, entry)
        if self.declaration.system_mid == "user":
            head = Outline(conversation).head
            messages = tuple(
                replace(m, role="user") if m.role == "system" and i >= head else m
                for i, m in enumerate(conversation.messages)
            )
            conversation = replace(conversation, messages=messages)
        if self.declaration.deferred_in_head and any(tool.deferred for tool in conversation.tools):
            tools = tuple(replace(tool, deferred=False) for tool in conversation.tools)
            conversation = replace(conversation, tools=tools)
        return conversation

    def anchors(self, turn: Turn) -> list[EditPoint]:
        """Positions in the prompt where the next one may fork, ascending, one per position."""
        rules = self._enabled(turn.config)
        keeps = self.declaration.keeps if self.declared else ()
        if not self.declared or self.observe:
            keeps = (*keeps, *default_keeps())
        active = frozenset(rule.id for rule in rules if self._counts(rule, turn))
        return Anchors(self.declaration, self.template, turn, rules, active).points(keeps, messages=not self.declared)

    def predict(self, turn: Turn, reply: tuple[Block, ...], completion_tokens: int) -> list[Prediction]:
        """What the next request will be, most probable first, at most two."""
        predictor = Predictor(self.declaration, self.template, self._enabled(turn.config))
        return predictor.predict(turn, reply, completion_tokens)

    def summarised(self, conversation: Conversation) -> bool:
        """Whether its first message brings the summary of an earlier compaction."""
        outline = Outline(conversation)
        first = outline.head, 0
        places = Places(outline, Prompt([]), {}, None)
        found = (places.place(_SUMMARY, context_of(r)) for r in self.declaration.rules if r.op == "summarize")
        return any(place is not None and place == first for place in found)

    def compacted(
        self, turn: Turn, reply: tuple[Block, ...], asked: Conversation, summary: tuple[Block, ...] | None
    ) -> list[Prediction]:
        """What follows the request for a summary `asked`, made beside `turn` and its `reply`; None: it is being written."""
        return Predictor(self.declaration, self.template, self._enabled(turn.config)).compacted(
            turn, reply, asked, summary
        )

    def wire(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Wire:
        """What the request says about itself. `headers` have lower-case names.

        Raises BadRequest for malformed `edit_hints`; everything else that is not understood counts as absent.
        """
        declared = self.declaration
        session, _ = wires.first_found(declared.session, headers, body)
        parent, presence = wires.first_found(declared.parent, headers, body)
        if presence:  # the id names a line of its own inside the session
            session, parent = f"{session}/{parent}", session
        epoch = body.get("epoch")
        own = str(epoch) if isinstance(epoch, str | int) and not isinstance(epoch, bool) else ""
        return Wire(
            session=session,
            parent=parent,
            epoch=own or wires.first_found(declared.epoch, headers, body)[0],
            kind=wires.first_found(declared.kind, headers, body)[0],
            marks=wires.marks_of(body) if declared.marks else (),
            hints=wires.hints_of(body),
        )

    def _enabled(self, config: Mapping[str, Any]) -> tuple[Rule, ...]:
        """The rules that the client's configuration, as far as it was registered, leaves on."""
        return tuple(rule for rule in self.declaration.rules if _switched_on(rule, config))

    def _counts(self, rule: Rule, turn: Turn) -> bool:
        """Whether edges that depend on `rule` are kept: what the request itself shows must hold, the rest may come."""
        if rule.known != "request" or rule.when_edge is None:
            return True
        places = Places(Outline(turn.conversation, self.declaration.not_query), Prompt([]), turn.body, None)
        return Predictor(self.declaration, self.template, ()).holds(rule, turn, {}, places)


def _switched_on(rule: Rule, config: Mapping[str, Any]) -> bool:
    if rule.switch is None:
        return True
    path, wanted = rule.switch
    value = config.get(path, wires.walk(config, path))
    if not wanted:
        return bool(value)
    return (str(value).lower() if isinstance(value, bool) else str(value)) == wanted


def _without(conversation: Conversation, entry: Volatile) -> Conversation:
    """Without the lines that a volatile pattern touches; a block or message of nothing else goes."""
    texts: dict[Place, str] = {}
    for place in _volatile_places(conversation, entry):
        block = block_at(conversation, place)
        text = _without_lines(block.text, entry) if isinstance(block, Text) else None
        if text is not None:
            texts[place] = text
    if not texts:
        return conversation
    messages: list[Message] = []
    for i, message in enumerate(conversation.messages):
        blocks = tuple(Text(texts[i, j]) if (i, j) in texts else b for j, b in enumerate(message.blocks))
        blocks = tuple(b for j, b in enumerate(blocks) if texts.get((i, j)) != "")
        if blocks or not message.blocks:
            messages.append(replace(message, blocks=blocks))
    return replace(conversation, messages=tuple(messages))


def _volatile_places(conversation: Conversation, entry: Volatile) -> list[Place]:
    outline, at = Outline(conversation), entry.at
    if at.kind == "system":
        places = outline.system_blocks
        return (
            places if at.block is None else places[at.block : at.block + 1] if at.block >= 0 else places[at.block :][:1]
        )
    numbers = list(range(outline.head, len(outline.messages))) if at.kind == "message" else outline.users
    if not -len(numbers) <= at.index < len(numbers):
        return []
    message = numbers[at.index]
    count = len(outline.messages[message].blocks)
    if at.block is None:
        return [(message, j) for j in range(count)]
    return [(message, at.block % count)] if -count <= at.block < count else []


def _without_lines(text: str, entry: Volatile) -> str | None:
    """`text` without every line that a match touches; None when nothing matches."""
    spans = entry.pattern.spans(text)
    if not spans:
        return None
    kept, position = [], 0
    for start, end in spans:
        line = text.rfind("\n", 0, start) + 1
        after = text.find("\n", max(end - 1, start))
        if line > position:
            kept.append(text[position:line])
        position = max(position, len(text) if after < 0 else after + 1)
    return "".join(kept) + text[position:]
