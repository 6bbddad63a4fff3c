"""What was set by hand in a running engine, kept for the worker that follows one that ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZES = ("moe_slots", "kv_tokens")
FIELDS = (*SIZES, "preset", "auto")


class ByHand:
    """The `apply` messages that, sent in this order, set what is set now: a preset or `auto` at most, which replace what was
    before, then sizes."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] | None = None
        self._sizes: dict[str, Any] = {}

    def keep(self, asked: Mapping[str, Any]) -> None:
        """`asked` was applied."""
        order = {name: asked.get(name) for name in FIELDS}
        if order["preset"] or order["auto"]:
            self._whole, self._sizes = order, {}
        else:
            self._sizes |= {name: order[name] for name in SIZES if order[name] is not None}

    def forget(self, order: Mapping[str, Any]) -> None:
        """This one of `orders` cannot be had any more."""
        if order == self._whole:
            self._whole = None
        else:
            self._sizes = {}

    def orders(self) -> list[dict[str, Any]]:
        """All there is to ask of a new worker, as fields of its `memory` message."""
        sizes = [{**dict.fromkeys(FIELDS), "auto": False, **self._sizes}] if self._sizes else []
        return [*([] if self._whole is None else [self._whole]), *sizes]


def words(order: Mapping[str, Any]) -> str:
    """One of `orders` for people."""
    said = [f"--kv {order['kv_tokens']}"] if order["kv_tokens"] else []
    said += [f"--moe {order['moe_slots']}"] if order["moe_slots"] else []
    said += [f"--preset {order['preset']}"] if order["preset"] else ["--auto"] if order["auto"] else []
    return " ".join(said)
