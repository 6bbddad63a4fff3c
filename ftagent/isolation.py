"""Keeps other people's folders out of our imports.

`ft` runs inside projects that may hold their own `engine/` or `harnesses/` and export `PYTHONPATH=.`. Their paths are moved
behind ours for this process and left out for the engine; the agent still receives the variable as the user set it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

OWN_ROOT = Path(__file__).resolve().parent.parent  # the folder that holds ftagent, harnesses and engine


def _foreign_roots(env: Mapping[str, str]) -> set[str]:
    roots = {os.path.realpath(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry}
    if not sys.flags.safe_path:
        roots.add(os.path.realpath("."))
    roots.discard(str(OWN_ROOT))
    return roots


def demote_foreign_paths(env: Mapping[str, str]) -> None:
    """Reorders `sys.path`: entries that come from `PYTHONPATH` or the current folder go last."""
    foreign = _foreign_roots(env)
    behind = [entry for entry in sys.path if os.path.realpath(entry or ".") in foreign]
    sys.path[:] = [entry for entry in sys.path if entry not in behind] + behind


def _is_setting(name: str) -> bool:
    """One of ft's own that is no secret, though it may count tokens."""
    return name.startswith("FT_") and not name.endswith("_TOKEN")


def engine_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for `python -P -m engine`: nothing that changes what Python imports, no credentials.

    Where ftagent itself was found through `PYTHONPATH`, that one entry is kept.
    """
    from ftagent.launch.environment import looks_like_credential

    kept = {
        name: value
        for name, value in env.items()
        if not name.startswith("PYTHON") and (_is_setting(name) or not looks_like_credential(name, value))
    }
    entries = [os.path.realpath(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if str(OWN_ROOT) in entries:
        kept["PYTHONPATH"] = str(OWN_ROOT)
    return kept
