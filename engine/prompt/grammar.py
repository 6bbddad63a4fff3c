"""Constrained decoding: grammars for tool choice and JSON answers, and the matcher that turns one into token masks.

A grammar is a self-contained JSON text in llguidance's format. The front compiles it, the worker matches it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from engine.errors import BadRequest
from engine.prompt.conversation import Conversation, Tool
from engine.prompt.dialects.contract import Dialect, pieces, visible_name
from engine.prompt.ending import LONGEST_END, SPARE, way_out

# Free whitespace lets a model idle forever between two JSON tokens.
_SCHEMA_MAPS = {"properties", "$defs", "definitions"}
_SCHEMA_LISTS = {"anyOf", "oneOf", "prefixItems"}  # not allOf: each of its parts would shut out the others
_ENDS = "// a free text ends with one of "
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def compile_grammar(
    conversation: Conversation, dialect: Dialect, control: Mapping[str, int], thinking_open: bool
) -> str | None:
    """The grammar of a whole answer, or None when nothing has to be enforced.

    `control` maps control-token texts to ids; `thinking_open` says that the prompt already opened the thinking, which the
    answer then closes first. Raises BadRequest for an unknown tool or a schema feature that cannot be enforced.
    """
    lark = Lark(control)
    mode, forced = conversation.tool_choice.mode, conversation.tool_choice.forced
    bodies = []
    if conversation.response_schema is not None and not forced:
        body = f"%json {json.dumps(_laid_out(conversation.response_schema or {'type': 'object'}))}"
        _check("the response schema", body, lark)
        bodies.append(f"{lark.own(dialect.layout.text)} {body} {lark.own(dialect.layout.end)}".strip())
    if forced or (bodies and mode == "auto"):
        marks, around = dialect.markers["tool_call"], dialect.layout.calls
        for tool in _callable_tools(conversation):
            name, schema = visible_name(tool), _laid_out(closed({"type": "object", **tool.parameters}))
            plain = Lark({})  # the check knows no control tokens
            _check(f"the parameters of tool {name!r}", dialect.call_grammar(name, schema, plain), plain)
            body = dialect.call_grammar(name, schema, lark)
            opening = around[0] + marks.open
            before = r"/\n{0,2}/ " if opening.startswith("\n") else ""
            opening = lark.own(opening.lstrip("\n"))
            bodies.append(f"{before}{opening} {body} {lark.own(marks.close + around[1])}")
    if not bodies:
        return None
    thinking = ""
    if thinking_open:
        answer = dialect.layout.answer
        behind = lark.own(answer) if answer.strip() else r"/\n{0,2}/"
        thinking = f"thinking: {lark.until(dialect.markers['thinking'].close)} {behind}\n"
    return _grammar(bodies, thinking, lark)


class Lark:
    """See dialects.contract. `control` maps control-token texts to ids."""

    def __init__(self, control: Mapping[str, int]) -> None:
        self._control = control
        self._rules: dict[str, str] = {}
        self._ends: dict[str, None] = {}

    def own(self, text: str) -> str:
        made = pieces(text, self._control)
        return " ".join(f"<[{self._control[part]}]>" if special else json.dumps(part) for part, special in made)

    def text(self, text: str) -> str:
        return json.dumps(text)

    def json(self, schema: dict[str, Any]) -> str:
        return f"%json {json.dumps(schema)}"

    def until(self, close: str) -> str:
        first, *rest = pieces(close.lstrip(), self._control)
        if first[1]:
            return f"/(.|\\n)*/ {self.own(close.lstrip())}"
        before = first[0] if rest else first[0].rstrip()
        self._ends[before] = None
        if rest:  # a control token ends it: text cannot hold one
            return f"/(.|\\n)*{_escaped(before)}/ {self.own(close.lstrip()[len(before) :])}"
        rule = f"until{list(self._ends).index(before)}"
        self._rules[rule] = f"{rule}[suffix={json.dumps(before)}]: /(.|\\n)*/\n"
        return f"{rule} {self.own(close.lstrip()[len(before) :])}"

    def rules(self) -> str:
        """What the expressions refer to, and what ends a free text in them."""
        return "".join(self._rules.values()) + (f"{_ENDS}{json.dumps(list(self._ends))}\n" if self._ends else "")


def _escaped(text: str) -> str:
    return re.escape(text).replace("/", r"\/")


def _callable_tools(conversation: Conversation) -> Sequence[Tool]:
    choice = conversation.tool_choice
    if choice.mode != "named":
        if choice.mode == "required" and not conversation.tools:
            raise BadRequest("tool_choice asks for a tool call, but the request has no tools.", "Send tools.")
        return conversation.tools
    named = [tool for tool in conversation.tools if choice.name in (tool.name, visible_name(tool))]
    if not named:
        raise BadRequest(
            f"tool_choice names {choice.name!r}, which is not among the request's tools.", "Name one of the tools."
        )
    return named[:1]


def closed(schema: Any, top: bool = True) -> Any:
    """The schema without the properties that it does not declare, wherever it says nothing about them.

    Most tools leave that open, and a model that must call one then invents properties without end. Schemas that are put
    together from parts stay as they are where closing a part would shut out another.
    """
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for name in _SCHEMA_MAPS & made.keys():
        if isinstance(made[name], dict):
            made[name] = {key: closed(entry, False) for key, entry in made[name].items()}
    for name in _SCHEMA_LISTS & made.keys():
        if isinstance(made[name], list) and "properties" not in made:
            made[name] = [closed(entry, False) for entry in made[name]]
    if "items" in made:
        made["items"] = closed(made["items"], False)
    composed = made.keys() & {"allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "additionalProperties"}
    if not composed and ("properties" in made or top):
        made["additionalProperties"] = False
    return made


def _laid_out(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "x-guidance": _LAYOUT}


def _grammar(bodies: Sequence[str], thinking: str, lark: Lark) -> str:
    rules = "".join(f"body{i}: {body}\n" for i, body in enumerate(bodies))
    choice = " | ".join(f"body{i}" for i in range(len(bodies)))
    start = f"start: {'thinking ' if thinking else ''}answer\nanswer: {choice}\n{thinking}{rules}{lark.rules()}"
    return json.dumps({"grammars": [{"lark_grammar": start}]})


def _check(what: str, body: str, lark: Lark) -> None:
    failed, messages = LLMatcher.validate_grammar_with_warnings(_grammar([body], "", lark))
    if failed or messages:
        reason = (messages[0].splitlines() or ["unknown"])[0].split("failed to compile JSON schema: ")[-1]
        raise BadRequest(f"{what} cannot be enforced: {reason}", "Leave these features out of the schema.")


@lru_cache(maxsize=2)
def load_tokenizer(path: Path, vocab_size: int, stop_ids: tuple[int, ...]) -> LLTokenizer:
    """The tokenizer as the matcher needs it; building it takes about a second, so it is shared.

    `vocab_size` is the width of the model's logits, which may exceed the tokenizer's.
    """
    return LLTokenizer(path.read_text(encoding="utf-8"), n_vocab=vocab_size, eos_token=list(stop_ids))


class Matcher:
    """Follows one answer through a grammar, and brings it to its end in the tokens there are. Not thread-safe."""

    def __init__(self, tokenizer: LLTokenizer, grammar: str) -> None:
        """Raises BadRequest when the grammar cannot be compiled."""
        self._tokenizer = tokenizer
        self._mask_bytes = (tokenizer.vocab_size + 7) // 8
        self._matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if self._matcher.is_error():
            raise BadRequest(f"The grammar cannot be compiled: {self._matcher.get_error()}", "Simplify the schema.")
        self._control = [int(number) for number in re.findall(r"<\[(\d+)\]>", grammar)]
        ends = re.search(f"{_ENDS}(.*)", json.loads(grammar)["grammars"][0]["lark_grammar"])
        self._ends = json.loads(ends[1]) if ends else []
        self._look_at = LONGEST_END + SPARE

    def mask(self, left: int) -> bytes:
        """Little-endian bit i set: token i may come next, of the `left` tokens that may still come. End-of-turn tokens are
        allowed where the answer may end; near the end of the budget only what ends the answer is."""
        mask = bytes(self._matcher.compute_bitmask())[: self._mask_bytes]
        if left > self._look_at:
            return mask
        way = way_out(self._matcher, self._tokenizer, self._control, self._ends)
        if not way:
            return mask
        if left > len(way) + SPARE:
            self._look_at = len(way) + (left - len(way) + SPARE) // 2
            return mask
        only = bytearray(len(mask))
        only[way[0] // 8] = 1 << way[0] % 8
        return bytes(only)

    def advance(self, token: int) -> bool:
        """Take the chosen token; False when the grammar does not allow it, and then nothing changes."""
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    @property
    def done(self) -> bool:
        """True once the answer is complete and nothing can follow."""
        return bool(self._matcher.is_stopped())
