"""A published agent's session over everything that can end it: a reboot, a kill, a lost worktree, the terminal it runs in."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.agents.conftest import BIN

pytestmark = [pytest.mark.agents, pytest.mark.timeout(420)]

FT = str(BIN / "ft")
FIRST, SECOND = "Say it.", "Say it once more."
LS = [FT, "ls", "--json"]
AT_WORK = ("running", "thinking", "prefill", "detached")
STOP = [FT, "engine", "stop"]


def scripted(rig: Any, *turns: dict[str, Any]) -> list[str]:
    path = rig.folder / "script.json"
    path.write_text(
        json.dumps({"turns": list(turns), "side": "A title", "compaction": ["<summary>All is said.</summary>"]})
    )
    return ["-m", "tiny-hybrid", "--script", str(path)]


def text(words: str) -> dict[str, Any]:
    return {"blocks": [{"text": words}]}


def shell(command: str) -> dict[str, Any]:
    return {"blocks": [{"tool": "bash", "args": {"command": command}}]}


def sessions(result: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result["stdout"])["sessions"]
    return found


def test_a_reboot_and_a_kill_in_the_middle(rig: Any) -> None:
    """The namespace takes engine and agent with it, unasked, as a power cut does; the runtime folder is gone afterwards."""
    rig.install("pi")
    options = scripted(
        rig, text("Answer one."), shell("touch started; sleep 60"), text("Answer three."), text("Answer four.")
    )
    first = rig.run([FT, "launch", "pi", *options, "--", "-p", FIRST], timeout_s=120)["results"]
    assert first[0]["code"] == 0, first
    shutil.rmtree(rig.folder / "ft" / "runtime")
    killed = ["timeout", "-s", "KILL", "25", FT, "resume", *options, "--", "-p", SECOND]
    second = rig.run(LS, killed, timeout_s=120)["results"]
    assert [(one["status"], len(one["runs"])) for one in sessions(second[0])] == [("ended", 1)]
    assert second[1]["code"] in (137, -9) and (rig.project / "started").exists(), second
    shutil.rmtree(rig.folder / "ft" / "runtime")
    options = scripted(rig, text("Answer one."), shell("true"), text("Answer three."), text("Answer four."))
    again = [FT, "resume", *options, "--", "-p", "Go on."]
    third = rig.run(LS, again, LS, STOP, timeout_s=120)["results"]
    (crashed,) = sessions(third[0])
    assert (crashed["status"], len(crashed["runs"]), crashed["runs"][-1]["end"]) == ("crashed", 2, None)
    assert third[1]["code"] == 0 and "resuming:" in third[1]["stderr"], third[1]
    assert "Answer three." in third[1]["stdout"] or "Answer four." in third[1]["stdout"], "it began anew"
    (ended,) = sessions(third[2])
    assert (ended["id"], ended["status"], len(ended["runs"])) == (crashed["id"], "ended", 3)
    assert {one["id"] for one in ended["harness"]} == {one["id"] for one in crashed["harness"]}


def test_a_worktree_is_worked_in_lost_and_made_again(rig: Any) -> None:
    rig.install("pi")
    rig.compute_nothing()
    ft = str(rig.ft)
    place = rig.project.with_name("project.worktrees") / "fix"
    options = scripted(
        rig, shell("pwd > where; git branch --show-current >> where"), text("Answer one."), text("Answer two.")
    )
    seen = rig.run(
        [ft, "launch", "pi", "--worktree", "fix", *options, "--", "-p", FIRST],
        ["cat", str(place / "where")],
        ["git", "worktree", "remove", "--force", str(place)],
        [ft, "resume", *options, "--", "-p", SECOND],
        [ft, "resume", "--worktree", *options, "--", "-p", SECOND],
        LS, STOP,
        timeout_s=120,
    )["results"]  # fmt: skip
    assert [result["code"] for result in seen] == [0, 0, 0, 4, 0, 0, 0], seen
    assert seen[1]["stdout"] == f"{place}\nft/fix\n" and not (rig.project / "where").exists()
    assert "--worktree" in seen[3]["stderr"] and "Answer two." in seen[4]["stdout"]
    (session,) = sessions(seen[5])
    assert session["project"]["worktree"]["path"] == str(place) and place.is_dir() and len(session["runs"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_the_background_and_back(rig: Any) -> None:
    """Two that work in tmux at the same time on one engine; one is stopped, goes on in the foreground, and the other never noticed."""
    rig.install("pi")
    options = scripted(rig, shell("touch at-work-$PPID; sleep 40"), text("Answer two."), text("Answer three."))
    detached = [FT, "launch", "pi", "--detach", *options]
    seen = rig.run(
        [*detached, "-n", "one", "--", "-p", FIRST],
        [FT, "launch", "mini", "--detach", *options, "--force", "-n", "two", "--", FIRST],
        ["timeout", "60", "bash", "-c", "until [ $(ls at-work-* | wc -l) = 2 ]; do sleep 0.2; done"],
        LS,
        [FT, "resume", "one", *options, "--", "-p", SECOND],
        [FT, "sessions", "stop", "one"],
        LS,
        [FT, "resume", "one", *options, "--", "-p", SECOND],
        ["timeout", "90", "bash", "-c", f"while {FT} sessions stop two --dry-run; do sleep 1; done"],
        LS, STOP,
        timeout_s=120,
    )["results"]  # fmt: skip
    assert [result["code"] for result in seen] == [0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0], seen
    assert {one["name"] for one in sessions(seen[3]) if one["status"] in AT_WORK} == {"one", "two"}
    assert "still attached" in seen[4]["stderr"]
    then = {one["name"]: one["status"] for one in sessions(seen[6])}
    assert then["one"] == "ended" and then["two"] in AT_WORK
    ended = {one["name"]: one for one in sessions(seen[9])}
    assert [run["exit"] for run in ended["two"]["runs"]] == [0] and ended["two"]["runs"][0]["tmux"]
    assert [run["tmux"] is None for run in ended["one"]["runs"]] == [False, True]
    assert ended["one"]["runs"][0]["exit"] == 143 and ended["one"]["runs"][1]["exit"] == 0
