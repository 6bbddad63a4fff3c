"""What is previewed is what happens: argv, variables, files and working directory, for every agent, byte for byte."""

from __future__ import annotations

import base64
import json
import os
import random
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftagent.agents import loader
from ftagent.launch import plan as planning
from ftagent.launch.apply import apply
from ftagent.launch.plan_json import to_json
from ftagent.launch.run import run_agent
from ftagent.paths import find_paths

RECORDER = """#!{python}
import base64, json, os, sys
code = lambda text: base64.b64encode(os.fsencode(text)).decode()
json.dump({{"argv": [code(a) for a in sys.argv], "env": {{code(k): code(v) for k, v in os.environ.items()}},
           "cwd": os.getcwd()}}, open({out!r}, "w"))
"""
NAMES = ("EDITOR", "LC_ALL", "PYTHONPATH", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HTTPS_PROXY", "NO_PROXY", "CLAUDE_CODE_USE_BEDROCK",
         "AWS_PROFILE", "XDG_CONFIG_HOME", "MY_VALUE", "NVM_DIR", "GH_TOKEN", "TMUX", "OPENCODE_CONFIG_CONTENT")  # fmt: skip
WORDS = (
    "-p",
    "Say it.",
    "--verbose",
    "a b",
    "é ü",
    "'",
    '"',
    "$HOME",
    "*",
    "",
    "\n",
    "\\",
    "--json",
    "100%",
    "{model}",
    "--",
)
FILES = {
    ".claude/settings.json": [{"env": {"ANTHROPIC_BASE_URL": "https://a.example"}}, {"model": "x", "hooks": {}}, {}],
    ".config/opencode/opencode.json": [{"model": "paid/x"}, {"provider": {"paid": {"options": {"apiKey": "k"}}}}],
    ".pi/agent/settings.json": [{"theme": "dark", "packages": ["npm:x"]}, {"defaultProvider": "anthropic"}],
    ".openclaw/openclaw.json": [{"agents": {"defaults": {"model": {"primary": "p/x", "fallbacks": ["p/y"]}}}}],
    ".qwen/settings.json": [{"model": {"name": "paid"}}],
}
FIRST = {"codex": ["exec"], "opencode": ["run"], "openclaw": ["agent", "--message"]}


def text(chance: random.Random) -> str:
    return "".join(chance.choices(string.printable.replace("\0", "") + "äß漢", k=chance.randint(0, 12)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("agent", loader.names())
def test_what_is_previewed_is_what_happens(agent: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{agent}-{seed}")
    home, cwd, out = tmp_path / "home", tmp_path / "project ü" / "below", tmp_path / "seen.json"
    for folder in (home, cwd):
        folder.mkdir(parents=True)
    program = tmp_path / agent
    program.write_text(RECORDER.format(python=sys.executable, out=str(out)))
    program.chmod(0o755)
    for path, values in FILES.items():
        if chance.random() < 0.6:
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(json.dumps(chance.choice(values)))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    env |= {name: text(chance) for name in NAMES if chance.random() < 0.5}
    env.pop("XDG_CONFIG_HOME", None) if chance.random() < 0.5 else env.update(XDG_CONFIG_HOME=str(home / ".config"))
    request = planning.LaunchRequest(
        harness=loader.load(agent),
        args=[*FIRST.get(agent, []), *chance.choices(WORDS, k=chance.randint(0, 4))],
        home=home,
        env=env,
        executable=program,
        keep_env=[name for name in NAMES if chance.random() < 0.1],
        scrub=[name for name in NAMES if chance.random() < 0.1],
        sealed=chance.random() < 0.3,
        force=True,
    )
    paths = find_paths({"HOME": str(home), "FT_HOME": str(tmp_path / "ft")})
    session = planning.SessionState(
        "one", cwd, cwd, None, paths.sessions / "s-abcdefghij", "s-abcdefghij", "ft_sess_canary"
    )
    engine = planning.EngineState("http://127.0.0.1:1919", True, [], "tiny", 131072, False)
    files = {
        str(path): path.read_text()
        for path in planning.paths_to_read(request, session, engine)
        if path.is_relative_to(tmp_path) and path.is_file()
    }
    plan = planning.build(request, session, engine, files)
    again = planning.build(request, session, engine, files)
    assert (plan.argv, plan.environment, plan.injection) == (again.argv, again.environment, again.injection)
    shown = to_json(plan)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}

    apply(plan, paths)
    assert run_agent(plan.argv, plan.environment, session.cwd) == 0
    seen = json.loads(out.read_text())

    def code(value: str) -> str:
        done = base64.b64encode(os.fsencode(value))
        return done.decode()

    assert seen["argv"][1:] == [code(word) for word in plan.argv[1:]]
    ran = {name: value for name, value in seen["env"].items() if name != code("LC_CTYPE")}  # CPython's own coercion
    assert ran == {code(name): code(value) for name, value in plan.environment.items() if name != "LC_CTYPE"}
    assert seen["cwd"] == str(cwd)
    assert [plan.masked(word) for word in plan.argv] == shown["argv"]
    _assert_env_as_shown(plan, shown, env)
    written = {str(path) for path in session.state_dir.rglob("*") if path.is_file()}
    assert written == {file["path"] for file in shown["files"]} | {str(session.state_dir / "session.json")}
    for file in plan.injection.files:
        assert file.path.read_text() == file.text
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before, (
        "a file of the user changed"
    )
    assert "ft_sess_canary" not in json.dumps(shown)


def _assert_env_as_shown(plan: planning.Plan, shown: dict[str, Any], env: dict[str, str]) -> None:
    """Each variable the child has is the user's own, or in the preview with that value or masked."""
    named = {variable["name"]: variable["value"] for variable in shown["env"]["set"]}
    for name, value in plan.environment.items():
        assert named.get(name) in (plan.masked(value), planning.MASK) if name in named else value == env[name], name
    assert not set(shown["env"]["unset"]) & set(plan.environment)


def test_the_recorder_tells_the_truth(tmp_path: Path) -> None:
    out, program = tmp_path / "seen.json", tmp_path / "agent"
    program.write_text(RECORDER.format(python=sys.executable, out=str(out)))
    program.chmod(0o755)
    subprocess.run([str(program), "a b"], env={"X": "1"}, cwd=tmp_path, check=True)
    seen = json.loads(out.read_text())
    assert seen["argv"][1] == "YSBi" and seen["env"]["WA=="] == "MQ=="
