"""The next request, as far as rules, hints and the reply determine it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.prompt.conversation import Block, Conversation, Message, Prompt, Text, Thinking, ToolCall
from engine.prompt.edits import ops
from engine.prompt.edits.anchors import context_of, is_cleared
from engine.prompt.edits.declaration import Declaration, Rule
from engine.prompt.edits.edges import Edge, parse_edge
from engine.prompt.edits.expressions import Condition, Facts
from engine.prompt.edits.outline import Outline, Place, block_at, size_of, text_of
from engine.prompt.edits.patterns import compile_pattern
from engine.prompt.edits.places import SUMMARY, Places, summary_before
from engine.prompt.edits.template import Template
from engine.prompt.edits.turn import Hint, Prediction, Turn

_NO_PROMPT = Prompt([])
_DETERMINED = ("request", "record")  # what is known before the reply; `reply` is computed from its usage


@dataclass(frozen=True, slots=True)
class Predictor:
    """`rules` are those that are enabled in this session."""

    declaration: Declaration
    template: Template
    rules: Sequence[Rule]

    def predict(self, turn: Turn, reply: tuple[Block, ...], completion_tokens: int) -> list[Prediction]:
        """Most probable first, at most two."""
        expects = "tool_result" if any(isinstance(block, ToolCall) for block in reply) else "user"
        values = self._values(turn, completion_tokens)
        summarized = self._summarized(turn, reply, values)
        if summarized is not None:
            return [summarized]
        plain = self._appended(turn, reply, expects, values)
        compacted = self._compacted(turn, expects, reply, values)
        if compacted is None:
            return [plain]
        # Beside the session: what was said so far is never sent again as it is.
        return [plain, compacted] if self.declaration.compacts_in_session else [compacted]

    def holds(self, rule: Rule, turn: Turn, values: Mapping[str, int], places: Places) -> bool:
        """Whether a rule's `when` holds for `turn`."""
        return rule.when.holds(self._facts(rule, turn, values, places))

    def _appended(self, turn: Turn, reply: tuple[Block, ...], expects: str, values: Mapping[str, int]) -> Prediction:
        """The conversation with the reply behind it, after every edit that is already determined."""
        conversation = turn.conversation
        coming = sum(1 for block in reply if isinstance(block, ToolCall))
        applied: list[tuple[str, str]] = []
        then = ""
        for rule in self.rules:
            if rule.known not in _DETERMINED or rule.op == "summarize" or (rule.next_user_turn and expects != "user"):
                continue
            places = self._places(conversation, turn)
            if not self.holds(rule, replace(turn, conversation=conversation), values, places):
                continue
            edited = self._edit(rule, conversation, places, 0 if rule.next_user_turn else coming)
            if edited is not conversation:
                applied.append((rule.id, rule.at[0].text))
                then = "user" if rule.op == "move_tail" else then
                conversation = edited
        for hint in turn.hints:
            rule = _rule_of(hint)
            if rule.op == "summarize" or (hint.after == "user" and expects != "user"):
                continue
            edited = self._edit(rule, conversation, self._places(conversation, turn))
            if edited is not conversation:
                applied.append((rule.id, hint.at))
                conversation = edited
        conversation = ops.append(conversation, [Message("assistant", self._echoed(reply))])
        if self.declaration.echo_thinking == "drop_before_query" and expects == "user":
            conversation = ops.drop_thinking(conversation, len(conversation.messages))
        stripped = self._stripped(conversation, expects, bool(then))
        applied += [stripped] if stripped is not None else []
        rules = "+".join(dict.fromkeys(rule for rule, _ in applied))
        edge = applied[0][1] if applied else "prompt.end"
        return Prediction(rules, edge, conversation, expects, then if expects == "tool_result" else "")

    def _compacted(
        self, turn: Turn, expects: str, reply: tuple[Block, ...], values: Mapping[str, int]
    ) -> Prediction | None:
        """What is certain of the conversation after a compaction that this reply's usage, or a hint, calls for."""
        declared = self._summarizer()
        hints = [replace(_rule_of(h), next_user_turn=h.after == "user") for h in turn.hints if h.op == "summarize"]
        if declared is not None:
            hints = [replace(hint, params=declared.params, tail=declared.tail) for hint in hints]
        whole = ops.append(turn.conversation, [Message("assistant", reply)])
        places = self._places(whole, turn)
        for rule in [*hints, *(r for r in self.rules if r.op == "summarize" and r.known == "reply")]:
            if (rule.next_user_turn and expects != "user") or not self.holds(rule, turn, values, places):
                continue
            found = self._deepest(rule, places)
            if found is None:
                continue
            return self._before_summary(rule, found, whole, values)
        return None

    def compacted(
        self, turn: Turn, reply: tuple[Block, ...], asked: Conversation, summary: tuple[Block, ...] | None
    ) -> list[Prediction]:
        """What follows a request for a summary, `asked`, that was made beside the agent's own conversation: `turn` and its
        `reply`. `summary` is the answer to it, None while that is being written. The most complete prediction first."""
        rule = self._summarizer()
        whole = ops.append(turn.conversation, [Message("assistant", self._echoed(reply))])
        values = self._values(turn, 0)
        found = self._deepest(rule, self._places(whole, turn)) if rule is not None else None
        if rule is None or found is None or (rule.tail.since and _answers(asked) > _answers(turn.conversation)):
            return []
        before = self._before_summary(rule, found, whole, values)
        text = "".join(block.text for block in summary or () if isinstance(block, Text)).strip()
        question, wrapper = rule.params.get("question"), str(rule.params.get("summary", ""))
        if not text or not (question or SUMMARY in wrapper):
            return [before]
        head, _, behind = wrapper.partition(SUMMARY)
        if rule.params.get("more"):
            return [replace(before, begins=head + text)]
        told = Message("user", (Text(head + text + behind),))
        if question:  # an answer like any other
            told = Message("assistant", tuple(b for b in self._echoed(summary or ()) if not isinstance(b, ToolCall)))
        messages = before.conversation.messages
        if not question and messages and not messages[-1].blocks:
            messages = messages[:-1]
        calls = any(isinstance(block, ToolCall) for block in reply)
        start = found[1][0] + (found[0].kind == "summary")
        tail = self._tail(rule, whole, start, values, values["newest"] if calls else 0)
        conversation = replace(whole, messages=(*messages, told, *tail))
        expects = "tool_result" if calls and tail else "user" if question or tail else ""
        then = "user" if question else ""  # the agent asks to go on
        return [Prediction(rule.id, found[0].text, conversation, expects, then, whenever=True)]

    def _summarizer(self) -> Rule | None:
        return next((rule for rule in self.rules if rule.op == "summarize" and rule.known == "reply"), None)

    def _before_summary(
        self, rule: Rule, found: tuple[Edge, Place], whole: Conversation, values: Mapping[str, int]
    ) -> Prediction:
        """What stands before the summary of `whole`, and how its message begins."""
        edge, place = found
        question = str(rule.params.get("question", ""))
        kept = self._kept_users(rule, whole, place, values)
        if question and edge.kind != "summary":
            kept = [*kept, Message("user", (Text(question),))]
        begun = [] if question or not kept else [Message("user", ())]  # the summary is a message of its own
        conversation = ops.summarize(whole, place, [*kept, *begun])
        join = str(rule.params.get("join", ""))
        if join and place[1] > 0:
            conversation = ops.end_with(conversation, (place[0], place[1] - 1), join)
        begins = "" if question else summary_before(rule.params)
        expects, then = ("assistant", "user") if question else ("user", "")
        return Prediction(rule.id, edge.text, conversation, expects, then, begins, whenever=True)

    def _tail(
        self, rule: Rule, whole: Conversation, start: int, values: Mapping[str, int], coming: int
    ) -> Sequence[Message]:
        """The newest messages that fit the rule's size, in tokens of four characters, with the `coming` one; from an answer
        or a user's message on."""
        if rule.tail.messages:
            return whole.messages[-rule.tail.messages :]
        left = rule.tail.tokens.value(values) if rule.tail.tokens is not None else None
        if left is None:
            return ()
        left -= coming
        first = len(whole.messages)
        for index in range(first - 1, start - 1, -1):
            message = whole.messages[index]
            left -= sum(size_of(block) for block in message.blocks) // 4
            if left < 0:
                break
            first = index if message.role != "tool" else first
        return whole.messages[first:]

    def _summarized(self, turn: Turn, reply: tuple[Block, ...], values: Mapping[str, int]) -> Prediction | None:
        """What follows when the request asked for the summary in the session itself, and `reply` is that summary."""
        asked = turn.conversation.messages[-1] if turn.conversation.messages else None
        summary = "".join(block.text for block in reply if isinstance(block, Text)).strip()
        if asked is None or asked.role != "user" or not summary:
            return None
        before = replace(turn.conversation, messages=turn.conversation.messages[:-1])
        for rule in self.rules:
            pattern, wrapper = rule.params.get("instruction_re"), rule.params.get("summary")
            if rule.op != "summarize" or not pattern or not wrapper:
                continue
            matches = compile_pattern(str(pattern), "instruction_re").matches
            found = (
                self._deepest(rule, self._places(before, turn))
                if any(matches(text_of(b)) for b in asked.blocks)
                else None
            )
            if found is None:
                continue
            edge, place = found
            kept = self._kept_users(rule, before, place, values)
            told = Message("user", (Text(str(wrapper).replace(SUMMARY, summary)),))
            tail = before.messages[-rule.tail.messages :] if rule.tail.messages else ()
            return Prediction(rule.id, edge.text, ops.summarize(before, place, [*kept, told, *tail]), "user")
        return None

    def _deepest(self, rule: Rule, places: Places) -> tuple[Edge, Place] | None:
        """The last of a rule's edges that exists: behind an earlier compaction that is its summary."""
        found: list[tuple[Place, Edge]] = []
        for edge in rule.at:
            place = places.place(edge, context_of(rule))
            if place is not None:
                inside = place[1] >= 0 and edge.side == "end"
                found.append(((place[0], place[1] + 1 if inside else max(place[1], 0)), edge))
        if not found:
            return None
        place, edge = max(found, key=lambda item: item[0])
        return edge, place

    def _kept_users(
        self, rule: Rule, conversation: Conversation, until: Place, values: Mapping[str, int]
    ) -> list[Message]:
        """The user messages that stay before the summary: the newest, up to the rule's size in tokens of four characters."""
        budget = rule.tail.users.value(values) if rule.tail.users is not None and rule.tail.before_summary else None
        kept: list[Message] = []
        outline = Outline(conversation, self.declaration.not_query)
        for index in reversed(outline.users if budget is not None else []):
            message = conversation.messages[index]
            size = sum(size_of(block) for block in message.blocks) // 4
            if index < until[0] or budget is None or size > budget:
                break
            budget -= size
            kept.append(message)
        return kept[::-1]

    def _edit(self, rule: Rule, conversation: Conversation, places: Places, coming: int = 0) -> Conversation:
        """One rule applied; the same object when it changes nothing that is known. `coming`: results of the next request
        that are not here yet."""
        outline, context = places.outline, context_of(rule)
        found = [p for edge in rule.at if (p := places.place(edge, context)) is not None]
        if rule.select is not None:
            chosen = rule.select.places(outline, context.cleared, coming)
        else:
            chosen = [place for place in found if place[1] >= 0]
        first = min(found, default=None)
        if rule.op == "clear_result":
            return ops.clear_result(conversation, chosen, rule.placeholder) if rule.placeholder else conversation
        if rule.op == "strip_media":
            kind = rule.select.kind if rule.select is not None else "media"
            return ops.strip_media(conversation, chosen, kind, rule.placeholder or "")
        if rule.op == "rewrite_call":
            return ops.rewrite_call(conversation, chosen, str(rule.params.get("style", self.declaration.echo_args)))
        if rule.op == "move_tail":
            patterns = [edge.pattern for edge in rule.at if edge.pattern is not None]
            return ops.move_tail(conversation, patterns[0].matches if patterns else None)
        if rule.op == "drop_block":
            return ops.drop_block(conversation, self._dropped(rule, places, found))
        if rule.op == "truncate_turns" and first is not None:
            return ops.truncate_turns(conversation, first[0])
        if rule.op == "drop_thinking" and first is not None:
            keep = rule.params.get("keep_turns")
            turns = outline.queries[-keep] if isinstance(keep, int) and 0 < keep <= len(outline.queries) else first[0]
            return ops.drop_thinking(conversation, turns)
        text = rule.params.get("text")
        if rule.op == "insert_block" and first is not None and isinstance(text, str) and first[1] >= 0:
            return ops.insert_block(conversation, (first[0], first[1] + 1), Text(text))
        return conversation

    def _dropped(self, rule: Rule, places: Places, found: Sequence[Place]) -> list[Place]:
        """The block that `matches` looks at, or else those behind the edge in its message."""
        context = context_of(rule)
        if rule.when_edge is not None:
            place = places.place(rule.when_edge, context)
            return [place] if place is not None and place[1] >= 0 else []
        dropped: list[Place] = []
        for edge, place in zip(rule.at, found, strict=False):
            if place[0] >= len(places.outline.messages):
                continue
            count = len(places.outline.messages[place[0]].blocks)
            start = place[1] + 1 if edge.side == "end" or place[1] < 0 else place[1]
            end = count if edge.side == "end" or place[1] < 0 else start + 1
            dropped += [(place[0], j) for j in range(start, end)]
        return dropped

    def _echoed(self, reply: tuple[Block, ...]) -> tuple[Block, ...]:
        """The reply as this client will send it back."""
        if self.declaration.echo_thinking == "drop_all":
            reply = tuple(block for block in reply if not isinstance(block, Thinking))
        if self.declaration.echo_text == "trim":
            reply = tuple(Text(block.text.strip()) if isinstance(block, Text) else block for block in reply)
        return reply

    def _stripped(self, conversation: Conversation, expects: str, carried: bool) -> tuple[str, str] | None:
        """The template's own edit at a new query, for the report: rendering makes it by itself."""
        new_query = expects == "user" or carried
        if not new_query or not self.template.strips(bool(conversation.tools)):
            return None
        start = next(iter(Outline(conversation, self.template.not_query).queries[-1:]), 0)
        thought = any(isinstance(b, Thinking) and b.text for m in conversation.messages[start:] for b in m.blocks)
        rule = next((rule for rule in self.template.rules if rule.op == "drop_thinking"), None)
        return (rule.id, rule.at[0].text) if rule is not None and thought else None

    def _places(self, conversation: Conversation, turn: Turn) -> Places:
        return Places(Outline(conversation, self.declaration.not_query), _NO_PROMPT, turn.body, None)

    def _values(self, turn: Turn, completion_tokens: int) -> dict[str, int]:
        prompt = len(turn.prompt.tokens)
        newest = turn.conversation.messages[-1:] if turn.conversation.messages else ()
        results = [size_of(b) for message in newest if message.role == "tool" for b in message.blocks]
        return {
            "window": turn.window,
            "max_output": turn.max_output,
            "prompt": prompt,
            "completion": completion_tokens,
            "total": prompt + completion_tokens,
            "newest": sum(results) // 4,
        }

    def _facts(self, rule: Rule, turn: Turn, values: Mapping[str, int], places: Places) -> Facts:
        sizes = dict(values)
        if rule.select is not None:
            sizes |= _sizes(rule, places.outline)

        def text_at(edge: str) -> str | None:
            place = places.place(rule.when_edge, context_of(rule)) if rule.when_edge is not None else None
            return None if place is None or place[1] < 0 else text_of(block_at(places.outline.conversation, place))

        newest = places.outline.messages[-1] if places.outline.messages else None
        new_query = newest is not None and places.outline.asks(newest)
        return Facts(sizes, new_query, False, turn.idle_s, body_edits(turn.body), text_at)


