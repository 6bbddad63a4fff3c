"""A folder of one session in the place of the user's own (QWEN_HOME), where a launch is sealed: no login, no provider, no MCP
server and no history of the user is in it. The user's `.env` files are read by Qwen Code all the same: their keys are covered."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from harnesses.contract import EnvVar, LaunchContext, PlannedFile
from harnesses.jsonc import parse_object
from harnesses.launchdata import looks_secret
from harnesses.private import PrivateFolder, only

SETTINGS = "settings.json"
COPIED = ("QWEN.md", "AGENTS.md", "keybindings.json", "trustedFolders.json")
COVER = "out-of-reach"  # an empty one would be filled from the file
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*[=:]\s*(.*)$", re.MULTILINE)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def user_folder(context: LaunchContext) -> Path:
    given = context.env.get("QWEN_HOME")
    return Path(given).expanduser() if given else context.home / ".qwen"


def folder(context: LaunchContext) -> Path:
    """Where Qwen Code keeps the state of this launch."""
    return _folder(context).place(context)


def reads(context: LaunchContext) -> list[Path]:
    return [*_folder(context).reads(), *(_env_files(context) if context.sealed else [])]


def variables(context: LaunchContext, taken: Collection[str]) -> list[EnvVar]:
    """`taken`: names that the launch itself gives a value."""
    own = _folder(context)
    if not own.is_wanted(context):
        return []
    why = "a folder of this session: your logins, keys and history stay out of it"
    set_ = [EnvVar("QWEN_HOME", str(own.own), why), EnvVar("QWEN_RUNTIME_DIR", str(own.own), why)]
    texts = {path: context.files.get(str(path), "") for path in _env_files(context)}
    covered = {
        name: path
        for path, text in texts.items()
        for name, value in _LINE.findall(text)
        if name not in taken and (looks_secret(name) or _URL_WITH_PASSWORD.search(value))
    }
    return [*set_, *(EnvVar(name, COVER, f"covers the one in {path}") for name, path in sorted(covered.items()))]


def files(context: LaunchContext, kept: Sequence[str]) -> list[PlannedFile]:
    """What the folder begins with. Later it is Qwen Code's own: nothing of it is written twice."""
    own = _folder(context)
    if not own.begins(context):
        return []
    path = own.user / SETTINGS
    settings = only(parse_object(path, context.files.get(str(path), "{}")), kept)
    text = json.dumps(settings, indent=2) + "\n"
    return own.files(context, {SETTINGS: (text, "your settings without providers, servers and keys")})


def _env_files(context: LaunchContext) -> list[Path]:
    """The user's, which Qwen Code reads wherever its folder is."""
    return list(dict.fromkeys([context.home / ".qwen" / ".env", context.home / ".env"]))


def _folder(context: LaunchContext) -> PrivateFolder:
    return PrivateFolder(context.state_dir / "qwen" / "home", user_folder(context), SETTINGS, COPIED)
