"""Whether a request is one of the agent's own turns or a side request (title, summary …), by its declared rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.prompt.conversation import Conversation, Message, Text


def is_side(declaration: Mapping[str, Any] | None, conversation: Conversation, body: Mapping[str, Any]) -> bool:
    """Whether any `[[side]]` rule matches. All conditions of a rule must hold; one we do not know never does."""
    rules = (declaration or {}).get("side")
    if not isinstance(rules, list):
        return False
    matches = [rule.get("match") for rule in rules if isinstance(rule, Mapping)]
    return any(_all_hold(match, conversation, body) for match in matches if isinstance(match, Mapping) and match)


def _all_hold(match: Mapping[str, Any], conversation: Conversation, body: Mapping[str, Any]) -> bool:
    return all(_holds(name, value, conversation, body) for name, value in match.items())


def _holds(name: str, value: Any, conversation: Conversation, body: Mapping[str, Any]) -> bool:
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
