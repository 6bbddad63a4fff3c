"""Models whose experts do not fit the memory they are given: a session served from disk says what one in RAM says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.weights.manifest import load_manifest
from tests.serving import Engine, engine_server

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
LAYERS = int(os.environ.get("FT_TEST_LAYERS", "40"))  # of the large model
LINES = [f"def function_{i}(x): return x * {i} + {i * i % 97}" for i in range(40)]


def session(engine: Engine, turns: int, max_tokens: int) -> list[tuple[str, int, int]]:
    """(reply, prompt tokens, cached tokens) of each turn of an agent's session that reads files."""
    opened = engine.session()
    headers = {"authorization": f"Bearer {opened['token']}"}
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a careful engineer."}]
    messages.append({"role": "user", "content": "Read the files and say what they do."})
    found = []
    for turn in range(turns):
        body = {"model": "m", "messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": max_tokens}
        answer = engine.client.post(
            f"{opened['base_urls']['openai']}/chat/completions", json=body, headers=headers, timeout=600
        )
        assert answer.status_code == 200, answer.text
        data = answer.json()
        text = data["choices"][0]["message"]["content"] or ""
        usage = data["usage"]
        found.append((text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(LINES[turn * 3 : turn * 3 + 9])}
        )
    return found


def major_faults(pid: int) -> int:
    """Pages of a process that the kernel had to read from disk."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


def test_a_session_from_disk_is_that_of_a_model_in_memory(models_dir):
    bank = load_manifest(models_dir / "tiny-hybrid").geometry
    budget = bank.bank_bytes // 6
    flags = ["--kv", "4k", "--activations", "f32"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        expected = session(engine, 4, 24)
    with engine_server("tiny-hybrid", models_dir, flags=[*flags, "--host-memory", str(budget)]) as engine:
        assert session(engine, 4, 24) == expected
        worker = engine.get("/v1/stats")["engine"]
    assert worker["settings"]["moe_backend"] == "offload"
    assert worker["settings"]["host_memory"] == budget
    assert worker["experts"]["slots"] == budget // bank.expert_bytes < bank.moe_layers * bank.experts
    assert worker["experts"]["filled"] > bank.moe_layers * bank.experts, "experts were read again and again"
    assert expected[-1][2] > 0, "later turns find their prefix"


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.skipif(shutil.disk_usage(Path.home()).free < (6 + LAYERS // 2) << 30, reason="not enough free disk")
def test_a_model_of_35_billion_parameters_is_served_from_disk(tmp_path):
    make = ["synth", "--like", "qwen3.6-35b-a3b", "--format", "mxfp4", "--layers", str(LAYERS), "--name", "big"]
    command = [sys.executable, "-P", "-m", "engine", "models", *make, "--models-dir", str(tmp_path)]
    began = time.monotonic()
    try:
        subprocess.run(command, check=True, capture_output=True)
        print(f"{LAYERS} layers written in {time.monotonic() - began:.0f} s")
        bank = load_manifest(tmp_path / "big").geometry
        replies = []
        for share in (4, 7):
            budget = bank.bank_bytes // share
            flags = ["--kv", "4k", "--host-memory", str(budget)]
            with engine_server("big", tmp_path, flags=flags, ready=False) as engine:
                engine.wait_ready(900)
                began = time.monotonic()
                replies.append(session(engine, 2, 6))
                worker = engine.get("/v1/stats")["engine"]
                print(f"{budget >> 20} MiB for experts: {time.monotonic() - began:.0f} s, {worker['tokens']},")
                print(f"  {major_faults(engine.worker_pid())} major faults, {worker['experts']['disk']}")
                assert worker["experts"]["slots"] == budget // bank.expert_bytes
                assert worker["memory"]["resident_bytes"] < worker["plan"]["total_bytes"] * 1.05
        assert replies[0] == replies[1], "how many experts are in memory changes nothing"
    finally:
        shutil.rmtree(tmp_path / "big", ignore_errors=True)
