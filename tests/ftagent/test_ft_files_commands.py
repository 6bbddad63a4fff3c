"""`ft config set|get|trust`, `ft launch openclaw --integrate`, `ft diff`, `ft restore`, `ft uninstall`: the real program."""

import json
import os
import shlex
import subprocess

import pytest

from tests.ftagent.conftest import REAL_FT

OPENCLAW = '{\n  // mine\n  models: { providers: { openai: { apiKey: "sk-abcdefgh1234" } } },\n}\n'


def config(sandbox, *arguments, **options):
    return sandbox.run("config", *arguments, **options)


def test_settings_are_written_and_the_rest_of_the_file_stays(sandbox) -> None:
    file = sandbox.ft_home / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text('# mine\nmodel = "a" # why\n')
    assert "+ctx" in config(sandbox, "set", "ctx", "64k", "--dry-run").stdout
    assert config(sandbox, "set", "ctx", "64k").returncode == 0
    assert config(sandbox, "set", "port", "2000").returncode == 0
    assert file.read_text() == '# mine\nmodel = "a" # why\nctx = "64k"\nport = 2000\n'
    assert config(sandbox, "get", "ctx").stdout == "65536\n"
    assert config(sandbox, "get", "port", env={"FT_PORT": "3000"}).stdout == "3000\n"
    assert config(sandbox, "get", "kv").returncode == 3
    assert config(sandbox, "set", "ctx", "many").returncode == 2
    assert "Did you mean: model" in config(sandbox, "get", "modle").stderr
    assert config(sandbox, "set", "port", "--unset").returncode == 0
    assert config(sandbox, "validate").returncode == 0
    assert sandbox.run("restore", "ft").returncode == 0
    assert file.read_text() == '# mine\nmodel = "a" # why\n'
    file.write_text("model = = 1\n")
    refused = config(sandbox, "set", "ctx", "1k")
    assert refused.returncode == 4 and f"{file}:1:9" in refused.stderr
    assert file.read_text() == "model = = 1\n"


def test_the_schema_of_the_file_holds_for_it(sandbox) -> None:
    import jsonschema

    schema = json.loads(config(sandbox, "schema").stdout)
    jsonschema.validate({"ctx": "64k", "port": 1919, "anticipate": "auto", "hibernate": "off"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"port": 70000}, schema)


def test_the_editor_is_the_users(sandbox) -> None:
    editor = sandbox.bin / "ed"
    editor.write_text('#!/bin/sh\nfor last; do :; done\necho "wait = 7" >> "$last"\n')
    editor.chmod(0o755)
    assert config(sandbox, "edit", env={"EDITOR": "false", "VISUAL": "ed -w"}).returncode == 0
    assert config(sandbox, "get", "wait").stdout == "7\n"
    assert config(sandbox, "edit").returncode == 3


def test_a_project_redirects_only_when_it_is_trusted_as_it_is(sandbox) -> None:
    file = sandbox.project / ".ft.toml"
    file.write_text('model = "m"\nengine = "http://10.0.0.1:1"\n')
    assert config(sandbox, "get", "engine").returncode == 3
    asked = config(sandbox, "trust")
    assert asked.returncode == 4 and "http://10.0.0.1:1" in asked.stdout
    assert config(sandbox, "trust", env={"FT_YES": "1"}).returncode == 4
    assert config(sandbox, "trust", "--yes").returncode == 0
    assert config(sandbox, "get", "engine").stdout == "http://10.0.0.1:1\n"
    file.write_text('model = "m"\nengine = "http://10.0.0.2:1"\n')
    assert config(sandbox, "get", "engine").returncode == 3
    assert config(sandbox, "trust", "--yes").returncode == 0
    assert config(sandbox, "trust", "--remove").returncode == 0
    assert config(sandbox, "get", "engine").returncode == 3


def test_integrated_shown_and_taken_back(sandbox, pulled) -> None:
    sandbox.agent('cat "$HOME/.openclaw/openclaw.json"; env', "openclaw")
    file = sandbox.home / ".openclaw" / "openclaw.json"
    file.parent.mkdir()
    file.write_text(OPENCLAW)
    plan = json.loads(sandbox.run("launch", "openclaw", "--integrate", "--dry-run", "--json").stdout)
    assert [(f["path"], f["action"]) for f in plan["files"]] == [(str(file), "edit")]
    assert "sk-abcdefgh" not in json.dumps(plan)
    assert file.read_text() == OPENCLAW
    done = sandbox.run("launch", "openclaw", "--integrate", fake=True)
    assert done.returncode == 0, done.stderr
    assert "ft restore openclaw" in done.stderr
    assert '"primary": "ft/smollm2-moe"' in done.stdout and "// mine" in done.stdout
    assert "OPENCLAW_CONFIG_PATH=" not in done.stdout
    shown = sandbox.run("diff")
    assert "ft/smollm2-moe" in shown.stdout and "ft_sess" not in shown.stdout and "sk-abcdefgh" not in shown.stdout
    document = json.loads(sandbox.run("diff", "--json").stdout)
    assert {key["state"] for key in document["files"][0]["keys"]} == {"ours"}
    assert sandbox.run("restore", "--dry-run").returncode == 0
    assert file.read_text() != OPENCLAW
    listed = json.loads(sandbox.run("restore", "--list", "--json").stdout)["backups"]
    assert any(row["id"].startswith("original-") for row in listed)
    assert sandbox.run("restore", "openclaw").returncode == 0
    assert file.read_text() == OPENCLAW
    assert sandbox.run("restore", "nobody").returncode == 3
    assert sandbox.run("restore", "openclaw", "--to", "1-x").returncode == 3
    file.write_text("{ broken")
    refused = sandbox.run("launch", "openclaw", "--integrate", "--dry-run")
    assert refused.returncode == 4 and f"{file}:1:" in refused.stderr and "--isolated" in refused.stderr
    assert sandbox.run("restore", "openclaw", "--original").returncode == 0
    assert file.read_text() == OPENCLAW
    assert sandbox.run("engine", "stop", fake=True).returncode == 0


