"""Puts ft's front before a server of completions that says one sentence, and launches an agent on it.

python upstream.py PLAN.json        {"argv": an `ft launch …`, "model", "words": what the server says, piece by piece}
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.engine.upstream.servers import models, said

START_S = 60


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    ft = plan["argv"][0]
    events = [{"choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in plan["words"]]
    events.append({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    answers = {"GET /v1/models": models("someone"), "POST /v1/completions": [*events, "data: [DONE]"]}
    with said(answers) as server:
        serve = [ft, "serve", "-m", plan["model"], "--upstream", server.url, "--kv", "64k"]
        front = subprocess.Popen(serve, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            _wait_until_ready(ft)
            code = subprocess.run(plan["argv"], stdin=subprocess.DEVNULL).returncode
        finally:
            front.terminate()
            front.wait(30)
        print(f"asked {sum(key == 'POST /v1/completions' for key, _ in server.asked)} times")
    return code


def _wait_until_ready(ft: str) -> None:
    end = time.monotonic() + START_S
    while subprocess.run([ft, "engine", "wait", "--timeout", "5"], capture_output=True).returncode != 0:
        if time.monotonic() > end:
            raise SystemExit("the front did not become ready")
        time.sleep(0.3)


sys.exit(main())
