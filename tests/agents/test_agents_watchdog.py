"""The published agents wait for a slow prefill: exactly one request, never a retry, whatever their watchdogs say.

All agents wait at the same time, each with an engine of its own: waiting costs next to nothing. The short variant gives the
agents a limit on silence of seconds, by the way in which the launcher raises it: the first token comes later than that, from a
worker that computes nothing, and only heartbeats that the agent counts as life carry it there. In the long one a throttled
prefill takes 400 seconds, which is more than the limit that every agent has of itself.

Beside each wait the same agent waits for an engine that stays silent, and must give up: otherwise its wait proves nothing.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.agents

ANSWER = "It was worth the wait."
TASK = "Say that it was worth the wait."


@dataclass(frozen=True)
class Agent:
    """`tokens`: its first prompt in the test model's tokens, at least; more only makes the wait longer. `limit_s`: the
    shortest limit on silence that it takes. `default_s`: the one it has when nobody sets it."""

    args: tuple[str, ...]
    tokens: int
    limit_s: int = 6
    default_s: int = 300


AGENTS = {
    "claude": Agent(("-p", TASK), 12_300, limit_s=10),
    "codex": Agent(("exec", "-s", "danger-full-access", TASK), 9_000),
    "opencode": Agent(("run", TASK), 7_500),
    "openclaw": Agent(("agent", "--local", "--agent", "main", "--message", TASK), 14_500),
}
LONGER, LONG_SILENCE = 1.25, 10  # than the short limits; on a busy machine agents give up late
LONG_S = 400.0
IMPATIENT, NOTHING, AGAIN = Path(__file__).parent / "impatient_ft.py", "--compute-nothing", "--until-it-tries-again"
SILENT = {"FT_HEARTBEAT_S": "3600"}
Waits = dict[tuple[str, bool], "Future[Any]"]  # by agent and whether its engine is silent


@pytest.fixture(scope="module")
def short(request: pytest.FixtureRequest, new_rig: Callable[[], Any]) -> Waits:
    def wait(rig: Any, agent: str, silent: bool) -> Any:
        limit_s = AGENTS[agent].limit_s
        environ = SILENT if silent else {"FT_HEARTBEAT_S": "2"}
        rules = rig.folder / "ft" / "worker-rules.json"
        rules.parent.mkdir()
        rules.write_text(json.dumps({"silent_s": limit_s * (LONG_SILENCE if silent else LONGER)}))
        return launch(rig, agent, environ, limit_s, timeout_s=450, options=[NOTHING])

    return begin(request, new_rig, wait)


@pytest.fixture(scope="module")
def long(request: pytest.FixtureRequest, new_rig: Callable[[], Any]) -> Waits:
    """The real launcher; for the silent engines one that leaves the agents the limits they have of themselves."""

    def wait(rig: Any, agent: str, silent: bool) -> Any:
        limit_s = AGENTS[agent].default_s if silent else None
        throttle = {"FT_THROTTLE_TOKENS_PER_S": str(AGENTS[agent].tokens / LONG_S)}
        return launch(rig, agent, {**throttle, **(SILENT if silent else {})}, limit_s, timeout_s=900)

    return begin(request, new_rig, wait)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_prefill_longer_than_the_limit_on_silence(short: Waits, agent: str) -> None:
    turn = waited(short[agent, False].result(), agent, AGENTS[agent].limit_s * LONGER)
    assert turn["watchdog_s"] == AGENTS[agent].limit_s, turn


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", AGENTS)
def test_without_heartbeats_it_gives_up(short: Waits, agent: str) -> None:
    gave_up(short[agent, True].result(), agent, AGENTS[agent].limit_s)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_prefill_of_400_s(long: Waits, agent: str) -> None:
    turn = waited(long[agent, False].result(), agent, LONG_S)
    assert turn["watchdog_s"] > AGENTS[agent].default_s, turn


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("agent", AGENTS)
def test_400_s_of_silence_are_too_long_for_its_own_limit(long: Waits, agent: str) -> None:
    gave_up(long[agent, True].result(), agent, AGENTS[agent].default_s)


def begin(request: pytest.FixtureRequest, new_rig: Callable[[], Any], wait: Callable[[Any, str, bool], Any]) -> Waits:
    """Starts all launches that the selected tests ask for, at once."""
    here = [item for item in request.session.items if item.path == Path(__file__) and isinstance(item, pytest.Function)]
    wanted = {item.callspec.params["agent"] for item in here if request.fixturename in item.fixturenames}
    pool = ThreadPoolExecutor(2 * len(AGENTS))
    waits: Waits = {}
    for agent in AGENTS:
        for silent in (False, True) if agent in wanted else ():
            rig = new_rig()
            rig.install(agent)
            waits[agent, silent] = pool.submit(wait, rig, agent, silent)
    return waits


def launch(
    rig: Any, agent: str, environ: dict[str, str], limit_s: int | None, timeout_s: float, options: Sequence[str] = ()
) -> Any:
    if limit_s is not None:
        again = [AGAIN] if SILENT.items() <= environ.items() else []
        rig.ft = rig.folder / "ft.sh"
        command = [sys.executable, str(IMPATIENT), str(limit_s), *options, *again]
        rig.ft.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        rig.ft.chmod(0o755)
    rig.env |= {"FT_KV": "64k", **environ}
    script = {"turns": [{"blocks": [{"text": ANSWER}]}], "side": "Waiting"}
    return rig.launch(agent, *AGENTS[agent].args, model="tiny-hybrid", timeout_s=timeout_s, script=script)


def waited(run: Any, agent: str, prefill_s: float) -> dict[str, Any]:
    """The one request of an agent that had the patience."""
    assert run.code == 0 and ANSWER in run.stdout, run
    turns = shown(run, agent)
    assert len(turns) == 1, f"it tried again: {turns}"
    (turn,) = turns
    assert turn["end"] == "stop" and not turn["error"] and not turn["resent"], run
    assert turn["ttft_s"] >= prefill_s, f"{agent} waited for {turn['ttft_s']} s only: {turn['new_tokens']} new tokens"
    assert turn["heartbeats"] >= 2, turn
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"
    return dict(turn)


def gave_up(run: Any, agent: str, limit_s: int) -> None:
    first, *more = shown(run, agent)
    assert first["end"] == "client_gone" and not first["heartbeats"], run
    assert limit_s - 1 <= first["total_s"] <= limit_s * 1.25 + 5, first
    assert more or run.code != 0, f"what it had given up was answered: {run}"
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"


def shown(run: Any, agent: str) -> list[dict[str, Any]]:
    turns = sorted((r for r in run.requests if not r["side"]), key=lambda r: r["started"])
    names = ("end", "prompt_tokens", "new_tokens", "ttft_s", "total_s", "heartbeats")
    print(agent, run.wall_s, *({name: turn[name] for name in names} for turn in turns), sep="\n  ")
    return turns
