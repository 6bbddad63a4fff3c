"""Whether a request is one of the agent's own turns or a side request (title, compaction …), by its declared rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.prompt.conversation import Conversation, Message, Text


@dataclass(frozen=True, slots=True)
class Request:
    """What the conditions of a rule look at. `kind` is what the request itself says it is, where it says so."""

    conversation: Conversation
    body: Mapping[str, Any]
    kind: str = ""


def side_kind(
    declaration: Mapping[str, Any] | None,
    conversation: Conversation,
    body: Mapping[str, Any],
    said: str,
) -> str | None:
    """The kind of the first `[[side]]` rule that matches, None for a turn of the agent. `said`: by the request itself.

    All conditions of a rule must hold; one we do not know never does.
    """
    rules = (declaration or {}).get("side")
    if not isinstance(rules, list):
        return None
    request = Request(conversation, body, said)
    for rule in rules:
        match = rule.get("match") if isinstance(rule, Mapping) else None
        if isinstance(match, Mapping) and match and all(_holds(name, value, request) for name, value in match.items()):
            return str(rule.get("kind") or "side")
    return None


def _holds(name: str, value: Any, request: Request) -> bool:
    conversation, body = request.conversation, request.body
    if name == "kind":
        return isinstance(value, str) and request.kind == value
    if name == "tools":
        return isinstance(value, int) and len(conversation.tools) == value
    if name == "body" and isinstance(value, str):
        return _present(body, value)
    if name == "system_re":
        return any(_matches(value, _text(m)) for m in conversation.messages if m.role == "system")
    if name == "last_block_re":
        texts = [b.text for b in conversation.messages[-1].blocks if isinstance(b, Text)]
        return bool(texts) and _matches(value, texts[-1])
    return False


def _present(body: Mapping[str, Any], path: str) -> bool:
    value: Any = body
    for key in path.split("."):
        if not isinstance(value, Mapping) or value.get(key) is None:
            return False
        value = value[key]
    return True


def _text(message: Message) -> str:
    return "\n".join(block.text for block in message.blocks if isinstance(block, Text))


def _matches(pattern: Any, text: str) -> bool:
    try:
        return isinstance(pattern, str) and re.search(pattern, text) is not None
    except re.error:
        return False
