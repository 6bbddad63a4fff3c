"""`ft doctor --agent NAME --probe` with the published agents: every assumption of their cards holds for the pinned version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.conftest import BIN

pytestmark = pytest.mark.agents
AGENTS = ("pi", "codex", "claude", "opencode", "openclaw", "qwen", "hermes")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("agent", [pytest.param(n, marks=() if n == "codex" else pytest.mark.slow) for n in AGENTS])
def test_the_card_holds(rig: Any, agent: str) -> None:
    rig.install(agent)
    report = rig.run([str(BIN / "ft"), "doctor", "--agent", agent, "--probe", "--json"], timeout_s=200)
    result = report["results"][0]
    assert result["code"] == 0, result
    checks = {check["id"]: check for check in json.loads(result["stdout"])["checks"]}
    probes = {name: check for name, check in checks.items() if name.startswith("probe ")}
    assert {"probe endpoint", "probe key", "probe model", "probe first request", "probe egress"} <= set(probes), probes
    wrong = {name: check for name, check in probes.items() if check["status"] not in ("OK", "SKIP")}
    assert not wrong
    assert not [path for path in rig.home.rglob("*") if agent in path.name], "the probe left something in the home"
