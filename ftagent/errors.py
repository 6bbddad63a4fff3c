"""Errors a person can act on, with the exit codes every command keeps."""

from __future__ import annotations

import errno


class FtError(Exception):
    """A fact with its value, a next step, a stable code and the exit code of the process.

    `message` is one sentence, `hint` is what to do, preferably a command.
    """

    code = "FT-E0001 failed"
    exit_code = 1

    def __init__(self, message: str, hint: str = "", *, code: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code
        if exit_code is not None:
            self.exit_code = exit_code

    def to_json(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message, "fix": self.hint}}


def explain_os_error(error: OSError) -> tuple[str, str]:
    """Message and hint for a failure of the operating system: what could not be done, where, and what to do."""
    place = str(error.filename or "a file")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full: {place} could not be written.", "Free some space, or set FT_HOME to another disk."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{place}: {error.strerror}.", "Correct its permissions, or set FT_HOME to a folder that you may write."
    if error.errno == errno.ENAMETOOLONG:
        return f"{place[:60]}…: {error.strerror}.", "Use a shorter name."
    return f"{place}: {error.strerror or error}.", "Run the same command with --debug for the trace."


class UsageError(FtError):
    code = "FT-E0200 usage"
    exit_code = 2


class NotHere(FtError):
    """Asked-for thing absent: session, model, engine not running."""

    code = "FT-E0300 not-here"
    exit_code = 3


class Refused(FtError):
    """Going on would risk the user's data or money."""

    code = "FT-E0400 refused"
    exit_code = 4


class EngineNotReady(FtError):
    """The engine crashed, made no progress, or cannot fit."""

    code = "FT-E0500 engine-not-ready"
    exit_code = 5


class Conflict(FtError):
    """Port owned by another process, lock held, name taken."""

    code = "FT-E0600 conflict"
    exit_code = 6


class LaunchFailed(FtError):
    """The launch failed before the agent ran, for a reason that no other code names."""

    code = "FT-E1250 launch-failed"
    exit_code = 125


class AgentCannotRun(FtError):
    code = "FT-E1260 agent-cannot-run"
    exit_code = 126


class AgentMissing(FtError):
    code = "FT-E1270 agent-missing"
    exit_code = 127
