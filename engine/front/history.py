"""What the request records tell of one session: the agent's own ids, what it cost, and how it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.front.records import ANSWERED

Record = Mapping[str, Any]


def of_session(records: Sequence[Record]) -> dict[str, Any]:
    """`harness_ids`, `stats` and `last_stop` from a session's records, oldest first."""
    turns = [record for record in records if not record["side"] and record["kind"] is None]
    last = turns[-1] if turns else None
    return {"harness_ids": harness_ids(records), "stats": stats(records), "last_stop": last["end"] if last else None}


def harness_ids(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The ids that the agent gave its conversations, in the order of their last use. `parent` only where every request had one:
    a conversation whose subagents share its id is nobody's child."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        id_, parent = record["harness_id"], record["harness_parent"]
        if not id_:
            continue
        one = found.pop(id_, None)
        if one is None:
            one = {"id": id_, "parent": parent, "first_seen": record["started"], "requests": 0}
        one["parent"] = parent if one["parent"] else None
        one["requests"] += 1
        one["last_seen"] = record["started"]
        found[id_] = one
    return list(found.values())


def stats(records: Sequence[Record]) -> dict[str, Any]:
    """Totals and times to the first token; None where no record knows."""
    ttfts = sorted(record["ttft_s"] for record in records if record["ttft_s"] is not None)
    return {
        "turns": sum(not record["side"] and record["end"] in ANSWERED for record in records),
        "prompt_tokens": _sum(records, "prompt_tokens"),
        "cached_tokens": _sum(records, "cached_tokens"),
        "output_tokens": _sum(records, "output_tokens"),
        "ttft_p50_s": ttfts[len(ttfts) // 2] if ttfts else None,
        "ttft_p95_s": ttfts[min(len(ttfts) - 1, len(ttfts) * 95 // 100)] if ttfts else None,
        "ttft_max_s": ttfts[-1] if ttfts else None,
        "retries": sum(bool(record["retried"]) for record in records),
        "refused": sum(record["end"] == "error" for record in records),
    }


def _sum(records: Iterable[Record], key: str) -> int | None:
    values = [record[key] for record in records if record[key] is not None]
    return sum(values) if values else None
