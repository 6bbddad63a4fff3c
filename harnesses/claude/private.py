"""A folder of one session in the place of the user's own (CLAUDE_CONFIG_DIR): where a launch is sealed, or where nobody has set
up Claude Code on this machine, so that none of its first questions stands before the prompt.

A conversation stays where it began: its transcript lies in that folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harnesses import flags
from harnesses.claude.data import LAUNCH, RESUMES
from harnesses.contract import EnvVar, HarnessError, LaunchContext, PlannedFile, Warning_
from harnesses.findings import parse_object
from harnesses.private import PrivateFolder

STATE = ".claude.json"
COPIED = ("CLAUDE.md", "keybindings.json")


def user_folder(context: LaunchContext) -> Path:
    given = context.env.get("CLAUDE_CONFIG_DIR")
    return Path(given).expanduser() if given else context.home / ".claude"


def folder(context: LaunchContext) -> Path:
    """Where Claude Code keeps the state of this launch."""
    return _own(context) if is_wanted(context) else user_folder(context)


def reads(context: LaunchContext) -> list[Path]:
    return [*_folder(context).reads(), _user_state(context)]


def is_wanted(context: LaunchContext) -> bool:
    """Raises HarnessError for a sealed launch of a conversation that lies in the user's own folder."""
    return _folder(context).is_wanted(context, _would_be_asked(context))


def variables(context: LaunchContext) -> list[EnvVar]:
    if not is_wanted(context):
        return []
    why = "a folder of this session: your logins, keys and history stay out of it"
    return [EnvVar("CLAUDE_CONFIG_DIR", str(_own(context)), why)]


def files(context: LaunchContext) -> list[PlannedFile]:
    """What the folder begins with. Later it is Claude Code's own: nothing of it is written twice."""
    if not _folder(context).begins(context, _would_be_asked(context)):
        return []
    settings = _user_settings(context, LAUNCH.raw["left_out"])
    texts = {STATE: (_text(_first_state(context)), "set up, so that no question comes first")}
    if settings:
        texts["settings.json"] = (_text(settings), "your settings without providers and keys")
    return _folder(context).files(context, texts)


def warnings(context: LaunchContext) -> list[Warning_]:
    if context.sealed or not is_wanted(context):
        return []
    text = "Claude Code has not been set up here: it runs in a folder of this session, without your skills and history."
    return [Warning_("FT-W0116 not-set-up", text, "To use your own folder from then on, start claude once yourself.")]


def _would_be_asked(context: LaunchContext) -> bool:
    """Only its screen asks, and a conversation that is to go on lies in the user's folder. A state that cannot be parsed is
    Claude Code's to repair."""
    if flags.has(context.args, "-p", "--print", *RESUMES) or flags.first_word(context.args) in LAUNCH.commands:
        return False
    return not _user_facts(context).get("hasCompletedOnboarding", False)


def _user_facts(context: LaunchContext) -> dict[str, Any]:
    path = _user_state(context)
    try:
        return parse_object(path, context.files.get(str(path), "{}"))
    except HarnessError:
        return {"hasCompletedOnboarding": True}


def _first_state(context: LaunchContext) -> dict[str, Any]:
    """With the user's trust in this folder, where it was given; where it was not, Claude Code asks for it as always."""
    projects = _user_facts(context).get("projects")
    here = {str(path) for path in (context.cwd, *context.cwd.parents)}
    trusted = {
        path: {"hasTrustDialogAccepted": True}
        for path, facts in (projects.items() if isinstance(projects, dict) else ())
        if path in here and isinstance(facts, dict) and facts.get("hasTrustDialogAccepted") is True
    }
    return {"hasCompletedOnboarding": True, "projects": trusted}


def _user_settings(context: LaunchContext, left_out: Sequence[str]) -> dict[str, Any]:
    path = user_folder(context) / "settings.json"
    try:
        settings = parse_object(path, context.files.get(str(path), "{}"))
    except HarnessError:
        return {}
    return {key: value for key, value in settings.items() if key not in left_out}


def _folder(context: LaunchContext) -> PrivateFolder:
    return PrivateFolder(_own(context), user_folder(context), STATE, COPIED)


def _own(context: LaunchContext) -> Path:
    return context.state_dir / "claude"


def _user_state(context: LaunchContext) -> Path:
    given = context.env.get("CLAUDE_CONFIG_DIR")
    return (Path(given).expanduser() if given else context.home) / STATE


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
