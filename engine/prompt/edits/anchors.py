"""Which positions of a prompt deserve a checkpoint: the edges that harness and template keep, the client's own marks and
hints, and the prompt's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from engine.prompt.edits.declaration import Declaration, Keep, Rule
from engine.prompt.edits.edges import Edge, parse_edge
from engine.prompt.edits.expressions import Condition
from engine.prompt.edits.ops import placeholder_for
from engine.prompt.edits.outline import Outline, Place, block_at, text_of
from engine.prompt.edits.patterns import Pattern
from engine.prompt.edits.places import Context, Places, shared, summary_before
from engine.prompt.edits.template import Template
from engine.prompt.edits.turn import Turn
from engine.protocol import EditPoint

_ORDER = ("head", "turn", "frontier", "reminder", "live", "prompt")
_UNKNOWN = "\u2026"
_ALWAYS = Condition("always")
_HEADER = 16  # no message's header is longer
_MESSAGES = 16

Add = Callable[[int | None, str, int, str], None]


def default_keeps() -> tuple[Keep, ...]:
    """What is kept for a client that declares nothing: edges that every agent has."""
    edges = (
        ("head.start", "prompt", 1),
        ("head.end", "head", 2),
        ("turn[-1].query.start", "turn", 3),
        ("turn[-1].query.end", "turn", 3),
        ("last.start", "live", 2),
        ("prompt.end", "prompt", 2),
    )
    return tuple(Keep(parse_edge(text, "default"), kind, quota) for text, kind, quota in edges)


@dataclass(frozen=True, slots=True)
class Anchors:
    """The points of one prompt. `rules` are those that can happen in this session; `active` those that hold right now."""

    declaration: Declaration
    template: Template
    turn: Turn
    rules: Sequence[Rule]
    active: frozenset[str]

    def points(self, keeps: Sequence[Keep], messages: bool = False) -> list[EditPoint]:
        """Ascending, one per position; where several edges meet, the most protected class. `messages`: also where each
        message begins, for who may leave out any of them."""
        found: dict[int, EditPoint] = {}

        def add(position: int | None, kind: str, quota: int, edge: str) -> None:
            if position is None or not 0 < position <= len(self.turn.prompt.tokens):
                return
            old = found.get(position)
            if old is None or _ORDER.index(kind) < _ORDER.index(old.kind):
                found[position] = EditPoint(position, kind, quota, edge)

        places = self._places(self.declaration.not_query)
        for keep in keeps:
            self._add_keep(places, keep, add)
        named = frozenset(keep.edge.text for keep in keeps)
        for rule in self.rules:
            self._add_rule(places, rule, named, add)
        if messages:
            self._add_messages(places, add)
        templated = self._places(self.template.not_query)
        strips = self.template.strips(bool(self.turn.conversation.tools))
        for keep in self.template.keeps:
            if strips:
                self._add_keep(templated, keep, add)
        for mark in self.turn.marks:
            head, position = mark[0] < places.outline.head, places.mark_end(mark)
            position = self._end() if position == self.turn.prompt.end else position
            add(position, "head" if head else "live", 2, "mark")
        self._add_hints(places, add)
        end = self._end()
        if end not in found:
            add(end, "prompt", 1, "prompt.end")
        return [found[position] for position in sorted(found)]

    def _add_messages(self, places: Places, add: Add) -> None:
        """Behind what a message and the one after it begin with: there the prompt forks when it is left out."""
        tokens = self.turn.prompt.tokens
        starts = [places.message_start(m) for m in range(places.outline.head, len(places.outline.messages) + 1)]
        for start, after in pairwise(starts):
            same = shared(tokens[start : start + _HEADER], tokens[after : after + _HEADER])
            add(start + same, "prompt", _MESSAGES, "message")
        if self.template.spelling is not None:  # another answer may be sent back in the place of ours
            end, header = self.turn.prompt.end, self.template.spelling.header("answer")
            add(end + shared(header, tokens[end:]), "prompt", 1, "answer")

    def _places(self, not_query: tuple[Pattern, ...]) -> Places:
        outline = Outline(self.turn.conversation, not_query)
        spelling = self.template.spelling
        return Places(outline, self.turn.prompt, self.turn.body, spelling.encode if spelling else None)

    def _add_keep(self, places: Places, keep: Keep, add: Add) -> None:
        if keep.rule and keep.rule not in self.active:
            return
        rule = self._rule_at(keep.edge)
        # A prompt that is computed from the start passes the older turns' edges too.
        depth = max(keep.quota, 1) if keep.edge.kind in ("turn", "user") and keep.edge.index < 0 else 1
        for age in range(depth):
            edge = replace(keep.edge, index=keep.edge.index - age) if age else keep.edge
            add(self._position(places, edge, rule), keep.kind, keep.quota, keep.edge.text)

    def _add_hints(self, places: Places, add: Add) -> None:
        """Edits that happen together fork the prompt at the first of them."""
        first: dict[str, tuple[int, str]] = {}
        for hint in self.turn.hints:
            edge = parse_edge(hint.at, "edit_hints")
            rule = Rule("hint", hint.op, (edge,), "request", _ALWAYS, placeholder=hint.text or None)
            position = self._position(places, edge, rule)
            if position is not None and position < first.get(hint.after, (position + 1, ""))[0]:
                first[hint.after] = (position, hint.at)
        for position, at in first.values():
            add(position, "frontier", 4, "hint " + at)

    def _add_rule(self, places: Places, rule: Rule, named: frozenset[str], add: Add) -> None:
        """The edges of a rule that may happen next, where no `keep` names them."""
        if rule.known == "event" or rule.id not in self.active:
            return
        if rule.op == "clear_result" and rule.select is not None:
            place = rule.select.frontier(places.outline, context_of(rule).cleared)
            if place is not None:
                add(self._at_result(places.block_start(place), place, rule), "frontier", 2, rule.at[0].text)
            return
        for edge in (edge for edge in rule.at if edge.text not in named):
            kind = "head" if edge.kind in ("head", "system", "input", "first") else "frontier"
            add(self._position(places, edge, rule), kind, 2, edge.text)

    def _end(self) -> int:
        """The prompt's end, behind what the answer's header and that of another user message have in common."""
        end, spelling = self.turn.prompt.end, self.template.spelling
        if spelling is None or not self._user_may_follow():
            return end
        return end + shared(spelling.header("user"), self.turn.prompt.tokens[end : end + 64])

    def _user_may_follow(self) -> bool:
        """Whether a user message may take the place of an answer: the request for a summary, or the summary itself."""
        if self.declaration.echo_thinking == "drop_all":
            return False
        keeps_users = any(rule.op == "summarize" and rule.tail.users is not None for rule in self.rules)
        return keeps_users or self.declaration.compacts_in_session

    def _rule_at(self, edge: Edge) -> Rule | None:
        """The rule that forks at an edge."""
        known = [*self.rules, *self.template.rules]
        return next((rule for rule in known if any(at.text == edge.text for at in rule.at)), None)

    def _position(self, places: Places, edge: Edge, rule: Rule | None) -> int | None:
        """The exact place: behind the tokens that what stands there now and what will stand there have in common."""
        context = context_of(rule)
        tokens, spelling = self.turn.prompt.tokens, self.template.spelling
        if edge.kind == "tool" and spelling is not None:
            head = tokens[: places.message_start(places.outline.head)]
            return spelling.without_tools(self.turn.conversation, edge.tools, head)
        position = places.position(edge, context)
        if position is None or spelling is None:
            return position
        if edge.kind == "summary":
            before = spelling.encode(summary_before(context.params)) or tokens[self.turn.prompt.end :]
            return position + shared(before, tokens[position : position + max(len(before), 1)])
        header = self._successor(edge, rule)
        if header:
            return position + shared(spelling.header(header), tokens[position : position + 64])
        if rule is not None and rule.op == "clear_result":
            place = places.place(edge, context)
            return self._at_result(position, place, rule) if place is not None and place[1] >= 0 else position
        return position

    def _at_result(self, position: int | None, place: Place, rule: Rule) -> int | None:
        """Behind what a result and the rule's placeholder for it have in common."""
        spelling = self.template.spelling
        if position is None or spelling is None:
            return position
        new = placeholder_for(rule.placeholder or _UNKNOWN, text_of(block_at(self.turn.conversation, place)))
        return position + shared(spelling.result(new), self.turn.prompt.tokens[position:])

    def _successor(self, edge: Edge, rule: Rule | None) -> str:
        """Whose header will stand at an edge after the next edit; "" when that is not known."""
        strips = self.template.strips(bool(self.turn.conversation.tools))
        drops = self.declaration.echo_thinking
        if edge.kind == "head" and edge.side == "start":
            return "system"
        if edge.kind == "head" or (edge.kind in ("turn", "user") and edge.side == "start" and edge.block is None):
            return "user"
        if edge.kind == "turn" and edge.side == "end":
            verbatim = "user" if self._user_may_follow() else ""
            return "past_answer" if strips else "answer" if drops != "verbatim" else verbatim
        if edge.kind == "prompt":
            return "answer" if drops == "drop_all" else "user" if self._user_may_follow() else ""
        if edge.kind in ("last", "tail") and rule is not None and rule.op == "move_tail":
            return "past_answer" if strips else "answer"
        return ""


def context_of(rule: Rule | None) -> Context:
    """What a rule's edges may refer to."""
    if rule is None:
        return Context()
    return Context(rule.select, lambda text: is_cleared(text, rule.placeholder), rule.params)


def is_cleared(text: str, placeholder: str | None) -> bool:
    """Whether a result's text is a rule's placeholder; one with a number in it is known by what stands around that."""
    if not placeholder:
        return False
    before, found, after = placeholder.partition("{lines}")
    if not found:
        return text == placeholder
    return text.startswith(before) and text.endswith(after) and len(text) <= len(placeholder) + 12
