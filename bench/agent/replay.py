"""The same tokens once more through llama.cpp: what its server would need for a recorded session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOTE = "llama.cpp computes the same prompts and decodes the same tokens, its own prefix cache at work, without HTTP and sampling"


def read(path: Path, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The recorded requests among `ids`, in the order in which they came."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    wanted = set(ids)
    return sorted((line for line in lines if line["id"] in wanted and line["output"]), key=lambda line: line["started"])


def run(python: Path, model: Path, requests: Sequence[dict[str, Any]], threads: int) -> dict[str, dict[str, Any]]:
    """What llama.cpp needed for each request, by its id: {cached, prefill_s, decode_s, decoded}. One after another."""
    longest = max(len(r["prompt"]) + len(r["output"]) for r in requests)
    context = (2 * longest + 8192) // 256 * 256
    command = [
        str(python),
        str(HERE / "serve_peer.py"),
        str(model),
        "--threads",
        str(threads),
        "--context",
        str(context),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        _answer(process)
        made = {}
        for request in requests:
            process.stdin.write(json.dumps({"prompt": request["prompt"], "output": request["output"]}) + "\n")
            process.stdin.flush()
            made[request["id"]] = _answer(process) | {"decoded": len(request["output"]) - 1}
        process.stdin.close()
    return made


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"llama.cpp ended with {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def note(text: str) -> None:
    print(f"agent: {text}", file=sys.stderr, flush=True)
