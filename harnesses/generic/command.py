"""Any program that talks to a model: the variables that the vendors' own clients read, and what is declared of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harnesses.contract import EnvVar, HarnessError, Injection, LaunchContext
from harnesses.launchdata import LaunchData, check_window, environment, read_launch

OWN = Path(__file__).parent
SECRETS_OF_OTHERS = ("OPENAI_ORGANIZATION", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_CUSTOM_HEADERS")


class CommandAdapter:
    """One command. `folder` holds what is declared of this client, with variables of its own; None: nothing is."""

    name = "run"
    install_hint = "see its own page; what follows `ft launch run --` is started as it is"

    def __init__(self, command: str, folder: Path | None = None) -> None:
        self._data = _merged(folder)
        self.title = self._data.title if folder is not None else Path(command).name
        self.executables: Sequence[str] = (command,) if command else ()
        # A program nobody knows is not started to ask its version.
        self.version_args: Sequence[str] = tuple(self._data.raw.get("version_args", ()))

    def reads(self, context: LaunchContext) -> list[Path]:
        return []

    def inject(self, context: LaunchContext) -> Injection:
        if context.resume is not None:
            raise HarnessError(
                f"How {self.title} continues a conversation is not known.", "Give its own arguments behind --."
            )
        return Injection(
            argv=list(context.args),
            env=self.variables(context),
            unset=[name for name in SECRETS_OF_OTHERS if name in context.env],
            warnings=check_window(self._data, context),
            watchdog_s=self._data.watchdog_default_s,
            watchdog_default_s=self._data.watchdog_default_s,
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        return None

    def variables(self, context: LaunchContext) -> list[EnvVar]:
        return environment(self._data, context)


def _merged(folder: Path | None) -> LaunchData:
    """The client's own data, with the variables that every client is given before its own."""
    general = read_launch(OWN)
    if folder is None:
        return general
    own = read_launch(folder)
    given = {rule.name: rule for rule in (*general.env, *own.env)}
    return replace(own, env=tuple(given.values()))
