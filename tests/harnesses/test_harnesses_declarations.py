"""Every harness.toml says `edits/1`, in known words only. Adding a folder adds its tests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harnesses import registry

NEUTRAL = {
    "bash": {"command"},
    "read": {"path"},
    "edit": {"path", "old", "new"},
    "write": {"path", "content"},
    "task": {"prompt", "description"},
}
KNOWN: dict[str, set[str]] = {
    "": {"schema", "harness", "versions", "wire", "render", "echo", "rule", "keep", "side", "alive", "tools", "launch", "install", "card"},
    "wire": {"api", "match", "session", "parent", "epoch", "kind", "marks", "ignore", "volatile"},
    "wire.volatile": {"at", "re", "action"},
    "render": {"system_mid", "not_query", "deferred_tools", "side_tools"},
    "echo": {"thinking", "text", "args", "ids"},
    "rule": {
        "id", "op", "at", "known", "when", "select", "tail", "params", "applies", "enabled", "placeholder", "precompute",
    },
    "keep": {"edge", "class", "quota", "if"},
    "side": {"kind", "match", "head"},
    "alive": {"every_s", "event"},
    "tool": {"name", "args"},
}  # fmt: skip
OPS = {
    "append", "clear_result", "drop_thinking", "summarize", "move_tail", "insert_block", "drop_block", "reorder",
    "strip_media", "rewrite_call", "replace_head", "truncate_turns",
}  # fmt: skip
VALUES = {
    ("wire", "marks"): {"cache_control", "none"},
    ("render", "deferred_tools"): {"head", "at_reference"},
    ("render", "side_tools"): {"as_sent", "session"},
    ("echo", "thinking"): {"verbatim", "drop_all", "drop_before_query"},
    ("echo", "text"): {"verbatim", "trim"},
    ("echo", "args"): {"verbatim", "json_compact", "json_sorted", "json_defaults"},
    ("echo", "ids"): {"verbatim", "alnum"},
}
TERM = re.compile(
    r"[a-z]+\[-?\d+\](\.(block\[-?\d+\]|query))?\.(end|start)"
    r"|[a-z]+\.block\[-?\d+\]\.end"
    r"|(head|prompt|first\(\d+\))\.end|(head|last|summary)\.start"
    r"|(oldest|nth_newest|tail|tool|system\.re)\([^()]+\)\.start"
    r"|(message|user)\[-?\d+\]\.re\([^()]+\)\.(end|start)"
)
NAMES = pytest.mark.parametrize("name", registry.names())


def declared(name: str) -> dict[str, Any]:
    return registry.load(name).declaration


@NAMES
def test_has_the_required_keys(name: str) -> None:
    declaration = declared(name)
    assert declaration["schema"] == "edits/1"
    assert declaration["harness"]
    assert re.fullmatch(r"[<>]=?\d+(\.\d+)*(, [<>]=?\d+(\.\d+)*)?", declaration["versions"])
    assert set(declaration["wire"]["api"]) <= {"messages", "responses", "chat"} and declaration["wire"]["api"]
    assert {"head", "live"} <= {keep["class"] for keep in declaration["keep"]}
    assert declaration["alive"]["every_s"] <= 10


@NAMES
def test_has_known_keys_only(name: str) -> None:
    declaration = declared(name)
    check("", declaration)
    for section in ("wire", "render", "echo", "alive"):
        check(section, declaration.get(section, {}))
    for volatile in declaration["wire"].get("volatile", []):
        check("wire.volatile", volatile)
    for section in ("rule", "keep", "side"):
        for entry in declaration.get(section, []):
            check(section, entry)
    for (section, key), allowed in VALUES.items():
        assert declaration.get(section, {}).get(key) in {None, *allowed}, (section, key)


@NAMES
def test_patterns_compile(name: str) -> None:
    def walk(value: Any) -> None:
        for key, inner in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            if key == "re" or str(key).endswith("_re"):
                re.compile(inner)
            walk(inner)

    walk(declared(name))


@NAMES
def test_rules_speak_the_grammar(name: str) -> None:
    for rule in declared(name).get("rule", []):
        assert rule["op"] in OPS, rule["id"]
        assert rule["known"] in {"request", "record", "reply", "event", "engine"}, rule["id"]
        assert rule["at"] and all(TERM.fullmatch(edge) for edge in rule["at"]), rule["at"]
        for key in ("when", "precompute"):
            if key in rule:
                Condition(rule[key]).check()
    for keep in declared(name)["keep"]:
        assert TERM.fullmatch(keep["edge"]), keep["edge"]


def test_the_grammar_is_not_lax() -> None:
    for text in (
        "new query",
        "total >= limit",
        "total > 1 idle_over(3)",
        "always and total > 1",
        "total >= (1",
        "total",
    ):
        with pytest.raises(AssertionError):
            Condition(text).check()


@NAMES
def test_tools_map_neutral_arguments(name: str) -> None:
    tools = declared(name)["tools"]
    assert {"bash", "read", "edit", "write"} <= set(tools) <= set(NEUTRAL)
    for neutral, candidates in tools.items():
        for candidate in candidates:
            check("tool", candidate)
            used = {found[1] for found in re.finditer(r"\{(\w+)(?:\|sh)?\}", repr(candidate["args"]))}
            assert used <= NEUTRAL[neutral]
            assert used >= NEUTRAL[neutral] - {"description"}, f"{candidate['name']} loses an argument of {neutral}"


@NAMES
def test_the_launcher_keeps_its_section(name: str) -> None:
    sent = registry.wire_declaration(declared(name))
    assert "launch" not in sent
    assert sent["tools"] == declared(name)["tools"]


def check(section: str, table: dict[str, Any]) -> None:
    assert set(table) <= KNOWN[section], f"[{section}] has unknown keys: {set(table) - KNOWN[section]}"


class Condition:
    """`when`: `cmp {("and"|"or") cmp} | always | trigger`, integer arithmetic over declared names."""

    FUNCTIONS = ("chars4", "floor", "min", "max", "clamp")
    VARIABLES = ("window", "max_output", "prompt", "completion", "total", "newest", "protected", "prunable")
    TRIGGER = re.compile(r"always|new_query|day_changed|idle_over\(\d+\)|body_edit\(\w+\)|matches\(.+, '.+'\)")
    TOKEN = re.compile(r"\s*(?:(\d+|[a-z_0-9]+|<=|>=|==|[-+*/(),<>]))")

    def __init__(self, text: str) -> None:
        self.text = text

    def check(self) -> None:
        if self.TRIGGER.fullmatch(self.text):
            return
        self.tokens = self.TOKEN.findall(self.text)
        assert "".join(self.tokens) == self.text.replace(" ", "")
        self.compare()
        while self.tokens and self.tokens[0] in ("and", "or"):
            self.tokens.pop(0)
            self.compare()
        assert not self.tokens, self.text

    def compare(self) -> None:
        self.sum()
        assert self.tokens and self.tokens.pop(0) in ("<", "<=", ">", ">=", "=="), self.text
        self.sum()

    def sum(self) -> None:
        self.atom()
        while self.tokens and self.tokens[0] in "+-*/":
            self.tokens.pop(0)
            self.atom()

    def atom(self) -> None:
        assert self.tokens, self.text
        token = self.tokens.pop(0)
        if token == "(" or token in self.FUNCTIONS:
            if token != "(":
                assert self.tokens.pop(0) == "("
            self.sum()
            while self.tokens and self.tokens[0] == ",":
                self.tokens.pop(0)
                self.sum()
            assert self.tokens and self.tokens.pop(0) == ")", self.text
        else:
            assert token.isdigit() or token in self.VARIABLES, f"{token} in {self.text}"
