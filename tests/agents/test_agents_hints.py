"""What the agent itself announces beats what its declaration alone can know: a prune that a setting out of sight switches on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.records import table

pytestmark = [pytest.mark.agents, pytest.mark.slow]

HERE = Path(__file__).parent
PORT = 4177
TURNS, READS = 4, 6
FRAME_TOKENS = 16
LINE = "=" * 1900  # few tokens for the model, many characters for OpenCode, which counts characters
CONFIG = {"compaction": {"prune": True, "auto": False}, "permission": {"*": "allow"}}


@pytest.mark.timeout(600)
def test_hints_beat_the_declaration_alone(rig: Any) -> None:
    rig.install("opencode")
    below = rig.project / "below"  # OpenCode finds the settings of the folders above; ft reads those of this one
    below.mkdir()
    (rig.project / "opencode.json").write_text(json.dumps(CONFIG))
    for number in range(READS):
        (below / f"part{number}.txt").write_text(f"{LINE}\n" * 24)
    (rig.folder / "script.json").write_text(json.dumps(script(below)))
    told = {hints: session(rig, below, hints) for hints in ("off", "on")}
    reports = "\n\n".join(f"hints {hints}\n{table(requests)}" for hints, requests in told.items())
    print(reports)
    edited = {hints: [r for r in requests if r["broke_at"] and not r["side"]] for hints, requests in told.items()}
    assert len(edited["on"]) == len(edited["off"]) >= 1, reports
    # a placeholder and the output it replaces begin with the same words of the template
    assert all(request["replayed_tokens"] < FRAME_TOKENS for requests in told.values() for request in requests), reports
    assert all(request["broke_at"]["predicted"] for request in edited["on"]), reports
    assert not any(request["broke_at"]["predicted"] for request in edited["off"]), reports
    ahead = {hints: sum(request["anticipated_tokens"] for request in requests) for hints, requests in edited.items()}
    new = {hints: sum(request["new_tokens"] for request in requests) for hints, requests in edited.items()}
    # how much is done ahead depends on how long the person reads; each token of it is one less to wait for
    assert ahead["on"] > 1000 > 100 * ahead["off"], reports
    assert new["on"] <= new["off"] - ahead["on"], reports


def session(rig: Any, folder: Path, hints: str) -> list[dict[str, Any]]:
    ft = str(Path(sys.executable).parent / "ft")
    rig.env["FT_HOME"] = str(rig.folder / f"ft-{hints}")  # neither finds what the other left on disk
    options = ["-m", "tiny-hybrid", "--script", str(rig.folder / "script.json"), "--edit-hints", hints, "--ctx", "120k"]
    launch = [ft, "launch", "opencode", *options, "--", "serve", "--port", str(PORT)]
    drive = [sys.executable, str(HERE / "serve_opencode.py"), str(folder), str(PORT), str(TURNS), "--", *launch]
    listed = [ft, "ctl", "requests", "--json", "-n", "100"]
    seen = rig.run(drive, listed, [ft, "engine", "stop"], timeout_s=240)
    driven, records, _ = seen["results"]
    assert driven["code"] == 0, driven["stderr"]
    requests: list[dict[str, Any]] = json.loads(records["stdout"])["requests"]
    return sorted(requests, key=lambda request: request["started"])


def script(folder: Path) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for _ in range(TURNS):
        reads = [{"tool": "read", "args": {"path": str(folder / f"part{number}.txt")}} for number in range(READS)]
        turns += [{"blocks": [read]} for read in reads]
        turns.append({"blocks": [{"text": "Read."}]})
    return {"turns": turns, "side": "Reading"}
