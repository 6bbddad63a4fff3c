"""Rows of one run, from the engine's own request records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import turn_series

from engine.bench.rows import Row, row

Record = dict[str, Any]
Peer = dict[str, dict[str, Any]]  # what llama.cpp needed for a request, by its id
ALIKE = 0.15  # new tokens of two requests that count as equal
LEAST_OUTPUT = 8  # fewer tokens say nothing about a rate
ENOUGH_TOKENS = 48


def done(records: Sequence[Record]) -> list[Record]:
    """Requests that were answered, oldest first."""
    return sorted((r for r in records if r["end"] in ("stop", "tool_use", "length")), key=lambda r: r["started"])


def main_line(records: Sequence[Record]) -> list[Record]:
    """The agent's own turns, in its main conversation: neither titles nor subagents."""
    turns = [r for r in done(records) if not r["side"] and not r["kind"]]
    return [r for r in turns if not r["harness_parent"]]


def busy_s(records: Sequence[Record]) -> float:
    """Seconds in which at least one request was under way: what is left is the agent and its tools."""
    total, until = 0.0, 0.0
    for start, end in sorted((r["started"], r["started"] + r["total_s"]) for r in records if r["total_s"]):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def decoding(records: Sequence[Record]) -> list[Record]:
    """The agent's own turns that tell how fast tokens come: those that had the machine for themselves, where they are enough."""
    long = [r for r in main_line(records) if (r["output_tokens"] or 0) >= LEAST_OUTPUT and r["decode_s"]]
    alone = [r for r in long if not any(_overlap(r, other) for other in records if other is not r)]
    return alone if sum(r["output_tokens"] for r in alone) >= ENOUGH_TOKENS else long


def decode_rates(records: Sequence[Record], peer: Peer) -> dict[str, float]:
    """{ours, theirs}, tokens per second in those turns; what is not known is left out."""
    turns = decoding(records)
    theirs = [peer[r["id"]] for r in turns if r["id"] in peer]
    sides = {
        "ours": (sum(r["output_tokens"] - 1 for r in turns), sum(r["decode_s"] for r in turns)),
        "theirs": (sum(each["decoded"] for each in theirs), sum(each["decode_s"] for each in theirs)),
    }
    return {side: tokens / seconds for side, (tokens, seconds) in sides.items() if tokens and seconds}


def _overlap(one: Record, other: Record) -> bool:
    ends = one["started"] + (one["total_s"] or 0), other["started"] + (other["total_s"] or 0)
    return bool(one["started"] < ends[1] and other["started"] < ends[0])


def new(record: Record) -> int:
    """Tokens that this request computed; -1 where a foreign server does not tell."""
    cached = record["cached_tokens"]
    return -1 if cached is None else int(record["prompt_tokens"] - cached)


def growth(turns: Sequence[Record]) -> tuple[Record, Record] | None:
    """The second request and the last one that had as much to compute; None where there is no such pair."""
    if len(turns) < 3 or new(turns[1]) < 0:
        return None
    second = turns[1]
    for last in reversed(turns[2:]):
        if abs(new(last) - new(second)) <= ALIKE * new(second):
            return second, last
    return None


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def forecast_errors(records: Sequence[Record]) -> list[float]:
    return [
        abs(r["predicted_ttft_s"] - r["ttft_s"]) / r["ttft_s"] for r in records if r["predicted_ttft_s"] and r["ttft_s"]
    ]


def rows(
    name: str,
    records: Sequence[Record],
    peer: Peer,
    first: dict[str, float],
    more: dict[str, Any],
) -> list[Row]:
    """`first` holds W1's decode rates, `more` are fields of every row."""
    answered, turns, rates = done(records), main_line(records), decode_rates(records, peer)

    def made(figure: str, unit: str, values: Sequence[float], baselines: Sequence[float] = (), **fields: Any) -> Row:
        return row(f"agent.{name}.{figure}", unit, values, baselines, **{**more, **fields})

    out: list[Row] = []
    if "ours" in rates:
        out.append(made("decode", "tokens/s", [rates["ours"]], [rates["theirs"]] if "theirs" in rates else []))
        if name != "w1" and "ours" in first:
            theirs = ""
            if "theirs" in rates and "theirs" in first:
                theirs = f"llama.cpp keeps {rates['theirs'] / first['theirs']:.2f}"
            note = _noted(more, "baseline: W1", theirs)
            out.append(made("decode_kept", "tokens/s", [rates["ours"]], [first["ours"]], **note))
    prefills = [r for r in answered if r["prefill_s"] and new(r) >= 64]
    if prefills:
        out.append(made("prefill", "tokens/s", [sum(map(new, prefills)) / sum(r["prefill_s"] for r in prefills)]))
    ttfts = [r["ttft_s"] for r in answered if r["ttft_s"] is not None]
    if ttfts:
        limits = [r["watchdog_s"] for r in answered if r["watchdog_s"]]
        for figure, share in (("ttft_p50", 0.5), ("ttft_p95", 0.95)):
            out.append({**made(figure, "s", [quantile(ttfts, share)]), "samples": len(ttfts)})
        worst = made(
            "ttft_max", "s", [max(ttfts)], [min(limits)] if limits else [], **_noted(more, "baseline: the watchdog")
        )
        out.append({**worst, "samples": len(ttfts)})
    pair = growth(turns)
    if pair is not None:
        told = f"new tokens {new(pair[1])} after {new(pair[0])}, depth {pair[1]['prompt_tokens']:,} after {pair[0]['prompt_tokens']:,}"
        theirs = ""
        if all(r["id"] in peer for r in pair):
            theirs = f"llama.cpp's prefill grows {peer[pair[1]['id']]['prefill_s'] / peer[pair[0]['id']]['prefill_s']:.2f} times"
        note = _noted(more, told, theirs)
        out.append(made("ttft_growth", "s", [pair[1]["ttft_s"]], [pair[0]["ttft_s"]], **note))
    prompt = sum(r["prompt_tokens"] for r in answered)
    for figure in ("cached", "replayed"):
        counts = [r[f"{figure}_tokens"] for r in answered]
        if None not in counts:
            out.append(made(figure, "tokens", [sum(counts)], [prompt]))
    out.append(made("retries", "requests", [sum(bool(r.get("retried", r["resent"])) for r in records)]))
    theirs_s = sum(each["prefill_s"] + each["decode_s"] for each in peer.values())
    out.append(made("wall", "s", [busy_s(answered)], [theirs_s] if peer else []))
    errors = forecast_errors(answered)
    if errors:
        p90 = quantile(errors, 0.9)
        out.append(
            {**made("forecast", "of TTFT", [p90], [1.0], **_noted(more, "p90 of the error")), "samples": len(errors)}
        )
    out.append(made("turns", "turns", [len(turns)], **turn_series.of(turns, peer)))
    return out


def _noted(more: dict[str, Any], *texts: str) -> dict[str, str]:
    return {"note": "; ".join(filter(None, (*texts, more.get("note", ""))))}
