"""The plan for people who start the agent themselves: variables and command line for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ftagent.launch.plan import Plan
from ftagent.paths import short

SHELLS = ("sh", "fish", "json")


def render_environment(plan: Plan, shell: str, secrets: bool) -> str:
    """What to export and unset, then the command. With `secrets` off the session's token is masked."""
    values = {variable.name: variable.value for variable in plan.set_variables}
    argv = plan.argv
    if not secrets:
        values = {name: plan.masked(value) for name, value in values.items()}
        argv = [plan.masked(word) for word in argv]
    if shell == "json":
        document = {"schema": "ft.env/1", "set": values, "unset": plan.removed_variables, "argv": argv}
        return json.dumps(document, ensure_ascii=False) + "\n"
    command = " ".join(map(_fish, argv)) if shell == "fish" else shlex.join(argv)
    return "\n".join([*render_variables(values, plan.removed_variables, shell), "# then: " + command]) + "\n"


def render_variables(values: Mapping[str, str], removed: Sequence[str], shell: str) -> list[str]:
    """The lines that a shell, sh or fish, evaluates."""
    if shell == "fish":
        return [f"set -gx {n} {_fish(v)}" for n, v in values.items()] + [f"set -e {n}" for n in removed]
    return [f"export {n}={shlex.quote(v)}" for n, v in values.items()] + [f"unset {n}" for n in removed]


def command_line(words: Iterable[str], home: Path) -> str:
    """For people who paste it: quoted where a shell needs it, with a `~` for the home folder that the shell expands."""
    return " ".join(_word(word, short(word, home)) for word in words)


def _word(word: str, shortened: str) -> str:
    if shortened in (word, "~"):
        return shlex.quote(word) if shortened == word else "~"
    return "~/" + (shlex.quote(shortened[2:]) if shortened[2:] else "")


def _fish(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
