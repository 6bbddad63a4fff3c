"""The published agents wait for a slow prefill: exactly one request, never a retry, whatever their watchdogs say.

Prefill is throttled. The short variant shortens the limit that the launcher gives the agent along with it: the first token
comes later than that limit, and only heartbeats that the agent counts as life carry it there. The full one is 400 seconds
long, which is more than every agent's own limit on silence.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytestmark = pytest.mark.agents

ANSWER = "It was worth the wait."
TASK = "Say that it was worth the wait."
ARGS = {
    "claude": ("-p", TASK),
    "codex": ("exec", "-s", "danger-full-access", TASK),
    "opencode": ("run", TASK),
    "openclaw": ("agent", "--local", "--agent", "main", "--message", TASK),
}
# Tokens of each agent's first prompt in the test model's tokens, at least; more only makes the wait longer.
LEAST_TOKENS = {"claude": 9_000, "codex": 7_000, "opencode": 6_000, "openclaw": 9_000}

LIMIT_S = 6
# The real launcher with another limit on silence than an hour, which it writes into the agent's own settings as always.
IMPATIENT = """#!{python}
from harnesses.contract import LaunchContext
init = LaunchContext.__init__
def impatient(self, *values, **fields):
    init(self, *values, **{{"silence_limit_s": {seconds}, **fields}})
LaunchContext.__init__ = impatient
from ftagent.cli import main
raise SystemExit(main())
"""


def wait(rig: Any, agent: str, prefill_s: float, environ: dict[str, str], timeout_s: float) -> Any:
    rig.install(agent)
    rig.env |= {"FT_THROTTLE_TOKENS_PER_S": str(LEAST_TOKENS[agent] / prefill_s), **environ}
    script = {"turns": [{"blocks": [{"text": ANSWER}]}], "side": "Waiting"}
    run = rig.launch(agent, *ARGS[agent], model="tiny-hybrid", timeout_s=timeout_s, script=script)
    assert run.code == 0 and ANSWER in run.stdout, run
    (turn,) = [request for request in run.requests if not request["side"]]
    print(agent, {name: turn[name] for name in ("prompt_tokens", "new_tokens", "ttft_s", "heartbeats")})
    assert turn["end"] == "stop" and not turn["error"] and not turn["resent"], run
    assert turn["ttft_s"] >= prefill_s, f"{agent} waited for {turn['ttft_s']} s only: {turn['new_tokens']} new tokens"
    assert turn["heartbeats"] >= 2, turn
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"
    return turn


@pytest.mark.timeout(150)
@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_a_prefill_longer_than_the_limit_on_silence(rig: Any, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ft = rig.folder / "bin" / "ft"
    ft.parent.mkdir()
    ft.write_text(IMPATIENT.format(python=sys.executable, seconds=LIMIT_S))
    ft.chmod(0o755)
    monkeypatch.setitem(type(rig).launch.__globals__, "BIN", ft.parent)
    turn = wait(rig, agent, LIMIT_S + 2.0, {"FT_HEARTBEAT_S": "2"}, timeout_s=120)
    assert turn["watchdog_s"] in (LIMIT_S, None), turn  # None: the agent waits for ever


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("agent", ARGS)
def test_a_prefill_of_400_s(rig: Any, agent: str) -> None:
    wait(rig, agent, 400.0, {}, timeout_s=1300)
