"""Every way into each agent, in a home, a project and a shell that want it elsewhere: all requests reach our engine (case 2)."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest

from tests.agents.entries import ANSWER, ENTRIES, PROMPT, WAIT_S, Command, Screen, Talk
from tests.agents.homes import CLAUDE_LOGIN, CODEX_LOGIN, everything
from tests.agents.said import joined, known, notes

pytestmark = pytest.mark.agents

SCRIPT = {"turns": [{"blocks": [{"text": ANSWER}]}] * 8, "side": "A title"}
FAST = {("pi", "rpc")}
UUID = 36
WAYS = [
    pytest.param(agent, name, marks=() if (agent, name) in FAST else pytest.mark.slow, id=f"{agent}-{name}")
    for agent, ways in ENTRIES.items()
    for name, way in ways.items()
    if not isinstance(way, Command)  # with these everything is tried in test_agents_hostile
]


def go(rig: Any, agent: str, way: Screen | Talk, *options: str, script: Any = SCRIPT, timeout_s: float = 330) -> Any:
    through = "typist.py" if isinstance(way, Screen) else "talk.py"
    if isinstance(way, Screen) and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    return rig.launch(
        agent,
        *way.args,
        model="tiny-hybrid",
        timeout_s=timeout_s,
        script=script,
        options=options,
        through=through,
        plan=way.plan(),
    )


def assert_answered(rig: Any, run: Any, allowed: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    assert run.code == 0, run
    assert ANSWER.split(",")[0] in joined(run.stdout), run
    own = [request for request in run.requests if not request["side"]]
    assert own and all(request["session"] and not request["error"] for request in run.requests), run
    assert len({request["session"] for request in run.requests}) == 1
    assert set(run.lookups) <= allowed, run
    rig.assert_nothing_left(replace(run, lookups=[]))


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("agent", "name"), WAYS)
def test_case_2_every_way_in(rig: Any, agent: str, name: str) -> None:
    rig.install(agent)
    rig.compute_nothing()
    rig.make_hostile(everything(agent))
    way = ENTRIES[agent][name]
    assert isinstance(way, Screen | Talk)
    with notes(rig, agent, way):
        run = go(rig, agent, way)
    assert_answered(rig, run, known(rig, agent, way))


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("verb", ["resume", "fork"])
def test_case_2_codex_goes_on_in_its_screen(rig: Any, verb: str) -> None:
    rig.install("codex")
    rig.compute_nothing()
    rig.make_hostile(everything("codex"))
    way = ENTRIES["codex"]["screen"]
    assert isinstance(way, Screen)
    first = rig.launch(
        "codex", "exec", "-s", "danger-full-access", PROMPT, model="tiny-hybrid", timeout_s=120, script=SCRIPT
    )
    assert first.code == 0, first
    (record,) = rig.home.glob(".codex/sessions/*/*/*/*.jsonl")
    # what exec said is no interactive session: its screen goes on with it when asked to, and forks it by its id
    said = {"resume": ["--last", "--include-non-interactive"], "fork": [record.stem[-UUID:]]}[verb]
    second = "And once more."
    plan = way.plan("Again.", second)
    plan["steps"].insert(0, {"see": ANSWER.split(",")[0], "within_s": WAIT_S})  # what was said before
    script = {"turns": [{"blocks": [{"text": ANSWER}]}, {"blocks": [{"text": second}]}], "side": "A title"}
    args, model = (verb, *said), "tiny-hybrid"
    with notes(rig, "codex", way):
        run = rig.launch("codex", *args, model=model, timeout_s=330, script=script, through="typist.py", plan=plan)
    assert run.code == 0 and second in run.stdout, run
    assert [request["error"] for request in run.requests if not request["side"]] == [None], run
    assert set(run.lookups) <= known(rig, "codex", way), run
    rig.assert_nothing_left(replace(run, lookups=[]))


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_codex_server_of_the_users_that_is_running_is_not_asked(rig: Any) -> None:
    """It was started with the user's own keys and providers, and Codex' screen would use it where it finds one."""
    rig.install("codex")
    rig.compute_nothing()
    rig.make_hostile(everything("codex"))
    way = ENTRIES["codex"]["screen"]
    assert isinstance(way, Screen)
    run = rig.launch(
        "codex",
        model="tiny-hybrid",
        timeout_s=330,
        script=SCRIPT,
        through="typist.py",
        plan=way.plan(),
        before=[["codex", "app-server", "daemon", "start"]],
    )
    assert run.code == 0 and ANSWER.split(",")[0] in run.stdout, run
    assert [request["error"] for request in run.requests if not request["side"]] == [None], run
    assert run.secrets == [] and run.no_routes == 0, run


@pytest.mark.timeout(420)
@pytest.mark.parametrize("login", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.slow)])
def test_case_5_no_wizard_comes_before_the_prompt(rig: Any, agent: str, login: bool) -> None:
    """With a login of the vendor, which is there afterwards, and in a home where the agent never ran."""
    rig.install(agent)
    rig.compute_nothing()
    if login:
        seen = {"hasCompletedOnboarding": True, "theme": "dark", "oauthAccount": {"accountUuid": "a"}}
        rig.keep(".claude.json", json.dumps(seen))
        rig.keep(".claude/.credentials.json", json.dumps(CLAUDE_LOGIN))
        rig.keep(".codex/auth.json", json.dumps(CODEX_LOGIN))
    kept = [rig.home / ".claude" / ".credentials.json", rig.home / ".codex" / "auth.json"]
    before = [file.read_text() for file in kept if file.exists()]
    way = ENTRIES[agent]["screen"]
    assert isinstance(way, Screen)
    run = go(rig, agent, way)
    assert_answered(rig, run, known(rig, agent, way))
    assert [file.read_text() for file in kept if file.exists()] == before
    assert not (rig.home / ".local").exists(), "it set itself up on the user's desktop"
    if login:
        facts = json.loads((rig.home / ".claude.json").read_text())
        assert facts["oauthAccount"] == {"accountUuid": "a"} and facts["hasCompletedOnboarding"]
    else:
        assert not (rig.home / ".claude.json").exists() or agent != "claude", "set up in the user's stead"


NEW_VERSION = """#!/bin/sh
[ "$1" = --version ] && echo "99.1.0" && exit 0
exec {real} "$@"
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "agent", ["pi", pytest.param("claude", marks=pytest.mark.slow), pytest.param("codex", marks=pytest.mark.slow)]
)
def test_case_14_a_version_nobody_has_checked(rig: Any, agent: str) -> None:
    """It is said, and the launch works: pinned to our engine like any other, its edits watched instead of foreseen."""
    rig.install(agent)
    rig.compute_nothing()
    real = shutil.which(agent, path=rig.env["PATH"])
    newer = rig.folder / "newer"
    newer.mkdir()
    (newer / agent).write_text(NEW_VERSION.format(real=real))
    (newer / agent).chmod(0o755)
    rig.env["PATH"] = f"{newer}:{rig.env['PATH']}"
    rig.make_hostile(everything(agent))
    args = next(way.args for way in ENTRIES[agent].values() if isinstance(way, Command))
    run = rig.launch(agent, *args, model="tiny-hybrid", timeout_s=120, script=SCRIPT)
    assert_answered(rig, run)
    assert "99.1.0 has not been checked" in run.stderr, run
    assert run.session["version"] == "99.1.0"
