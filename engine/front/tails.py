"""How sessions ended: the last prompt of each with the reply behind it, so that it can be brought back when one goes on.

In memory, and in one file for each session where prefixes are kept on disk. Like a head it is only a guess.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from engine.front.lines import Line, Lines

MAX_TAILS = 128
LEAST_TOKENS = 64
_NAME = re.compile(r"s-[a-z2-7]{10}")
_LOG = logging.getLogger("engine.front")


@dataclass(frozen=True, slots=True)
class Tail:
    """`worker`: the process that has it in memory, if it still does; None: read from disk."""

    tokens: array[int]
    worker: int | None


class Tails:
    """At most MAX_TAILS of them in memory and on disk, the newest stay. `folder` None: in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._kept: OrderedDict[str, Tail] = OrderedDict()

    def keep(self, session: str, lines: Lines) -> None:
        """Remember where the agent's own line of a session stands. Blocks for one small file."""
        line = _own_line(session, lines)
        if line is None or len(line.sent[-1].tokens) < LEAST_TOKENS or not _NAME.fullmatch(session):
            return
        tokens = line.sent[-1].tokens[:]
        self._kept.pop(session, None)
        self._kept[session] = Tail(tokens, line.worker)
        while len(self._kept) > MAX_TAILS:
            self._kept.popitem(last=False)
        self._write(session, tokens)

    def of(self, session: str) -> Tail | None:
        kept = self._kept.get(session)
        if kept is not None or self._folder is None or not _NAME.fullmatch(session):
            return kept
        tokens = array("I")
        with contextlib.suppress(OSError, ValueError):
            tokens.frombytes((self._folder / session).read_bytes())
            return Tail(tokens, None)
        return None

    def warm(self, session: str, lines: Lines, worker: int) -> dict[str, object]:
        """Where the session's newest prompt lies, as far as the front knows: what lies there is matched when it is used."""
        line = _own_line(session, lines)
        kept = Tail(line.sent[-1].tokens, line.worker) if line is not None else self.of(session)
        if kept is None:
            return {"tier": "gone", "tokens": None, "bytes": None}
        tier = "memory" if kept.worker == worker else "disk" if self._folder is not None else "gone"
        return {"tier": tier, "tokens": len(kept.tokens) if tier != "gone" else None, "bytes": None}

    def forget(self, session: str) -> None:
        """Of a session that nobody goes on with."""
        self._kept.pop(session, None)
        if self._folder is not None and _NAME.fullmatch(session):
            with contextlib.suppress(OSError):
                (self._folder / session).unlink(missing_ok=True)

    def _write(self, session: str, tokens: array[int]) -> None:
        if self._folder is None:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".tmp", delete=False) as file:  # made 0600
                file.write(tokens.tobytes())
            Path(file.name).replace(self._folder / session)
            files = sorted(self._folder.glob("s-*"), key=lambda path: path.stat().st_mtime)
            for old in files[:-MAX_TAILS]:
                old.unlink(missing_ok=True)
        except OSError as failure:
            _LOG.warning("how session %s ended is not kept on disk: %s", session, failure)


def _own_line(session: str, lines: Lines) -> Line | None:
    """The line used last of those that are no side requests, whose names have one part more."""
    return next((line for line in lines.of(session) if line.sent and line.key.count("/") <= 1), None)
