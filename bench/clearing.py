"""A session whose agent clears its old tool results, turn by turn: `python bench/clearing.py [--json] [--quick]`.

A client of ours speaks Chat Completions to a real engine and edits its history as SWE-agent's `last_n_observations` does: of all tool
results the newest five stay, each older one becomes a line that says how long it was. What the assistant says is given
(scripted: every token of it is computed); its tool is a command that sleeps and then prints a file. The session is played twice, with
work ahead and without, and the same tokens go through llama.cpp with the slots and the prefix rules of its server (bench/agent/replay.py).

Rows `clearing.…`: `ttft` and `on_demand` (seconds to the first token, median of the turns whose prompt was edited, beside llama.cpp;
their `series` has every turn), `computed` (tokens computed while the client waits) and `timeline` (when each turn's request, first token,
tool and work ahead began and ended).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ahead
import httpx
import sides
from clearing_rows import WATCHDOG_S, Played, rows_of

from engine.bench.rows import show
from harnesses import registry

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "agent"))
import peer_model  # noqa: E402
import replay  # noqa: E402
from workloads import WORDS  # noqa: E402

DECLARED = "swe_agent"
CONFIG = {"history_processors": {"last_n_observations": 5}}
KEPT_RESULTS = 5
PLACEHOLDER = "Old environment output: ({lines} lines omitted)"
SYSTEM_WORDS, RESULT_LINES, LINE_WORDS = 1500, 60, 9
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Runs a command.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    }
]
LOOK_S = 0.05  # between two looks at what is computed ahead


def play(client: httpx.Client, folder: Path, turns: int, tool_s: float) -> Played:
    """Talk to the engine for `turns` requests, running the tool that each answer asks for."""
    chance = random.Random(5)
    made, words = Played(), lambda n: " ".join(chance.choices(WORDS, k=n))
    for number in range(1, turns):
        lines = (words(LINE_WORDS) for _ in range(RESULT_LINES))
        (folder / f"part-{number:02}.txt").write_text("\n".join(lines) + "\n")
    script = {"turns": [_turn(number, turns, tool_s) for number in range(1, turns + 1)], "side": "A session"}
    declaration = registry.wire_declaration(registry.read_declaration(registry.ROOT / DECLARED))
    made_session = ahead.session(
        client,
        script=script,
        declaration=declaration,
        version="1.1.0",
        config=CONFIG,
        watchdog_s=WATCHDOG_S,
        name="clearing",
    )
    history: list[dict[str, Any]] = [
        {"role": "system", "content": words(SYSTEM_WORDS)},
        {"role": "user", "content": "Read the parts one by one and say what they are about."},
    ]
    began, stop, before = time.time(), threading.Event(), 0
    watcher = threading.Thread(target=_watch, args=(str(client.base_url), dict(client.headers), made, began, stop))
    watcher.start()
    try:
        for _ in range(turns):
            sent = cleared(history)
            made.edited.append(_placeholders(sent) > before)
            before, times = _placeholders(sent), {"asked_s": time.time() - began}
            reply = _ask(client, made_session, sent, times, began)
            history.append(reply)
            for call in reply.get("tool_calls", []):
                command = json.loads(call["function"]["arguments"])["command"]
                done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=True)
                history.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
            times["tool_end_s"] = time.time() - began
            made.times.append(times)
            replay.note(
                f"clearing: request {len(made.times)} of {turns}, first token after {times['first_s'] - times['asked_s']:.2f} s"
            )
    finally:
        stop.set()
        watcher.join()
    path = f"/v1/sessions/{made_session['id']}/turns"
    made.records = [r for r in client.get(path).raise_for_status().json()["turns"] if not r["side"]]
    if len(made.records) != turns or any(r["end"] not in ("stop", "tool_use") for r in made.records):
        sys.exit(f"clearing: {len(made.records)} of {turns} turns were answered")
    return made


def cleared(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the client sends: all but the newest tool results are one line."""
    old = [i for i, message in enumerate(history) if message["role"] == "tool"][:-KEPT_RESULTS]
    return [
        {**message, "content": PLACEHOLDER.format(lines=len(message["content"].splitlines()))} if i in old else message
        for i, message in enumerate(history)
    ]


