"""The model's side of a session's edits, `template/1`: what its chat template does to history."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from engine.errors import BadRequest, FtError
from engine.prompt.conversation import Conversation
from engine.prompt.edits import schema
from engine.prompt.edits.declaration import Keep, Rule, keeps_of, rules_of
from engine.prompt.edits.patterns import Pattern, compile_pattern

_FOLDER = Path(__file__).parent / "templates"


class Spelling(Protocol):
    """How the model's template and tokenizer spell small things, as tokens."""

    def header(self, kind: str) -> Sequence[int]:
        """What stands between a message's start and its first block. kind: system, user, answer (the newest turn's, without
        thinking) or past_answer (an earlier turn's, without thinking)."""

    def result(self, text: str) -> Sequence[int]:
        """A tool result with this text, its markers included."""

    def without_tools(self, conversation: Conversation, names: Sequence[str], head: Sequence[int]) -> int | None:
        """Where `head`, the tokens before the conversation's first message, forks when tools are left out of it."""

    def encode(self, text: str) -> Sequence[int]:
        """Plain text."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed `template/1`. `preserving`: the switch that keeps the thinking of earlier turns is on. Without `spelling`
    edges lie at the starts of what may change; with it, behind the tokens that old and new text share."""

    family: str
    thinking: str = "all"  # all | after_query | all_if_tools | none
    switch: tuple[str, bool | str] | None = None
    not_query: tuple[Pattern, ...] = ()
    rules: tuple[Rule, ...] = ()
    keeps: tuple[Keep, ...] = ()
    preserving: bool = False
    spelling: Spelling | None = field(default=None, compare=False)

    def strips(self, tools: bool) -> bool:
        """Whether thinking before the last query is not rendered. `tools`: the request has tools."""
        if self.preserving and self.switch is not None:
            return False
        return self.thinking in ("after_query", "none") or (self.thinking == "all_if_tools" and not tools)

    def serving(self, preserving: bool, spelling: Spelling | None) -> Template:
        """The template as one engine uses it: with its switch set, if it has one, and its spelling."""
        return replace(self, preserving=preserving and self.switch is not None, spelling=spelling)


def parse(data: Mapping[str, Any], place: str = "template") -> Template:
    """Raises BadRequest naming the field at fault."""
    schema.check(data, "template/1", place)
    switch, query = data.get("switch"), data.get("query", {})
    rules = rules_of(data.get("rule", []), f"{place}.rule")
    unless = query.get("unless_re")
    return Template(
        family=data["family"],
        thinking=data["thinking"],
        switch=(switch["name"], switch["value"]) if switch else None,
        not_query=(compile_pattern(unless, f"{place}.query.unless_re"),) if unless else (),
        rules=rules,
        keeps=keeps_of(data.get("keep", []), rules, f"{place}.keep"),
    )


@cache
def families() -> dict[str, Template]:
    """Every file of the templates folder, by family."""
    found: dict[str, Template] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        try:
            template = parse(tomllib.loads(path.read_text(encoding="utf-8")), path.name)
        except (tomllib.TOMLDecodeError, BadRequest) as error:
            raise FtError(f"{path} is no template declaration ({error}).") from None
        found[template.family] = template
    return found


def find(family: str, thinking: bool) -> Template:
    """The family's declaration. Without a name, ChatML's: with thinking or without. Raises FtError for an unknown name."""
    name = family or ("chatml-think" if thinking else "smollm2")
    try:
        return families()[name]
    except KeyError:
        raise FtError(
            f"The model names the template family {name!r}; this build knows {', '.join(sorted(families()))}.",
            "Set `template_family` in the model's ftw.json to one of these.",
        ) from None
