"""A folder of one session in the place of the user's own (CODEX_HOME), where a launch is sealed: no login, no provider, no MCP
server of the user is in it. A conversation stays where it began: its record lies in that folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from harnesses.contract import EnvVar, LaunchContext, PlannedFile
from harnesses.private import PrivateFolder

CONFIG = "config.toml"
COPIED = ("AGENTS.md", "AGENTS.override.md")


def user_home(context: LaunchContext) -> Path:
    given = context.env.get("CODEX_HOME")
    return Path(given).expanduser() if given else context.home / ".codex"


def home(context: LaunchContext) -> Path:
    """Where Codex keeps the state of this launch."""
    return _folder(context).place(context)


def reads(context: LaunchContext) -> list[Path]:
    return _folder(context).reads()


def variables(context: LaunchContext) -> list[EnvVar]:
    folder = _folder(context)
    if not folder.is_wanted(context):
        return []
    why = "a folder of this session: your logins and history stay out of it"
    return [EnvVar("CODEX_HOME", str(folder.own), why)]


def files(context: LaunchContext, kept_settings: Sequence[str]) -> list[PlannedFile]:
    """What the folder begins with. Later it is Codex' own: nothing of it is written twice."""
    folder = _folder(context)
    if not folder.begins(context):
        return []
    config = _kept(context.files.get(str(folder.user / CONFIG), ""), kept_settings)
    return folder.files(context, {CONFIG: (config, "your settings without providers, servers and keys")})


def _kept(text: str, kept_settings: Sequence[str]) -> str:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        return ""
    for key in [key for key in document if key not in kept_settings]:
        del document[key]
    return tomlkit.dumps(document)


def _folder(context: LaunchContext) -> PrivateFolder:
    return PrivateFolder(context.state_dir / "codex", user_home(context), CONFIG, COPIED)
