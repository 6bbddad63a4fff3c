"""What a launch tells on stderr: lines for people, or NDJSON with `--json`. stdout belongs to the agent."""

from __future__ import annotations

import sys
from typing import Any

from ftagent.output import Progress, Style, print_json

SCHEMA = "ft.launch/1"


class Events:
    def __init__(self, as_json: bool, quiet: bool, style: Style) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.style = style
        self._seq = 0
        self._phase = ""
        self._progress = Progress(quiet=quiet or as_json)

    def say(self, event: str, text: str, **fields: Any) -> None:
        """One event. Quiet silences the line for people, never the NDJSON that was asked for."""
        if self.as_json:
            self._seq += 1
            print_json({"schema": SCHEMA, "seq": self._seq, "event": event, "text": text, **fields}, sys.stderr)
        elif not self.quiet:
            print(f"ft: {text}", file=sys.stderr, flush=True)

    def warn(self, code: str, text: str, fix: str) -> None:
        if self.as_json:
            self.say("warning", text, code=code, fix=fix)
        elif not self.quiet:
            mark = self.style("warning", "yellow")
            print(f"ft: {mark}: {text} {fix}".rstrip(), file=sys.stderr, flush=True)

    def progress(self, text: str, phase: str) -> None:
        """A state of the engine; in NDJSON one event per phase."""
        if self.as_json:
            if phase != self._phase:
                self.say("engine", text, phase=phase)
            self._phase = phase
        else:
            self._progress.show(text, phase)

    def progress_done(self) -> None:
        self._progress.done()