def test_uninstall_lists_everything_and_removes_only_ours(sandbox) -> None:
    config(sandbox, "set", "ctx", "64k")
    sandbox.model()
    (sandbox.home / "mine.txt").write_text("x")
    before = sandbox.tree()
    items = json.loads(sandbox.run("uninstall", "--dry-run", "--json").stdout)["items"]
    assert {item["kind"] for item in items} == {"config", "state", "data"}
    assert sandbox.tree() == before
    assert sandbox.run("uninstall").returncode == 4
    assert sandbox.tree() == before
    kept = sandbox.run("uninstall", "--yes", "--keep-models")
    assert kept.returncode == 0 and (sandbox.ft_home / "data" / "models" / "smollm2-moe").is_dir()
    assert not (sandbox.ft_home / "config").exists()
    assert sandbox.run("uninstall", "--yes").returncode == 0
    assert not sandbox.ft_home.exists() and (sandbox.home / "mine.txt").exists()


def test_an_agent_is_installed_after_its_command_was_shown_and_is_found(sandbox) -> None:
    """npm is a few lines here; the real registry is asked where the published agents are tested."""
    npm = sandbox.bin / "npm"
    npm.write_text(
        '#!/bin/sh\nenv > "$HOME/npm-env"\nmkdir -p "$3/node_modules/.bin"\n'
        'printf "#!/bin/sh\\necho ours 0.73.1\\n" > "$3/node_modules/.bin/pi"\nchmod 755 "$3/node_modules/.bin/pi"\n'
    )
    npm.chmod(0o755)
    dry = sandbox.run("agents", "install", "pi", "--dry-run")
    assert dry.stdout.startswith("npm install --prefix ") and "@mariozechner/pi-coding-agent@0.73.1" in dry.stdout
    assert not (sandbox.home / "npm-env").exists()
    done = sandbox.run("agents", "install", "pi", "--yes", env={"OPENAI_API_KEY": "sk-1"})
    assert (done.returncode, done.stdout) == (0, dry.stdout)
    assert "OPENAI_API_KEY" not in (sandbox.home / "npm-env").read_text()
    sandbox.agent("echo theirs")
    row = next(r for r in json.loads(sandbox.run("agents", "ls", "--json").stdout)["agents"] if r["name"] == "pi")
    assert row["ours"] and row["version"] == "0.73.1"
    plan = json.loads(sandbox.run("launch", "pi", "--dry-run", "--json").stdout)
    assert plan["agent"]["path"] == row["path"]
    assert "is there already" in sandbox.run("agents", "install", "pi").stderr
    npm.write_text("#!/bin/sh\nexit 3\n")
    assert sandbox.run("agents", "update", "pi", "--version", "9.9.9", "--yes").returncode == 1
    assert subprocess.run([row["path"]], capture_output=True, text=True).stdout == "ours 0.73.1\n"
    assert sandbox.run("agents", "install", "pi", "--version", "9; rm -rf /").returncode == 2
    assert sandbox.run("agents", "card", "claude").returncode == 0


def test_a_report_holds_no_secret(sandbox) -> None:
    log = sandbox.ft_home / "state" / "logs" / "engine.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"api_key=abc123secret max_tokens: 4096 {sandbox.home}/x ft_sess_abcdef Bearer zzz MY_TOKEN_VALUE\n")
    done = sandbox.run("report", "--dry-run", env={"SOME_TOKEN": "MY_TOKEN_VALUE"})
    assert done.returncode == 0
    for secret in ("abc123secret", "ft_sess_abcdef", "zzz", "MY_TOKEN_VALUE", str(sandbox.home)):
        assert secret not in done.stdout
    assert "max_tokens: 4096" in done.stdout
    written = sandbox.run("report", "-o", "r.zip")
    assert os.stat(sandbox.project / "r.zip").st_mode & 0o777 == 0o600
    assert written.stdout.strip() == str(sandbox.project / "r.zip")
    assert sandbox.run("report", "-o", "r.zip").returncode == 6


def test_a_report_that_finds_no_room_leaves_nothing(sandbox) -> None:
    """A limit on the size of files stands in for a full disk."""
    (sandbox.project / "r.sh").write_text(f"ulimit -f 0; trap '' XFSZ; exec {shlex.join(REAL_FT)} report -o r.zip\n")
    done = subprocess.run(
        ["/bin/sh", "r.sh"], cwd=sandbox.project, env=sandbox.env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "r.zip" in done.stderr, done.stderr
    assert not (sandbox.project / "r.zip").exists()


def test_a_value_that_is_no_text_is_refused(sandbox) -> None:
    done = sandbox.run("config", "set", "model", os.fsdecode(b"\xff"))
    assert done.returncode == 4 and "not valid UTF-8" in done.stderr
    assert not list((sandbox.ft_home / "config").glob("*"))


@pytest.mark.parametrize("option", ["--project", "--script", "--declaration"])
def test_a_name_that_no_file_can_have_is_said_to_be_too_long(sandbox, option: str) -> None:
    done = sandbox.run("launch", "run", option, "9" * 400, "--dry-run", "--", "true", fake=True)
    assert done.returncode != 0 and "too long" in done.stderr and "--debug" not in done.stderr, done.stderr
