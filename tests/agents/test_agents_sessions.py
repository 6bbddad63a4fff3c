"""The published agents, each in a whole session on our engine: read, bash, edit, answer. Nothing leaves loopback."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.agents

TASK = "Repair the function add in calc.py."
ANSWER = "Repaired: add now adds its two numbers."
SIDE = "Repair of calc"


@dataclass(frozen=True)
class Case:
    args: tuple[str, ...]
    sides: int | None  # requests besides the four turns, titles and the like; None: more or less of them
    timeout_s: float = 240
    checks: int = 0  # so often at most it asks once more whether what it did was verified


CASES = {
    "mini": Case((TASK,), sides=0),
    "pi": Case(("-p", TASK), sides=0),
    "opencode": Case(("run", TASK), sides=1),
    "claude": Case(("-p", TASK, "--allowedTools", "Bash,Read,Edit"), sides=0),
    "codex": Case(("exec", "-s", "danger-full-access", TASK), sides=0),
    "openclaw": Case(("agent", "--local", "--agent", "main", "--message", TASK), sides=0, timeout_s=280),
    "qwen": Case(("--yolo", TASK), sides=None),
    "hermes": Case(("chat", "--yolo", "-Q", "-q", TASK), sides=None, checks=2),
}
SLOW = ("openclaw", "qwen", "hermes")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_scripted_session(rig: Any, agent: str) -> None:
    case = CASES[agent]
    if agent != "mini":
        rig.install(agent)
    turns_said = script(rig.project)
    turns_said["turns"] += [{"blocks": [{"text": ANSWER}]}] * case.checks
    run = rig.launch(agent, *case.args, model="tiny-hybrid", timeout_s=case.timeout_s, script=turns_said)
    assert run.code == 0, run
    assert ANSWER in run.stdout, run
    assert (rig.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n", run
    assert (rig.project / "seen.txt").read_text() == "    return a - b\n", "bash ran before the edit"
    turns = [request for request in run.requests if not request["side"]]
    assert 4 <= len(turns) <= 4 + case.checks, run
    assert [request["end"] for request in turns] == [*["tool_use"] * 3, *["stop"] * (len(turns) - 3)], run
    assert len(run.requests) - len(turns) == case.sides or case.sides is None, run
    assert all(request["session"] and request["scripted"] and not request["error"] for request in run.requests)
    assert len({request["session"] for request in run.requests}) == 1
    assert all(later["cached_tokens"] > 0 for later in turns[1:]), "a later turn found nothing of the one before it"
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"


def script(project: Path) -> dict[str, Any]:
    calc = str(project / "calc.py")
    return {
        "turns": [
            {"blocks": [{"thinking": "Look first."}, {"text": "I read it."}, {"tool": "read", "args": {"path": calc}}]},
            {"blocks": [{"tool": "bash", "args": {"command": f"grep return {calc} > {project}/seen.txt"}}]},
            {"blocks": [{"tool": "edit", "args": {"path": calc, "old": "return a - b", "new": "return a + b"}}]},
            {"blocks": [{"text": ANSWER}]},
        ],
        "side": SIDE,
    }


@pytest.mark.timeout(120)
@pytest.mark.parametrize("agent", ["qwen", "hermes"])
def test_a_window_that_is_too_small_is_refused(rig: Any, agent: str) -> None:
    rig.install(agent)
    rig.compute_nothing()
    run = rig.launch(agent, *CASES[agent].args, model="tiny-hybrid", timeout_s=60, options=("--ctx", "48k"))
    assert run.code == 5 and "needs a window of 64,000 tokens" in run.stderr, run
    assert run.requests == []


@pytest.mark.timeout(600)
def test_free_form_answer(rig: Any) -> None:
    """Unscripted: the answer is the default model's own."""
    rig.install("pi")
    run = rig.launch("pi", "-p", "What is the capital of France?", model="smollm2-moe", timeout_s=200)
    assert run.code == 0, run
    assert "Paris" in run.stdout, run
    assert not any(request["scripted"] for request in run.requests) and run.requests
    assert (run.lookups, run.no_routes) == ([], 0)
