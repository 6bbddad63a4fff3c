"""Errors in each dialect's own words: what agents parse to retry, to compact or to give up."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from engine.errors import (
    BadRequest,
    FtError,
    NotFound,
    OutputTooLong,
    PromptTooLong,
    Unauthorized,
    Unsupported,
    WorkerGone,
)
from engine.front.joining import Full

ANTHROPIC = "anthropic"
OPENAI = "openai"


class TooLarge(FtError):
    """A body over the limit."""

    code = "FT-E0415 body-too-large"


class TooSlow(FtError):
    """A body that does not arrive."""

    code = "FT-E0408 body-too-slow"


class WrongMethod(FtError):
    """A known address, asked with a method it does not take."""

    code = "FT-E0405 wrong-method"


class Forbidden(FtError):
    """A Host header that is not this machine's own name: somebody else's page talks to us."""

    code = "FT-E0403 forbidden-host"


class Slow(FtError):
    """A question that the worker has not answered in time; it is alive, and what was asked of it goes on."""

    code = "FT-E0504 slow"


_STATUS: tuple[tuple[type[FtError], int], ...] = (
    (TooLarge, 413),
    (TooSlow, 408),
    (WrongMethod, 405),
    (Forbidden, 403),
    (BadRequest, 400),
    (Unauthorized, 401),
    (NotFound, 404),
    (Unsupported, 400),
    (Full, 429),
    (WorkerGone, 503),
    (Slow, 504),
)
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_exceeded",
}


def status_of(error: FtError) -> int:
    """The HTTP status an error means; errors of the worker carry it in their stable code."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return 400 if error.code.startswith(("FT-E04", Unsupported.code)) else 500


def dialect_of(path: str) -> str:
    """Which dialect a path speaks; everything that is not Anthropic's answers in OpenAI's shape."""
    return ANTHROPIC if "/v1/messages" in path or path.endswith("/api/hello") else OPENAI


def anthropic_body(error: FtError, status: int) -> dict[str, Any]:
    kind = _ANTHROPIC_TYPES.get(529 if status == 503 else status, "api_error")
    # The overflow messages are parsed by clients: nothing may be appended to them.
    text = error.message if _is_overflow(error) else str(error)
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": None}


def openai_body(error: FtError, status: int) -> dict[str, Any]:
    kind = _OPENAI_TYPES.get(status, "server_error")
    code: str | None = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
    text = str(error)
    if _is_overflow(error):
        code, text = "context_length_exceeded", _openai_overflow(error)
    return {"error": {"message": text, "type": kind, "param": None, "code": code or _slug(error)}}


def response(error: FtError, dialect: str) -> Response:
    """The whole HTTP answer for a request that failed before its first byte."""
    status = status_of(error)
    headers = {"retry-after": str(error.retry_after_s)} if status in (429, 503) else {}
    if dialect == ANTHROPIC:
        shown = 529 if status == 503 else status
        return JSONResponse(anthropic_body(error, status), status_code=shown, headers=headers)
    return JSONResponse(openai_body(error, status), status_code=status, headers=headers)


def _is_overflow(error: FtError) -> bool:
    return error.code in (PromptTooLong.code, OutputTooLong.code)


def _openai_overflow(error: FtError) -> str:
    if isinstance(error, PromptTooLong):
        return (
            f"This model's maximum context length is {error.window_tokens} tokens. However, your messages resulted in "
            f"{error.prompt_tokens} tokens. Please reduce the length of the messages."
        )
    if isinstance(error, OutputTooLong):
        return (
            f"This model's maximum context length is {error.window_tokens} tokens. However, you requested "
            f"{error.prompt_tokens + error.max_tokens} tokens ({error.prompt_tokens} in the messages, "
            f"{error.max_tokens} in the completion). Please reduce the length of the messages or completion."
        )
    return error.message


def _slug(error: FtError) -> str:
    return error.code.partition(" ")[2].replace("-", "_") or "failed"
