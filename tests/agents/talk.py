"""A program at the other end of an agent's pipes: sends lines and waits for what is to come. For agents that serve.

    python talk.py SPEC.json

SPEC: {"argv", "steps": [{"send": text} | {"until": regex, "within_s"}]}. Named groups of a match fill `{name}` in later texts.
Prints all that the agent said; exits with its code once its input is closed, 125 when something did not come, 124 when the
agent would not end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

END_S = 15.0


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    child = subprocess.Popen(spec["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert child.stdin is not None and child.stdout is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(iter(child.stdout.readline, "")), daemon=True)
    reader.start()
    names: dict[str, str] = {}
    code = 0
    for step in spec["steps"]:
        if "send" in step:
            text = re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[0]), step["send"])
            child.stdin.write(text + "\n")
            child.stdin.flush()
        elif not _came(step, said, names, child):
            print(f"did not come within {step['within_s']} s: {step['until']}", file=sys.stderr)
            code = 125
            break
    child.stdin.close()
    try:
        ended = child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        ended = 124
    reader.join(2)
    print("".join(said))
    return code or ended


def _came(step: dict[str, Any], said: list[str], names: dict[str, str], child: subprocess.Popen[str]) -> bool:
    end = time.monotonic() + step["within_s"]
    while time.monotonic() < end:
        match = re.search(step["until"], "".join(said))
        if match:
            names.update(match.groupdict())
            return True
        if child.poll() is not None:
            return False
        time.sleep(0.1)
    return False


sys.exit(main())
