"""What is taken out of a text that leaves this machine: secrets by value and by form, the person, and where their work lies."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from ftagent.files.difference import MASK, is_secret
from ftagent.launch.environment import looks_like_credential, mask_urls
from ftagent.paths import Paths

LEAST_SECRET = 6  # characters; shorter values are words like "on"
LEAST_NAME = 3
_TOKEN = re.compile(
    r"\bft_(?:sess|admin)_[A-Za-z0-9_-]+"
    r"|\b(?:sk|pk|rk|hf|xox[a-z]|gh[pousr]|github_pat|glpat)[-_][A-Za-z0-9_-]{8,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|\b(?:Bearer|Basic)\s+[^\s\"']+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_LONG = re.compile(r"(?<![\w/.-])(?=[\w-]*[G-Zg-z])(?=[\w-]*\d)[A-Za-z0-9_-]{40,}(?![\w/-])")
_ASSIGNED = re.compile(r"""(["']?)([A-Za-z_][\w-]*)\1(\s*[=:]\s*)(["']?)([^\s"',}]+)\4""")
_PATH = re.compile(r"(?<![\w.:/~$])(?:~|(?=/))(?:/[^\s\"'`,;:()\[\]{}<>/\\]+)+/?")
_PLAIN = ("/v1/", "/s/", "/dev/", "/proc/", "/sys/", "/usr/", "/bin/", "/etc/", "/lib", "/opt/", "/run/", "~/.")


class Redaction:
    """Of one person's machine. `own` are folders that are named by what they are; everything else of a path but its last part
    goes."""

    def __init__(
        self, paths: Paths, env: Mapping[str, str], secrets: Iterable[str] = (), names: Iterable[str] = ()
    ) -> None:
        found = {value for name, value in env.items() if looks_like_credential(name, value)}
        self._secrets = sorted(_forms({*found, *secrets}), key=len, reverse=True)
        folders = ("runtime", "state", "data", "cache", "config")
        own = [(str(place), f"$FT_{name.upper()}") for name in folders for place in _places(getattr(paths, name))]
        self._own = sorted(own, key=lambda pair: len(pair[0]), reverse=True)
        self._home = [str(place) for place in _places(paths.home) if str(place) != "/"]
        known = {name for name in names if len(name) >= LEAST_NAME and name != "root"}
        self._names = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, known)) + r")(?!\w)") if known else None

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        text = mask_urls(_LONG.sub(MASK, _TOKEN.sub(MASK, text)))
        text = _ASSIGNED.sub(_assignment, text)
        for folder, label in self._own:
            text = re.sub(re.escape(folder) + r"(?![\w.-])", label, text)
        for home in self._home:
            text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
        text = _PATH.sub(_path, text)
        return self._names.sub(MASK, text) if self._names else text


def _forms(secrets: Iterable[str]) -> Iterator[str]:
    """As they may stand in JSON, in a URL, and in a header of basic authentication."""
    for secret in secrets:
        if len(secret) >= LEAST_SECRET:
            yield secret
            yield json.dumps(secret)[1:-1]
            yield json.dumps(secret, ensure_ascii=False)[1:-1]
            yield quote(secret, safe="")
            yield base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()


def _places(path: Path) -> list[Path]:
    return list(dict.fromkeys((path, path.resolve())))


def _assignment(found: re.Match[str]) -> str:
    """Counts such as `max_tokens: 4096` are no secrets."""
    quoted, name, between, mark, value = found.groups()
    if (
        not is_secret(name)
        or len(value) < LEAST_NAME
        or re.fullmatch(r"[\d.,]+|null|none|true|false", value, re.IGNORECASE)
    ):
        return found[0]
    return f"{quoted}{name}{quoted}{between}{mark}{MASK}{mark}"


def _path(found: re.Match[str]) -> str:
    path = found[0]
    if path.startswith(_PLAIN) or path.count("/") < 2:
        return path
    return f"…/{path.rstrip('/').rpartition('/')[2]}"
