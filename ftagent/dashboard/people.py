"""Sessions: what their records on disk say, what the engine knows of them, and what they are doing now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ftagent.dashboard.diffs import Diff
from ftagent.dashboard.model import Cost, InFlight, Session, Told, Turn
from ftagent.dashboard.since import changes_of, receipts_of, seconds_of
from ftagent.dashboard.watchdog import judge, least
from ftagent.launch.receipt import Prices
from ftagent.paths import Paths
from ftagent.session import live, records

Json = Mapping[str, Any]
SHOWN = 200  # newest ones
AT_WORK = ("prefill", "thinking", "running")
OVER = ("ended", "lost", "crashed")


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside a session: what is served now, and what its folder and the files of its launch are."""

    model: str | None = None
    window: int | None = None
    diffs: Mapping[str, Diff] = field(default_factory=dict)  # by session
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by session: names of files


class Known(live.Live):
    """The status rules of `ft ls`, over facts that are at hand."""

    def __init__(self, paths: Paths, known: Mapping[str, Json]) -> None:
        super().__init__(paths)
        self._known = known

    def facts(self, session_id: str) -> Json:
        """See Live."""
        return self._known.get(session_id, {})


class Folder:
    """The records, each read again only when its file has changed."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._read: dict[str, tuple[int, records.Session]] = {}

    def read(self) -> list[records.Session]:
        """Newest first, at most `SHOWN`. Blocks on the disk."""
        found: dict[str, tuple[int, records.Session]] = {}
        for folder in self._paths.sessions.glob("s-*"):
            try:
                changed = (folder / "session.json").stat().st_mtime_ns
            except OSError:
                changed = -1
            kept = self._read.get(folder.name)
            if kept is None or kept[0] != changed:
                kept = (changed, records.Session(folder.name, folder, records.read_record(folder)))
            found[folder.name] = kept
        self._read = found
        every = sorted((s for _, s in found.values()), key=lambda s: str(s.field("created") or ""), reverse=True)
        return every[:SHOWN]


def price_words(prices: Prices | None) -> str:
    if prices is None:
        return ""
    return f"{prices.input:g} / {prices.cached:g} / {prices.output:g} per million prompt / cached / output tokens"


def cost_of(counts: Json, prices: Prices | None) -> Cost | None:
    """None without a price, or without counts."""
    wanted = {f"{name}_tokens": counts.get(f"{name}_tokens") for name in ("prompt", "cached", "output")}
    amount = prices.total(wanted) if prices is not None else None
    return None if amount is None else Cost(round(amount, 4), "", price_words(prices))


def sessions_of(
    kept: Sequence[records.Session],
    facts: Mapping[str, Json],
    in_flight: Iterable[InFlight],
    turns: Mapping[str, Turn],
    paths: Paths,
    here: Path,
    now: float,
    told: Told,
    prices: Prices | None,
    beside: Beside,
) -> tuple[Session, ...]:
    """Those of the records first, then those that only the engine knows. `turns` is the newest finished one of each session;
    `told` is of `facts`."""
    running: dict[str, list[InFlight]] = {}
    for request in in_flight:
        running.setdefault(request.session or "", []).append(request)
    known = {id_: _fresh(fact, running.get(id_, ()), turns.get(id_)) for id_, fact in facts.items()}
    status = Known(paths, known)
    made = []
    for session in kept:
        fact = known.get(session.id) or session.field("engine") or {}
        where = told if session.id in known else Told("session record")
        one = _session(session.id, fact, running.get(session.id, ()), turns.get(session.id), now, where, prices)
        made.append(_with_record(one, session, status.status(session), here, beside))
    recorded = {session.id for session in kept}
    for id_, fact in known.items():
        if id_ not in recorded and fact.get("ended") is None:
            one = _session(id_, fact, running.get(id_, ()), turns.get(id_), now, told, prices)
            made.append(replace(one, status=_engine_status(fact, now)))
    return tuple(made)


def _fresh(fact: Json, running: Sequence[InFlight], turn: Turn | None) -> Json:
    """Requests in flight are known at each frame, the facts of a session less often."""
    if turn is not None and (turn.started_at or 0.0) > (fact.get("last_request") or 0.0):
        fact = {**fact, "last_request": turn.started_at, "last_stop": turn.ended}
    if not running:
        return {**fact, "running": 0, "doing": None}
    doing = "prefill" if any(one.ttft_s is None for one in running) else "thinking"
    return {**fact, "running": len(running), "doing": doing}


def _engine_status(fact: Json, now: float) -> str:
    if fact.get("running"):
        return str(fact["doing"])
    last = fact.get("last_request")
    if last is None:
        return "prepared"
    return "idle" if now - last > live.IDLE_S else "waiting"


def _session(
    id_: str, fact: Json, running: Sequence[InFlight], turn: Turn | None, now: float, told: Told, prices: Prices | None
) -> Session:
    stats, warm = fact.get("stats") or {}, fact.get("warm") or {}
    waits = max(running, key=lambda one: one.watchdog.silence_s or 0.0, default=None)
    prompt = next((one.prompt_tokens for one in running if one.prompt_tokens), None)
    if prompt is None and turn is not None and turn.prompt_tokens is not None:
        prompt = turn.prompt_tokens + (turn.output_tokens or 0)
    last = fact.get("last_request")
    limit, source = least([(fact.get("watchdog_s"), "session")])
    counts = stats if stats.get("prompt_tokens") is not None else fact
    stop = fact.get("last_stop")
    return Session(
        id=id_,
        told=told,
        name=str(fact.get("name") or ""),
        agent=fact.get("harness"),
        agent_version=fact.get("version"),
        since_s=None if last is None else max(0.0, now - last),
        project=fact.get("project") and Path(str(fact["project"])).name,
        model=None,
        context_tokens=prompt if prompt is not None else warm.get("tokens"),
        window_tokens=fact.get("window"),
        ttft_last_s=None if turn is None else turn.ttft_s,
        ttft_p50_s=stats.get("ttft_p50_s"),
        ttft_p95_s=stats.get("ttft_p95_s"),
        ttft_max_s=stats.get("ttft_max_s"),
        watchdog=waits.watchdog if waits is not None else judge(limit, source),
        warm_tier={"memory": "ram"}.get(str(warm.get("tier")), warm.get("tier")),
        warm_tokens=warm.get("tokens"),
        requests=fact.get("requests"),
        turns=stats.get("turns"),
        prompt_tokens=counts.get("prompt_tokens"),
        cached_tokens=counts.get("cached_tokens"),
        output_tokens=counts.get("output_tokens"),
        retries=stats.get("retries"),
        errors=stats.get("refused"),
        cost=cost_of(counts, prices),
        waits_for_person=None if stop is None else not running and stop in ("stop", "length"),
        harness_ids=tuple((str(one["id"]), "observed") for one in fact.get("harness_ids") or ()),
        parent=fact.get("parent"),
        observed=fact.get("observe"),
    )


def _with_record(one: Session, session: records.Session, status: str, here: Path, beside: Beside) -> Session:
    if session.record is None:
        return replace(one, status=status)
    root = session.field("project", "root")
    links = tuple((str(link["id"]), str(link["source"])) for link in session.field("harness") or ())
    diff = beside.diffs.get(session.id)
    return replace(
        one,
        name=str(session.field("name") or one.name),
        agent=session.field("agent", "name") or one.agent,
        agent_version=session.field("agent", "version") or one.agent_version,
        status=status,
        since_s=one.since_s if one.since_s is not None else _age(session),
        project=None if root is None else Path(str(root)).name,
        here=records.belongs(session, here),
        branch=(diff.branch if diff is not None else None) or session.field("project", "branch"),
        model=session.field("model", "id"),
        window_tokens=one.window_tokens or session.field("model", "ctx"),
        waits_for_person=one.waits_for_person and status not in OVER,
        diff_stat=None if diff is None else diff.stat or "nothing",
        diff_files=() if diff is None else diff.files,
        changes=changes_of(session, beside.model, beside.window, diff, beside.others.get(session.id, ())),
        receipts=receipts_of(session),
        detached=bool(session.last_run.get("tmux")) and status not in OVER,
        harness_ids=links or one.harness_ids,
        parent=session.field("parent") or one.parent,
    )


def _age(session: records.Session) -> float | None:
    at = seconds_of(session.last_run.get("end") or session.last_run.get("start"))
    return None if at is None else max(0.0, time.time() - at)
