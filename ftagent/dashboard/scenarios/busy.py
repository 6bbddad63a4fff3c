"""Four agents at work: the frame that the other scenarios change."""

from __future__ import annotations

from dataclasses import replace

from ftagent.dashboard.model import Cost, Frame, InFlight, Totals
from ftagent.dashboard.scenarios.parts import anchors, events, experts, forecast, memory, series, turns
from ftagent.dashboard.scenarios.shapes import BEGAN, PRICE, checks, decoding, engine_at_work, logs, session
from ftagent.dashboard.watchdog import judge


def busy(seconds: float) -> Frame:
    now = BEGAN + seconds
    done = min(3_860, 2_910 + int(seconds * 73))
    left = (3_860 - done) / 73
    dog = judge(1800, "session", min(11.0, 4 + seconds), left, left * 1.3)
    sessions = (
        session("claude-2", "claude", "2.1.332", "prefill", now, context=61_204, last=2.9, p95=3.1, ago=0, warm="gpu", cost=1.92),
        session("codex-1", "codex", "0.171.0", "thinking", now, context=22_800, last=1.2, p95=2.0, ago=0, warm="gpu", cost=0.41),
        session("review", "claude", "2.1.332", "thinking", now, context=41_020, last=1.9, p95=2.8, ago=0, warm="gpu", cost=3.77),
        session("oc-main", "opencode", "1.18.2", "waiting", now, context=12_000, last=44.0, p95=44.0, ago=240, warm="ram", cost=0.10),
    )  # fmt: skip
    sessions = (replace(sessions[0], watchdog=dog, waits_for_person=False), *sessions[1:])
    in_flight = (
        InFlight(
            "req0412", sessions[0].id, "claude-2", "claude", None, "prefill", now - 41 - seconds, 41.0 + seconds,
            61_204, 57_344, 512, 3_348, 4_096, done, 3_860, round(done / 3_860, 4), round(left, 1), 73.0, None, None,
            0.0, 0.4, "ram", None, 52.0, 3, min(11.0, 4 + seconds), False, dog,
        ),
        decoding("req0409", sessions[1], now, seconds, 22_400, 38.0),
        decoding("req0410", sessions[2], now, seconds, 40_810, 37.1),
    )  # fmt: skip
    return Frame(
        now=now,
        project="shop",
        engine=engine_at_work(now),
        sessions=sessions,
        in_flight=in_flight,
        memory=memory(now),
        series=series(now),
        forecast=forecast(now),
        anchors=anchors(now),
        events=events(now, sessions),
        turns=turns(now, sessions),
        experts=experts(now),
        logs=logs(),
        checks=checks(engine=True),
        totals=Totals(412, 9_204_116, 8_790_233, 184_022, 611_204, 40_118, Cost(32.1, "$", PRICE)),
        offers=("cancel", "apply", "pin", "unpin", "drop", "gc", "stop", "beat", "pause", "keep"),
    )
