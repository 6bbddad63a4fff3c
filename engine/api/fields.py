"""Reading JSON bodies: a wrong type is a BadRequest that names the field; unknown fields are never looked at."""

from __future__ import annotations

import asyncio
import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from engine.api.errors import TooLarge, TooSlow
from engine.errors import BadRequest
from engine.prompt.depth import MAX_DEPTH, is_too_deep

MAX_BODY_BYTES = 64 << 20
BODY_S = 120.0  # for all of it to arrive
_NUMBER_LIMIT = 1 << 63  # what a frame to the worker can carry
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
T = TypeVar("T")
_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


async def read_json(request: Request) -> dict[str, Any]:
    """The request's JSON object, gzip and deflate undone. Raises BadRequest or TooLarge."""
    _require_small(request.headers.get("content-length", ""))
    raw = await _whole(request)
    try:
        body = await run_in_threadpool(_parse, raw, request.headers.get("content-encoding", ""))
    except (ValueError, RecursionError):
        raise BadRequest("The body is not valid JSON.", "Send a JSON object.") from None
    if not isinstance(body, dict):
        raise BadRequest("The body is not a JSON object.", "Send a JSON object.")
    return body


async def _whole(request: Request) -> bytes:
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MAX_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise TooSlow(f"The body was not there after {BODY_S:.0f} s.", "Send the request again.") from None
    return bytes(raw)


def _require_small(declared: str) -> None:
    """Refuses a body by the length that its head declares, before any of it is taken."""
    if declared.isdecimal() and (len(declared) > len(str(MAX_BODY_BYTES)) or int(declared) > MAX_BODY_BYTES):
        raise _too_large()


def _too_large() -> TooLarge:
    return TooLarge(f"The body is larger than {MAX_BODY_BYTES >> 20} MiB.", "Send less.")


def _parse(raw: bytes, encoding: str) -> Any:
    """What the body says. Raises BadRequest for numbers that are none: they would fail much later, for everybody."""
    text = _plain(raw, encoding)
    body = json.loads(text, parse_constant=_not_finite, parse_float=_finite)
    if is_too_deep(body):
        raise BadRequest(f"The body has lists and objects more than {MAX_DEPTH} deep in each other.")
    return _whole_characters(body) if _HALF_CHARACTER.search(text) else body


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)


def _not_finite(text: str) -> float:
    raise BadRequest(f"The body has the number {text[:40]}, which is not finite.")


def _whole_characters(value: Any) -> Any:
    """Half a surrogate pair is what agents make of a text they cut inside a character: it becomes U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(entry) for entry in value]
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(entry) for key, entry in value.items()}
    return value


def _plain(raw: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "deflate"):
        raise BadRequest(f"Content-Encoding {encoding!r} is not supported.", "Send the body plain or as gzip.")
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = inflater.decompress(raw, MAX_BODY_BYTES)
    except zlib.error:
        raise BadRequest(f"The body is not valid {encoding}.") from None
    if inflater.unconsumed_tail:
        raise _too_large()
    return plain


def get(body: Mapping[str, Any], name: str, kind: type[T], where: str = "") -> T | None:
    """The field's value, None when absent or null. Integers are numbers too; booleans are neither."""
    value = body.get(name)
    if value is None:
        return None
    if type(value) in (int, float) and not abs(value) < _NUMBER_LIMIT:
        raise BadRequest(f"{where}{name}: the number is out of range.")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # type: ignore[return-value]
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # type: ignore[return-value]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise wrong(f"{where}{name}", kind)
    return value


def need(body: Mapping[str, Any], name: str, kind: type[T], where: str = "") -> T:
    """Like `get`; absence is an error too."""
    value = get(body, name, kind, where)
    if value is None:
        raise BadRequest(f"{where}{name}: the field is missing.")
    return value


def objects(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of objects. Raises BadRequest naming the entry that is none."""
    if not isinstance(value, list):
        raise wrong(where, list)
    for i, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise wrong(f"{where}[{i}]", dict)
    return value


def text_of(value: Any, where: str) -> str:
    """A string, or a BadRequest."""
    if not isinstance(value, str):
        raise wrong(where, str)
    return value


def wrong(where: str, kind: type) -> BadRequest:
    return BadRequest(f"{where}: expected {_NAMES.get(kind, kind.__name__)}.")


def stop_strings(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A stop string or a list of them; empty ones count for nothing."""
    value = body.get(name)
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(s, str) for s in listed):
        raise BadRequest(f"{name}: expected a string or a list of strings.")
    return tuple(s for s in listed if s)


def positive(body: Mapping[str, Any], name: str) -> int | None:
    """A count of at least 1, None when absent or null."""
    value = get(body, name, int)
    if value is not None and value < 1:
        raise BadRequest(f"{name}: expected at least 1, got {value}.")
    return value


def sampling(body: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Sampling fields that all dialects share, None where absent. Raises BadRequest for values out of range."""
    given: dict[str, Any] = {
        "temperature": get(body, "temperature", float),
        "top_p": get(body, "top_p", float),
        "top_k": get(body, "top_k", int),
        "min_p": get(body, "min_p", float),
        "repetition_penalty": get(body, "repetition_penalty", float),
        "presence_penalty": get(body, "presence_penalty", float),
        "frequency_penalty": get(body, "frequency_penalty", float),
        "seed": get(body, "seed", int),
    }
    if given["top_k"] is not None and given["top_k"] < 0:
        given["top_k"] = 0  # -1 is how some clients say off
    for name, low, high in (
        ("temperature", 0.0, 100.0),
        ("top_p", 0.0, 1.0),
        ("min_p", 0.0, 1.0),
        ("repetition_penalty", 0.01, 100.0),
        ("presence_penalty", -2.0, 2.0),
        ("frequency_penalty", -2.0, 2.0),
    ):
        value = given[name]
        if value is not None and not low <= value <= high:
            raise BadRequest(f"{name}: {value} is not between {low} and {high}.")
    if bias := get(body, "logit_bias", dict):
        given["logit_bias"] = _logit_bias(bias, vocab_size)
    return given


def _logit_bias(bias: Mapping[str, Any], vocab_size: int) -> dict[int, float]:
    made = {}
    for token in bias:
        if not (token.isascii() and token.isdecimal() and len(token) < 10 and int(token) < vocab_size):
            raise BadRequest(f"logit_bias: {token[:40]!r} is no token id between 0 and {vocab_size - 1}.")
        value = need(bias, token, float, "logit_bias.")
        if not -100 <= value <= 100:
            raise BadRequest(f"logit_bias.{token}: {value} is not between -100 and 100.")
        made[int(token)] = value
    return made


def count(text: str, name: str) -> int:
    """A count in a query or a header. Raises BadRequest."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest(f"{name}: {text[:40]!r} is no count.")
    return int(text)


def limit(request: Request, most: int) -> int:
    """How many are asked for, `most` where nothing is said. Raises BadRequest."""
    return count(request.query_params.get("limit", str(most)), "limit")
