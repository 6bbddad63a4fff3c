"""The plan for people who start the agent themselves: variables and command line for a shell."""

from __future__ import annotations

import json
import shlex

from ftagent.launch.plan import Plan

SHELLS = ("sh", "fish", "json")


def render_environment(plan: Plan, shell: str, secrets: bool) -> str:
    """What to export and unset, then the command. With `secrets` off the session's token is masked."""
    values = {variable.name: variable.value for variable in plan.set_variables}
    argv = plan.argv
    if not secrets:
        values = {name: plan.masked(value) for name, value in values.items()}
        argv = [plan.masked(word) for word in argv]
    if shell == "json":
        return json.dumps({"set": values, "unset": plan.removed_variables, "argv": argv}, ensure_ascii=False) + "\n"
    if shell == "fish":
        lines = [f"set -gx {name} {_fish(value)}" for name, value in values.items()]
        lines += [f"set -e {name}" for name in plan.removed_variables]
        return "\n".join([*lines, "# then: " + " ".join(map(_fish, argv))]) + "\n"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    lines += [f"unset {name}" for name in plan.removed_variables]
    return "\n".join([*lines, "# then: " + shlex.join(argv)]) + "\n"


def _fish(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
