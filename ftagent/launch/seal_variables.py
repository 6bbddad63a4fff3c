"""The variables of a sealed launch. Apart from the sealing itself, because every plan looks here and starts fast."""

from __future__ import annotations

from zlib import crc32

_NAMES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PORTS = range(20000, 30000)


def proxy_port(session_id: str) -> int:
    """The port of the refusing proxy: it follows from the session, so that a plan can name it."""
    return _PORTS[crc32(session_id.encode()) % len(_PORTS)]


def proxy_variables(session_id: str) -> dict[str, str]:
    """What makes clients ask the refusing proxy for everything but this machine."""
    url = f"http://127.0.0.1:{proxy_port(session_id)}"
    return {**dict.fromkeys(_NAMES, url), **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1")}
