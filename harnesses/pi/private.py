"""Where pi keeps its conversations: in the user's folder, or, where a launch is sealed, in one of the session. All else of pi's own
folder is of this launch anyway; of the user's settings a sealed one takes over what protects, and style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harnesses.contract import LaunchContext, PlannedFile
from harnesses.private import PrivateFolder, only

NOTE = "README"
TEXT = "This session was sealed when it began: its conversations are here, and not in pi's own folder.\n"


def user_folder(context: LaunchContext) -> Path:
    given = context.env.get("PI_CODING_AGENT_DIR")
    return Path(given).expanduser() if given else context.home / ".pi" / "agent"


def is_wanted(context: LaunchContext) -> bool:
    """Raises HarnessError for a sealed launch of a conversation that lies in the user's own folder."""
    return _folder(context).is_wanted(context)


def sessions(context: LaunchContext) -> Path:
    """Where pi keeps the conversations of this working directory."""
    encoded = re.sub(r"[/\\:]", "-", str(context.cwd).removeprefix("/"))
    return _folder(context).place(context) / f"--{encoded}--"


def reads(context: LaunchContext) -> list[Path]:
    return _folder(context).reads()


def files(context: LaunchContext) -> list[PlannedFile]:
    """The note by which a later launch knows that they are here."""
    own = _folder(context)
    why = "the conversation stays in a folder of this session"
    return own.files(context, {NOTE: (TEXT, why)}) if own.begins(context) else []


def settings(context: LaunchContext, users: Mapping[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    return only(users, kept) if is_wanted(context) else dict(users)


def _folder(context: LaunchContext) -> PrivateFolder:
    return PrivateFolder(context.state_dir / "pi" / "sessions", user_folder(context) / "sessions", NOTE)
