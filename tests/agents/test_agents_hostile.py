"""The published agents among settings, logins and keys that point elsewhere: all of it reaches our engine all the same."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.conftest import BIN, HERE, sent
from tests.agents.entries import ANSWER, ENTRIES, Command, Screen, Talk
from tests.agents.homes import CHANNELS, IMPOSSIBLE, KINDS, everything
from tests.agents.said import joined, known, notes

pytestmark = pytest.mark.agents

LONG_S = {"openclaw": 600}  # of which 15 s are its own on an idle core; a busy machine has little to give
FAST = ("claude", "codex", "opencode")
SCRIPT = {"turns": [{"blocks": [{"text": ANSWER}]}] * 4, "side": "A title"}
WAYS = [pytest.param(agent, name, id=f"{agent}-{name}") for agent, ways in ENTRIES.items() for name in ways]


def arguments(agent: str) -> tuple[str, ...]:
    """Of the way in with a prompt as an argument."""
    return next(entry.args for entry in ENTRIES[agent].values() if isinstance(entry, Command))


def some(agents: Any, *fast: str) -> list[Any]:
    """Parameters of which only `fast` are in the short run."""
    return [pytest.param(agent, marks=() if agent in fast else pytest.mark.slow) for agent in agents]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("agent", some(CHANNELS, *FAST))
def test_nothing_goes_elsewhere(rig: Any, agent: str) -> None:
    """All that a home, a project and a shell can hold against it, at once; and the agent's own commands see no key."""
    rig.install(agent)
    rig.compute_nothing()
    rig.make_hostile(everything(agent))
    look = f"env > {rig.project}/env.txt"
    turns = [{"blocks": [{"tool": "bash", "args": {"command": look}}]}, {"blocks": [{"text": ANSWER}]}]
    script = {"turns": turns, "side": "A title"}
    run = rig.launch(agent, *arguments(agent), model="tiny-hybrid", timeout_s=LONG_S.get(agent, 120), script=script)
    assert run.code == 0, run
    assert ANSWER in run.stdout, run
    assert [request["end"] for request in run.requests if not request["side"]] == ["tool_use", "stop"], run
    rig.assert_nothing_left(run)
    assert "sk-real" not in (rig.project / "env.txt").read_text(), "the agent's own commands saw a key"


def test_every_channel_is_tried_or_cannot_be() -> None:
    assert {agent: KINDS - set(channels) for agent, channels in CHANNELS.items()} == {
        agent: IMPOSSIBLE.get(agent, set()) for agent in ENTRIES
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("agent", "name"), WAYS)
def test_each_channel_alone(rig: Any, new_rig: Any, agent: str, name: str) -> None:
    """One of them may hide another: each has a home, a project and a shell of its own here, before the same engine."""
    way = ENTRIES[agent][name]
    if isinstance(way, Screen) and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    rig.install(agent)
    rig.compute_nothing()
    script = rig.folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    places, commands = {}, []
    for channel, hostile in CHANNELS[agent].items():
        places[channel] = place = new_rig()
        place.make_hostile(hostile)
        env = {**place.env, **{name: rig.env[name] for name in ("FT_HOME", "PATH")}}
        env |= {"TERM": "screen"} if isinstance(way, Screen) else {}
        pairs = [f"{name}={value}" for name, value in env.items()]
        launch = [str(rig.ft), "launch", agent, "-m", "tiny-hybrid", "--script", str(script), "--", *way.args]
        commands.append(through(place, way, ["env", "-i", "-C", str(place.project), *pairs, *launch]))
    rig.secrets = next(iter(places.values())).secrets
    after = [[str(BIN / "ft"), "ctl", "requests", "--json", "-n", "200"], [str(BIN / "ft"), "engine", "stop"]]
    with contextlib.ExitStack() as stack:
        for place in places.values():
            stack.enter_context(notes(place, agent, way))
        seen = rig.run(*commands, at_once=2, after=after, timeout_s=LONG_S.get(agent, 180))
    *launches, listed, _ = seen["results"]
    for channel, launched in zip(places, launches, strict=True):
        answered = ANSWER.split(",")[0] in joined(launched["stdout"])
        assert launched["code"] == 0 and answered, (channel, launched)
        assert not list(places[channel].folder.rglob("helper-ran")), channel
        for path, text in places[channel].kept.items():
            assert path.read_text() == text, f"{channel}: {path} was changed"
    requests = [request for request in json.loads(listed["stdout"])["requests"] if not request["side"]]
    assert not [request for request in requests if request["error"]]
    assert len({request["session"] for request in requests}) == len(places)
    allowed = {name for place in places.values() for name in known(place, agent, way)} | {"localhost"}
    assert set(seen["names"]) <= allowed, "something tried to leave this machine"
    assert (seen["no_routes"], sent(seen, agent)) == (0, []), "something tried to leave this machine"


