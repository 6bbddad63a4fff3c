"""`ft launch --dry-run`: the plan is complete, secret-free, and changes nothing."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from ftagent.agents import loader
from ftagent.launch.shell import command_line

KEYS = {"MY_OPENAI_API_KEY": "sk-one", "AWS_SECRET_ACCESS_KEY": "two", "ANTHROPIC_API_KEY": "three"}


def plan_of(sandbox, agent: str, *arguments: str, **options) -> dict:
    done = sandbox.run("launch", agent, "--dry-run", "--json", *arguments, **options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("agent", loader.names())
def test_every_agent_has_a_plan_without_being_installed(agent: str, sandbox) -> None:
    plan = plan_of(sandbox, agent, env=KEYS)
    assert plan["schema"] == "ft.plan/1"
    assert set(plan) == {
        "schema",
        "agent",
        "session",
        "scripted",
        "argv",
        "env",
        "files",
        "engine",
        "render",
        "sealed",
        "forecast",
        "warnings",
    }
    assert plan["agent"]["name"] == agent
    if loader.load(agent).adapter.executables:
        assert plan["agent"]["path"] is None
        assert any(warning["code"].startswith("FT-W0101") for warning in plan["warnings"])
    assert set(plan["env"]) == {"set", "unset"}
    assert all(set(variable) == {"name", "value", "why", "replaces"} for variable in plan["env"]["set"])
    names = {variable["name"] for variable in plan["env"]["set"]}
    assert set(KEYS) <= names | set(plan["env"]["unset"])
    assert not any(secret in json.dumps(plan) for secret in ("sk-one", '"two"', '"three"'))
    assert (
        plan["engine"]
        | {
            "running": False,
            "model": "smollm2-moe",
            "window_tokens": 65536,
            "window_source": "predicted",
            "max_output_tokens": 8192,
            "pull_first": True,
        }
        == plan["engine"]
    )
    assert set(plan["forecast"]) >= {"prompt_tokens", "ttft_cold_s", "ttft_warm_s", "watchdog_s", "verdict"}
    assert plan["session"]["branch"] == "main"
    assert plan["session"]["cwd"] == str(sandbox.project)


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--print-env"], ["--print-config"], ["-v"]])
def test_case_7_a_dry_run_touches_nothing(arguments: list[str], sandbox) -> None:
    sandbox.agent("exit 1")
    (sandbox.home / ".pi" / "agent").mkdir(parents=True)
    (sandbox.home / ".pi" / "agent" / "settings.json").write_text("{}")
    before = sandbox.tree()
    done = sandbox.run("launch", "pi", "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    assert sandbox.tree() == before
    assert "ft_sess_0" not in done.stdout


def test_a_dry_run_is_quick(sandbox) -> None:
    """400 ms in the processor time of the child, the best of three."""
    times = []
    for _ in range(3):
        before = os.times()
        plan_of(sandbox, "claude")
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.4


def test_the_preview_fits_and_names_what_matters(sandbox) -> None:
    done = sandbox.run("launch", "claude", "--dry-run", env={**KEYS, "COLUMNS": "90"})
    text = done.stdout
    assert "Plan: claude -> smollm2-moe (local engine)" in text
    assert "nothing has been changed" in text
    assert "toy quality" in text
    assert "window 65,536 tokens (predicted)" in " ".join(text.split())
    assert "AWS_SECRET_ACCESS_KEY" in text
    assert "Undo later: nothing to undo." in text
    longest = [max(line.split(), key=len, default="") for line in text.splitlines()]
    # a path is never broken, so a line may be too long by one word that would not fit any line
    assert all(len(line) <= 90 or len(word) > 45 for line, word in zip(text.splitlines(), longest, strict=True))


def test_a_command_that_is_shown_can_be_pasted(tmp_path: Path) -> None:
    words = ["pi", f"{tmp_path}/a b", f"{tmp_path}/.pi", str(tmp_path), f"{tmp_path}s/y z", "~/x", "$HOME"]
    line = command_line(words, tmp_path)
    assert line == f"pi ~/'a b' ~/.pi ~ '{tmp_path}s/y z' '~/x' '$HOME'"
    printed = ["sh", "-c", f"printf '%s\\n' {line}"]
    done = subprocess.run(printed, env={"HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout.splitlines() == words


def test_a_model_here_is_not_pulled_and_gives_the_window(sandbox) -> None:
    sandbox.model("mine", window_tokens=131072, quality="")
    plan = plan_of(sandbox, "pi", "-m", "mine")
    assert plan["engine"]["window_tokens"] == 131072
    assert plan["engine"]["max_output_tokens"] == 16384
    assert plan["engine"]["pull_first"] is False
    assert plan["engine"]["quality"] is None
    assert not any("toy" in warning["text"] for warning in plan["warnings"])
    assert "--model mine" in " ".join(plan["engine"]["start_command"])


def test_numbers_that_do_not_fit(sandbox) -> None:
    assert plan_of(sandbox, "pi", "--ctx", "48k")["engine"]["window_tokens"] == 49152
    too_much = sandbox.run("launch", "pi", "--dry-run", "--ctx", "128k")
    assert too_much.returncode == 2
    assert "smollm2-moe has 65536 at most" in too_much.stderr
    capped = sandbox.run("launch", "pi", "--dry-run", "--kv", "16k", "--ctx", "32k")
    assert capped.returncode == 2
    assert "give --kv 32768" in capped.stderr
    plan = plan_of(sandbox, "pi", "--kv", "32k", "--ctx", "32k")
    assert plan["engine"]["window_tokens"] == 32768
    assert plan["engine"]["start_command"][-4:] == ["--kv", "32768", "--preset", "agent"]
    assert plan_of(sandbox, "pi", "--ctx", "128k", "--force")["engine"]["window_tokens"] == 131072
    assert sandbox.run("launch", "pi", "--dry-run", "--max-output", "64k").returncode == 2
    assert sandbox.run("launch", "pi", "--dry-run", "--ctx", "lots").returncode == 2


def test_absent_things_are_exit_3(sandbox) -> None:
    unknown = sandbox.run("launch", "pi", "--dry-run", "-m", "nope")
    assert unknown.returncode == 3
    assert "nope" in unknown.stderr
    assert sandbox.run("launch", "pi", "--dry-run", "-C", "nowhere").returncode == 3
    assert sandbox.run("launch", "pi", "--dry-run", "--script", "none.json").returncode == 3


def test_a_broken_manifest_or_script_is_refused(sandbox) -> None:
    sandbox.model("bad")
    (sandbox.ft_home / "data" / "models" / "bad" / "ftw.json").write_text('{"window_tok')
    assert sandbox.run("launch", "pi", "--dry-run", "-m", "bad").returncode == 5
    done = sandbox.run("engine", "start", "-m", "bad", fake=True)
    assert done.returncode == 5
    assert "ft models import SOURCE --name bad --force" in done.stderr
    (sandbox.project / "s.json").write_text('{"turns": [}')
    done = sandbox.run("launch", "pi", "--dry-run", "--script", "s.json")
    assert done.returncode == 4
    assert "s.json:1:" in done.stderr


def test_scripted_replay_is_marked(sandbox) -> None:
    (sandbox.project / "s.json").write_text('{"turns": []}')
    assert plan_of(sandbox, "pi", "--script", "s.json")["scripted"] is True
    assert "SCRIPTED REPLAY" in sandbox.run("launch", "pi", "--dry-run", "--script", "s.json").stdout


def test_arguments_of_the_agent_go_after_the_dashes(sandbox) -> None:
    plan = plan_of(sandbox, "pi", "--", "-p", "hello -- there", "--json", "--", "x")
    assert plan["argv"][-5:] == ["-p", "hello -- there", "--json", "--", "x"]
    done = sandbox.run("launch", "pi", "--dry-run", "-p", "hello")
    assert done.returncode == 2
    assert "after --" in done.stderr


def test_print_env_masks_and_quotes(sandbox) -> None:
    shell = sandbox.run("launch", "claude", "--dry-run", "--print-env").stdout
    assert "export ANTHROPIC_AUTH_TOKEN='ft_sess_****'" in shell
    document = json.loads(sandbox.run("launch", "claude", "--dry-run", "--print-env=json").stdout)
    assert document["set"]["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert "set -gx ANTHROPIC_API_KEY ''" in sandbox.run("launch", "claude", "--dry-run", "--print-env=fish").stdout


def test_case_8_in_the_plan(sandbox) -> None:
    sandbox.agent("exit 0", shebang="#!/opt/gone/node")
    plan = plan_of(sandbox, "pi")
    assert plan["agent"]["path"] is None
    assert "/opt/gone/node" in plan["warnings"][0]["text"]


def test_a_remote_engine_is_refused_without_force(sandbox) -> None:
    done = sandbox.run(
        "launch", "pi", "--dry-run", "--engine", "http://gpu-box.example:1919", env={"FT_ENGINE_TOKEN": "t"}
    )
    assert done.returncode == 4
    assert "--force" in done.stderr
    assert sandbox.run("launch", "pi", "--dry-run", "--engine", "ftp://x").returncode == 2


def test_a_proxy_is_told_about_the_loopback(sandbox) -> None:
    plan = plan_of(sandbox, "pi", env={"https_proxy": "http://proxy:3128"})
    values = {variable["name"]: variable["value"] for variable in plan["env"]["set"]}
    assert "127.0.0.1" in values["NO_PROXY"]


def test_the_password_of_a_proxy_is_never_shown(sandbox) -> None:
    env = {"HTTPS_PROXY": "http://me:hush-hush@proxy:3128", "ANTHROPIC_BASE_URL": "https://me:hush-hush@gateway/v1"}
    for flags in ([], ["-v"], ["--json"], ["--print-env"], ["--print-config"]):
        for agent in loader.names():
            done = sandbox.run("launch", agent, "--dry-run", *flags, env=env)
            assert done.returncode == 0, done.stderr
            assert "hush-hush" not in done.stdout + done.stderr


def test_the_ids_of_a_plan_are_those_in_its_command(sandbox) -> None:
    plan = plan_of(sandbox, "claude")
    assert "--session-id" in plan["argv"]
    assert plan["session"]["harness_ids"] == [plan["argv"][plan["argv"].index("--session-id") + 1]]


def test_the_plan_says_what_becomes_of_earlier_reasoning(sandbox) -> None:
    sandbox.model("plain")
    sandbox.model("switching")
    folder = sandbox.ft_home / "data" / "models"
    (folder / "plain" / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "switching" / "chat_template.jinja").write_text("{% if preserve_thinking %}{% endif %}")
    kept = plan_of(sandbox, "pi", "-m", "switching")
    assert kept["render"] == {"preserve_thinking": True, "template_switch": True, "edit_hints": True}
    (sandbox.project / ".ft.toml").write_text("preserve_thinking = false\nedit_hints = false\n")
    dropped = plan_of(sandbox, "pi", "-m", "plain")
    assert dropped["render"] == {"preserve_thinking": False, "template_switch": False, "edit_hints": False}
    assert "--extension" in kept["argv"] and "--extension" not in dropped["argv"]
    flag = ("--preserve-thinking", "on")
    assert plan_of(sandbox, "pi", *flag)["render"] == {
        "preserve_thinking": True,
        "template_switch": None,
        "edit_hints": False,
    }
    texts = {
        name: " ".join(sandbox.run("launch", "pi", "--dry-run", "-m", name, *flags).stdout.split())
        for name, flags in {"plain": (), "switching": flag}.items()
    }
    assert "as the model's template has it, which knows no switch" in texts["plain"]
    assert "stays in the prompt: it takes window and brings compaction earlier" in texts["switching"]
    off = sandbox.run("launch", "pi", "--dry-run", "-m", "switching", "--preserve-thinking", "off")
    assert "leaves the prompt at each new question: more window" in " ".join(off.stdout.split())
    assert sandbox.run("launch", "pi", "--dry-run", "--preserve-thinking", "maybe").returncode == 2
