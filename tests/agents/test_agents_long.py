"""The published agents in sessions long enough to compact: large outputs, no token computed twice, the edit foreseen."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.records import summary, table

pytestmark = pytest.mark.agents

ANSWER = "All of it is read, and the parts agree."
SUMMARIES = [
    "<summary>\nThe parts so far were read; nothing in them contradicts another. Go on with the next part.\n</summary>",
    "<summary>\nMore parts were read, and they agree with the earlier ones. Some are left to be read.\n</summary>",
    "<summary>\nNearly everything is read by now without a contradiction. Finish it.\n</summary>",
]
PROMPTS = ["Begin with these parts.", "Go on with the next ones.", "Finish with what is left."]
FILE_BYTES = 20_000
HIT_RATE = 0.95
KEPT = Path(__file__).parents[2] / "bench" / "results" / "agents.json"  # written where FT_KEEP is set


@dataclass(frozen=True)
class Case:
    """`prompts` user texts with `reads` files read after each; `ctx` is the window the agent is told."""

    ctx: str
    args: tuple[str, ...]
    after: tuple[str, ...] = ()  # arguments behind the prompts
    prompts: int = 1
    reads: int = 13
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
        settings=(
            ".pi/agent/settings.json",
            '{"compaction": {"enabled": true, "reserveTokens": 10000, "keepRecentTokens": 6000}}',
        ),
    ),
    "opencode": Case("40k", ("run",)),
    # it cuts what a command prints
    "codex": Case("28k", ("exec", "-s", "danger-full-access"), reads=15),
    # after a compaction it shows the files it read last once more
    "claude": Case("72k", ("-p",), reads=12, after=("--allowedTools", "Bash,Read,Edit"), timeout_s=800),
}
MARKS: dict[str, Any] = {"pi": ()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("agent", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in CASES])
def test_long_session(rig: Any, agent: str) -> None:
    case = CASES[agent]
    rig.install(agent)
    if case.settings is not None:
        rig.keep(*case.settings)
    paths = files(rig.project, case.prompts * case.reads)
    prompts = PROMPTS[: case.prompts]
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
    found = summary(run.requests, run.session)
    report = f"{table(run.requests)}\n{json.dumps(found)}\n{json.dumps(run.session.get('predictions'))}"
    print(report)
    assert run.code == 0, f"{report}\n{run}"
    assert ANSWER in run.stdout, f"{report}\n{run}"
    assert all(request["end"] in ("stop", "tool_use") and not request["error"] for request in run.requests), report
    assert found["requests"] == case.steps >= 12, report
    assert found["compactions"], f"nothing was compacted\n{report}"
    assert [request["replayed_tokens"] for request in run.requests] == [0] * len(run.requests), report
    assert found["edits_hit"] >= HIT_RATE * found["edits_predicted"] and found["edits_hit"] > 0, report
    assert found["anticipated"] > 0, report
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"
    if os.environ.get("FT_KEEP"):
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        KEPT.write_text(json.dumps({**kept, agent: found}, indent=1, sort_keys=True) + "\n")


def files(project: Path, count: int) -> list[Path]:
    """Texts that share nothing but their words, under names that differ from the first letter on."""
    chance = random.Random(7)
    words = [line.strip() for line in WORDS.split()]
    paths = []
    for number in range(count):
        path = project / f"{words[number * 3]}-{number:02}.txt"
        lines = (" ".join(chance.choices(words, k=9)) for _ in range(FILE_BYTES // 60))
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    return paths


def script(case: Case, paths: list[Path]) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for prompt in range(case.prompts):
        for path in paths[prompt * case.reads : (prompt + 1) * case.reads]:
            name = path.stem.partition("-")[0]
            thinking = {"thinking": f"{name.capitalize()} comes next: what does it say about the others?"}
            turns.append({"blocks": [thinking, {"tool": "read", "args": {"path": str(path)}}]})
        turns.append({"blocks": [{"thinking": "Nothing is missing."}, {"text": ANSWER}]})
    return {"turns": turns, "side": "Reading the parts", "compaction": SUMMARIES}


WORDS = """
    account balance border bridge button candle castle circle column corner danger desert detail dinner doctor effect
    engine errand estate expert fabric family father figure finger flight forest friend garden ground harbor height
    island jacket kettle ladder lesson letter market memory minute mirror moment mother needle number object office
    orange parcel pencil people pepper person planet pocket record reason report result return river rocket school
    season second shadow signal silver simple sister spring square stable station street summer system table thing
"""
