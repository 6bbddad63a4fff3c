"""Published agents go on with their conversations after the agent, the engine and the folder's name have gone."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.agents.conftest import BIN
from tests.agents.entries import ENTRIES, WAIT_S, Screen

pytestmark = pytest.mark.agents

FT = str(BIN / "ft")
FIRST, SECOND, ANEW = "Say it.", "Say it once more.", "Begin anew."
ARGS = {
    "pi": ("-p",),
    "claude": ("-p",),
    "codex": ("exec", "-s", "danger-full-access", "--skip-git-repo-check"),
    "opencode": ("run",),
}
SCRIPT = {"turns": [{"blocks": [{"text": f"Answer {n}."}]} for n in ("one", "two", "three")], "side": "A title"}
REST = 400  # tokens of the new turn, with what an agent puts around it


def agent_turns(shown: dict[str, Any]) -> list[dict[str, Any]]:
    found = json.loads(shown["stdout"])["requests"]
    return [r for r in found if not r["side"]]


@pytest.mark.timeout(420)
@pytest.mark.parametrize("agent", [n if n == "pi" else pytest.param(n, marks=pytest.mark.slow) for n in ARGS])
def test_a_conversation_goes_on_and_forks(rig: Any, agent: str) -> None:
    rig.install(agent)
    script = rig.folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    options = ["-m", "tiny-hybrid", "--script", str(script)]
    look, ls, stop = [FT, "ctl", "requests", "--json"], [FT, "ls", "--json"], [FT, "engine", "stop"]
    seen = rig.run(
        [FT, "launch", agent, *options, "--", *ARGS[agent], FIRST],
        look, stop, ls,
        [FT, "resume", *options, "--", *ARGS[agent], SECOND],
        look, stop, ls,
        [FT, "launch", "--fork", agent, *options, "--", *ARGS[agent], SECOND],
        ls, stop,
        timeout_s=120,
    )["results"]  # fmt: skip
    assert [result["code"] for result in seen] == [0] * len(seen), seen
    (cold,), (warm,) = agent_turns(seen[1]), agent_turns(seen[5])
    print({name: (cold[name], warm[name]) for name in ("prompt_tokens", "cached_tokens", "new_tokens", "tier")})
    assert "Answer two." in seen[4]["stdout"], "the agent did not go on"
    assert "resuming:" in seen[4]["stderr"]
    assert warm["replayed_tokens"] + warm["new_tokens"] < REST < warm["cached_tokens"]
    (first,), (again,) = (json.loads(seen[number]["stdout"])["sessions"] for number in (3, 7))
    assert (again["id"], again["status"], len(again["runs"])) == (first["id"], "ended", 2)
    assert again["harness"][-1]["id"] == first["harness"][-1]["id"]
    sessions = json.loads(seen[9]["stdout"])["sessions"]
    fork = next(session for session in sessions if session["id"] != first["id"])
    assert fork["parent"] == first["id"]
    assert fork["harness"][-1]["id"] != first["harness"][-1]["id"]


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("agent", ARGS)
def test_a_renamed_project_goes_on(rig: Any, agent: str) -> None:
    rig.install(agent)
    script = rig.folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    options = ["-m", "tiny-hybrid", "--script", str(script)]
    first = rig.run([FT, "launch", agent, *options, "--", *ARGS[agent], FIRST], [FT, "engine", "stop"], timeout_s=120)
    assert first["results"][0]["code"] == 0, first
    rig.project = rig.project.rename(rig.folder / "renamed")
    resume = [FT, "resume", *options, "--", *ARGS[agent], SECOND]
    again = rig.run(resume, [FT, "engine", "stop"], timeout_s=120)["results"][0]
    assert again["code"] == 0 and "Answer two." in again["stdout"], again


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_clear_begins_a_conversation_and_the_session_goes_on_with_that(rig: Any) -> None:
    rig.install("claude")
    rig.keep(".claude.json", json.dumps({"hasCompletedOnboarding": True, "theme": "dark"}))
    anew = {"match": ANEW, "turns": [{"blocks": [{"text": f"Anew {n}."}]} for n in ("one", "two")]}
    script = {**SCRIPT, "subagents": [anew]}
    screen = ENTRIES["claude"]["screen"]
    assert isinstance(screen, Screen)
    plan = screen.plan(FIRST, "Answer one.")
    plan["steps"] += [
        {"type": "/clear"},
        {"press": ["Enter"]},
        {"gone": r"Answer one\.", "within_s": 30, "again": ["Enter"]},
        {"type": ANEW},
        {"press": ["Enter"]},
        {"see": r"Anew one\.", "within_s": WAIT_S, "again": ["Enter"]},
    ]
    run = rig.launch("claude", model="tiny-hybrid", timeout_s=400, script=script, through="typist.py", plan=plan)
    assert run.code == 0, run
    options = ["-m", "tiny-hybrid", "--script", str(rig.folder / "script.json")]
    seen = rig.run(
        [FT, "ls", "--json"],
        [FT, "resume", *options, "--", "-p", SECOND],
        [FT, "ls", "--json"],
        [FT, "engine", "stop"],
        timeout_s=120,
    )["results"]
    assert [result["code"] for result in seen] == [0] * 4, seen
    (session,), (resumed,) = (json.loads(seen[number]["stdout"])["sessions"] for number in (0, 2))
    first, second = session["harness"]
    assert (first["ended_by"], second["ended_by"], session["status"]) == ("clear", "exit", "ended")
    assert "Anew two." in seen[1]["stdout"], "it went on with the conversation that was cleared"
    said = {path.stem: path.read_text() for path in rig.home.glob(".claude/projects/*/*.jsonl")}
    assert ANEW not in said[first["id"]] and FIRST not in said[second["id"]]
    assert SECOND in said[second["id"]] and SECOND not in said[first["id"]]
    assert resumed["id"] == session["id"] and resumed["harness"][-1]["id"] == second["id"]
    assert len(resumed["harness"]) == len(resumed["runs"]) == 2
