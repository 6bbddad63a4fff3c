"""What was set by hand in a running engine, kept for the worker that follows one that ended, and for the engine that follows
this one with the same model and the same flags."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SIZES = ("moe_slots", "kv_tokens")
FIELDS = (*SIZES, "preset", "auto")
FILE = "by-hand.json"
SHAPING = ("model", "kv", "preset", "kv-dtype", "moe-backend", "moe-slots", "device", "host-memory", "device-memory")
_LOG = logging.getLogger("engine.front")


class ByHand:
    """The `apply` messages that, sent in this order, set what is set now: a preset or `auto` at most, which replace what was
    before, then sizes. With a `folder` they are in its FILE too, from which an engine whose worker has the same SHAPING ones
    among its `arguments` begins; one that was started with others begins with what those say."""

    def __init__(self, folder: Path | None = None, arguments: Sequence[str] = ()) -> None:
        self._whole: dict[str, Any] | None = None
        self._sizes: dict[str, Any] = {}
        self._path = None if folder is None else folder / FILE
        self._for = hashlib.blake2b("\0".join(_shaping(arguments)).encode(), digest_size=16).hexdigest()
        if self._path is not None:
            self._read(self._path)

    def keep(self, asked: Mapping[str, Any]) -> None:
        """`asked` was applied."""
        order = {name: asked.get(name) for name in FIELDS}
        if order["preset"] or order["auto"]:
            self._whole, self._sizes = order, {}
        else:
            self._sizes |= {name: order[name] for name in SIZES if order[name] is not None}
        self._write()

    def forget(self, order: Mapping[str, Any]) -> None:
        """This one of `orders` cannot be had any more."""
        if order == self._whole:
            self._whole = None
        else:
            self._sizes = {}
        self._write()

    def orders(self) -> list[dict[str, Any]]:
        """All there is to ask of a new worker, as fields of its `memory` message."""
        sizes = [{**dict.fromkeys(FIELDS), "auto": False, **self._sizes}] if self._sizes else []
        return [*([] if self._whole is None else [self._whole]), *sizes]

    def _read(self, path: Path) -> None:
        """What cannot be understood was not set by us."""
        try:
            kept = json.loads(path.read_bytes())
            if kept["for"] == self._for:
                whole, sizes = kept["whole"], kept["sizes"]
                self._whole = None if whole is None else {name: whole[name] for name in FIELDS}
                self._sizes = {name: int(sizes[name]) for name in SIZES if name in sizes}
                said = " ".join(words(order) for order in self.orders())
                _LOG.info("set again as it was in the engine before: %s; undo it with ft ctl cache --auto", said)
        except (OSError, ValueError, KeyError, TypeError):
            return

    def _write(self) -> None:
        if self._path is None:
            return
        new = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        try:
            if not self._sizes and (self._whole is None or self._whole["auto"]):  # as an engine begins anyway
                self._path.unlink(missing_ok=True)
                return
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                json.dump({"for": self._for, "whole": self._whole, "sizes": self._sizes}, out)
            new.replace(self._path)
        except OSError as failure:
            _LOG.warning("what was set by hand is not kept for the next engine: %s", failure)


def _shaping(arguments: Sequence[str]) -> list[str]:
    """Those that say what has how much memory. Others may differ from start to start, as what a disk has left does."""
    pairs = zip(arguments[::2], arguments[1::2], strict=False)
    return [text for flag, value in pairs if flag.removeprefix("--") in SHAPING for text in (flag, value)]


def words(order: Mapping[str, Any]) -> str:
    """One of `orders` for people."""
    said = [f"--kv {order['kv_tokens']}"] if order["kv_tokens"] else []
    said += [f"--moe {order['moe_slots']}"] if order["moe_slots"] else []
    said += [f"--preset {order['preset']}"] if order["preset"] else ["--auto"] if order["auto"] else []
    return " ".join(said)
