"""What a client does to its context, seen in its own requests: each one is held against the one before and the reply to it.

Nothing here is trusted or used for serving. It is evidence, from which `draft` writes a declaration that a person can read.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from engine.prompt.conversation import Block, Conversation, Media, Message, Text, Thinking, ToolCall, ToolResult
from engine.prompt.dialects.json_scan import strict_object
from engine.prompt.edits.outline import Outline, text_of

MAX_THREADS = 8
MAX_EVENTS = 64  # of each kind
_SUMMARY_CHARS = 40  # of a reply that stands in a later message: its summary
Key = tuple[str, ...]


@dataclass(slots=True)
class Seen:
    """One request and, once it came, the reply to it."""

    conversation: Conversation
    prompt_tokens: int
    reply: tuple[Block, ...] = ()
    total_tokens: int = 0  # with the reply; 0 until it came

    @property
    def sent_back(self) -> tuple[Message, ...]:
        """What an append-only client would send next, before the new part."""
        own = (Message("assistant", self.reply),) if self.reply else ()
        return (*self.conversation.messages, *own)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Results that lost their content between two requests. Sizes are characters."""

    placeholders: tuple[tuple[str, int], ...]  # what stands there now, and how many lines had been there
    kept: int  # newer results that still have theirs
    taken: int
    chars: int
    kept_chars: int
    spared: frozenset[str]  # tools whose older results kept theirs
    by_user: bool  # the request brought new user text


@dataclass(frozen=True, slots=True)
class Summarised:
    """A run of messages that gave way to something shorter."""

    before: int  # messages behind the head that stay in front
    behind: int  # newest messages that follow it unchanged
    behind_chars: int
    total: int  # tokens of the last request and its reply
    window: int
    wrapper: str  # the message that brings it, `{summary}` where an answer of the model stands; "" if none does
    by_user: bool


@dataclass(slots=True)
class Evidence:
    """Counts and the newest examples, by what was seen."""

    requests: int = 0
    compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    cleared: deque[Cleared] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    summarised: deque[Summarised] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    dropped: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))  # texts that left a user message
    carried: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))  # trailing user messages sent anew
    head_lines: Counter[str] = field(default_factory=Counter)  # beginnings of system lines that changed
    tools_left_out: Counter[tuple[str, ...]] = field(default_factory=Counter)
    sides: Counter[str] = field(default_factory=Counter)  # how system texts of requests without tools begin
    apis: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    ids: dict[str, set[str]] = field(default_factory=dict)  # header -> values
    most_tokens: int = 0  # of a request that was followed by a plain continuation


