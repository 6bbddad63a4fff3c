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

from engine.bench.rows import Row, row, show
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
WATCHDOG_S = 300.0  # what Claude Code waits for a silent stream unless it is told otherwise
LOOK_S = 0.05  # between two looks at what is computed ahead
TURN_COLUMNS = [
    "prompt_tokens",
    "cached_tokens",
    "replayed_tokens",
    "new_tokens",
    "anticipated_tokens",
    "ttft_s",
    "peer_s",
    "peer_cached",
    "edited",
]
TIME_COLUMNS = ["asked_s", "first_s", "replied_s", "tool_end_s", "ahead_start_s", "ahead_end_s", "ahead_tokens"]


class Played:
    """One session. Times are those of the client's clock, since its first request."""

    def __init__(self) -> None:
        self.times: list[dict[str, float]] = []
        self.looks: list[tuple[float, int, int]] = []  # time, submitted and computed ahead so far
        self.records: list[dict[str, Any]] = []
        self.edited: list[bool] = []


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


def ahead_of(made: Played) -> list[list[float | None]]:
    """For each turn, when the work ahead behind its reply began and ended, and its tokens; None where there was none."""
    found: list[list[float | None]] = []
    starts = [times["replied_s"] for times in made.times]
    for number, start in enumerate(starts):
        end = made.times[number + 1]["first_s"] if number + 1 < len(starts) else float("inf")
        before = max((look for look in made.looks if look[0] < start), default=(0.0, 0, 0))
        looks = [look for look in made.looks if start <= look[0] < end]
        began = next((at for at, submitted, _ in looks if submitted > before[1]), None)
        ended = [at for (at, _, n), earlier in zip(looks, [before, *looks], strict=False) if n > earlier[2]]
        tokens = looks[-1][2] - before[2] if looks else 0
        found.append([began, ended[-1], tokens] if began is not None and ended and tokens else [None, None, 0])
    return found


def rows_of(ours: Played, demand: Played, peer: dict[str, dict[str, Any]], more: dict[str, Any]) -> list[Row]:
    """`peer` answers for the requests of `ours`, whose tokens both plays have in common."""
    theirs = [peer.get(record["id"]) for record in ours.records]
    made = []
    for name, played in (("ttft", ours), ("on_demand", demand)):
        edited = [i for i, yes in enumerate(played.edited) if yes]
        baseline = [theirs[i]["prefill_s"] for i in edited if theirs[i] is not None]
        values = [played.records[i]["ttft_s"] for i in edited]
        made.append(
            row(f"clearing.{name}", "s", values, baseline, **more, series_columns=TURN_COLUMNS, watchdog_s=WATCHDOG_S)
        )
        made[-1]["series"] = [
            [
                *(_number(record[field]) for field in TURN_COLUMNS[:6]),
                None if other is None else round(other["prefill_s"], 4),
                None if other is None else other["cached"],
                int(yes),
            ]
            for record, other, yes in zip(played.records, theirs, played.edited, strict=True)
        ]
    computed = sum(record["prompt_tokens"] - record["cached_tokens"] for record in ours.records)
    others = [
        record["prompt_tokens"] - other["cached"]
        for record, other in zip(ours.records, theirs, strict=True)
        if other is not None
    ]
    made.append({**row("clearing.computed", "tokens", [computed], [sum(others)] if others else [], **more)})
    timeline = row("clearing.timeline", "turns", [len(ours.times)], **more, series_columns=TIME_COLUMNS)
    timeline["series"] = [
        [*(round(times[name], 3) for name in TIME_COLUMNS[:4]), *(_number(n) for n in work)]
        for times, work in zip(ours.times, ahead_of(ours), strict=True)
    ]
    return [*made, timeline]


def _number(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value


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
