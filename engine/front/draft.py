"""A declaration drafted from what was observed of a client: `edits/1`, with the evidence for each line of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import tomli_w

from engine.front.observe import Evidence, Summarised
from engine.prompt.edits import declaration as declarations
from engine.prompt.edits.anchors import default_keeps

SCHEMA = "ft.draft/1"
_KEEPS = tuple(
    {"edge": keep.edge.text, "class": keep.kind, "quota": keep.quota} for keep in default_keeps()
)  # of a client of which nothing is known
_LONGEST = 120  # characters of a pattern


def draft(evidence: Evidence, harness: str, version: str = "") -> dict[str, Any]:
    """`declaration` as it can be registered, `toml` as it can be kept, `evidence` with counts and how sure each line is."""
    made = _Draft(evidence)
    made.wire()
    made.echo()
    made.rules()
    made.sides()
    versions = f">={numbers[0]}" if (numbers := re.findall(r"[0-9]+(?:\.[0-9]+)*", version)) else ">=0"
    made.data |= {"harness": harness[:64] or "observed", "versions": versions}
    declarations.parse(made.data, "draft")  # a draft that the engine itself would refuse is a fault of this file
    said = [f"# {line['about']}: seen {line['seen']}, against {line['against']}" for line in made.said]
    head = [
        f"# Drafted from {evidence.requests} requests, {evidence.compared} of which could be held against an earlier one."
    ]
    text = "\n".join([*head, *said]) + "\n" + tomli_w.dumps(made.data)
    return {
        "schema": SCHEMA,
        "requests": evidence.requests,
        "compared": evidence.compared,
        "evidence": made.said,
        "declaration": made.data,
        "toml": text,
    }


class _Draft:
    def __init__(self, evidence: Evidence) -> None:
        self.seen = evidence
        self.said: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {
            "schema": "edits/1",
            "harness": "",
            "versions": "",
            "rule": [],
            "keep": list(_KEEPS),
        }

    def wire(self) -> None:
        apis = [api for api in self.seen.apis if api in ("messages", "responses", "chat")]
        # An id that never changes tells no lines apart, and the session has its own.
        several = {name: values for name, values in self.seen.ids.items() if 1 < len(values) < self.seen.requests}
        wire: dict[str, Any] = {"api": apis or ["chat"], "session": [f"header:{name}" for name in sorted(several)][:8]}
        if self.seen.agents:
            agent = self.seen.agents.most_common(1)[0]
            wire["match"] = [{"header": "user-agent", "re": f"^{re.escape(agent[0])}"}]
        self.data["wire"] = wire

    def echo(self) -> None:
        count = self.seen.counts
        echo = {}
        turn = count["thinking_goes_turn"], count["thinking_stays_turn"]
        past = count["thinking_goes_past"], count["thinking_stays_past"]
        if turn[0] > turn[1]:
            echo["thinking"] = "drop_all"
            self.say("echo.thinking = drop_all", *turn)
        elif past[0] > past[1]:
            echo["thinking"] = "drop_before_query"
            self.say("echo.thinking = drop_before_query", *past)
        if count["text_trimmed"] > count["text_stays"]:
            echo["text"] = "trim"
            self.say("echo.text = trim", count["text_trimmed"], count["text_stays"])
        styles = {name: count[f"args_{name}"] for name in ("verbatim", "compact", "sorted", "defaults")}
        best = max(styles, key=lambda name: styles[name])
        # A call whose text was compact or sorted already says nothing about its spelling.
        changed = {name: n for name, n in styles.items() if n and name != "verbatim"}
        if changed:
            best = "defaults" if "defaults" in changed else max(changed, key=lambda name: changed[name])
            echo["args"] = f"json_{best}"
            self.say(f"echo.args = json_{best}", styles[best], count["args_other"])
        self.data["echo"] = echo

    def rules(self) -> None:
        self._cleared()
        self._summarised()
        self._tail()
        self._reminder()
        self._head()

    def sides(self) -> None:
        sides = []
        for text, times in self.seen.sides.most_common(4):
            first = text.splitlines()[0] if text.splitlines() else ""
            if len(first) >= 12:
                match = {"tools": 0, "system_re": "^" + _pattern(first[:60])}
                sides.append({"kind": "other", "match": match, "head": "own"})
                self.say(f"side: system text begins {first[:40]!r}", times, 0)
        if sides:
            self.data["side"] = sides

    def say(self, about: str, seen: int, against: int) -> None:
        """`confidence`: the share to expect of the next ones, by Laplace's rule of succession."""
        confidence = round((seen + 1) / (seen + against + 2), 2)
        self.said.append({"about": about, "seen": seen, "against": against, "confidence": confidence})

    def _rule(self, rule: dict[str, Any], keep: str = "", kind: str = "frontier") -> None:
        self.data["rule"].append(rule)
        if keep:
            self.data["keep"].append({"edge": keep, "class": kind, "quota": 1})

    def _cleared(self) -> None:
        events = list(self.seen.cleared)
        if not events:
            return
        text = _placeholder([p for event in events for p in event.placeholders])
        steady = {event.kept for event in events}
        rule: dict[str, Any] = {"id": "clear_results", "op": "clear_result", "known": "record", "when": "always"}
        if len(steady) == 1 or max(steady) - min(steady) <= 1:
            taken = min(event.taken for event in events)
            rule["at"] = ["oldest(tool_result, not_cleared).start"]
            rule["select"] = {"kind": "tool_result", "keep_newest": max(1, min(steady)), "batch": max(1, taken)}
        else:
            rule["at"] = ["oldest(tool_result, not_cleared).start"]
            rule["when"] = f"chars4(prunable) >= {min(event.chars for event in events) // 4}"
            rule["select"] = {"kind": "tool_result", "keep_chars4": min(event.kept_chars for event in events) // 4}
        spared = sorted(frozenset[str]().union(*(event.spared for event in events)) - {""})
        if spared:
            rule["select"]["except_tools"] = spared[:64]
        if text:
            rule["placeholder"] = text
        if all(event.by_user for event in events):
            rule["applies"] = "next_user_turn"
        self._rule(rule)
        self.say("rule clear_results", len(events), self.seen.counts["clear_result"] - len(events))

    def _summarised(self) -> None:
        events = list(self.seen.summarised)
        if not events:
            return
        first = events[0]
        least = min(event.total for event in events)
        most = self.seen.most_tokens  # that were still followed by an unchanged conversation
        left = events[0].window - ((most + least) // 2 if 0 < most < least else least)
        at = ["head.end"] if not first.before else [f"first({first.before}).end"]
        rule: dict[str, Any] = {
            "id": "summarize",
            "op": "summarize",
            "known": "reply",
            "when": f"total >= window - {max(0, left)}",
        }
        tail = _tail(events)
        if tail:
            rule["tail"] = tail
        wrappers = {event.wrapper for event in events if event.wrapper}
        if len(wrappers) == 1:
            rule["params"] = {"summary": wrappers.pop()[:1000]}
            at.append("summary.start")
        if all(event.by_user for event in events):
            rule["applies"] = "next_user_turn"
        rule["at"] = at
        self._rule(rule, at[0], "head")
        self.say("rule summarize", len(events), int(self.seen.most_tokens >= least))

    def _tail(self) -> None:
        moved, stays = self.seen.counts["move_tail"], self.seen.counts["tail_stays"]
        if moved <= stays:
            return
        begins = _beginning(self.seen.carried)
        at = f"tail('^{_pattern(begins)}').start" if begins else "last.start"
        self._rule({"id": "tail", "op": "move_tail", "at": [at], "known": "request", "when": "always"}, at, "live")
        self.say("rule tail", moved, stays)

    def _reminder(self) -> None:
        begins = _beginning(self.seen.dropped)
        if not begins:
            return
        self._rule(
            {
                "id": "reminder",
                "op": "drop_block",
                "at": ["user[-1].block[0].end"],
                "known": "request",
                "when": f"matches(user[-1].block[-1].end, '^{_pattern(begins)}')",
                "applies": "next_user_turn",
            },
            "user[-1].block[0].end",
            "reminder",
        )
        self.say("rule reminder", self.seen.counts["drop_block"], 0)

    def _head(self) -> None:
        for number, (line, times) in enumerate(self.seen.head_lines.most_common(3)):
            pattern = _pattern(line)
            if pattern:
                at = f"system.re('{pattern}').start"
                self._rule(
                    {"id": f"head_{number}", "op": "replace_head", "at": [at], "known": "event", "when": "always"},
                    at,
                    "head",
                )
                self.say(f"rule head_{number}", times, self.seen.counts["head_stays"])


def _tail(events: Sequence[Summarised]) -> dict[str, Any]:
    kept = {event.behind for event in events}
    if kept == {0}:
        return {}
    if len(kept) == 1:
        return {"min_messages": kept.pop(), "place": "after_summary"}
    return {"tokens": str(max(event.behind_chars for event in events) // 4), "place": "after_summary"}


def _placeholder(pairs: Sequence[tuple[str, int]]) -> str:
    """The one text that stands in the place of cleared results, `{lines}` where their number of lines does; "" if there is
    none."""
    made = {_with_lines(text, lines) for text, lines in pairs}
    if len(made) > 1:
        made = {text for text, _ in pairs}
    return made.pop()[:400] if len(made) == 1 else ""


def _with_lines(text: str, lines: int) -> str:
    return re.sub(rf"(?<![0-9]){lines}(?![0-9])", "{lines}", text, count=1) if lines > 1 else text


def _beginning(texts: Iterable[str]) -> str:
    """What all of these begin with, if that is enough to know them by."""
    found = list(texts)
    if not found:
        return ""
    end = next((i for i, chars in enumerate(zip(*found, strict=False)) if len(set(chars)) > 1), min(map(len, found)))
    begins = found[0][:end].splitlines()
    first = begins[0][:60] if begins else ""
    return first if len(first.strip()) >= 6 else ""


def _pattern(text: str) -> str:
    """An RE2 pattern for the beginning of `text` that holds no quote."""
    plain = text.split("'")[0].strip("\n")
    escaped = re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", plain)
    return escaped if len(escaped) <= _LONGEST else ""
