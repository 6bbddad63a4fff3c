"""What leaves the machine with `ft report`: canaries in every place that could leak, and none of them in the file."""

from __future__ import annotations

import base64
import json
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ftagent.paths import find_paths
from ftagent.redaction import Redaction

KEY = 'canary+key/with "quotes" 0123456789'
PEM = "-----BEGIN PRIVATE KEY-----\nMIICANARYCANARY\nCANARYEND\n-----END PRIVATE KEY-----"
VARIABLES = {
    "MY_SERVICE_API_KEY": KEY,
    "OPENAI_API_KEY": "sk-canary-openai-0123456789",
    "HF_TOKEN": "hf_canaryhub0123456789",
    "DEPLOY_PRIVATE_KEY": PEM,
    "DATABASE_URL": "postgres://ann:canarypass@db.example/x",
    "AWS_SECRET_ACCESS_KEY": "canaryaws0123456789/abc",
    "USER": "canaryuser",
    "EDITOR": "canaryeditor --wait",
}
PROMPT = "the canary prompt about zebras"


@pytest.fixture
def engine(sandbox: Any, models_dir: Path) -> Any:
    """The real one; with a project and a home whose names nobody is to read."""
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", **VARIABLES}
    folder = sandbox.root / "client-canarycorp"
    folder.mkdir()
    sandbox.agent('echo "$*" >/dev/null; exit 0')
    yield folder
    sandbox.run("engine", "stop")


def test_nothing_of_the_person_their_work_and_their_keys_is_in_a_report(sandbox: Any, engine: Path) -> None:
    """A launch and a question at a real engine, whose log then repeats everything that a log must not say."""
    launched = sandbox.run(
        "launch", "pi", "--name", "canaryname", "--", PROMPT, cwd=engine, timeout=400, env={"FT_IDLE_STOP": "600"}
    )
    assert launched.returncode == 0, launched.stderr
    asked = sandbox.run("run", "--max-output", "4", PROMPT, timeout=400)
    assert asked.returncode == 0, asked.stderr
    admin = json.loads((sandbox.runtime / "engine.json").read_text())["admin_token"]
    record = next((sandbox.ft_home / "state" / "sessions").glob("s-*/session.json"))
    held = json.loads(record.read_text())
    log = sandbox.ft_home / "state" / "logs" / "engine.log"
    assert PROMPT not in log.read_text(), "a prompt is never logged"
    jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canarysignature"
    lines = [
        *(value for name, value in VARIABLES.items() if name != "EDITOR"),
        json.dumps({"value": KEY, "headers": {"authorization": "Basic Y2FuYXJ5OnB3"}}),
        f"GET /v1/models?key={quote(KEY, safe='')} from {base64.b64encode(KEY.encode()).decode()}",
        f"admin {admin} bearer ft_sess_canary123 {jwt} AKIACANARY0123456789 ghp_canary0123456789abcd",
        f"reading {engine}/src/payroll-canary/main.py and {sandbox.home}/notes-canary/a.txt failed",
        "password=canarypw1 token: 'canarytoken2' max_tokens: 4096",
        f"{sandbox.ft_home}/data/models/tiny-hybrid is read; POST /v1/messages 200; POST /s/{held['id']}/v1/messages 200",
    ]
    with log.open("a") as file:
        file.write("\n".join(lines) + "\n")
    done = sandbox.run("report", "-o", "r.zip", cwd=engine)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(engine / "r.zip") as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
        everything = "\n".join([*texts, *texts.values(), bundle.comment.decode()])
    leaked = [word for word in ("canary", "CANARY", "Y2FuYXJ5", str(sandbox.home), "zebras") if word in everything]
    assert not leaked, [line for line in everything.splitlines() if any(word in line for word in leaked)]
    assert admin not in everything and quote(KEY, safe="") not in everything
    assert str(sandbox.root) not in everything
    kept = texts["engine.log"]
    assert "max_tokens: 4096" in kept and "POST /v1/messages 200" in kept and f"/s/{held['id']}/v1/messages" in kept
    assert "$FT_DATA/models/tiny-hybrid is read" in kept and "…/main.py" in kept
    assert json.loads(texts["sessions.json"])[0]["agent"] == "pi"
    assert json.loads(texts["engine.json"])["state"] == "ready"
    names = [check["id"] for check in json.loads(texts["doctor.json"])]
    assert "credentials" in names and "OPENAI_API_KEY" in texts["doctor.json"], "names of variables are told"


def test_what_is_no_secret_stays(sandbox: Any) -> None:
    """Figures, commits, versions, addresses on this machine, and files of the system are what a report is for."""
    hide = Redaction(find_paths(sandbox.env), {**sandbox.env, "SHORT_TOKEN": "on"}, names=["ann"])
    for text in (
        "0123456789abcdef0123456789abcdef01234567 at http://127.0.0.1:1919/v1/models took 4.25 s",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1 and ~/.claude/settings.json",
        "tokens: 512, key: null, on and off, planned for a banner",
        "ratio 3/4, and/or, 12/30/2026, text/event-stream",
    ):
        assert hide.text(text) == text
    assert hide.text("ann's file") == "****'s file"
    assert hide.text(f"{sandbox.home}other/x") == "…/x"