def through(place: Any, way: Screen | Talk | Command, command: list[str]) -> list[str]:
    """The command, with a person at its screen or a program at its pipes where it needs one."""
    if isinstance(way, Command):
        return command
    path = place.folder / "plan.json"
    text = json.dumps({**way.plan(), "argv": command, "folder": str(place.folder)})
    path.write_text(text.replace("{cwd}", str(place.project)))
    return [sys.executable, str(HERE / ("typist.py" if isinstance(way, Screen) else "talk.py")), str(path)]


SAY = """
import base64, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
{}
print("said", flush=True)
time.sleep(600)
"""


def test_the_watcher_sees_what_is_sent(rig: Any) -> None:
    """To whatever port, as it is or as the password of a basic login; and what an agent's own server says is told apart."""
    rig.secrets = ["sk-real", "sk-other", "sk-third", "sk-own", "sk-unsent"]
    python = Path(sys.executable).resolve()
    own = rig.folder / "opencode"
    own.symlink_to(python)
    told = {
        "client.sendall(b'x sk-real')": python,
        "accepted.sendall(b'sk-other')": python,
        "client.sendall(b'Basic ' + base64.b64encode(b'me:sk-third'))": python,
        "accepted.sendall(b'sk-own')": own,
    }
    begin = '"$0" -c "$1" > said & while ! [ -s said ]; do sleep 0.1; done; rm said'  # it goes on, as a server does
    commands = (["sh", "-c", begin, str(program), SAY.format(line)] for line, program in told.items())
    report = rig.run(*commands, timeout_s=60)
    assert [result["code"] for result in report["results"]] == [0] * len(told)
    assert sent(report) == ["sk-other", "sk-own", "sk-real", "sk-third"]
    assert sent(report, "opencode") == ["sk-other", "sk-real", "sk-third"]
    assert "sk-own" in sent(report, "claude")


def test_the_namespace_notices_who_tries(rig: Any) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=2)"
    report = rig.run(
        ["python3", "-c", connect],
        ["getent", "hosts", "api.example.com"],
        ["getent", "hosts", "localhost"],
        timeout_s=10,
    )
    assert "api.example.com" in report["names"]
    assert report["no_routes"] >= 1
    assert [result["code"] == 0 for result in report["results"]] == [False, False, True]


@pytest.mark.timeout(120)
def test_case_10_a_project_with_packages_of_our_names(rig: Any) -> None:
    """Its folders and its PYTHONPATH do not reach ft or the engine, and the agent still has that PYTHONPATH."""
    for name in ("engine", "harnesses", "ftagent", "tests"):
        rig.keep(f"project/{name}/__init__.py", "raise SystemExit('the project was imported')\n")
    rig.env["PYTHONPATH"] = "."
    look = 'echo "$PYTHONPATH" > seen.txt'
    turns = [{"blocks": [{"tool": "bash", "args": {"command": look}}]}, {"blocks": [{"text": ANSWER}]}]
    run = rig.launch("mini", "Say it.", model="tiny-hybrid", timeout_s=60, script={"turns": turns})
    assert run.code == 0 and ANSWER in run.stdout, run
    assert (rig.project / "seen.txt").read_text() == ".\n"
