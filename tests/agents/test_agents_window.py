"""Windows from 16k to 256k: an agent compacts before our limit, does not loop and finishes, or is refused with the arithmetic.

The script reads files until the window would have been filled a little more than once, whatever the window is. A window is
refused only where an agent's opening request, one answer, and what it keeps free to compact leave no room for one more
result: what each of these is in tokens stands here, and is held against what the agent sends.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.agents

ANSWER = "All of it is read."
SUMMARY = "<summary>\nThe parts so far were read and agree. Go on with the next part.\n</summary>"
PROMPT = "Read the parts one after the other."
KIB = (16, 32, 64, 128, 256)
RESULT = 4_000  # tokens that a session can do nothing without: one result
WORDS = [
    "account",
    "balance",
    "border",
    "bridge",
    "candle",
    "castle",
    "corner",
    "desert",
    "engine",
    "estate",
    "fabric",
    "father",
    "flight",
    "forest",
]


@dataclass(frozen=True)
class Agent:
    """`opening`: tokens of its first request. `result`: what one file of `file_bytes` adds, as the agent sends it. `kept`:
    what it keeps free besides one answer, and what it shows once more behind a summary."""

    args: tuple[str, ...]
    opening: int
    result: int
    kept: int = 0
    file_bytes: int = 20_000
    after: tuple[str, ...] = ()

    def left(self, window: int) -> int:
        return window - self.opening - max(256, min(32768, window // 8)) - self.kept

    def reads(self, window: int) -> int:
        """Files in one turn of the script: about a fifteenth of the window."""
        return max(1, window // 15 // self.result)


AGENTS = {
    "claude": Agent(("-p", PROMPT), 12_600, 7_100, 38_000, 30_000, ("--allowedTools", "Bash,Read,Edit")),
    "codex": Agent(("exec", "-s", "danger-full-access", PROMPT), 9_100, 1_700),
    "opencode": Agent(("run", PROMPT), 7_700, 4_700),
}
EVERY = [(agent, kib) for agent in AGENTS for kib in KIB]
SERVED = [(agent, kib) for agent, kib in EVERY if AGENTS[agent].left(kib * 1024) >= RESULT]
REFUSED = [case for case in EVERY if case not in SERVED]
QUICK = {("codex", 16), ("opencode", 16)}
QUICK_FAKE = {("claude", 256), ("codex", 256), ("opencode", 256)}


def cases(quick: set[tuple[str, int]]) -> list[Any]:
    return [
        pytest.param(*case, id=f"{case[0]}-{case[1]}k", marks=[] if case in quick else [pytest.mark.slow])
        for case in SERVED
    ]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("agent", "kib"), cases(QUICK))
def test_a_window_is_filled_and_the_session_finishes(rig: Any, agent: str, kib: int) -> None:
    finishes(rig, agent, kib, timeout_s=3500, fake=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("agent", "kib"), cases(QUICK_FAKE))
def test_a_window_is_filled_where_nothing_is_computed(rig: Any, agent: str, kib: int) -> None:
    finishes(rig, agent, kib, timeout_s=550, fake=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("agent", "kib"), REFUSED)
def test_a_window_that_is_too_small_is_refused_with_the_arithmetic(rig: Any, agent: str, kib: int) -> None:
    window, case = kib * 1024, AGENTS[agent]
    run = launch(rig, agent, window, [{"blocks": [{"text": ANSWER}]}], timeout_s=240, fake=True)
    assert (run.code, run.requests) == (5, []), run
    output, kept = window // 8, f" - {case.kept:,} kept free to compact" if case.kept else ""
    sum_ = rf"{window:,} tokens - ([\d,]+) of first prompt - {output:,} of output{kept} leave ([\d,]+) for work"
    found = re.search(sum_, run.stderr)
    assert found is not None, run
    first, left = (int(number.replace(",", "")) for number in found.groups())
    assert abs(first - case.opening) < case.opening / 20 and left == max(0, window - first - output - case.kept), run


def finishes(rig: Any, agent: str, kib: int, timeout_s: float, fake: bool) -> None:
    window, case = kib * 1024, AGENTS[agent]
    reads = case.reads(window)
    count = (window - case.opening) // (reads * case.result) + 2
    paths = files(rig.project, count * reads, case.file_bytes)
    turns: list[dict[str, Any]] = [
        {"blocks": [{"tool": "read", "args": {"path": str(path)}} for path in paths[turn * reads : (turn + 1) * reads]]}
        for turn in range(count)
    ]
    turns += [{"blocks": [{"text": ANSWER}]}] * 2  # OpenCode compacts behind an answer too, and has then to go on
    run = launch(rig, agent, window, turns, timeout_s, fake)
    report = shown(run, agent, kib)
    assert run.code == 0 and ANSWER in run.stdout and run.requests, f"{report}\n{run}"
    requests = sorted(run.requests, key=lambda request: request["started"])
    assert all(r["end"] in ("stop", "tool_use") and not r["error"] for r in requests), report
    own = [request for request in requests if not request["side"]]
    assert abs(own[0]["prompt_tokens"] - case.opening) < case.opening / 20, report
    assert max(request["prompt_tokens"] for request in requests) <= window, report
    kinds = "".join("c" if r["kind"] == "compaction" else "" if r["side"] else "." for r in requests)
    assert "c" in kinds, f"it never compacted\n{report}"
    assert "cc" not in kinds and len(own) in (count + 1, count + 2), f"it loops\n{report}"
    assert kib < 64 or kinds.count("c") <= 2, f"it compacts too often\n{report}"
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"


def launch(rig: Any, agent: str, window: int, turns: list[dict[str, Any]], timeout_s: float, fake: bool) -> Any:
    rig.install(agent)
    if fake:
        rig.compute_nothing()
    rig.env["FT_KV"] = str(window)
    script = {"turns": turns, "side": "Reading", "compaction": [SUMMARY] * 40}
    args = (*AGENTS[agent].args, *AGENTS[agent].after)
    return rig.launch(
        agent, *args, model="tiny-hybrid", timeout_s=timeout_s, script=script, options=("--ctx", str(window))
    )


def shown(run: Any, agent: str, kib: int) -> str:
    rows = sorted(run.requests, key=lambda request: request["started"])
    names = ("kind", "prompt_tokens", "new_tokens", "output_tokens", "end", "total_s", "error")
    lines = [" ".join(str(row[name]) for name in names) for row in rows]
    lines.append(f"predictions: {run.session.get('predictions')}")
    report = "\n  ".join([f"{agent} {kib}k: exit code {run.code} after {run.wall_s} s", *lines])
    print(report)
    return report


def files(project: Path, count: int, size: int) -> list[Path]:
    chance = random.Random(11)
    paths = []
    for number in range(count):
        path = project / f"{WORDS[number % len(WORDS)]}-{number:03}.txt"
        lines = (" ".join(chance.choices(WORDS, k=9)) for _ in range(size // 60))
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    return paths
