"""A folder of one session in the place of the user's own (CODEX_HOME), where a launch is sealed: no login, no provider, no MCP
server of the user is in it. A conversation stays where it began: its record lies in that folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from harnesses.contract import EnvVar, LaunchContext, OutOfReach, PlannedFile

COPIED = ("AGENTS.md", "AGENTS.override.md")


def user_home(context: LaunchContext) -> Path:
    given = context.env.get("CODEX_HOME")
    return Path(given).expanduser() if given else context.home / ".codex"


def home(context: LaunchContext) -> Path:
    """Where Codex keeps the state of this launch."""
    return _own(context) if is_wanted(context) else user_home(context)


def reads(context: LaunchContext) -> list[Path]:
    return [_own(context) / "config.toml", *(user_home(context) / name for name in COPIED)]


def is_wanted(context: LaunchContext) -> bool:
    """Raises HarnessError for a sealed launch of a conversation that lies in the user's own folder."""
    if _began_here(context):
        return True
    if context.sealed and context.resume is not None:
        raise OutOfReach
    return context.sealed


def variables(context: LaunchContext) -> list[EnvVar]:
    if not is_wanted(context):
        return []
    return [
        EnvVar("CODEX_HOME", str(_own(context)), "a folder of this session: your logins and history stay out of it")
    ]


def files(context: LaunchContext, kept_settings: Sequence[str]) -> list[PlannedFile]:
    """What the folder begins with. Later it is Codex' own: nothing of it is written twice."""
    own, user = _own(context), user_home(context)
    if not is_wanted(context) or _began_here(context):
        return []
    config = _kept(context.files.get(str(user / "config.toml"), ""), kept_settings)
    return [
        PlannedFile(own / "config.toml", config, "your settings without providers, servers and keys"),
        *(
            PlannedFile(own / name, context.files[str(user / name)], "as in your own folder")
            for name in COPIED
            if context.files.get(str(user / name))
        ),
    ]


def _kept(text: str, kept_settings: Sequence[str]) -> str:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        return ""
    for key in [key for key in document if key not in kept_settings]:
        del document[key]
    return tomlkit.dumps(document)


def _began_here(context: LaunchContext) -> bool:
    return str(_own(context) / "config.toml") in context.files


def _own(context: LaunchContext) -> Path:
    return context.state_dir / "codex"
