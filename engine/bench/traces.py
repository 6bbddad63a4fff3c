"""Recorded sessions without their wording: requests whose texts are (hash, length) segments, one JSON a line, gzip.

Equal segments are equal text. They are filled with words again, and each request goes through the parser of its dialect.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.api import anthropic_parse, chat_parse, responses_parse
from engine.bench.scenarios import Ask
from engine.bench.simulate import MAX_OUTPUT, WINDOW
from engine.bench.toy import LETTERS
from engine.errors import BadRequest
from engine.front.preparing import COMPACTION
from engine.front.sides import side_kind
from engine.prompt.conversation import Block, Conversation, Message, Text, Thinking
from engine.prompt.edits.policy import EditPolicy
from engine.prompt.language import Language


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it was sent."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def conversation(self) -> Conversation:
        """Raises BadRequest for a path that is no dialect's."""
        if self.path.startswith("/v1/messages"):
            return anthropic_parse.conversation(self.body)
        if self.path.startswith("/v1/chat/completions"):
            return chat_parse.conversation(self.body)
        if self.path.startswith("/v1/responses"):
            return responses_parse.conversation(self.body, responses_parse.input_items(self.body))
        raise BadRequest(f"path {self.path!r} belongs to no dialect.")


def read(path: Path, phrases: Iterable[str] = ()) -> list[Recorded]:
    """The requests of one recorded session, in order. `phrases`: texts that are put back where they stood, or where their
    beginning was left."""
    phrases = list(phrases)
    known = {hashlib.blake2b(phrase.encode(), digest_size=6).hexdigest(): phrase for phrase in phrases}
    made = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            data = json.loads(line)
            headers = {str(k).lower(): str(v) for k, v in data["headers"].items()}
            made.append(Recorded(data["path"], headers, filled(data["body"], known, phrases)))
    return made


def load(path: Path, declarations: Sequence[Mapping[str, Any]]) -> tuple[list[Recorded], Mapping[str, Any] | None]:
    """(the requests of a recorded session, its client's declaration), with the fixed texts that this one names."""
    declaration = declared(read(path), declarations)
    return read(path, phrases_of(declaration or {})), declaration


def phrases_of(declaration: Mapping[str, Any]) -> list[str]:
    """The fixed texts that a declaration names: questions, placeholders, how the prompts of side requests begin."""
    rules = declaration.get("rule", ())
    texts = [text for rule in rules for text in (rule.get("placeholder"), *rule.get("params", {}).values())]
    patterns = [side["match"].get("system_re", "") for side in declaration.get("side", ())]
    texts += [pattern[1:] for pattern in patterns if re.fullmatch(r"\^[\w ,]+", pattern)]
    return [text for text in texts if isinstance(text, str)]


def filled(value: Any, known: Mapping[str, str], phrases: Sequence[str] = (), key: str = "") -> Any:
    """`{"$": segments}` becomes text of the same length; the rest stays. Arguments of calls become JSON again, and a
    choice of tools is left to its default."""
    if isinstance(value, dict):
        if set(value) == {"$"}:
            text = ""
            for segment in value["$"]:
                text += segment[1] if segment[0] == "=" else _filler(segment, text, known, phrases)
            return json.dumps({"text": text[12:]}) if key == "arguments" else text
        return {name: filled(entry, known, phrases, name) for name, entry in value.items() if name != "tool_choice"}
    if isinstance(value, list):
        return [filled(entry, known, phrases, key) for entry in value]
    return value


def _filler(segment: Sequence[Any], before: str, known: Mapping[str, str], phrases: Sequence[str]) -> str:
    name, length, newline = segment
    rest = next((phrase[len(before) :] for phrase in phrases if before and phrase.startswith(before)), "")
    return known.get(name) or rest[:length] + words(name, length, bool(newline))[len(rest) :]


