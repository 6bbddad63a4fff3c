"""Case 10: the user's project has packages of our names and exports PYTHONPATH=. — everything works all the same."""

import json
import os
import subprocess
import sys

import pytest

from ftagent.isolation import OWN_ROOT, engine_environment


@pytest.fixture
def hostile(sandbox):
    """A project whose engine/, harnesses/, tests/ and ftagent-like modules break whoever imports them."""
    for name in ("engine", "harnesses", "tests", "bench"):
        (sandbox.project / name).mkdir()
        (sandbox.project / name / "__init__.py").write_text(f"raise SystemExit('imported the project\\'s {name}')\n")
    sandbox.env["PYTHONPATH"] = "."
    sandbox.model()
    return sandbox


def test_dry_run(hostile) -> None:
    plan = json.loads(hostile.run("launch", "pi", "--dry-run", "--json").stdout)
    assert plan["agent"]["name"] == "pi"


def test_launch_and_the_agent_gets_the_users_path(hostile) -> None:
    hostile.agent('echo "$PYTHONPATH" > seen')
    done = hostile.run("launch", "pi", fake=True)
    assert done.returncode == 0, done.stderr
    assert (hostile.project / "seen").read_text() == ".\n"
    assert "PYTHONPATH" not in json.loads((hostile.runtime / "environment.json").read_text())


def test_the_installed_script_and_python_m(hostile) -> None:
    for command in ([os.path.join(os.path.dirname(sys.executable), "ft")], [sys.executable, "-m", "ftagent"]):
        done = subprocess.run(
            [*command, "launch", "mini", "--dry-run", "--json"],
            env=hostile.env,
            cwd=hostile.project,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["agent"]["name"] == "mini"


def test_the_real_engine_program_starts_isolated(hostile) -> None:
    done = hostile.run("models", "ls", "--json")
    assert "imported the project" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def test_mini_runs_beside_a_project_of_the_same_name(hostile) -> None:
    plan = json.loads(hostile.run("launch", "mini", "--dry-run", "--json", "--", "--help").stdout)
    env = {**hostile.env, **{variable["name"]: variable["value"] for variable in plan["env"]["set"]}}
    done = subprocess.run(plan["argv"], env=env, cwd=hostile.project, capture_output=True, text=True)
    assert "imported the project" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def test_engine_environment_keeps_only_our_own_entry() -> None:
    env = {"PYTHONPATH": f"/other{os.pathsep}{OWN_ROOT}", "PYTHONHOME": "/x", "PATH": "/bin"}
    assert engine_environment(env) == {"PYTHONPATH": str(OWN_ROOT), "PATH": "/bin"}
    assert engine_environment({"PYTHONPATH": "/other"}) == {}
    own = {"FT_THROTTLE_TOKENS_PER_S": "40", "FT_KV": "64k"}
    assert engine_environment({**own, "FT_ENGINE_TOKEN": "x", "HF_TOKEN": "x"}) == own
