"""What the made-up scenarios have in common: the model, its machine, sessions and requests."""

from __future__ import annotations

from ftagent.dashboard.model import (
    Check,
    Cost,
    Engine,
    Fill,
    Flag,
    InFlight,
    LogLine,
    Phase,
    Receipt,
    Session,
    Told,
    Version,
)
from ftagent.dashboard.watchdog import judge

BEGAN = 1_790_000_000.0  # a fixed day, so that pictures stay as they are
MODEL = "qwen3.6-35b-a3b"
GB = 1_000_000_000
GIB = 1 << 30
LAYERS, EXPERTS = 40, 256
PRICE = "$3 / $0.30 / $15 per million prompt / cached / output tokens"


def engine_at_work(now: float) -> Engine:
    return Engine(
        told=Told("/v1/stats", now),
        state="ready",
        model=MODEL,
        port=1919,
        pid=4_120,
        worker_pid=4_131,
        version="0.1.0",
        uptime_s=8_040.0,
        phase="ready",
        restarts=0,
        restarts_left=3,
        scripted=False,
        paused=False,
        window_tokens=98_304,
        kv_tokens=98_304,
        running=3,
        waiting=0,
        device="RTX 5090",
        temperature_c=61.0,
        power_w=310.0,
        energy_j=2_140_000.0,
        memory=(Fill("RAM", 74 * GIB, 96 * GIB), Fill("RTX 5090", 24 * GIB, 32 * GIB)),
        versions=(Version("ft", "0.1.0"), Version("engine", "0.1.0"), Version("python", "3.11.9")),
        flags=(
            Flag("model", MODEL, "project"),
            Flag("kv_tokens", "98,304", "user"),
            Flag("moe_backend", "hybrid", "chosen"),
            Flag("max_running", "8", "default"),
        ),
        phases=(
            Phase("starting", "start", now - 8_040, 2.1),
            Phase("loading", "weights", now - 8_038, 24.0),
            Phase("warming", "warm-up", now - 8_014, 3.2),
            Phase("ready", "ready", now - 8_011),
        ),
    )


def session(
    name: str,
    agent: str,
    version: str,
    status: str,
    now: float,
    *,
    context: int | None = None,
    last: float | None = None,
    p95: float | None = None,
    ago: float = 0.0,
    warm: str | None = None,
    cost: float | None = None,
    project: str = "shop",
) -> Session:
    limit = {"claude": 1800.0, "codex": 3600.0, "hermes": 1800.0}.get(agent, 300.0)
    letters = "".join("abcdefghijklmnopqrstuvwxyz234567"[(ord(c) * 7 + i) % 32] for i, c in enumerate((name * 10)[:10]))
    over = status in ("ended", "lost")
    return Session(
        id=f"s-{letters}",
        told=Told("session record" if over else "/v1/sessions", now),
        name=name,
        agent=agent,
        agent_version=version,
        status=status,
        since_s=ago,
        project=project,
        here=project == "shop",
        branch="main",
        model=MODEL,
        context_tokens=context,
        window_tokens=98_304,
        ttft_last_s=last,
        ttft_p50_s=last,
        ttft_p95_s=p95,
        ttft_max_s=p95,
        watchdog=judge(limit, "session"),
        warm_tier=warm,
        warm_tokens=context if warm not in (None, "gone") else 0,
        resume_s=2.0 if over and warm == "disk" else None,
        cold_s=210.0 if over else None,
        requests=14 if context else 0,
        turns=12 if context else 0,
        prompt_tokens=(context or 0) * 9,
        cached_tokens=(context or 0) * 8,
        output_tokens=(context or 0) // 20,
        retries=0,
        errors=0,
        cost=None if cost is None else Cost(cost, "$", PRICE),
        waits_for_person=status == "waiting",
        diff_stat="3 files changed, 41 insertions(+), 7 deletions(-), 1 new" if project == "shop" else None,
        diff_files=(
            "shop/cart.py          | 31 +++++++++++++++++---",
            "shop/totals.py        | 12 ++++++--",
            "tests/test_cart.py    |  5 +++",
        )
        if project == "shop"
        else (),
        changes=("branch main then, sums now",) if name == "claude-2" and not over else (),
        receipts=_receipts(context, last, over, now - ago),
        detached=agent == "codex" and not over,
        harness_ids=((f"01a2-{letters}", "observed"),),
    )


def _receipts(context: int | None, last: float | None, over: bool, ended: float) -> tuple[Receipt, ...]:
    """Of a launch a day before, and of the last one where it has ended."""
    if context is None:
        return ()
    earlier = Receipt(
        ended - 90_000, 2_640.0, 0, 31, context * 4, context * 3, context // 30, last, last, 412_000.0, 0.84
    )
    if not over:
        return (Receipt(ended - 5_400), earlier)
    return (
        Receipt(ended - 5_400, 5_388.0, 0, 14, context * 9, context * 8, context // 20, last, last, 918_000.0, 1.92),
        earlier,
    )


def decoding(request: str, session: Session, now: float, seconds: float, prompt: int, rate: float) -> InFlight:
    return InFlight(
        request=request,
        session=session.id,
        name=session.name,
        agent=session.agent,
        stage="decode",
        started_at=now - 9 - seconds,
        elapsed_s=9.0 + seconds,
        prompt_tokens=prompt,
        cached_tokens=prompt - 210,
        replayed_tokens=32,
        new_tokens=178,
        anticipated_tokens=120,
        done_tokens=210,
        todo_tokens=210,
        progress=1.0,
        decode_tps=rate,
        output_tokens=280 + int(rate * seconds),
        queue_s=0.0,
        restore_s=0.0,
        tier="ram",
        ttft_s=1.6,
        predicted_ttft_s=1.5,
        heartbeats=0,
        retried=False,
        watchdog=session.watchdog,
    )


def checks(engine: bool) -> tuple[Check, ...]:
    running = Check("engine", "OK", "ready, window 98,304 tokens") if engine else Check("engine", "OK", "stopped")
    return (
        Check("settings", "OK", "defaults"),
        running,
        Check(
            "pinned memory",
            "WARN",
            "8 MiB (ulimit -l), the experts take 19.2 GB",
            "ulimit -l unlimited",
            "What is not pinned is copied to the card at half the speed.",
            by_hand=True,
        ),
        Check(
            "leftovers",
            "WARN",
            "2 leases of agents that have ended",
            "ft sessions prune --days 0",
            "Nothing holds them; they only take room.",
        ),
        Check("agent codex", "SKIP", "not installed", "npm install -g @openai/codex"),
    )


def logs() -> tuple[LogLine, ...]:
    return (
        LogLine("engine.front: serving qwen3.6-35b-a3b on port 1919", "info", "09:49:02"),
        LogLine("engine.worker: weights: 19.2 GB in 24.0 s", "info", "09:49:28"),
        LogLine("engine.front: prefix of s-… broke at token 1,204", "warning", "12:02:58"),
    )
