"""What is taken out of a frame before it goes to a file: nothing that a prompt said, no path outside of a project, no secret."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from ftagent.dashboard.model import SCHEMA, Frame

_SECRET = re.compile(r"\b(ft_sess_[\w-]+|sk-[\w-]{8,}|gh[pousr]_\w{16,}|Bearer\s+\S+|[A-Za-z0-9_-]{40,})")
_PATH = re.compile(r"(?<![\w.:/])(?:~|/(?!v1/))[^\s\"'`,;()\[\]{}<>]*/([^\s\"'`,;()\[\]{}<>/]*)")
_USER_INFO = re.compile(r"//[^/@\s]+@")


@lru_cache(maxsize=8192)
def clean(text: str) -> str:
    """`/home/ann/shop/src/a.py` → `…/a.py`; tokens → `[secret]`. Commands and addresses without a path stay."""
    return _PATH.sub(lambda found: f"…/{found[1]}", _SECRET.sub("[secret]", _USER_INFO.sub("//", text)))


class Redactor:
    """Frames as JSON (`ft.dashboard/1`), cleaned. Parts that several frames share are made once and shared as well."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # by identity, with what it is of, so that no id is used again

    def json(self, frame: Frame) -> dict[str, Any]:
        """Not to be changed."""
        return {"schema": SCHEMA, **{field.name: self._plain(getattr(frame, field.name)) for field in fields(frame)}}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, dict):
            return {str(key): self._plain(one) for key, one in value.items()}
        if not is_dataclass(value) and not isinstance(value, tuple):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        made: Any
        if isinstance(value, tuple):
            flat = bool(value) and isinstance(value[0], float | bool)
            made = list(value) if flat else [self._plain(one) for one in value]
        else:
            made = {field.name: self._plain(getattr(value, field.name)) for field in fields(value)}
        self._made[id(value)] = (value, made)
        return made
