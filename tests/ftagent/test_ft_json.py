"""Every `--json` of every command, real output held against its schema: with the real engine where one is needed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ftagent import schemas
from ftagent.commandline.model import commands, flatten
from ftagent.commands.bench import BENCHMARKS
from ftagent.commands.models import ACTIONS

SCRIPT = {"turns": [{"blocks": [{"text": "Done."}]}]}
# (schema, command without --json, exit code); of one command the usual output and, where it differs, others
WITHOUT_ENGINE: list[tuple[str, list[str], int]] = [
    ("ft.config/1", ["config", "show"], 0),
    ("ft.config/1", ["config", "get", "port"], 0),
    ("ft.config-check/1", ["config", "validate"], 0),
    ("ft.version/1", ["version"], 0),
    ("ft.status/1", ["status"], 3),
    ("ft.engine/1", ["engine", "status"], 3),
    ("ft.engine-plan/1", ["engine", "plan"], 0),
    ("ft.sessions/1", ["ls"], 0),
    ("ft.sessions/1", ["sessions", "ls", "-a"], 0),
    ("ft.session/1", ["sessions", "show", "claude"], 0),
    ("ft.session/1", ["sessions", "show", "s-bbbbbbbbbb"], 0),  # cannot be read
    ("ft.event/1", ["sessions", "logs", "claude"], 0),
    ("ft.prune/1", ["sessions", "prune"], 0),
    ("ft.plan/1", ["sessions", "resume", "claude", "--dry-run"], 0),
    ("ft.plan/1", ["resume", "claude", "--dry-run"], 0),
    ("ft.doctor/1", ["doctor"], 0),
    ("ft.agents/1", ["agents", "ls"], 0),
    ("ft.agent-card/1", ["agents", "card", "openclaw"], 0),
    ("ft.plan/1", ["launch", "pi", "--dry-run"], 0),
    ("ft.plan/1", ["launch", "openclaw", "--integrate", "--dry-run"], 0),
    ("ft.diff/1", ["diff", "ft"], 0),
    ("ft.backups/1", ["restore", "--list", "--all"], 0),
    ("ft.restore/1", ["restore", "ft", "--dry-run"], 0),
    ("ft.uninstall/1", ["uninstall", "--dry-run"], 0),
    ("ft.report/1", ["report", "--dry-run"], 0),
    ("ft.error/1", ["config", "get", "nothing"], 2),
    ("ft.error/1", ["ctl", "stats"], 3),
    ("ft.error/1", ["models", "show", "nothing"], 3),
    ("ft.models/1", ["models", "ls"], 0),
    ("ft.model/1", ["models", "show", "tiny-hybrid"], 0),
    ("ft.model/1", ["models", "tiny-hybrid"], 0),
    ("ft.model-verify/1", ["models", "verify", "tiny-hybrid"], 0),
    ("ft.models-fit/1", ["models", "fit"], 0),
    ("ft.models-found/1", ["models", "import", "--list"], 0),
    ("ft.bench-rows/1", ["bench", "report"], 0),
    ("ft.upstream-plan/1", ["serve", "--upstream", "http://127.0.0.1:9", "--plan"], 0),
    ("ft.dashboard/1", ["top", "--once"], 0),
]
WITH_ENGINE: list[tuple[str, list[str], int]] = [
    ("ft.engine/1", ["engine", "start"], 0),
    ("ft.engine/1", ["engine", "status"], 0),
    ("ft.status/1", ["status"], 0),
    ("ft.dashboard/1", ["top"], 0),
    ("ft.launch/1", ["launch", "run", "--script", "script.json", "--", "true"], 0),
    ("ft.launch/1", ["launch", "mini", "--script", "script.json", "--force", "--", "Do it."], 0),
    ("ft.answer/1", ["run", "--max-output", "4", "hello"], 0),
    ("ft.session/1", ["sessions", "show", "mini"], 0),
    ("ft.health/1", ["ctl", "health"], 0),
    ("ft.stats/1", ["ctl", "stats"], 0),
    ("ft.request/1", ["ctl", "requests"], 0),
    ("ft.request/1", ["ctl", "explain", "mini", "--texts"], 0),
    ("ft.anchors/1", ["ctl", "anchors"], 0),
    ("ft.draft/1", ["ctl", "draft", "asker"], 0),
    ("ft.console/1", ["console"], 0),
    ("ft.engine/1", ["engine", "restart"], 0),
]
ELSEWHERE = {"ctl cache": "the memory commands have a test of their own"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, make_sandbox: Any, models_dir: Path) -> Iterator[Any]:
    """A home with settings, sessions of which one is broken, and the tiny model; its engine is stopped at the end."""
    box = make_sandbox(tmp_path_factory.mktemp("filled"))
    box.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2", "FORCE_COLOR": "1"}
    assert box.run("config", "set", "wait", "90").returncode == 0
    (box.project / "script.json").write_text(json.dumps(SCRIPT))
    for id_ in ("s-aaaaaaaaaa", "s-bbbbbbbbbb"):
        (box.ft_home / "state" / "sessions" / id_).mkdir(parents=True)
    folder = box.ft_home / "state" / "sessions" / "s-aaaaaaaaaa"
    (folder.parent / "s-bbbbbbbbbb" / "session.json").write_text("{")
    record: dict[str, Any] = {
        "schema": "ft.session/1",
        "id": folder.name,
        "name": "claude",
        "created": "2026-01-01T00:00:00Z",
    }
    record |= {"agent": {"name": "claude"}, "project": {"root": str(box.project)}, "model": {"id": "m"}}
    record["harness"] = [{"id": "5f0c0000-0000-4000-8000-000000000000", "source": "assigned"}]
    record["runs"] = [{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:01:00Z", "exit": 0}]
    (folder / "session.json").write_text(json.dumps(record))
    (folder / "events.jsonl").write_text('{"time": "2026-01-01T00:00:00Z", "event": "created"}\n{"time": "20')
    yield box
    assert box.run("engine", "stop").returncode == 0


def held(name: str, done: subprocess.CompletedProcess[str], code: int) -> list[Any]:
    """The documents of an output, each of which its schema describes."""
    assert done.returncode == code, done.stderr
    output = done.stderr if name == "ft.launch/1" else done.stdout
    assert "\x1b" not in output
    schema = schemas.schema_of(name)
    assert schema is not None, name
    jsonschema.Draft202012Validator.check_schema(schema)
    streams = name in ("ft.launch/1", "ft.event/1")
    documents = [json.loads(line) for line in output.splitlines()] if streams else [json.loads(output)]
    assert documents
    for document in documents:
        jsonschema.validate(document, schema)
        if name not in ("ft.error/1", "ft.bench-rows/1"):
            assert document["schema"] == name
    if streams:
        assert [document["seq"] for document in documents] == list(range(1, len(documents) + 1))
    return documents


def with_json(arguments: list[str]) -> list[str]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:at], "--json", *arguments[at:]]


@pytest.mark.parametrize(("name", "arguments", "code"), WITHOUT_ENGINE, ids=lambda value: str(value)[:60])
def test_output_is_what_its_schema_describes(name: str, arguments: list[str], code: int, filled: Any) -> None:
    held(name, filled.run(*with_json(arguments)), code)


def test_what_an_engine_tells_is_what_its_schemas_describe(filled: Any) -> None:
    """In this order: each builds on what was done before."""
    code = (
        "import json, os, urllib.request as u\n"
        "body = json.dumps({'model': 'm', 'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 2}).encode()\n"
        "headers = {'authorization': 'Bearer ' + os.environ['FT_TOKEN'], 'content-type': 'application/json'}\n"
        "u.urlopen(u.Request(os.environ['FT_BASE_URL'] + '/v1/chat/completions', body, headers), timeout=60).read()\n"
    )
    for name, arguments, exit_code in WITH_ENGINE:
        if arguments[1:2] == ["draft"]:
            asker = ["launch", "run", "-q", "-n", "asker", "--", "python3", "-c", code]
            asked = filled.run(*asker)
            assert asked.returncode == 0, asked.stderr
        held(name, filled.run(*with_json(arguments), timeout=120), exit_code)
    for arguments in (["env", "--shell", "json", "-q"], ["launch", "run", "--print-env", "json", "-q", "--", "true"]):
        held("ft.env/1", filled.run(*arguments), 0)


def test_no_output_is_left_out() -> None:
    """Every command with --json has a row here, and every schema a row that uses it."""
    rows = [*WITHOUT_ENGINE, *WITH_ENGINE]
    covered = {" ".join(arguments[: path.count(" ") + 1]) for _, arguments, _ in rows for path in ("a", "a b")}
    offering = {
        model.path
        for model in flatten(commands())
        if any("--json" in option.words for option in model.options) and not model.children
    }
    assert offering - covered - set(ELSEWHERE) == set()
    unused = set(schemas.names()) - {name for name, *_ in rows}
    assert {name for name in unused if not name.startswith("ft.memory")} == {"ft.env/1"}


@pytest.mark.parametrize(
    "command", [*(["models", name] for name in ACTIONS), *(["bench", name] for name in BENCHMARKS)]
)
def test_what_is_forwarded_offers_json_as_well(command: list[str], filled: Any) -> None:
    done = filled.run(*command, "--help")
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout or command == ["bench", "accuracy"], done.stdout


def test_every_schema_is_printed(filled: Any) -> None:
    assert filled.run("schema").stdout.split() == schemas.names()
    assert json.loads(filled.run("schema", "ft.status").stdout)["$id"] == "ft.status/1"
    assert filled.run("schema", "ft.nothing").returncode == 2
    for name in schemas.names():
        schema = schemas.schema_of(name)
        assert schema is not None and schema["$id"] == name and schema["title"]
