"""The probe with an agent of a few lines: what its card says and what it does are told apart."""

import json

import pytest

AGENT = """#!/usr/bin/env python3
import json, os, sys, urllib.request
if "--version" in sys.argv: print("0.73.1"); sys.exit()
config = json.load(open(os.environ["PI_CODING_AGENT_DIR"] + "/models.json"))["providers"]["ft"]
body = {"model": MODEL or config["models"][0]["id"], "messages": ["x" * SIZE]}
request = urllib.request.Request(config["baseUrl"] + "/chat/completions", json.dumps(body).encode(),
                                 {"authorization": "Bearer " + config["apiKey"]})
urllib.request.urlopen(request)
"""


@pytest.mark.parametrize(("model", "size", "wrong"), [("", 5000, set()), ("paid", 10, {"model", "first request"})])
def test_what_does_not_hold_is_a_warning(model: str, size: int, wrong: set[str], sandbox) -> None:
    program = sandbox.bin / "pi"
    program.write_text(AGENT.replace("MODEL", repr(model)).replace("SIZE", str(size)))
    program.chmod(0o755)
    done = sandbox.run("doctor", "--agent", "pi", "--probe", "--json")
    checks = {c["id"].removeprefix("probe "): c["status"] for c in json.loads(done.stdout)["checks"]}
    assert {name for name, status in checks.items() if name in ("endpoint", "key", "model", "first request")} == {
        "endpoint", "key", "model", "first request",
    }  # fmt: skip
    assert {name for name in ("endpoint", "key", "model", "first request", "egress") if checks[name] == "WARN"} == wrong


def test_a_probe_is_of_one_agent(sandbox) -> None:
    assert sandbox.run("doctor", "--probe").returncode == 2


def test_proxies_and_credentials_are_told_by_name(sandbox) -> None:
    env = {"HTTPS_PROXY": "http://u:secret@p.example:1", "MY_OPENAI_API_KEY": "sk-one"}
    done = sandbox.run("doctor", "--json", env=env)
    checks = {check["id"]: check["text"] for check in json.loads(done.stdout)["checks"]}
    assert "HTTPS_PROXY" in checks["proxy"] and "MY_OPENAI_API_KEY" in checks["credentials"]
    assert "secret" not in done.stdout and "sk-one" not in done.stdout
