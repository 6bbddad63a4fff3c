"""Folders of one session in the place of the user's own, where a launch is sealed: no login, no provider, no MCP server and no
history of the user is in them. OpenCode's folders are those of the desktop (XDG_…), so its commands get the user's back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harnesses.contract import EnvVar, LaunchContext, PlannedFile
from harnesses.jsonc import parse_object
from harnesses.private import PrivateFolder, only

PLUGIN = Path(__file__).parent / "plugin" / "user_folders.mjs"
CONFIGS = ("opencode.json", "opencode.jsonc")
COPIED = ("AGENTS.md", "tui.json")
_FOLDERS = {"XDG_CONFIG_HOME": (".config", "config"), "XDG_DATA_HOME": (".local/share", "data"), "XDG_STATE_HOME": (".local/state", "state")}  # fmt: skip
_FILE = re.compile(r"\{file:(?![/~])")


def config_folder(context: LaunchContext) -> Path:
    """Where OpenCode finds its user's configuration in this launch, as far as that is known before its files are read."""
    folder = _folder(context)
    return folder.own if folder.began(context) else folder.user


def database(context: LaunchContext) -> Path:
    """Of all conversations."""
    own = _folder(context).is_wanted(context)
    data = _own(context) / "data" if own else _user(context, "XDG_DATA_HOME")
    return data / "opencode" / "opencode.db"


def reads(context: LaunchContext) -> list[Path]:
    return _folder(context).reads()


def is_wanted(context: LaunchContext) -> bool:
    """Raises HarnessError for a sealed launch of a conversation that lies in the user's own folder."""
    return _folder(context).is_wanted(context)


def variables(context: LaunchContext) -> list[EnvVar]:
    if not is_wanted(context):
        return []
    own = _own(context)
    given_back = {name: str(_user(context, name)) for name in _FOLDERS}
    why = "a folder of this session: your logins, keys and history stay out of it"
    return [
        *(EnvVar(name, str(own / ours), why) for name, (_, ours) in _FOLDERS.items()),
        EnvVar("OPENCODE_TEST_HOME", str(own / "home"), "so that ~/.opencode stays out of it too"),
        EnvVar("FT_USER_FOLDERS", json.dumps(given_back), "what git and other commands of the agent find as always"),
    ]


def files(context: LaunchContext, kept: Sequence[str], kept_of_agents: Sequence[str]) -> list[PlannedFile]:
    """What the folder begins with. Later it is OpenCode's own: nothing of it is written twice."""
    folder = _folder(context)
    if not folder.begins(context):
        return []
    settings: dict[str, Any] = {}
    for name in CONFIGS:
        path = folder.user / name
        settings |= parse_object(path, context.files.get(str(path), "{}"))
    begun = only(settings, kept)
    agents = settings.get("agent")
    if isinstance(agents, dict):
        begun["agent"] = {
            name: only(agent, kept_of_agents) for name, agent in agents.items() if isinstance(agent, dict)
        }
    text = _FILE.sub(lambda _: f"{{file:{folder.user}/", json.dumps(begun, indent=2))
    return folder.files(context, {CONFIGS[0]: (f"{text}\n", "your settings without providers, servers and keys")})


def _folder(context: LaunchContext) -> PrivateFolder:
    own = _own(context) / "config" / "opencode"
    return PrivateFolder(own, _user(context, "XDG_CONFIG_HOME") / "opencode", CONFIGS[0], COPIED)


def _own(context: LaunchContext) -> Path:
    return context.state_dir / "opencode"


def _user(context: LaunchContext, variable: str) -> Path:
    given = context.env.get(variable)
    return Path(given) if given else context.home / _FOLDERS[variable][0]
