"""`python -m harnesses.mini "task"`: reads FT_BASE_URL and FT_TOKEN, works until the model calls no more tools."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harnesses.mini.client import Client, EngineError, Reply
from harnesses.mini.tools import DEFINITIONS, ToolError, run_tool

SYSTEM = """You are a coding agent in a terminal. Work step by step with the tools read, bash, edit and write until the task \
is done, then answer in one or two sentences. Paths are relative to {cwd}."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHOWN_CHARS = 100


def main() -> int:
    """The exit code: 0 when the model finished, 1 when it could not, 2 for bad usage, 130 after an interrupt."""
    options = _options()
    client = Client(options.base_url.rstrip("/"), options.token, options.timeout)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM.format(cwd=Path.cwd())},
        {"role": "user", "content": options.task},
    ]
    try:
        for step in range(1, options.max_steps + 1):
            reply = client.complete({"model": options.model, "messages": messages, "tools": DEFINITIONS}, _show)
            _end_line(reply)
            messages.append(reply.message())
            if not reply.tool_calls:
                return _finished(reply)
            messages += [_carry_out(call, step) for call in reply.tool_calls]
    except EngineError as error:
        print(f"mini: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"mini: not finished after {options.max_steps} steps. Give it more with --max-steps.", file=sys.stderr)
    return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mini", description="A minimal coding agent.")
    parser.add_argument("task", help="what to do, in words")
    parser.add_argument("--max-steps", type=int, default=30, metavar="N", help="answers of the model at most (30)")
    parser.add_argument("--model", default=os.environ.get("FT_MODEL", "default"), help="default: $FT_MODEL")
    parser.add_argument(
        "--timeout",
        type=float,
        default=float(os.environ.get("FT_SILENCE_S", "3600")),
        metavar="S",
        help="longest silence",
    )
    options = parser.parse_args()
    options.base_url = os.environ.get("FT_BASE_URL", "")
    options.token = os.environ.get("FT_TOKEN", "")
    if not options.base_url or not options.token:
        parser.error("FT_BASE_URL and FT_TOKEN are not set; start it with: ft launch mini -- TASK")
    if urlsplit(options.base_url).scheme != "http" or urlsplit(options.base_url).hostname not in LOOPBACK:
        parser.error(f"FT_BASE_URL is {options.base_url}: the token is sent to this machine only")
    return options


def _show(delta: dict[str, Any]) -> None:
    if delta.get("content"):
        print(delta["content"], end="", flush=True)


def _end_line(reply: Reply) -> None:
    if reply.text and not reply.text.endswith("\n"):
        print(flush=True)


def _finished(reply: Reply) -> int:
    if reply.finish == "stop":
        return 0
    print(f"mini: the answer ended by {reply.finish}", file=sys.stderr)
    return 1


def _carry_out(call: dict[str, Any], step: int) -> dict[str, Any]:
    """Runs one tool call and gives the message that answers it; a failure is an answer too."""
    name = call["function"]["name"]
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
        if not isinstance(arguments, dict):
            raise ToolError("the arguments are no JSON object")
        subject = str(arguments.get("command") or arguments.get("path") or "")
        print(f"[{step}] {name} {subject[:SHOWN_CHARS]}", flush=True)
        result = run_tool(name, arguments, Path.cwd())
    except (ToolError, json.JSONDecodeError) as error:
        result = f"error: {error}"
        print(f"[{step}] {name}: {result}", flush=True)
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


if __name__ == "__main__":
    sys.exit(main())
