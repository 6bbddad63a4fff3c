"""What a day with ft writes on a machine, agents included: all of it is the agents' own or stands in `ft uninstall --dry-run`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.agents.conftest import BIN
from tests.agents.entries import ANSWER, ENTRIES, Command

pytestmark = [pytest.mark.agents, pytest.mark.slow]

FT = str(BIN / "ft")
SCRIPT = {"turns": [{"blocks": [{"text": ANSWER}]}] * 4, "side": "A title"}
AGENTS = ("pi", "claude", "codex", "opencode")
THEIRS = {  # what these agents write into a home and a folder for what is temporary, however they are started
    "home/.pi", "home/.claude", "home/.claude.json", "home/.codex", "home/.local/share/opencode", "home/.local/state/opencode",
    "home/.config/opencode", "home/.cache/opencode", "home/.npm", "home/.bun", "home/.cache/node", "home/.node_repl_history",
    "tmp/node-compile-cache", "tmp/jiti", "tmp/opencode", f"tmp/claude-{os.getuid()}", "run/cc-socks",
}  # fmt: skip
LIBRARY = ".so"  # what OpenCode unpacks into the folder for what is temporary
SCAFFOLD = {"report.json", "spec.json", "out", "resolv.conf", "script.json", "project/.git"}


def everything(root: Path) -> dict[Path, bytes | None]:
    """Each path with its bytes; folders and links have none."""
    plain = (path for path in root.rglob("*") if not path.is_socket())
    return {path: path.read_bytes() if path.is_file() and not path.is_symlink() else None for path in plain}


@pytest.mark.timeout(1800)
def test_after_a_day_with_real_agents_all_that_is_ours_is_listed(rig: Any) -> None:
    """Launches, sealed ones, a resumed one, a question, a probe, a recording, a model: then a walk over everything."""
    for agent in AGENTS:
        rig.install(agent)
    del rig.env["FT_HOME"], rig.env["FT_KV"]
    for name, variable in (("run", "XDG_RUNTIME_DIR"), ("tmp", "TMPDIR")):
        (rig.folder / name).mkdir(mode=0o700)
        rig.env[variable] = str(rig.folder / name)
    (rig.folder / "script.json").write_text(json.dumps(SCRIPT))
    options = ["-m", "tiny-hybrid", "--script", str(rig.folder / "script.json"), "--force"]
    words = {agent: next(w.args for w in ENTRIES[agent].values() if isinstance(w, Command)) for agent in AGENTS}
    before = everything(rig.folder)
    day = [
        *([FT, "launch", agent, *options, "--", *words[agent]] for agent in AGENTS),
        *([FT, "launch", agent, "--sealed", *options, "--", *words[agent]] for agent in AGENTS),
        [FT, "resume", "pi", *options, "--", *words["pi"]],
        [FT, "run", "--max-output", "4", "Say it."],
        [FT, "doctor", "--agent", "pi", "--probe"],
        [FT, "top", "--once"],
        [FT, "ctl", "explain"],
        [FT, "models", "tiny-hybrid", "--models-dir", str(rig.home / ".local/share/ft/models")],
    ]
    list_ = [FT, "uninstall", "--dry-run", "--json"]
    seen = rig.run(*day, [FT, "engine", "stop"], list_, timeout_s=240)["results"]
    assert [(result["argv"][1:4], result["stderr"][-1500:]) for result in seen if result["code"] != 0] == []
    items = json.loads(seen[-1]["stdout"])["items"]
    listed = [Path(item["path"]) for item in items]
    allowed = [rig.folder / name for name in THEIRS | SCAFFOLD]
    written = [path for path, data in everything(rig.folder).items() if path not in before or before[path] != data]
    unlisted = [
        str(path)
        for path in written
        if not any(path.is_relative_to(known) for known in [*listed, *allowed])
        and not (path.is_dir() and any(known.is_relative_to(path) for known in [*listed, *allowed]))
        and not (path.parent == rig.folder / "tmp" and path.suffix == LIBRARY)
    ]
    assert unlisted == []
    gone = rig.run([FT, "uninstall", "--yes"], list_, timeout_s=120)["results"]
    assert gone[0]["code"] == 0, gone[0]
    assert [item["kind"] for item in json.loads(gone[1]["stdout"])["items"]] == ["models"], "those of elsewhere"
    left = [path for path in listed if path.exists() and path != Path(rig.env["FT_MODELS_DIR"])]
    assert left == []
