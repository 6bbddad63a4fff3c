"""A folder of one session in the place of the user's own, for agents that can be told another: what a sealed launch has.

It begins with what the user's own says of protection and style; from then on it is the agent's. A conversation stays where it
began, because its record lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harnesses.contract import LaunchContext, OutOfReach, PlannedFile


@dataclass(frozen=True, slots=True)
class PrivateFolder:
    """`first` is written when a session begins in `own`: where it stands, one has begun there. `copied` come as they are."""

    own: Path
    user: Path
    first: str
    copied: Sequence[str] = ()

    def reads(self) -> list[Path]:
        return [self.own / self.first, *(self.user / name for name in self.copied)]

    def began(self, context: LaunchContext) -> bool:
        return str(self.own / self.first) in context.files

    def is_wanted(self, context: LaunchContext, otherwise: bool = False) -> bool:
        """`otherwise`: for a new conversation that is not sealed. Raises OutOfReach for a sealed one of the user's own folder."""
        if self.began(context):
            return True
        if context.resume is not None:
            if context.sealed:
                raise OutOfReach
            return False
        return context.sealed or otherwise

    def begins(self, context: LaunchContext, otherwise: bool = False) -> bool:
        """Whether this launch is the first in it."""
        return self.is_wanted(context, otherwise) and not self.began(context)

    def place(self, context: LaunchContext, otherwise: bool = False) -> Path:
        """Where the agent keeps the state of this launch."""
        return self.own if self.is_wanted(context, otherwise) else self.user

    def files(self, context: LaunchContext, texts: Mapping[str, tuple[str, str]]) -> list[PlannedFile]:
        """What it begins with: `texts`, each with why, by name, and what is copied. Nothing of it is written twice."""
        begun = [PlannedFile(self.own / name, text, why) for name, (text, why) in texts.items()]
        found = {name: context.files.get(str(self.user / name)) for name in self.copied}
        copies = [PlannedFile(self.own / name, text, "as in your own folder") for name, text in found.items() if text]
        return [*begun, *copies]


def only(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Of nested settings those with one of `names`, which are paths of keys joined by dots."""
    kept: dict[str, Any] = {}
    for name in names:
        *above, last = name.split(".")
        source: Any = settings
        target = kept
        for key in above:
            source = source.get(key) if isinstance(source, Mapping) else None
        if isinstance(source, Mapping) and last in source:
            for key in above:
                target = target.setdefault(key, {})
            target[last] = source[last]
    return kept
