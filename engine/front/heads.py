"""How sessions begin: the start of an agent's first prompt, remembered so that the next session's is ready before it asks.

Kept by what was registered: harness, version and project. Of one session that is its tools and system text; from the second
on it is as much as the newest two had in common. In memory, and in a file of the model's own where prefixes are kept on disk.
It is only a guess: the first prompt is matched token by token.
"""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from engine.front.lines import common_prefix
from engine.front.sessions import Session
from engine.front.tails import Tails
from engine.protocol import EditPoint

MAX_HEADS = 64
MAX_TOKENS = 32_768  # of one beginning
LEAST_TOKENS = 256  # less is computed faster than it is guessed
_LOG = logging.getLogger("engine.front")


@dataclass(slots=True)
class Head:
    """A first prompt's beginning; of it, `shared` tokens are expected again. `session` sent it, "" when that is forgotten."""

    tokens: array[int]
    shared: int
    session: str = ""


class Heads:
    """At most MAX_HEADS of them, the one used last stays. `path` None: in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self.tails = Tails(path.with_name(path.stem.replace("heads-", "tails-")) if path is not None else None)
        self._read()

    @staticmethod
    def of_model(folder: Path | None, directory: Path) -> Heads:
        """Those of the model in `directory`, kept in `folder`."""
        if folder is None:
            return Heads(None)
        name = blake2b((directory / "ftw.json").read_bytes(), digest_size=16).hexdigest()
        return Heads(folder / f"heads-{name}.json")

    def expected(self, session: Session) -> array[int] | None:
        """How the first prompt of a new session begins, if one like it began before."""
        head = self._heads.get(_key(session))
        return head.tokens[: head.shared] if head is not None and head.shared >= LEAST_TOKENS else None

    def began(self, session: Session, tokens: array[int], points: Sequence[EditPoint]) -> None:
        """The first prompt of a session came. One of no project says nothing about others."""
        if not session.project:
            return
        key = _key(session)
        before = self._heads.pop(key, None)
        ends = [point.position for point in points if point.edge == "head.end"]
        shared = common_prefix(before.tokens, tokens) if before is not None else 0
        if shared < LEAST_TOKENS:
            shared = max(ends, default=0)
        self._heads[key] = Head(tokens[:MAX_TOKENS], min(shared, MAX_TOKENS), session.id)
        while len(self._heads) > MAX_HEADS:
            self._heads.popitem(last=False)

    def forget(self, session: str) -> bool:
        """Drop what only this session said; how sessions like it begin stays. Whether anything was dropped."""
        own = [head for head in self._heads.values() if head.session == session]
        for head in own:
            head.tokens, head.session = head.tokens[: head.shared], ""
        return bool(own)

    def write(self) -> None:
        """Keep them on disk. Blocks; a folder that cannot be written to costs the next start its guesses."""
        if self._path is None:
            return
        data = {
            key: {"shared": head.shared, "session": head.session, "tokens": head.tokens.tolist()}
            for key, head in list(self._heads.items())
        }
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self._path.parent, suffix=".tmp", delete=False
            ) as file:  # made 0600
                json.dump(data, file)
            Path(file.name).replace(self._path)
        except OSError as failure:
            _LOG.warning("how sessions begin is not kept on disk: %s", failure)

    def _read(self) -> None:
        if self._path is None:
            return
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OverflowError, AttributeError):
            for key, head in list(json.loads(self._path.read_text()).items())[-MAX_HEADS:]:
                tokens = array("I", head["tokens"][:MAX_TOKENS])
                self._heads[key] = Head(tokens, int(head["shared"]), str(head.get("session") or ""))


def _key(session: Session) -> str:
    told = json.dumps([session.harness, session.version, session.project, session.preserve_thinking])
    return blake2b(told.encode(), digest_size=12).hexdigest()
