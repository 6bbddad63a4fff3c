"""Windows from 16k to 256k: an agent compacts before our limit, does not loop and finishes, or is refused with the arithmetic.

The script reads files until the window would have been filled once and a half, whatever the window is.
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
FILE_BYTES = 20_000
FILE_TOKENS = 7_000  # what such a file has in the test model's tokens, at least
TOO_SMALL = 16 * 1024
KIB = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Agent:
    args: tuple[str, ...]
    after: tuple[str, ...] = ()


AGENTS = {
    "claude": Agent(("-p", PROMPT), ("--allowedTools", "Bash,Read,Edit")),
    "codex": Agent(("exec", "-s", "danger-full-access", PROMPT)),
    "opencode": Agent(("run", PROMPT)),
}


def session(rig: Any, agent: str, window: int, timeout_s: float) -> None:
    rig.install(agent)
    rig.env["FT_KV"] = str(max(window, 16 * 1024))
    count = max(4, window * 3 // 2 // FILE_TOKENS)
    paths = files(rig.project, count)
    turns: list[dict[str, Any]] = [{"blocks": [{"tool": "read", "args": {"path": str(path)}}]} for path in paths]
    turns.append({"blocks": [{"text": ANSWER}]})
    script = {"turns": turns, "side": "Reading", "compaction": [SUMMARY] * 40}
    case = AGENTS[agent]
    options = ("--ctx", str(window))
    run = rig.launch(
        agent, *case.args, *case.after, model="tiny-hybrid", timeout_s=timeout_s, script=script, options=options
    )
    if not run.requests:
        # Refused before the agent started: what one request takes against what there is.
        assert run.code not in (0, None), run
        numbers = [
            int(number.replace(",", "")) for number in re.findall(r"\d[\d,]{3,}", run.stderr.partition("---")[0])
        ]
        assert len(numbers) >= 2 and any(number >= window for number in numbers), run
        return
    assert run.code == 0 and ANSWER in run.stdout, run
    prompts = [request["prompt_tokens"] for request in run.requests]
    kinds = [request["kind"] for request in run.requests]
    errors = [request["error"] for request in run.requests if request["error"]]
    report = f"{agent} {window}: {list(zip(kinds, prompts, strict=True))}"
    print(report)
    assert not errors, f"{report}\n{errors}"
    assert max(prompts) <= window, report
    compactions = kinds.count("compaction")
    assert compactions <= count, f"it loops: {report}"
    if sum(FILE_TOKENS for _ in paths) > window:
        assert compactions or max(prompts) < window, report
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_window_that_is_too_small(rig: Any, agent: str) -> None:
    session(rig, agent, TOO_SMALL, timeout_s=90)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kib", KIB[1:])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_window(rig: Any, agent: str, kib: int) -> None:
    session(rig, agent, kib * 1024, timeout_s=3400)


def files(project: Path, count: int) -> list[Path]:
    chance = random.Random(11)
    words = [
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
    paths = []
    for number in range(count):
        path = project / f"{words[number % len(words)]}-{number:02}.txt"
        lines = (" ".join(chance.choices(words, k=9)) for _ in range(FILE_BYTES // 60))
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    return paths