def words(name: str, length: int, newline: bool) -> str:
    """`length` characters that only depend on `name`; the last one is a newline when asked for."""
    source = random.Random(name)  # noqa: S311  (filler, not a secret)
    text = " ".join("".join(source.choices(LETTERS, k=3)) for _ in range(length // 4 + 1))[:length]
    return text[:-1] + "\n" if newline and text else text


def declared(requests: Sequence[Recorded], declarations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The declaration whose `[wire] match` knows the client of these requests."""
    for declaration in declarations:
        for rule in declaration["wire"].get("match", ()):
            header = requests[0].headers.get(rule.get("header", ""), "")
            if header and re.search(rule["re"], header):
                return declaration
    return None


def asks(requests: Sequence[Recorded], policy: EditPolicy, declaration: Mapping[str, Any] | None) -> Iterator[Ask]:
    """The session as the front sees it: what each request means, whose line it is, and what the model had answered."""
    conversations = [r.conversation for r in requests]
    wires = [policy.wire(r.headers, r.body) for r in requests]
    sides = [side_kind(declaration, c, r.body, w.kind) for r, c, w in zip(requests, conversations, wires, strict=True)]
    inside = policy.declaration.compacts_in_session
    seen: set[Block] = set()
    for i, request in enumerate(requests):
        conversation, wire, side = conversations[i], wires[i], sides[i]
        summary = side == COMPACTION
        thread = wire.session or _opening(conversation)
        later = conversations[i + 1 :]
        reply = None if summary else _reply(conversation, later)
        if reply is None and COMPACTION in sides[i : i + 2]:
            reply = _around_summary(policy, later)[0 if summary else 1]
        if not reply:
            reply = (Text(words(repr(conversation.messages[-1]), 200, False)),)  # nobody repeats it
        fresh = frozenset(
            (m, b)
            for m, message in enumerate(conversation.messages)
            for b, block in enumerate(message.blocks)
            if block not in seen
        )
        seen.update(block for message in conversation.messages for block in message.blocks)
        seen.update(reply)
        # An answer without reasoning was one to a request that asked for none: nothing opened it.
        thinks = any(isinstance(block, Thinking) for block in reply)
        yield Ask(
            replace(conversation, thinking=thinks),
            reply,
            new=None,
            line=thread if side is None or (summary and inside) else f"{thread}/{side}",
            about=thread if summary else "",
            body=request.body,
            side=side is not None and not summary,
            wire=wire,
            fresh=fresh,
        )


def window_of(asks: Sequence[Ask], language: Language, policy: EditPolicy) -> int:
    """The window that the client was told: what its first compaction beside the session shows, which comes when a prompt
    leaves no room for a reply."""
    for before, ask in pairwise(asks):
        if ask.about and ask.line != ask.about:
            return len(language.render(policy.canonical(before.conversation, before.body)).tokens) + MAX_OUTPUT
    return WINDOW


def _around_summary(policy: EditPolicy, later: Sequence[Conversation]) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """(the summary, which answers the client's declared question, the older answer that it keeps behind it), from the next
    conversation that has them."""
    questions = {rule.params["question"] for rule in policy.declaration.rules if "question" in rule.params}
    for conversation in later:
        for message, told, kept in zip(*(conversation.messages[n:] for n in range(3)), strict=False):
            if any(isinstance(block, Text) and block.text in questions for block in message.blocks):
                return told.blocks, kept.blocks if kept.role == "assistant" else ()
    return (), ()


def _reply(conversation: Conversation, later: Sequence[Conversation]) -> tuple[Block, ...] | None:
    """The assistant turn behind this conversation in the next one that goes on from it; None when none does."""
    at = len(conversation.messages)
    for other in later:
        if len(other.messages) > at and other.messages[at].role == "assistant" and _continues(other, conversation):
            return other.messages[at].blocks
    return None


def _continues(other: Conversation, conversation: Conversation) -> bool:
    """The same conversation as far as roles and the newest message go: what is older may have been edited."""
    roles = [m.role for m in conversation.messages]
    if [m.role for m in other.messages[: len(roles)]] != roles:
        return False
    return _stable(other.messages[len(roles) - 1]) == _stable(conversation.messages[-1])


def _stable(message: Message) -> tuple[str, Block | None]:
    return message.role, message.blocks[0] if message.blocks else None


def _opening(conversation: Conversation) -> str:
    for message in conversation.messages:
        if message.role == "user":
            return next((block.text[:256] for block in message.blocks if isinstance(block, Text)), "")
    return ""
