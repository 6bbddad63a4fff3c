"""What is known, as one frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ftagent.dashboard import memory_view, people, views
from ftagent.dashboard.gather import Gathered, Json
from ftagent.dashboard.model import Act, Alert, Engine, Experts, Frame, Session, Told, Totals
from ftagent.dashboard.watchdog import alerts


def frame_of(known: Gathered, now: float, offers: tuple[Act, ...] = ()) -> Frame:
    """Everything as it is known at `now`."""
    answers = known.answers
    stats, memory = answers.get("/v1/stats"), answers.get("/v1/engine/memory")
    life, listed = answers.get("/v1/engine/life"), answers.get("/v1/sessions")
    facts = {str(one["id"]): one for one in listed.get("sessions") or ()}
    names = {id_: str(fact.get("name") or fact.get("harness") or "") for id_, fact in facts.items()}
    names |= {session.id: str(session.field("name") or "") for session in known.kept}
    agents = {id_: fact.get("harness") for id_, fact in facts.items()}
    agents |= {session.id: session.field("agent", "name") for session in known.kept}
    served = known.readiness if known.reachable else {}
    beside = people.Beside(served.get("model"), served.get("window"), known.diffs, known.others)
    in_flight = known.requests.in_flight(names, agents, now, _spread(known.forecasts))
    sessions = people.sessions_of(
        known.kept, facts, in_flight, known.requests.newest, known.paths, known.here, now,
        answers.told("/v1/sessions"), known.prices, beside,
    )  # fmt: skip
    totals = life.get("totals") or {}
    return Frame(
        now=now,
        project=known.here.name,
        readonly=known.readonly,
        engine=_engine(known, stats, life, memory, now),
        sessions=tuple(_named(known, session, names) for session in sessions),
        in_flight=in_flight,
        memory=memory_view.memory_of(memory, stats, answers.told("/v1/engine/memory"), known.what_ifs),
        series=known.rates.series(),
        forecast=views.forecast_of(known.forecasts, stats, Told("/v1/engine/forecast", known.forecasts_at)),
        anchors=views.anchors_of(stats, answers.told("/v1/stats"), names, known.cannot),
        events=tuple(known.events),
        turns=known.requests.turns,
        experts=_experts(known),
        logs=known.logs,
        checks=known.checks,
        alerts=(*alerts(in_flight), *_alerts(known)),
        totals=Totals(**totals, cost=people.cost_of(totals, known.prices)) if totals else Totals(),
        offers=offers if known.reachable and not known.readonly else (),
    )


def _engine(known: Gathered, stats: Json, life: Json, memory: Json, now: float) -> Engine:
    if not known.readiness:
        state = "starting" if known.reachable else "stopped"
        return Engine(Told("last known", known.alive_at), state, known.alive_at, known.model)
    flags = views.flags_of(stats, known.settings, known.arguments, memory)
    told = Told("/v1/engine/events", known.alive_at)
    power = known.answers.get("/v1/engine/power")
    made = views.engine_of(known.readiness, stats, life, memory, power, told, known.url, known.pid, flags)
    stats_at = known.answers.at.get("/v1/stats")
    if made.uptime_s is not None and stats_at is not None and known.reachable:
        made = replace(made, uptime_s=made.uptime_s + now - stats_at)
    if known.reachable:
        return made
    return replace(
        made, told=Told("last known", known.alive_at), state="stopped", stopped_at=known.alive_at, running=None,
        waiting=None, phase=None, progress=None, eta_s=None, stops_in_s=None, power_w=None, temperature_c=None,
    )  # fmt: skip


def _experts(known: Gathered) -> Experts:
    """Made once for each pair of answers: there are thousands."""
    route, stats, answers = "/v1/engine/experts", "/v1/stats", known.answers
    picture = answers.get(route)
    key = (answers.at.get(route), answers.at.get(stats))
    if known.experts_made is None or known.experts_made[0] != key:
        told, rates = answers.told(route if picture else stats), known.rates
        made = views.experts_of(answers.get(stats), picture, told, rates.hit_rate, rates.misses_per_token)
        known.experts_made = (key, made)
    return known.experts_made[1]


def _named(known: Gathered, session: Session, names: Mapping[str, str]) -> Session:
    resting = session.status not in people.AT_WORK
    warm, cold = known.resumes.get(session.id, (None, None)) if resting else (None, None)
    return replace(session, name=names.get(session.id) or session.name, resume_s=warm, cold_s=cold)


def _alerts(known: Gathered) -> tuple[Alert, ...]:
    if not known.reachable:
        return ()
    if known.readiness.get("state") == "crashed":
        return (Alert("red", str(known.readiness.get("message") or "The engine has crashed.")),)
    warning = known.readiness.get("warning")
    return (Alert("amber", str(warning)),) if warning else ()


def _spread(forecasts: Sequence[Mapping[str, Any]]) -> float | None:
    """How far the p95 of a forecast lies above its median, of the longest prompt that was asked for."""
    for answer in reversed(forecasts):
        if answer.get("ttft_p50_s") and answer.get("ttft_p95_s"):
            return float(answer["ttft_p95_s"] / answer["ttft_p50_s"])
    return None
