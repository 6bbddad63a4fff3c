"""A kept session once more, timed by CPU seconds: `python bench/agent/again.py WORK MODEL OUT.json`.

WORK is the folder that `ft bench agent --keep-work` left of one workload, MODEL the directory of its model. The scheduler and the
runner of the worker compute the very same tokens, in one thread and by the clock of this process: what else the machine does then
changes little. OUT gets the records that the forecast learns from; tests/engine/front/forecast_*.json were made like this. Requests
begin when the one before has ended, or as long after its start as they did. Rendering is as it was measured, and a reply
shows something with its first token behind the tag that opens a thought.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import torch

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.prompt.language import Language
from engine.protocol import EditPoint, Submit
from engine.runner.load import load
from engine.scheduler.loop import Limits, Scheduler

KEPT = ("side", "output_tokens", "render_s", "queue_s", "restore_s", "computed_s", "first_token_s", "decode_s")
THOUGHT = re.compile(r"(<(think>?)?)?\s*")
clock = time.process_time


class Session:
    """The worker's loop without its process. `stamps` are the times of each request's tokens, `done` its last message."""

    def __init__(self, model: Path, kv_tokens: int) -> None:
        plan = plan_model(model, Settings(kv_tokens=kv_tokens)).require()
        self._loaded = loaded = load(model, plan, 1)  # owns the memory
        pools, store = loaded.pools, None
        cache = RadixCache(pools.pages, pools.page_tokens)
        if pools.states is not None:
            store = CheckpointStore(pools.states, plan.checkpoints * pools.states.state_bytes)
            cache = RadixCache(pools.pages, pools.page_tokens, True, store.drop, store.protected)
        limits = Limits(plan.window_tokens, 1 << 30, plan.max_running, plan.chunk_tokens)
        self.scheduler = Scheduler(loaded.runner, pools, cache, store, limits, self._emit, clock=clock)
        self.stamps: dict[str, list[float]] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.began: dict[str, float] = {}
        self.submit(Submit("first", [5] * plan.chunk_tokens, 1))
        while self.scheduler.step():
            pass

    def submit(self, submit: Submit) -> None:
        self.began[submit.rid], self.stamps[submit.rid] = clock(), []
        self.scheduler.submit(submit)

    def _emit(self, message: dict[str, Any]) -> None:
        if message["t"] == "tokens":
            self.stamps[message["rid"]].append(clock())
        elif message["t"] == "done":
            self.done[message["rid"]] = message
        elif message["t"] == "error":
            raise SystemExit(f"again: {message['message']}")


def play(session: Session, records: list[dict[str, Any]], tokens: dict[str, dict[str, Any]]) -> None:
    """Submit all `records`, oldest first, and compute them."""
    left, running = list(records), []
    while left or running:
        while left:
            beside = [r for r in running if r["started"] + r["total_s"] > left[0]["started"]]
            wait_s = left[0]["started"] - beside[-1]["started"] if beside else 0.0
            if running and (not beside or clock() < session.began[beside[-1]["id"]] + wait_s):
                break
            running.append(left.pop(0))
            session.submit(_submit(running[-1], records, tokens[running[-1]["id"]]))
        session.scheduler.step()
        running = [r for r in running if r["id"] not in session.done]


def _submit(record: dict[str, Any], records: list[dict[str, Any]], tokens: dict[str, Any]) -> Submit:
    """With a checkpoint wherever a later request of the line resumed."""
    prompt, later = tokens["prompt"], [r for r in records if r["started"] > record["started"]]
    places = {r["cached_tokens"] for r in later if r["line"] == record["line"]}
    points = [EditPoint(place, "turn") for place in sorted(places) if 0 < place <= len(prompt)]
    priority = "side" if record["side"] else "main"
    return Submit(
        record["id"], prompt, len(tokens["output"]), record["line"], points, forced=tokens["output"], priority=priority
    )


def told(session: Session, record: dict[str, Any], output: list[int], language: Language) -> dict[str, Any]:
    """The record as it would be on a machine that does nothing else."""
    message, began = session.done[record["id"]], session.began[record["id"]]
    usage, made = message["usage"], {**record, **message["timings"]}
    shown = next(i for i in range(len(output)) if not THOUGHT.fullmatch(language.decode(output[: i + 1])))
    stamps = session.stamps[record["id"]]
    made["output_tokens"] = usage["output"]
    made["ttft_s"] = record["render_s"] + stamps[min(shown, len(stamps) - 1)] - began
    return {
        "started": round(began, 4),
        "prompt_tokens": usage["prompt"],
        "cached_tokens": usage["cached"],
        "tier": usage["tier"],
        **{name: round(made[name], 6) if isinstance(made[name], float) else made[name] for name in (*KEPT, "ttft_s")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kv", type=int, default=98304)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads((options.work / "report.json").read_text())["results"]
    (listing,) = [json.loads(r["stdout"]) for r in results if "requests" in r["argv"]]
    tokens = {line["id"]: line for line in map(json.loads, (options.work / "tokens" / "tokens.jsonl").open())}
    records = [r for r in listing["requests"] if r["id"] in tokens and r["end"] in ("stop", "tool_use")]
    language, session = Language.load(options.model), Session(options.model, options.kv)
    play(session, records, tokens)
    made = [told(session, record, tokens[record["id"]]["output"], language) for record in records]
    options.out.write_text(json.dumps(made, indent=0) + "\n")


if __name__ == "__main__":
    main()