def _sizes(rule: Rule, outline: Outline) -> dict[str, int]:
    """Characters that a rule may clear, and those of the same kind that its choice protects."""
    assert rule.select is not None
    chosen = rule.select.places(outline, lambda text: is_cleared(text, rule.placeholder))
    of_kind = replace(rule.select, keep_newest=0, keep_chars4=0, min_chars=0).places(
        outline, lambda text: is_cleared(text, rule.placeholder)
    )
    size = {place: size_of(block_at(outline.conversation, place)) for place in of_kind}
    prunable = sum(size[place] for place in chosen)
    return {"prunable": prunable, "protected": sum(size.values()) - prunable}


def body_edits(body: Mapping[str, object]) -> frozenset[str]:
    """The edits a Messages request asks the server for."""
    asked = body.get("context_management")
    edits = asked.get("edits") if isinstance(asked, Mapping) else None
    if not isinstance(edits, list):
        return frozenset()
    kinds = (edit.get("type") for edit in edits if isinstance(edit, Mapping))
    return frozenset(kind for kind in kinds if isinstance(kind, str))


def _rule_of(hint: Hint) -> Rule:
    edge = parse_edge(hint.at, "edit_hints")
    return Rule(f"hint:{hint.op}", hint.op, (edge,), "request", Condition("always"), placeholder=hint.text or None)


def _answers(conversation: Conversation) -> int:
    return sum(message.role == "assistant" for message in conversation.messages)
