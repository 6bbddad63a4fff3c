"""An agent's own configuration gets keys of ours, under the writing contract; `ft restore AGENT` takes them out again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftagent.files.difference import unified
from ftagent.files.keys import Edit, Key
from ftagent.files.writing import FilePlan, commit, plan_edits
from ftagent.paths import Paths


def integrate(agent: str, path: Path, values: Mapping[Key, Any], format_: str | None = None) -> FilePlan:
    """Plans to set each key to its value and touches nothing. `format_` (toml, yaml, json, jsonc, json5) is for files whose
    name does not tell: OpenClaw reads `openclaw.json` as JSON5. Raises Refused (exit 4) naming file, line and column."""
    return plan_edits(agent, path, [Edit(key, value) for key, value in values.items()], format_)


def show(plan: FilePlan) -> str:
    """The unified diff, secrets masked; "" when nothing would change."""
    return unified(plan.path, plan.before, plan.after, plan.format)


def write(plan: FilePlan, paths: Paths) -> str | None:
    """Writes what was planned. Returns the id of the backup, None when the file held it already."""
    return commit(plan, paths)
