"""One line for each turn of a session, as figures draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = (
    "prompt_tokens",
    "cached_tokens",
    "replayed_tokens",
    "new_tokens",
    "anticipated_tokens",
    "ttft_s",
    "peer_s",
    "watchdog_s",
    "edit",
    "predicted_ttft_s",
)


def of(turns: Sequence[dict[str, Any]], peer: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Fields of a row: `series`, one list for each of `turns`, and `series_columns`, which name what it holds. `peer_s` is what
    llama.cpp's prefill of the same tokens took, `edit` the rule by which the prompt left what had been sent before, or the kind of
    the block where it did; "" where it only went on."""
    return {
        "series_columns": list(COLUMNS),
        "series": [[_value(turn, peer, name) for name in COLUMNS] for turn in turns],
    }


def _value(turn: dict[str, Any], peer: dict[str, dict[str, Any]], name: str) -> Any:
    if name == "peer_s":
        seconds = peer.get(turn["id"], {}).get("prefill_s")
        return None if seconds is None else round(seconds, 4)
    if name == "edit":
        broke = turn.get("broke_at") or {}
        return broke.get("rule") or broke.get("kind") or ""
    value = turn.get(name)
    return round(value, 4) if isinstance(value, float) else value