def _placeholders(history: Sequence[dict[str, Any]]) -> int:
    return sum(m["role"] == "tool" and m["content"].startswith(PLACEHOLDER.partition("{")[0]) for m in history)


def _turn(number: int, turns: int, tool_s: float) -> dict[str, Any]:
    if number == turns:
        return {"blocks": [{"text": "All parts hold the same kind of words, in an order that says nothing."}]}
    said = f"Part {number} comes next. I keep in mind what the parts before it said and look at this one as a whole."
    command = f"sleep {tool_s:g} && cat part-{number:02}.txt"
    return {"blocks": [{"text": said}, {"tool": "bash", "args": {"command": command}}]}


def _ask(
    client: httpx.Client, session: dict[str, Any], sent: list[dict[str, Any]], times: dict[str, float], began: float
) -> dict[str, Any]:
    """The assistant's message; adds when its first token and its last came to `times`."""
    text, calls = "", {}
    body = {"messages": sent, "tools": TOOLS, "stream": True, "max_tokens": 1000}
    with client.stream("POST", ahead.chat(session), json=body, headers=ahead.bearer(session)) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                if delta.get("content") or delta.get("tool_calls"):
                    times.setdefault("first_s", time.time() - began)
                text += delta.get("content") or ""
                for part in delta.get("tool_calls") or []:
                    call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                    call["id"] = call["id"] or part.get("id") or ""
                    call["name"] += part["function"].get("name") or ""
                    call["arguments"] += part["function"].get("arguments") or ""
    times["replied_s"] = time.time() - began
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()
        ]
    return message


def _watch(url: str, headers: dict[str, str], made: Played, began: float, stop: threading.Event) -> None:
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        while not stop.wait(LOOK_S):
            told = client.get("/v1/stats").json()["anticipation"]
            made.looks.append((time.time() - began, told["submitted"], told["computed"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-moe", help="name in --models-dir")
    parser.add_argument("--models-dir", type=Path, default=Path.home() / ".local/share/ft/models")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--tool-seconds", type=float, default=10.0, help="how long each tool runs")
    parser.add_argument("--quick", action="store_true", help="8 turns, tools of 2 seconds, without llama.cpp")
    parser.add_argument("--json", action="store_true")
    sides.add_peer_flag(parser)
    args = parser.parse_args()
    if args.quick:
        args.turns, args.tool_seconds = 8, 2.0
    played = []
    with tempfile.TemporaryDirectory(prefix="ft-clearing-") as temporary:
        tokens = Path(temporary) / "tokens"
        for works_ahead in (True, False):
            folder = Path(temporary) / f"ahead-{works_ahead}"
            folder.mkdir()
            record = tokens if works_ahead else None
            with ahead.engine(args.model, args.models_dir, args.threads, works_ahead, record) as client:
                played.append(play(client, folder, args.turns, args.tool_seconds if works_ahead else 0.1))
        peer: dict[str, dict[str, Any]] = {}
        python = None if args.quick else sides.find_peer(args.peer_python)
        if python is None:
            sys.stderr.write(
                "clearing: not compared with llama.cpp\n" if args.quick else f"clearing: {sides.NO_PEER}\n"
            )
        else:
            model = peer_model.of(args.model, args.models_dir / args.model, None)
            assert model is not None, "the model has no GGUF file with the same weights"
            requests = replay.read(tokens / "tokens.jsonl", [r["id"] for r in played[0].records])
            peer = replay.run(python, model, requests, args.threads)
    note = f"tools of {args.tool_seconds:g} s; {KEPT_RESULTS} newest tool results stay; {replay.NOTE}"
    rows = rows_of(played[0], played[1], peer, {"model": args.model, "scripted": True, "note": note})
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
