"""The engine's error tree: every error is a fact with its value, and a hint that is something to do."""

from __future__ import annotations

import os
import sys


class FtError(Exception):
    """A failure a person can act on.

    `message` states the fact and the value; `hint` is the next step, preferably a command; `code` is stable.
    """

    code = "FT-E0001 failed"
    retry_after_s = 2  # what a client is told where it may come back

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class BadRequest(FtError):
    """The request cannot be understood; HTTP 400 in the client's own dialect."""

    code = "FT-E0400 bad-request"


class PromptTooLong(BadRequest):
    """The prompt does not fit the window. Carries both numbers, because agents parse them to decide how much to keep."""

    code = "FT-E0413 prompt-too-long"

    def __init__(self, prompt_tokens: int, window_tokens: int) -> None:
        super().__init__(
            f"prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum",
            "Shorten the conversation, or serve with a larger --kv.",
        )
        self.prompt_tokens = prompt_tokens
        self.window_tokens = window_tokens


class OutputTooLong(BadRequest):
    """Prompt fits, prompt + max_tokens does not."""

    code = "FT-E0414 output-too-long"

    def __init__(self, prompt_tokens: int, max_tokens: int, window_tokens: int) -> None:
        super().__init__(
            f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {max_tokens} > {window_tokens}",
            "Ask for fewer output tokens.",
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.window_tokens = window_tokens


class Unauthorized(FtError):
    code = "FT-E0401 unauthorized"


class NotFound(FtError):
    """Asked-for thing absent: model, session."""

    code = "FT-E0404 not-found"


class WorkerGone(FtError):
    """The worker died or stopped making progress while requests were pending."""

    code = "FT-E0503 worker-gone"


class WeightsError(FtError):
    """A weight file is missing, truncated or corrupt; the message names the file and what is wrong with it."""

    code = "FT-E0510 weights"


class DoesNotFit(FtError):
    """The plan needs more memory than there is; the hint lists three ways out."""

    code = "FT-E0512 does-not-fit"


class Unsupported(FtError):
    """Understood, and not offered by this build, model or device."""

    code = "FT-E0520 unsupported"


def report(code: str, message: str, hint: str = "") -> None:
    """An error to the person at the terminal: as `ft` says its own where `ft` started us in the foreground, else with the
    code, by which it is found in a log."""
    asked_by_ft = os.environ.get("FT_ASKED_BY") == "ft"
    sys.stderr.write(f"ft: {message}\n" if asked_by_ft else f"{code}: {message}\n")
    if hint:
        sys.stderr.write(f"    {hint}\n" if asked_by_ft else f"{hint}\n")