class Observer:
    """Watches one session. `asked` and `answered` may come from any thread."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self._threads: deque[Seen] = deque(maxlen=MAX_THREADS)  # the one used last is the last
        self._replies: deque[str] = deque(maxlen=MAX_THREADS)
        self._lock = threading.Lock()

    def asked(
        self, conversation: Conversation, prompt_tokens: int, window: int, api: str, headers: Mapping[str, str]
    ) -> Seen:
        """One request came. What it returns is given to `answered`."""
        seen = Seen(conversation, prompt_tokens)
        with self._lock:
            self._note_wire(conversation, api, headers)
            before = self._before(conversation)
            if before is not None:
                self._threads.remove(before)
                if before.conversation != conversation:  # else it is sent again
                    self._compare(before, seen, window)
            self._threads.append(seen)
        return seen

    def answered(self, seen: Seen, reply: tuple[Block, ...], completion_tokens: int) -> None:
        """Its answer, as the client has it."""
        with self._lock:
            seen.reply = reply
            seen.total_tokens = seen.prompt_tokens + completion_tokens
            text = "".join(block.text for block in reply if isinstance(block, Text)).strip()
            if len(text) >= _SUMMARY_CHARS:
                self._replies.append(text)

    def ended(self) -> None:
        """No more requests: only the evidence stays."""
        with self._lock:
            self._threads.clear()
            self._replies.clear()

    def _note_wire(self, conversation: Conversation, api: str, headers: Mapping[str, str]) -> None:
        evidence, outline = self.evidence, Outline(conversation)
        evidence.requests += 1
        evidence.apis[api] += 1
        if agent := re.match(r"[A-Za-z][\w.@-]*(?:/[A-Za-z][\w.-]*)*", headers.get("user-agent", "")):
            evidence.agents[agent[0]] += 1
        for name, value in headers.items():
            if re.search(r"session|thread|conversation", name) and re.fullmatch(r"[\w:.-]{8,128}", value):
                evidence.ids.setdefault(name, set()).add(value)
        if not conversation.tools and outline.system_blocks and (any(s.conversation.tools for s in self._threads)):
            first = outline.messages[0].blocks[outline.system_blocks[0][1]]
            evidence.sides[text_of(first)[:200]] += 1

    def _before(self, conversation: Conversation) -> Seen | None:
        """The request that this one goes on from: the one it shares most messages with, or whose summary it brings."""
        keys = {key for key in _keys(_body(conversation))}
        best, most = None, 0
        for seen in self._threads:
            if bool(seen.conversation.tools) != bool(conversation.tools):
                continue
            common = sum(key in keys for key in _keys(_body(seen.conversation)))
            if common >= most and common:
                best, most = seen, common
        if best is None and self._summary_in(_body(conversation)):
            best = next((s for s in reversed(self._threads) if s.conversation.tools == conversation.tools), None)
        return best

    def _summary_in(self, messages: Sequence[Message]) -> tuple[Message, str] | None:
        for message in messages[:4]:
            text = "\n".join(text_of(block) for block in message.blocks)
            found = next((r for r in self._replies if r in text), None)
            if found is not None and message.role == "user":
                return message, found
        return None

    def _compare(self, before: Seen, now: Seen, window: int) -> None:
        evidence = self.evidence
        evidence.compared += 1
        self._compare_heads(before.conversation, now.conversation)
        old, new = _body(Conversation(before.sent_back)), _body(now.conversation)
        by_user = bool(new) and new[-1].role == "user"
        carrier = len(_body(before.conversation)) - 1
        matcher = SequenceMatcher(None, _keys(old), _keys(new), autojunk=False)
        pairs: list[tuple[int, int]] = []
        gone: list[tuple[int, int, int, int]] = []
        for tag, i, i_end, j, j_end in matcher.get_opcodes():
            if tag == "equal":
                pairs += zip(range(i, i_end), range(j, j_end), strict=True)
            elif i_end > i:
                gone.append((i, i_end, j, j_end))
        edited = self._compare_blocks(old, new, pairs, bool(before.reply), by_user)
        # The reply goes with it where the client gives it back in other words than those it got.
        moved = [g for g in gone if g[0] == carrier and g[1] - g[0] <= 2 and old[carrier].role == "user"]
        moved = [g for g in moved if g[1] == carrier + 1 or (new[g[2] : g[3]][:1] and new[g[2]].role == "assistant")]
        followed = moved and any(message.role == "assistant" for message in new[moved[0][2] : moved[0][2] + 1])
        if moved and (before.reply or followed):
            evidence.counts["move_tail"] += 1
            evidence.carried.append(text_of(old[carrier].blocks[0])[:200])
            gone = [g for g in gone if g not in moved]
        elif before.reply and carrier >= 0 and old[carrier].role == "user":
            evidence.counts["tail_stays"] += 1
        for i, i_end, j, j_end in gone:
            behind = [n for n in range(i_end, len(old)) if any(n == pair[0] for pair in pairs)]
            if i_end == len(old) and i_end - i > 0 and not self._summary_in(new) and j == j_end - 1:
                evidence.counts["truncate_turns"] += 1
                continue
            chars = sum(len(text_of(block)) for n in behind for block in old[n].blocks)
            wrapper = ""
            if found := self._summary_in(new[j : j_end or 1]):
                text = "\n".join(text_of(block) for block in found[0].blocks)
                wrapper = text.replace(found[1], "{summary}", 1)
            evidence.counts["summarize"] += 1
            total = before.total_tokens or before.prompt_tokens
            evidence.summarised.append(Summarised(i, len(behind), chars, total, window, wrapper, by_user))
        if not gone:
            evidence.most_tokens = max(evidence.most_tokens, before.total_tokens)
            evidence.counts["append"] += not edited and not moved

    def _compare_heads(self, before: Conversation, now: Conversation) -> None:
        evidence = self.evidence
        old, new = ([tool.name for tool in c.tools] for c in (before, now))
        if before.tools != now.tools:
            kind = "reorder_tools" if sorted(old) == sorted(new) and old != new else "replace_tools"
            evidence.counts[kind] += 1
        lines = [_system_text(c).splitlines() for c in (before, now)]
        if lines[0] != lines[1]:
            evidence.counts["replace_head"] += 1
            first = next(
                (pair for pair in zip(*lines, strict=False) if pair[0] != pair[1]),
                ("", ""),
            )
            beginning = _common_beginning(list(first))
            if len(beginning.strip()) >= 4:
                evidence.head_lines[beginning] += 1
        else:
            evidence.counts["head_stays"] += 1

    def _compare_blocks(
        self,
        old: Sequence[Message],
        new: Sequence[Message],
        pairs: Sequence[tuple[int, int]],
        has_reply: bool,
        by_user: bool,
    ) -> bool:
        """What changed inside messages that are still there. True if anything did that is no question of spelling."""
        edited = False
        queries = [j for j, message in enumerate(new) if message.role == "user"]
        cleared: list[tuple[int, ToolResult, ToolResult]] = []
        results = [b for m in new for b in m.blocks if isinstance(b, ToolResult)]
        for i, j in pairs:
            newest = has_reply and i == len(old) - 1
            if old[i].role == "assistant":
                self._compare_answers(old[i], new[j], newest, past=any(q > j for q in queries))
            elif old[i].role == "tool":
                by_id = {b.call_id: b for b in new[j].blocks if isinstance(b, ToolResult)}
                for block in old[i].blocks:
                    after = by_id.get(block.call_id) if isinstance(block, ToolResult) else None
                    if isinstance(block, ToolResult) and after is not None and text_of(after) != text_of(block):
                        cleared.append((results.index(after), block, after))
            elif old[i] != new[j]:
                edited = True
                self._compare_users(old[i], new[j])
        if cleared:
            self._clear(cleared, results, _call_names(new), by_user)
        return edited or bool(cleared)

    def _compare_answers(self, old: Message, new: Message, newest: bool, past: bool) -> None:
        counts = self.evidence.counts
        thought = any(isinstance(b, Thinking) and b.text for b in old.blocks)
        if thought:
            stays = any(isinstance(b, Thinking) and b.text for b in new.blocks)
            counts[f"thinking_{'stays' if stays else 'goes'}_{'past' if past else 'turn'}"] += 1
        if not newest:
            return
        texts = [[b.text for b in m.blocks if isinstance(b, Text) and b.text.strip()] for m in (old, new)]
        if any(text != text.strip() for text in texts[0]):
            counts["text_stays" if texts[0] == texts[1] else "text_trimmed"] += 1
        calls = {b.id: b for b in new.blocks if isinstance(b, ToolCall)}
        for block in old.blocks:
            after = calls.get(block.id) if isinstance(block, ToolCall) else None
            if isinstance(block, ToolCall) and after is not None:
                counts[f"args_{_spelling(block.arguments, after.arguments)}"] += 1

    def _compare_users(self, old: Message, new: Message) -> None:
        evidence = self.evidence
        after = {text_of(block) for block in new.blocks}
        for block in old.blocks:
            if isinstance(block, Media):
                evidence.counts["strip_media"] += block not in new.blocks
            elif text_of(block) not in after:
                evidence.counts["drop_block"] += 1
                evidence.dropped.append(text_of(block)[:200])
        evidence.counts["insert_block"] += any(block not in old.blocks for block in new.blocks)

    def _clear(
        self,
        cleared: Sequence[tuple[int, ToolResult, ToolResult]],
        results: Sequence[ToolResult],
        names: Mapping[str, str],
        by_user: bool,
    ) -> None:
        newest = max(index for index, _, _ in cleared)
        gone = {text_of(after) for _, _, after in cleared}
        spared = {names.get(r.call_id, r.name) for r in results[:newest] if text_of(r) not in gone}
        self.evidence.counts["clear_result"] += 1
        self.evidence.cleared.append(
            Cleared(
                tuple((text_of(after), len(text_of(before).splitlines())) for _, before, after in cleared),
                kept=len(results) - 1 - newest,
                taken=len(cleared),
                chars=sum(len(text_of(before)) for _, before, _ in cleared),
                kept_chars=sum(len(text_of(r)) for r in results[newest + 1 :]),
                spared=frozenset(spared - {names.get(b.call_id, b.name) for _, b, _ in cleared}),
                by_user=by_user,
            )
        )


def _body(conversation: Conversation) -> tuple[Message, ...]:
    return conversation.messages[Outline(conversation).head :]


def _keys(messages: Sequence[Message]) -> list[Key]:
    """What identifies a message when a part of it is edited: the ids of its calls or results, else how it begins."""
    return [_key(message) for message in messages]


def _key(message: Message) -> Key:
    ids = [
        b.id if isinstance(b, ToolCall) else b.call_id for b in message.blocks if isinstance(b, ToolCall | ToolResult)
    ]
    if ids:
        return (message.role, *ids)
    text = next((b.text.strip() for b in message.blocks if isinstance(b, Text) and b.text.strip()), "")
    return message.role, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _call_names(messages: Sequence[Message]) -> dict[str, str]:
    return {b.id: b.name for m in messages for b in m.blocks if isinstance(b, ToolCall)}


def _system_text(conversation: Conversation) -> str:
    head = conversation.messages[: Outline(conversation).head]
    return "\n".join(text_of(block) for message in head for block in message.blocks)


def _common_beginning(texts: Sequence[str]) -> str:
    shortest = min(texts, key=len, default="")
    return next((shortest[:i] for i, c in enumerate(shortest) if any(t[i] != c for t in texts)), shortest)


def _spelling(old: str, new: str) -> str:
    """How a client spells what the model wrote: verbatim, compact, sorted, defaults (values added), other."""
    import json

    if old == new:
        return "verbatim"
    before, after = strict_object(old or "{}"), strict_object(new or "{}")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return "other"
    if before == after:
        compact = json.dumps(after, ensure_ascii=False, separators=(",", ":")) == new
        ordered: list[Any] = list(after)
        return "sorted" if ordered == sorted(ordered) and list(before) != ordered else "compact" if compact else "other"
    return "defaults" if before.items() <= after.items() else "other"
