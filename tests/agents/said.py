"""What agents' screens do of themselves, by their cards, and the text of what agents say."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from harnesses.registry import load
from tests.agents.conftest import Rig
from tests.agents.entries import Command, Screen, Talk
from tests.agents.homes import PROXY

# Settings in which an agent's screen itself notes what it has shown or found, whoever starts it.
NOTES = {"qwen": ".qwen/settings.json", "codex": ".codex/config.toml"}


def card(agent: str) -> Mapping[str, Any]:
    return load(agent).declaration.get("card", {})


def known(rig: Rig, agent: str, way: Screen | Talk | Command) -> set[str]:
    """Names that the agent's card says its screen looks up; where the shell has a proxy, it is the proxy that is looked up."""
    names = set(card(agent).get("looked_up", ())) if isinstance(way, Screen) else set()
    return {urlsplit(PROXY).hostname or ""} if names and "HTTPS_PROXY" in rig.env else names


@contextmanager
def notes(rig: Rig, agent: str, way: Screen | Talk | Command) -> Iterator[None]:
    """Of the file of `NOTES` everything has to stay, and nothing may be added but what the agent's card names, where it does."""
    path = rig.place(NOTES[agent]) if agent in NOTES and isinstance(way, Screen) else None
    before = rig.kept.pop(path, "") if path else ""
    yield
    if path and before:
        read = json.loads if path.suffix == ".json" else tomllib.loads
        first, then = flat(read(before)), flat(read(path.read_text()))
        trust = f"projects.{rig.project}."  # what the person answered when Codex asked
        added = {key for key in then if key not in first and not key.startswith(trust)}
        print("noted:", added)
        assert first.items() <= then.items(), f"{path} was changed"
        assert added <= set(card(agent).get("noted", added)), f"{path} was changed"


def flat(table: Any, above: str = "") -> dict[str, str]:
    """Every value of a table by its path."""
    if not isinstance(table, dict):
        return {above: repr(table)}
    return {
        key: value
        for name, inner in table.items()
        for key, value in flat(inner, f"{above}.{name}" if above else name).items()
    }


def joined(text: str) -> str:
    """With what a protocol sends in pieces put together."""
    return text + "".join(re.findall(r'"(?:text|delta)": ?"((?:[^"\\]|\\.)*)"', text))
