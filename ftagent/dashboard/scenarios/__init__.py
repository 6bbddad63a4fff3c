"""The scenarios of `--mock`. The numbers are made up but fit together: a 35B model on a 32 GB GPU."""

from __future__ import annotations

from dataclasses import replace

from ftagent.dashboard.model import (
    Anchors,
    Crash,
    Engine,
    Event,
    Experts,
    Frame,
    InFlight,
    LogLine,
    Memory,
    Phase,
    Told,
)
from ftagent.dashboard.scenarios.busy import busy
from ftagent.dashboard.scenarios.shapes import BEGAN, MODEL, checks, engine_at_work, logs, session
from ftagent.dashboard.watchdog import alerts, judge


def no_engine(seconds: float) -> Frame:
    """Nothing runs, something ran three minutes ago."""
    now = BEGAN + seconds
    engine = Engine(Told("last known", now - 187), "stopped", now - 187, MODEL, 1919, version="0.1.0")
    ended = (
        session(
            "claude-2", "claude", "2.1.332", "ended", now, context=88_100, last=2.0, p95=3.1, ago=3600, warm="disk"
        ),
        session("codex-1", "codex", "0.171.0", "ended", now, context=22_800, last=1.2, p95=2.0, ago=7200, warm="gone"),
    )
    return Frame(now, project="shop", engine=engine, sessions=ended, checks=checks(engine=False))


def loading(seconds: float) -> Frame:
    """62 % of the weights are read."""
    now, progress = BEGAN + seconds, min(0.99, 0.62 + seconds / 30)
    engine = replace(
        engine_at_work(now),
        state="loading",
        phase="weights",
        progress=progress,
        eta_s=round((1 - progress) * 30, 1),
        uptime_s=19.0 + seconds,
        running=0,
        waiting=1,
        phases=(Phase("starting", "start", now - 19, 2.0), Phase("loading", "weights", now - 17)),
    )
    waiting = session("claude-2", "claude", "2.1.332", "running", now, last=None, p95=None, ago=5)
    queued = InFlight(
        "req0001", waiting.id, "claude-2", "claude", stage="queue", started_at=now - 5, elapsed_s=5.0 + seconds,
        prompt_tokens=17_204, heartbeats=1, beat_age_s=1.0, watchdog=judge(1800, "session", 1.0),
    )  # fmt: skip
    return Frame(now, project="shop", engine=engine, sessions=(waiting,), in_flight=(queued,), logs=logs())


def idle(seconds: float) -> Frame:
    """All agents wait for their person."""
    made = busy(seconds)
    now = made.now
    sessions = (
        session(
            "claude-2", "claude", "2.1.332", "waiting", now, context=61_204, last=3.1, p95=4.4, ago=240, warm="ram"
        ),
        session("codex-1", "codex", "0.171.0", "idle", now, context=22_800, last=1.2, p95=2.0, ago=900, warm="ram"),
    )
    engine = replace(made.engine, running=0, waiting=0, stops_in_s=412.0)
    quiet = tuple(replace(s, last=None, points=tuple((at, None) for at, _ in s.points)) for s in made.series)
    return replace(made, engine=engine, sessions=sessions, in_flight=(), series=quiet, alerts=())


def near_watchdog(seconds: float) -> Frame:
    """A long prefill whose agent has 41 of 300 seconds left."""
    made = busy(seconds)
    silence, left = 259.0 + seconds, max(1.0, 63.0 - seconds)
    dog = judge(300, "session", silence, left, left * 1.2)
    slow = replace(
        made.in_flight[0],
        prompt_tokens=61_204, cached_tokens=1_204, replayed_tokens=0, new_tokens=60_000, anticipated_tokens=0,
        done_tokens=47_616, todo_tokens=60_000, progress=0.7936, eta_s=left, elapsed_s=silence,
        heartbeats=0, beat_age_s=None, predicted_ttft_s=318.0, watchdog=dog,
    )  # fmt: skip
    sessions = (replace(made.sessions[0], watchdog=dog), *made.sessions[1:])
    return replace(made, sessions=sessions, in_flight=(slow,), alerts=tuple(alerts((slow,))))


