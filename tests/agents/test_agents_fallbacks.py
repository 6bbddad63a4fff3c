"""An engine that answers with errors, and paid fallbacks in the agents' own settings: nobody else is asked."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.agents.conftest import HERE
from tests.agents.entries import ANSWER, ENTRIES, Command
from tests.agents.homes import everything

pytestmark = [pytest.mark.agents, pytest.mark.slow]

ALWAYS = 100_000
NAMED = {  # as the plan names them
    "openclaw": ("anthropic/claude-opus", "paid/y"),
    "qwen": ("modelFallbacks",),
    "hermes": ("anthropic under fallback_providers",),
    "claude": ("fallbackModel",),
}
SCRIPT = {"turns": [{"blocks": [{"text": ANSWER}]}] * 4, "side": "A title"}
PORT = 1918


def arguments(agent: str) -> tuple[str, ...]:
    return next(way.args for way in ENTRIES[agent].values() if isinstance(way, Command))


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("agent", "failures", "status"),
    [
        ("openclaw", 1, 500),
        ("openclaw", ALWAYS, 500),
        ("qwen", 20, 503),
        ("qwen", ALWAYS, 503),
        ("qwen", ALWAYS, 429),
        ("hermes", ALWAYS, 503),
        ("claude", ALWAYS, 529),
    ],
)
def test_case_4_paid_fallbacks_stay_unused_when_the_engine_fails(
    rig: Any, agent: str, failures: int, status: int
) -> None:
    """For a while, or each time: the agent asks it again or says that it failed, and nobody else is asked."""
    rig.install(agent)
    rig.compute_nothing()
    rig.make_hostile(everything(agent))
    run = rig.launch(
        agent,
        *arguments(agent),
        model="tiny-hybrid",
        timeout_s=900 if failures == ALWAYS else 330,
        script=SCRIPT,
        through="failing.py",
        plan={"failures": failures, "status": status, "model": "tiny-hybrid"},
    )
    assert "asked " in run.stdout, run
    asked = int(run.stdout.split("asked ")[1].split()[0])
    print(run.code, asked, len(run.requests), run.wall_s)
    if failures < ALWAYS:
        assert run.code == 0 and ANSWER in run.stdout, run
        assert (
            asked > failures and len(run.requests) == asked - failures and not any(r["error"] for r in run.requests)
        ), run
    else:
        assert run.code not in (0, None) and asked >= 1 and not run.requests, run
    rig.assert_nothing_left(run)
    assert all(name in run.stderr for name in NAMED[agent]), "the fallbacks were not named"


@pytest.mark.timeout(400)
def test_case_4_without_ft_the_fallback_is_asked(rig: Any) -> None:
    """Otherwise the test above proves nothing: these settings, with a model of their own that fails as our engine did."""
    rig.install("qwen")
    settings = json.loads(json.dumps(everything("qwen").files[".qwen/settings.json"]))
    patience = {"maxRetries": 1, "retryInitialDelayMs": 100, "retryMaxDelayMs": 100}
    main = {"id": "main", "baseUrl": f"http://127.0.0.1:{PORT}/v1", "envKey": "PAID_KEY", "generationConfig": patience}
    settings["modelProviders"]["openai"].append(main)
    settings["model"] = {"name": "main"}
    settings["security"]["auth"]["selectedType"] = "openai"
    rig.keep(".qwen/settings.json", json.dumps(settings))
    rig.env["PAID_KEY"] = "sk-real"
    plan = {"argv": ["qwen", *arguments("qwen")], "failures": ALWAYS, "status": 503, "port": PORT}
    (rig.folder / "plan.json").write_text(json.dumps(plan))
    seen = rig.run([sys.executable, str(HERE / "failing.py"), str(rig.folder / "plan.json")], timeout_s=300)
    assert "user.example.com" in seen["names"], seen
