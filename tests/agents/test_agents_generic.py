"""Clients without a launcher of their own: `ft launch run`, `ft env`, and the draft of what they do. Nothing leaves loopback."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from tests.agents.conftest import BIN

pytestmark = pytest.mark.agents

CLIENT = """
import json, os, sys, urllib.request

tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}

def ask(messages):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": [tool], "max_tokens": 64}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "user-agent": "my-agent/3.1"})
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]

history = [{"role": "system", "content": "You help."}]
for number in range(4):
    history.append({"role": "user", "content": f"Question {number}. " * 12})
    moved = {"role": "user", "content": f"<<state>> step {number}, all is well"}
    answer = ask([*history, moved])
    history.append({"role": "assistant", "content": answer["content"]})
print(history[-1]["content"])
"""


@pytest.mark.timeout(300)
def test_an_unknown_client_runs_and_a_declaration_of_it_is_drafted(rig: Any) -> None:
    rig.keep("project/my_agent.py", CLIENT)
    rig.env["OPENAI_API_KEY"] = "sk-real"
    ft = str(BIN / "ft")
    script = rig.folder / "script.json"
    script.write_text(json.dumps({"turns": [{"blocks": [{"text": f"Answer {n}."}]} for n in range(4)]}))
    run = [ft, "launch", "run", "-m", "tiny-hybrid", "--script", str(script)]
    draft, requests = [ft, "ctl", "draft"], [ft, "ctl", "requests", "--json"]
    seen = rig.run(
        [*run, "--", "python3", "my_agent.py"],
        ["sh", "-c", f"{ft} ctl draft | tee mine.toml"], [*draft, "--json"], requests,
        [*run, "--declaration", "mine.toml", "--", "python3", "my_agent.py"],
        [ft, "ctl", "explain", "--json"], [ft, "engine", "stop"],
        timeout_s=120,
    )  # fmt: skip
    _, text, as_json, listed, _, explained, _ = seen["results"]
    assert [result["code"] for result in seen["results"]] == [0] * 7, seen
    assert len(json.loads(listed["stdout"])["requests"]) == 4
    declaration = tomllib.loads(text["stdout"])
    assert declaration == json.loads(as_json["stdout"])["declaration"]
    assert [rule["op"] for rule in declaration["rule"]] == ["move_tail"]
    assert declaration["wire"]["match"] == [{"header": "user-agent", "re": "^my\\-agent"}]
    assert (seen["no_routes"], [name for name in seen["names"] if name != "localhost"]) == (0, [])
    scores = json.loads(explained["stdout"])["session"]["predictions"]
    assert scores["tail"]["hits"] >= 2 and scores["tail"]["misses"] == 0, scores


@pytest.mark.timeout(300)
def test_variables_for_a_client_started_elsewhere(rig: Any) -> None:
    rig.keep("project/my_agent.py", CLIENT)
    rig.compute_nothing()
    ft = str(rig.ft)
    evaluated = ["sh", "-c", f'eval "$({ft} env -m tiny-hybrid)" && exec python3 my_agent.py']
    as_json, stop = [ft, "env", "--shell", "json"], [ft, "engine", "stop"]
    seen = rig.run(evaluated, as_json, [ft, "ctl", "requests", "--json"], stop, timeout_s=120)
    assert [result["code"] for result in seen["results"]] == [0] * 4, seen
    values = json.loads(seen["results"][1]["stdout"])
    assert values["set"]["OPENAI_BASE_URL"].endswith(f"/s/{values['session']}/v1")
    requests = json.loads(seen["results"][2]["stdout"])["requests"]
    assert len(requests) == 4 and all(r["session"] and r["session"] != values["session"] for r in requests)


SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mini_swe_agent(rig: Any) -> None:
    rig.install("mini_swe_agent")
    edit = f"sed -i 's/a - b/a + b/' {rig.project}/calc.py"
    calls = [f"cat {rig.project}/calc.py", edit, SUBMIT]
    turns = [{"blocks": [{"text": "Go on."}, {"tool": "bash", "args": {"command": call}}]} for call in calls]
    run = rig.launch(
        "run",
        "mini",
        "-y",
        "--exit-immediately",
        "-t",
        "Repair add.",
        model="tiny-hybrid",
        timeout_s=200,
        script={"turns": turns},
    )
    assert run.code == 0, str(run)
    assert (rig.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n", str(run)
    assert [request["end"] for request in run.requests] == ["tool_use"] * 3, str(run)
    assert all(later["cached_tokens"] > 0 for later in run.requests[1:]), str(run)
    assert run.session["harness"] == "mini_swe_agent" and (run.lookups, run.no_routes) == ([], 0)


ANSWER = """I correct the sign.

calc.py
<<<<<<< SEARCH
    return a - b
=======
    return a + b
>>>>>>> REPLACE
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_aider(rig: Any) -> None:
    rig.install("aider")
    options = (
        "--yes-always",
        "--no-git",
        "--no-stream",
        "--edit-format",
        "diff",
        "--message",
        "Repair add.",
        "calc.py",
    )
    run = rig.launch("run", "aider", *options, model="tiny-hybrid", timeout_s=200, script={"turns": [], "side": ANSWER})
    assert run.code == 0, str(run)
    assert (rig.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n", str(run)
    assert run.requests and all(not request["error"] for request in run.requests), str(run)
    assert run.session["harness"] == "aider" and run.no_routes == 0
    assert set(run.lookups) <= {"raw.githubusercontent.com"}, "its list of prices, which has no switch"
