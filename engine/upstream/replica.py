"""One upstream server: its connection, whether it lives, and one answer streamed from it."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httpx

from engine.errors import BadRequest, FtError
from engine.prompt.language import Language
from engine.protocol import Submit
from engine.upstream.affinity import Seen
from engine.upstream.detect import detect
from engine.upstream.failures import UpstreamBusy, UpstreamGone, UpstreamRefused
from engine.upstream.wires import Piece, Wire

CONNECT_S = 5.0
PROBE_S = 10.0
_BUSY = (429, 503, 529)
_MAX_WAIT_S = 3600.0
_SHOWN = 500


class Replica:
    """`live` after a probe that found it fit to serve; `why` says why it is not."""

    def __init__(self, url: str, token: str, language: Language) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(CONNECT_S, read=None, write=60.0, pool=None)
        limits = httpx.Limits(max_connections=None, keepalive_expiry=30)
        # No proxies and no redirects: prompts go where the user said and nowhere else.
        self._client = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, limits=limits, trust_env=False, follow_redirects=False
        )
        self.url = url
        self.wire: Wire | None = None
        self.window = 0
        self.live = False
        self.why = "it was not asked yet"
        self.seen = Seen()
        self.running = 0
        self.served = self.failed = 0
        self.prompt_tokens = self.output_tokens = 0
        self.cached_tokens: int | None = None
        self.slots: asyncio.Semaphore | None = None
        self._language = language
        self._busy_until = 0.0

    async def close(self) -> None:
        await self._client.aclose()

    def busy_s(self) -> float:
        """How long it asked to be left alone, from now on."""
        return max(0.0, self._busy_until - time.monotonic())

    async def probe(self) -> None:
        """Find out whether it can serve. While it computes for us only its port is tried: a server may drop its work for a
        question, or answer none meanwhile. Raises nothing."""
        try:
            async with asyncio.timeout(PROBE_S):
                if self.running and self.live:
                    await self._knock()
                    return
                found = await detect(self._ask, self._language)
        except TimeoutError:
            self.lost(f"it did not answer within {PROBE_S:.0f} s")
        except FtError as error:
            self.lost(str(error))
        except (httpx.HTTPError, OSError) as error:
            self.lost(_cause(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.lost(f"what it says of itself makes no sense ({error!r})")
        else:
            if self.wire is None or (self.wire.kind, self.wire.model) != (found.wire.kind, found.wire.model):
                self.slots = asyncio.Semaphore(found.wire.parallel) if found.wire.parallel else None
                self.wire = found.wire
                self.seen.clear()
            self.window, self.live, self.why = found.window, True, ""

    def lost(self, why: str) -> None:
        """It is gone, and what it had computed with it."""
        if self.live:
            self.seen.clear()
        self.live, self.why = False, why

    async def stream(self, submit: Submit) -> AsyncGenerator[Piece, None]:
        """The answer to `submit`. Closing the generator closes the connection, by which the server notices.

        Raises UpstreamGone, UpstreamBusy, UpstreamRefused, or BadRequest for what the server calls the request's own fault.
        """
        wire = self.wire
        assert wire is not None
        count, ended = 0, False
        try:
            body = wire.body(submit, self._language)
            async with self._client.stream("POST", wire.path, json=body) as answer:
                if answer.status_code != 200:
                    raise self._refusal(answer, (await answer.aread()).decode("utf-8", "replace"))
                async for line in answer.aiter_lines():
                    field, _, data = line.partition(":")
                    if field == "error":
                        raise UpstreamGone(f"{self.url} failed: {data.strip()[:_SHOWN]}")
                    if field != "data" or data.strip() == "[DONE]":
                        continue
                    piece = wire.read(json.loads(data), count)
                    count += len(piece.ids)
                    ended = ended or piece.reason is not None
                    yield piece
        except httpx.HTTPError as error:
            if isinstance(error, httpx.ConnectError):
                self.lost(_cause(error))
            if not ended:
                raise UpstreamGone(f"{self.url} is gone: {_cause(error)}.", "Send the request again.") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UpstreamRefused(f"{self.url} sent an answer that makes no sense ({error!r}).") from None
        if not ended:
            raise UpstreamGone(f"{self.url} ended the answer before it was complete.", "Send the request again.")

    def json(self) -> dict[str, Any]:
        wire = self.wire
        return {
            "url": self.url,
            "kind": wire.kind if wire else None,
            "model": wire.model if wire else None,
            "live": self.live,
            "why": self.why or None,
            "window": self.window or None,
            "running": self.running,
            "served": self.served,
            "failed": self.failed,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "busy_s": round(self.busy_s(), 1),
        }

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        answer = await self._client.request(method, path, json=body)
        if answer.status_code in (404, 405):
            return None
        if answer.status_code != 200:
            raise self._refusal(answer, answer.text)
        return answer.json()

    async def _knock(self) -> None:
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()

    def _refusal(self, answer: httpx.Response, text: str) -> FtError:
        """What an error status means for the agent."""
        status, said = answer.status_code, _said(text)
        if status in (401, 403):
            hint = "Its key goes into FT_UPSTREAM_TOKEN, before the front is started."
            return UpstreamRefused(f"{self.url} wants another key ({status}).", hint)
        if status in _BUSY:
            wait_s = _retry_after(answer.headers.get("retry-after"))
            self._busy_until = time.monotonic() + wait_s
            return UpstreamBusy(f"{self.url} is busy ({status}): {said}", math.ceil(wait_s))
        if status in (400, 413, 422):
            return BadRequest(f"{self.url} refuses the request: {said}")
        return UpstreamGone(f"{self.url} answered {status}: {said}", "Send the request again.")


def _retry_after(text: str | None) -> float:
    """Seconds; dates and nonsense count as the usual two."""
    try:
        wait_s = float(text or "")
    except ValueError:
        return 2.0
    return min(max(wait_s, 1.0), _MAX_WAIT_S) if math.isfinite(wait_s) else 2.0


def _said(text: str) -> str:
    """The message in an error body, or its beginning."""
    try:
        data = json.loads(text)
        error = data.get("error", data)
        text = str(error.get("message") or error.get("detail") or text) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        pass
    return text[:_SHOWN] or "no reason given"


def _cause(error: Exception) -> str:
    if isinstance(error, (httpx.ConnectError, ConnectionRefusedError)):
        return "nothing listens there"
    return str(error) or type(error).__name__
