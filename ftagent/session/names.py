"""Names of sessions: what one may look like, and that no two of a project have the same."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from ftagent.errors import Conflict, UsageError
from ftagent.paths import Paths
from ftagent.session.records import Session, all_sessions

LENGTH = 64


def check_name(name: str) -> None:
    """Raises UsageError for a name that could not be typed again, or that would do something to a terminal."""
    problem = None
    if not name.strip():
        problem = "is empty"
    elif len(name) > LENGTH:
        problem = f"is longer than {LENGTH} characters"
    elif not name.isprintable():
        problem = "has characters that cannot be printed"
    elif "/" in name or name.startswith("-") or name != name.strip():
        problem = "has a slash in it, or a dash in front, or blanks around it"
    if problem is not None:
        shown = repr(name if len(name) <= LENGTH else name[:LENGTH] + "…")
        raise UsageError(f"The session name {shown} {problem}.", "Choose another: -n NAME")


def choose_name(agent: str, wanted: str | None, root: Path, sessions: Iterable[Session]) -> str:
    """`claude`, then `claude-2` … unique within the project. Raises Conflict when the wanted name is taken, and UsageError."""
    if wanted is not None:
        check_name(wanted)
    return next(_free(agent, wanted, _taken(root, sessions)))


@contextlib.contextmanager
def reserved_name(agent: str, wanted: str | None, root: Path, paths: Paths) -> Iterator[str]:
    """As `choose_name`; until the end of the block, which has written the record, no other ft takes the name.

    Another process's record may be written between our look at the records and our lock, hence the second look.
    """
    if wanted is not None:
        check_name(wanted)
    for name in _free(agent, wanted, _taken(root, all_sessions(paths))):
        with _lock(paths, root, name) as ours:
            if ours and name not in _taken(root, all_sessions(paths)):
                yield name
                return
        if wanted is not None:
            raise _is_taken(wanted)


def _taken(root: Path, sessions: Iterable[Session]) -> set[str]:
    return {session.field("name") for session in sessions if session.field("project", "root") == str(root)}


def _free(agent: str, wanted: str | None, taken: set[str]) -> Iterator[str]:
    if wanted is not None:
        if wanted in taken:
            raise _is_taken(wanted)
        yield wanted
        return
    number = 1
    while True:
        name = agent if number == 1 else f"{agent}-{number}"
        if name not in taken:
            yield name
        number += 1


def _is_taken(wanted: str) -> Conflict:
    return Conflict(
        f"The name {wanted!r} is taken in this project.", "Choose another: -n NAME", code="FT-E0611 name-taken"
    )


@contextlib.contextmanager
def _lock(paths: Paths, root: Path, name: str) -> Iterator[bool]:
    """Whether the name's lock is ours: an abstract socket, because a launch that is refused has to leave nothing on disk,
    and the kernel drops it with the process."""
    key = hashlib.sha256(f"{paths.sessions}\0{root}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(f"\0ft-name-{os.getuid()}-{key}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            ours = False
        else:
            ours = True
        yield ours
