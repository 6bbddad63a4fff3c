"""Launches of another kind with published agents: sealed, integrated, before another engine, over what earlier versions left."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftagent.files import integrate
from ftagent.paths import find_paths
from tests.agents.conftest import BIN
from tests.agents.entries import ANSWER, ENTRIES, PROMPT, Command, Screen
from tests.agents.homes import everything

pytestmark = pytest.mark.agents

FT = str(BIN / "ft")
SCRIPT = {"turns": [{"blocks": [{"text": ANSWER}]}] * 4, "side": "A title"}
STORES = {  # of conversations, below the session's folder
    "claude": "claude/**/*.jsonl",
    "codex": "codex/**/*.jsonl",
    "opencode": "opencode/data/opencode/opencode.db",
    "qwen": "qwen/home/**/*.jsonl",
    "pi": "pi/sessions/**/*.jsonl",
}
CACHES = (".cache", ".npm", ".bun")  # hold no login and no history


def arguments(agent: str) -> tuple[str, ...]:
    return next(way.args for way in ENTRIES[agent].values() if isinstance(way, Command))


@pytest.mark.timeout(420)
@pytest.mark.parametrize("agent", [n if n == "codex" else pytest.param(n, marks=pytest.mark.slow) for n in STORES])
def test_sealed_the_users_own_state_is_out_of_reach(rig: Any, agent: str) -> None:
    """The agent reads and writes a folder of the session; it goes on there, and nowhere else."""
    rig.install(agent)
    rig.compute_nothing()
    ft = str(rig.ft)
    rig.make_hostile(everything(agent))
    if agent == "claude":  # what Claude Code writes at each start is out of reach as well
        file = rig.home / ".claude.json"
        rig.kept[file] = file.read_text()
    if agent == "qwen":  # it reads the user's `.env` files wherever its folder is
        rig.keep(".qwen/.env", "DASHSCOPE_API_KEY=sk-real\n")
        rig.keep(".env", "TAVILY_API_KEY=sk-real\n")
    before = at_home(rig)
    look = f"env > {rig.project}/env.txt"
    script = {**SCRIPT, "turns": [{"blocks": [{"tool": "bash", "args": {"command": look}}]}, *SCRIPT["turns"]]}
    run = rig.launch(agent, *arguments(agent), model="tiny-hybrid", timeout_s=150, script=script, options=["--sealed"])
    assert run.code == 0 and ANSWER in run.stdout, run
    seen = (rig.project / "env.txt").read_text()
    assert "sk-real" not in seen, "a command of the agent saw a key"
    assert "XDG_DATA_HOME" not in seen or f"XDG_DATA_HOME={rig.home}/.local/share\n" in seen, "not the user's folder"
    assert "0 refused at egress" in run.stderr, run
    rig.assert_nothing_left(run)
    assert at_home(rig) == before, "something was written into the home"
    (session,) = (rig.folder / "ft" / "state" / "sessions").glob("s-*")
    assert list(session.glob(STORES[agent])), "the conversation lies elsewhere"
    said = str(rig.folder / "script.json")
    resume = [ft, "resume", "-m", "tiny-hybrid", "--script", said, "--sealed", "--", *arguments(agent)]
    fork = [ft, "launch", agent, "--fork", session.name, "-m", "tiny-hybrid", "--", *arguments(agent)]
    seen = rig.run(resume, fork, [FT, "engine", "stop"], timeout_s=120)["results"]
    assert seen[0]["code"] == 0 and ANSWER in seen[0]["stdout"], seen[0]
    assert seen[1]["code"] == 4 and "own folder" in seen[1]["stderr"], seen[1]
    assert at_home(rig) == before


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("agent", STORES)
def test_sealed_no_wizard_comes_before_the_prompt(rig: Any, agent: str) -> None:
    """In a folder that no agent has seen before."""
    rig.install(agent)
    rig.compute_nothing()
    way = ENTRIES[agent]["screen"]
    assert isinstance(way, Screen)
    run = rig.launch(
        agent,
        *way.args,
        model="tiny-hybrid",
        timeout_s=330,
        script=SCRIPT,
        options=["--sealed"],
        through="typist.py",
        plan=way.plan(),
    )
    assert run.code == 0 and ANSWER.split(",")[0] in run.stdout, run
    assert run.no_routes == 0 and at_home(rig) == [], run


def at_home(rig: Any) -> list[Path]:
    return sorted(path for path in rig.home.rglob("*") if path.relative_to(rig.home).parts[0] not in CACHES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_case_9_openclaw_integrated_keeps_what_it_wrote_meanwhile(rig: Any) -> None:
    """This engine in the user's own configuration, a setting that the agent changes during the session, and all taken back."""
    rig.install("openclaw")
    text = '{\n  // mine\n  agents: { defaults: { model: { primary: "paid/x", fallbacks: ["paid/y"] } } },\n}\n'
    rig.keep(".openclaw/openclaw.json", text)
    config = rig.home / ".openclaw" / "openclaw.json"
    change = f"sed -i 's|// mine|// mine, Europe/Berlin|' {rig.home}/.openclaw/openclaw.json"
    script = {"turns": [{"blocks": [{"tool": "bash", "args": {"command": change}}]}, {"blocks": [{"text": ANSWER}]}]}
    run = rig.launch(
        "openclaw",
        *arguments("openclaw"),
        model="tiny-hybrid",
        timeout_s=330,
        script={**script, "side": "A title"},
        options=["--integrate"],
    )
    assert run.code == 0 and ANSWER in run.stdout, run
    assert (run.lookups, run.no_routes) == ([], 0), run
    after = config.read_text()
    assert '"ft/tiny-hybrid"' in after and "paid/y" not in after, after
    assert "Europe/Berlin" in after, "what the agent wrote was clobbered"
    stores = (rig.home / ".openclaw" / "agents").rglob("*.sqlite*")
    assert any(ANSWER.encode() in store.read_bytes() for store in stores), "it did not run in the user's own folder"
    done = subprocess.run([FT, "restore", "openclaw"], env=rig.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left = config.read_text()
    assert "Europe/Berlin" in left and '"ft/tiny-hybrid"' not in left and "ft_sess_" not in left, left


@pytest.mark.timeout(300)
def test_case_6_codex_starts_although_it_rejects_what_an_earlier_version_wrote(rig: Any) -> None:
    rig.install("codex")
    rig.compute_nothing()
    theirs = '# mine\napproval_policy = "never"\n\n[profiles.own] # mine too\nmodel = "gpt-9"\n'
    rig.keep(".codex/config.toml", theirs)
    file = rig.home / ".codex" / "config.toml"
    ours = {
        ("profile",): "ft",
        ("model_providers", "ft", "name"): "ft",
        ("model_providers", "ft", "wire_api"): "chat",
    }
    integrate.write(integrate.integrate("codex", file, ours), find_paths(rig.env))
    assert tomllib.loads(file.read_text())["profile"] == "ft"
    alone = rig.run(["codex", "exec", "--skip-git-repo-check", PROMPT], timeout_s=60)["results"][0]
    assert alone["code"] != 0 and "no longer supported" in alone["stderr"] + alone["stdout"], alone
    run = rig.launch("codex", *arguments("codex"), model="tiny-hybrid", timeout_s=120, script=SCRIPT)
    assert run.code == 0 and ANSWER in run.stdout, run
    assert file.read_text() == theirs
    assert str(file) in run.stderr, "the change of the file was not said"


UPSTREAM = {"model": "tiny-hybrid", "words": ["So.", "\n</think>\n\n", "Answered", " by", " another", " engine."]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "agent", ["pi", *(pytest.param(n, marks=pytest.mark.slow) for n in ("claude", "codex", "opencode"))]
)
def test_an_engine_before_another_one(rig: Any, agent: str) -> None:
    rig.install(agent)
    rig.make_hostile(everything(agent))
    run = rig.launch(agent, *arguments(agent), model="tiny-hybrid", timeout_s=200, through="upstream.py", plan=UPSTREAM)
    assert run.code == 0 and "Answered by another engine." in run.stdout, run
    assert "asked 0 times" not in run.stdout, run
    rig.assert_nothing_left(run)


@pytest.mark.timeout(200)
def test_what_that_engine_cannot_do_is_refused_before_the_agent_starts(rig: Any) -> None:
    rig.install("pi")
    run = rig.launch(
        "pi", "-p", PROMPT, model="tiny-hybrid", timeout_s=120, script=SCRIPT, through="upstream.py", plan=UPSTREAM
    )
    assert run.code == 125 and "script" in run.stderr and "no upstream offers" in run.stderr, run
    assert "asked 0 times" in run.stdout, run


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_managed_settings_of_the_machine(rig: Any) -> None:
    """OpenCode merges those of the machine after ours, so they are refused; its own way to have them elsewhere shows that."""
    rig.install("opencode")
    managed = rig.folder / "managed"
    managed.mkdir()
    settings = {"$schema": "https://opencode.ai/config.json", "enabled_providers": ["paid"]}
    (managed / "opencode.json").write_text(json.dumps(settings))
    rig.env["OPENCODE_TEST_MANAGED_CONFIG_DIR"] = str(managed)
    keep = ["--keep-env", "OPENCODE_TEST_MANAGED_CONFIG_DIR"]
    run = rig.launch("opencode", "run", PROMPT, model="tiny-hybrid", timeout_s=100, script=SCRIPT, options=keep)
    assert run.code != 0 or ANSWER not in run.stdout, "they stand below ours: then they need no refusal"
    assert (run.lookups, run.no_routes) == ([], 0), run
