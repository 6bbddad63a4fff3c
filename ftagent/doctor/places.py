"""Our own folders and files: whether they can be written, by whom they can be read, and whether the clock agrees with them."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ftagent.context import Context
from ftagent.doctor.check import Check
from ftagent.errors import FtError
from ftagent.settings.config import Settings

FREE_BYTES = 16 << 20  # with less no log, no session and no lease is sure to be written
FUTURE_S = 86_400.0
ELSEWHERE = "export FT_HOME=FOLDER"
MOST_FILES = 5_000  # looked at


def settings(context: Context) -> tuple[Settings | None, Check]:
    try:
        found = context.settings()
    except FtError as error:
        return None, Check(
            "settings", "FAIL", error.message, "ft config edit", "No command that needs a setting works."
        )
    file = context.paths.config_file
    if found.warnings:
        return found, Check(
            "settings", "WARN", "; ".join(found.warnings), "ft config edit", "These lines count for nothing."
        )
    return found, Check("settings", "OK", str(file) if file.exists() else f"defaults ({file} does not exist)")


def folders(context: Context) -> Iterator[Check]:
    for folder in (context.paths.config, context.paths.state, context.paths.runtime, context.paths.data):
        place = next(place for place in (folder, *folder.parents) if place.exists())
        if not os.access(place, os.W_OK):
            yield _unwritable(folder, place)
        elif (free := shutil.disk_usage(place).free) < FREE_BYTES:
            why = f"{free:,} bytes are free for {folder}"
            yield Check("folders", "FAIL", why, ELSEWHERE, "Neither logs nor sessions can be written.", by_hand=True)
        if not folder.exists():
            continue
        found = folder.lstat()
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            why = f"{folder} is a link to {folder.readlink()}"
            yield Check("folders", "FAIL", why, f"export FT_HOME={folder.resolve().parent}", _LINK, by_hand=True)
        elif found.st_uid != os.getuid():
            yield Check("folders", "FAIL", f"{folder} belongs to another user", ELSEWHERE, _REFUSED, by_hand=True)
        elif mode & 0o022:
            fix = f"chmod {'go-w' if folder == context.paths.config else '700'} {_word(folder)}"
            yield Check("folders", "FAIL", f"others may write in {folder}", fix, _REFUSED)
        elif folder != context.paths.config and mode & 0o077:
            why = f"{folder} is readable by others"
            yield Check(
                "folders", "WARN", why, f"chmod 700 {_word(folder)}", "Others on this machine can list sessions."
            )


_LINK = "A link could be turned to another place between two commands."
_REFUSED = "Every command that writes there refuses."


def _unwritable(folder: Path, place: Path) -> Check:
    why = f"{folder} cannot be written to"
    owned = place.stat().st_uid == os.getuid() and not place.stat().st_mode & stat.S_IWUSR
    fix = f"chmod u+w {_word(place)}" if owned else ELSEWHERE
    return Check("folders", "FAIL", why, fix, "It is read-only, or of another user.", by_hand=not owned)


def secrets(context: Context) -> Iterator[Check]:
    """Files that hold a token; ft writes them for their owner alone."""
    paths = context.paths
    for file in (paths.engine_file, *paths.sessions.glob("s-*/session.json"), *paths.sessions.glob("s-*/claude.json")):
        try:
            wide = stat.S_IMODE(file.lstat().st_mode) & 0o077
        except OSError:
            continue
        if wide:
            fix = f"chmod 600 {_word(file)}"
            yield Check(
                "secrets", "WARN", f"{file} can be read by others", fix, "Whoever has its token can use the engine."
            )


def clock(context: Context) -> Iterator[Check]:
    """A file of ours from the future: the clock went back, or is about to be wrong for certificates and leases."""
    now = time.time()
    newest = max((file.lstat().st_mtime for file in _files(context.paths.state)), default=now)
    if newest - now > FUTURE_S:
        days = (newest - now) / FUTURE_S
        why = f"the newest file of {context.paths.state} is {days:,.0f} days in the future"
        cause = "The clock was set back: certificates and ages of sessions come out wrong."
        yield Check("clock", "WARN", why, "timedatectl set-ntp true", cause, by_hand=True)


def _files(folder: Path) -> Iterator[Path]:
    seen = 0
    for path in folder.rglob("*"):
        seen += 1
        if seen > MOST_FILES:
            return
        try:
            if path.is_file() and not path.is_symlink():
                yield path
        except OSError:
            continue


def _word(path: Path) -> str:
    return shlex.quote(str(path))
