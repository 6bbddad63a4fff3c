"""The tokens of every finished request, one JSON object a line, for whoever replays them. Off unless a folder is named."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from engine.front.records import RequestRecord

FILE = "tokens.jsonl"
_LOG = logging.getLogger("engine.front")


class Recorder:
    """Appends to `folder`/tokens.jsonl, readable by its owner only: prompts are what a user typed and an agent read."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def add(self, record: RequestRecord, prompt: Sequence[int], output: Sequence[int]) -> None:
        """One request is over. A folder that cannot be written to ends the recording."""
        if self._folder is None:
            return
        line = {"id": record.id, "started": record.started, "end": record.end, "prompt": [*prompt], "output": [*output]}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError as failure:
            _LOG.warning("tokens are not recorded any more: %s", failure)
            self._folder = None