def four(seconds: float) -> Frame:
    """Four agents at work: one computes its prompt, two decode, one waits."""
    return busy(seconds)


def crash(seconds: float) -> Frame:
    """The worker was killed for memory and stays down."""
    made = busy(seconds)
    now = made.now
    why = "The kernel ended the worker, because memory ran out."
    crashes = (
        Crash(now - 95, "FT-E0510 worker-gone", why, 1.0),
        Crash(now - 60, "FT-E0510 worker-gone", why, 5.0),
        Crash(now - 12, "FT-E0511 out-of-memory", why),
    )
    engine = replace(
        made.engine, state="crashed", code=crashes[-1].code, message=why,
        hint="ft engine restart --kv 64k", worker_pid=None, restarts=2, restarts_left=0, crashes=crashes, running=0,
    )  # fmt: skip
    sessions = tuple(replace(s, status="running", watchdog=judge(s.watchdog.limit_s, "session")) for s in made.sessions)
    gone = Event(212, now - 12, "worker_gone", why, "error")
    return replace(
        made, engine=engine, sessions=sessions, in_flight=(), events=(*made.events, gone), alerts=(), series=(),
        logs=(*logs(), LogLine(why, "error", "12:03:29")),
    )  # fmt: skip


def fifty(seconds: float) -> Frame:
    """More sessions than any screen has lines."""
    made = busy(seconds)
    agents = ("claude", "codex", "opencode", "hermes", "qwen")
    more = tuple(
        session(
            f"{agents[i % 5]}-{i}", agents[i % 5], "1.0", ("waiting", "idle", "ended", "detached")[i % 4], made.now,
            context=1_000 + 1_731 * i, last=0.4 + i % 7, p95=1.0 + i % 9, ago=60 * i, warm=("ram", "disk", "gone")[i % 3],
            project="shop" if i % 3 else "blog",
        )
        for i in range(4, 50)
    )  # fmt: skip
    return replace(made, sessions=(*made.sessions, *more))


def wide(seconds: float) -> Frame:
    """Names of wide, combining and joined characters."""
    made = busy(seconds)
    names = ("日本語の長いセッション名です", "한국어-세션", "café-e\u0301", "👩‍💻-dev")
    sessions = tuple(replace(s, name=n, branch="功能/購物車") for s, n in zip(made.sessions, names, strict=True))
    in_flight = tuple(replace(f, name=next(s.name for s in sessions if s.id == f.session)) for f in made.in_flight)
    return replace(made, project="商店", sessions=sessions, in_flight=in_flight)


def upstream(seconds: float) -> Frame:
    """Another engine's server computes: it tells neither of memory nor of anchors nor of experts."""
    made = busy(seconds)
    reasons = (
        ("anchors", "the server keeps no states"),
        ("memory", "its memory is its own"),
        ("scripts", "it samples"),
    )
    engine = replace(
        made.engine, model="qwen3-30b-a3b", device="llama-server http://127.0.0.1:8080", memory=(), worker_pid=None,
        cannot=reasons, flags=(), kv_tokens=None,
    )  # fmt: skip
    in_flight = tuple(
        replace(
            f, replayed_tokens=None, anticipated_tokens=None, done_tokens=None, progress=None, eta_s=None, tier=None
        )
        for f in made.in_flight
    )
    none = "the server keeps no states"
    return replace(
        made, engine=engine, in_flight=in_flight, memory=Memory(), anchors=Anchors(why_none=none),
        experts=Experts(why_none="its memory is its own"), offers=("cancel", "stop", "beat", "pause", "keep"),
        sessions=tuple(replace(s, warm_tier=None, warm_tokens=None) for s in made.sessions),
    )  # fmt: skip
