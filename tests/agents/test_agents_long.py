"""The published agents in sessions long enough to compact: large outputs, no token computed twice, the edit foreseen."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.records import table

pytestmark = pytest.mark.agents

ANSWER = "All of it is read, and the parts agree."
SUMMARY = (
    "<summary>\nThe parts so far were read; nothing in them contradicts another. Go on with the next part.\n</summary>"
)
FILE_BYTES = 20_000
FRAME_TOKENS = 16


@dataclass(frozen=True)
class Case:
    """`prompts` user texts with `reads` files read after each; `ctx` is the window the agent is told."""

    ctx: str
    args: tuple[str, ...]
    after: tuple[str, ...] = ()  # arguments behind the prompts
    prompts: int = 1
    reads: int = 13
    foreseen: bool = False  # its declaration, or its hints, name the place where the compacted prompt forks
    exact: bool = False  # a checkpoint lies exactly there
    settings: tuple[str, str] | None = None  # a file of the user: its path below the home, and its text
    timeout_s: float = 380

    @property
    def steps(self) -> int:
        return self.prompts * (self.reads + 1)


CASES = {
    # pi compacts between two runs of its agent, never inside one, by limits of its user
    "pi": Case(
        "32k",
        ("-p",),
        prompts=3,
        reads=3,
        foreseen=True,
        settings=(
            ".pi/agent/settings.json",
            '{"compaction": {"enabled": true, "reserveTokens": 10000, "keepRecentTokens": 6000}}',
        ),
    ),
    "opencode": Case("40k", ("run",), foreseen=True),
    # it cuts what a command prints
    "codex": Case("28k", ("exec", "-s", "danger-full-access"), foreseen=True, exact=True),
    # after a compaction it shows the files it read last once more
    "claude": Case("96k", ("-p",), reads=16, after=("--allowedTools", "Bash,Read,Edit"), foreseen=True, exact=True),
}
MARKS: dict[str, Any] = {"pi": ()}


@pytest.mark.timeout(420)
@pytest.mark.parametrize("agent", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in CASES])
def test_long_session(rig: Any, agent: str) -> None:
    case = CASES[agent]
    rig.install(agent)
    if case.settings is not None:
        rig.keep(*case.settings)
    paths = files(rig.project, case.prompts * case.reads)
    prompts = [f"Read part {number + 1}." for number in range(case.prompts)]
    run = rig.launch(
        agent,
        *case.args,
        *prompts,
        *case.after,
        model="tiny-hybrid",
        timeout_s=case.timeout_s,
        script=script(case, paths),
        options=("--ctx", case.ctx, "--force"),  # a window below what the agent is comfortable with
    )
    report = table(run.requests)
    print(report)
    assert run.code == 0, f"{report}\n{run}"
    assert ANSWER in run.stdout, f"{report}\n{run}"
    assert all(request["end"] in ("stop", "tool_use") and not request["error"] for request in run.requests), report
    turns = [request for request in run.requests if not request["side"]]
    compactions = [request for request in run.requests if request["kind"] == "compaction"]
    assert len(turns) == case.steps and case.steps >= 12, report
    assert compactions, f"nothing was compacted\n{report}"
    continued = [request for request in turns[1:] if not request["broke_at"]]
    assert [request["replayed_tokens"] for request in continued] == [0] * len(continued), report
    # a prompt with another head, and a second summary, share a few words of the template with what was there before
    assert all(request["replayed_tokens"] < FRAME_TOKENS for request in run.requests), report
    broken = [request["broke_at"] for request in turns if request["broke_at"]]
    assert broken, report
    assert not case.exact or not any(request["replayed_tokens"] for request in turns), report
    assert not case.foreseen or all(broke["predicted"] for broke in broken), f"an edit came unforeseen\n{report}"
    assert sum(request["anticipated_tokens"] for request in turns) > 0, report
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"


def files(project: Path, count: int) -> list[Path]:
    """Texts that share nothing but their words."""
    chance = random.Random(7)
    words = [line.strip() for line in WORDS.split()]
    paths = []
    for number in range(count):
        path = project / f"part{number:02}.txt"
        lines = (" ".join(chance.choices(words, k=9)) for _ in range(FILE_BYTES // 60))
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    return paths


def script(case: Case, paths: list[Path]) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for prompt in range(case.prompts):
        for path in paths[prompt * case.reads : (prompt + 1) * case.reads]:
            thinking = {"thinking": f"What does {path.name} say about the others?"}
            turns.append({"blocks": [thinking, {"tool": "read", "args": {"path": str(path)}}]})
        turns.append({"blocks": [{"thinking": "Nothing is missing."}, {"text": ANSWER}]})
    return {"turns": turns, "side": "Reading the parts", "compaction": SUMMARY}


WORDS = """
    account balance border bridge button candle castle circle column corner danger desert detail dinner doctor effect
    engine errand estate expert fabric family father figure finger flight forest friend garden ground harbor height
    island jacket kettle ladder lesson letter market memory minute mirror moment mother needle number object office
    orange parcel pencil people pepper person planet pocket record reason report result return river rocket school
    season second shadow signal silver simple sister spring square stable station street summer system table thing
"""
