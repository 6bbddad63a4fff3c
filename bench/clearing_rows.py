"""What was seen of a session that clears its tool results, as rows: every turn of it, and when its work ahead ran."""

from __future__ import annotations

from typing import Any

from engine.bench.rows import Row, row

WATCHDOG_S = 300.0  # what Claude Code waits for a silent stream unless it is told otherwise
TURN_COLUMNS = [
    "prompt_tokens",
    "cached_tokens",
    "replayed_tokens",
    "new_tokens",
    "anticipated_tokens",
    "ttft_s",
    "peer_s",
    "peer_cached",
    "edited",
]
TIME_COLUMNS = ["asked_s", "first_s", "replied_s", "tool_end_s", "ahead_start_s", "ahead_end_s", "ahead_tokens"]


class Played:
    """One session. Times are those of the client's clock, since its first request."""

    def __init__(self) -> None:
        self.times: list[dict[str, float]] = []
        self.looks: list[tuple[float, int, int]] = []  # time, submitted and computed ahead so far
        self.records: list[dict[str, Any]] = []
        self.edited: list[bool] = []


def ahead_of(made: Played) -> list[list[float | None]]:
    """For each turn, when the work ahead behind its reply began and ended, and its tokens; None where there was none."""
    found: list[list[float | None]] = []
    starts = [times["replied_s"] for times in made.times]
    for number, start in enumerate(starts):
        end = made.times[number + 1]["first_s"] if number + 1 < len(starts) else float("inf")
        before = max((look for look in made.looks if look[0] < start), default=(0.0, 0, 0))
        looks = [look for look in made.looks if start <= look[0] < end]
        began = next((at for at, submitted, _ in looks if submitted > before[1]), None)
        ended = [at for (at, _, n), earlier in zip(looks, [before, *looks], strict=False) if n > earlier[2]]
        tokens = looks[-1][2] - before[2] if looks else 0
        found.append([began, ended[-1], tokens] if began is not None and ended and tokens else [None, None, 0])
    return found


def rows_of(ours: Played, demand: Played, peer: dict[str, dict[str, Any]], more: dict[str, Any]) -> list[Row]:
    """`peer` answers for the requests of `ours`, whose tokens both plays have in common."""
    theirs = [peer.get(record["id"]) for record in ours.records]
    made = []
    for name, played in (("ttft", ours), ("on_demand", demand)):
        edited = [i for i, yes in enumerate(played.edited) if yes]
        baseline = [theirs[i]["prefill_s"] for i in edited if theirs[i] is not None]
        values = [played.records[i]["ttft_s"] for i in edited]
        made.append(
            row(f"clearing.{name}", "s", values, baseline, **more, series_columns=TURN_COLUMNS, watchdog_s=WATCHDOG_S)
        )
        made[-1]["series"] = [
            [
                *(_number(record[field]) for field in TURN_COLUMNS[:6]),
                None if other is None else round(other["prefill_s"], 4),
                None if other is None else other["cached"],
                int(yes),
            ]
            for record, other, yes in zip(played.records, theirs, played.edited, strict=True)
        ]
    computed = sum(record["prompt_tokens"] - record["cached_tokens"] for record in ours.records)
    others = [
        record["prompt_tokens"] - other["cached"]
        for record, other in zip(ours.records, theirs, strict=True)
        if other is not None
    ]
    made.append({**row("clearing.computed", "tokens", [computed], [sum(others)] if others else [], **more)})
    timeline = row("clearing.timeline", "turns", [len(ours.times)], **more, series_columns=TIME_COLUMNS)
    timeline["series"] = [
        [*(round(times[name], 3) for name in TIME_COLUMNS[:4]), *(_number(n) for n in work)]
        for times, work in zip(ours.times, ahead_of(ours), strict=True)
    ]
    return [*made, timeline]


def _number(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value
