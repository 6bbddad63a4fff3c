"""`ft bench agent`: its arithmetic, its workloads as data, llama.cpp's side of it, and whole runs with the published agents."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.upstream.peers import llama

ROOT = Path(__file__).parents[2]
FOLDERS = [str(ROOT / "bench" / "agent"), str(ROOT / "bench")]
FIELDS = {"name", "value", "unit", "baseline", "ratio", "samples", "model", "agent", "scripted"}


@pytest.fixture(scope="module", autouse=True)
def bench_folders() -> Iterator[None]:
    sys.path[:0] = FOLDERS
    yield
    for folder in FOLDERS:
        sys.path.remove(folder)


def record(started: float, total: float = 1.0, **fields: Any) -> dict[str, Any]:
    made = {
        "id": f"r{started}", "started": started, "total_s": total, "end": "tool_use", "side": False, "kind": None,
        "harness_parent": None, "output_tokens": 11, "decode_s": 0.5, "prompt_tokens": 1000, "cached_tokens": 900,
        "replayed_tokens": 0, "prefill_s": 0.2, "ttft_s": 0.25, "predicted_ttft_s": None, "watchdog_s": 300.0,
        "resent": False, "error": None,
    }  # fmt: skip
    return made | fields


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"].rpartition(".")[2]: row for row in rows}


def test_time_under_way_counts_once() -> None:
    import session_figures as figures

    assert figures.busy_s([record(0, 2), record(1, 2), record(10, 1)]) == 4.0
    assert figures.busy_s([record(0, 5), record(1, 1)]) == 5.0


def test_rates_come_from_turns_that_had_the_machine_for_themselves() -> None:
    import session_figures as figures

    beside = record(0, 2, output_tokens=61, decode_s=6.0)
    alone = record(10, 2, output_tokens=61, decode_s=2.0)
    title = record(1, 2, output_tokens=5, side=True, kind="title")
    peer = {"r0": {"decoded": 60, "decode_s": 3.0}, "r10": {"decoded": 60, "decode_s": 1.5}}
    assert figures.decode_rates([beside, title, alone], peer) == {"ours": 30.0, "theirs": 40.0}
    nobody = [beside, record(1, 2, output_tokens=61, decode_s=6.0)]
    assert figures.decode_rates(nobody, {}) == {"ours": 10.0}  # none was alone
    assert figures.decode_rates([record(0, output_tokens=3)], peer) == {}


def test_growth_compares_like_with_like() -> None:
    import session_figures as figures

    turns = [record(i, cached_tokens=1000 - new) for i, new in enumerate((900, 400, 30, 430, 20))]
    assert figures.growth(turns) == (turns[1], turns[3])
    assert figures.growth([*turns[:3], turns[4]]) is None and figures.growth(turns[:2]) is None


def test_rows_say_everything_once() -> None:
    import session_figures as figures

    records = [
        record(0, side=True, kind="title", ttft_s=0.1),
        *(record(10 * i, cached_tokens=700, ttft_s=0.5 + 0.1 * i, predicted_ttft_s=0.5, output_tokens=40) for i in range(1, 5)),
        record(60, cached_tokens=700, harness_parent="sub", ttft_s=2.0),
        record(70, end="error", resent=True, ttft_s=None),
    ]  # fmt: skip
    records[2]["broke_at"] = {"kind": "tool_result", "rule": "clear"}
    records[3]["broke_at"] = {"kind": "tool_result", "rule": None}
    seconds = {"prefill_s": 0.4, "decode_s": 0.78, "decoded": 39, "cached": 0}
    peer = {r["id"]: {**seconds, "prefill_s": 0.4 + 0.2 * (i == 4)} for i, r in enumerate(records[:6])}
    first = {"ours": 80.0, "theirs": 100.0}
    made = figures.rows("w3", records, peer, first, {"model": "m", "agent": "claude", "scripted": True})
    assert all(set(row) >= FIELDS and row["name"].startswith("agent.w3.") for row in made)
    rows = by_name(made)
    assert len(rows) == len(made)
    assert rows["turns"]["value"] == 4 and rows["retries"]["value"] == 1
    series = [dict(zip(rows["turns"]["series_columns"], turn, strict=True)) for turn in rows["turns"]["series"]]
    assert [turn["ttft_s"] for turn in series] == [0.6, 0.7, 0.8, 0.9]
    assert [turn["peer_s"] for turn in series] == [0.4, 0.4, 0.4, 0.6] and series[0]["predicted_ttft_s"] == 0.5
    assert [turn["edit"] for turn in series] == ["", "clear", "tool_result", ""] and series[0]["watchdog_s"] == 300.0
    assert (rows["decode"]["value"], rows["decode"]["baseline"]) == (78.0, 50.0)
    assert rows["decode_kept"]["ratio"] == 0.975 and "llama.cpp keeps 0.50" in rows["decode_kept"]["note"]
    assert (rows["ttft_max"]["value"], rows["ttft_max"]["baseline"]) == (2.0, 300.0)
    assert rows["ttft_growth"]["ratio"] == pytest.approx(0.9 / 0.7, abs=1e-3)
    assert "llama.cpp's prefill grows 1.50 times" in rows["ttft_growth"]["note"]
    assert (rows["cached"]["value"], rows["cached"]["baseline"]) == (4400, 6000)
    assert (rows["wall"]["value"], rows["wall"]["baseline"]) == (6.0, 7.28)
    assert rows["forecast"]["value"] == pytest.approx(0.4 / 0.9, abs=1e-3) and rows["forecast"]["samples"] == 4


def test_without_a_peer_the_column_is_empty() -> None:
    import session_figures as figures

    rows = by_name(figures.rows("w1", [record(0, end="stop")], {}, {}, {}))
    assert rows["wall"]["ratio"] is None and "decode_kept" not in rows and "ttft_growth" not in rows


def test_what_a_foreign_server_does_not_tell_is_left_out() -> None:
    import session_figures as figures

    records = [record(i, cached_tokens=None, replayed_tokens=None) for i in range(4)]
    rows = by_name(figures.rows("w2", records, {}, {}, {}))
    assert not {"cached", "replayed", "prefill", "ttft_growth"} & set(rows)
    assert rows["decode"]["value"] == 20 and rows["turns"]["value"] == 4


@pytest.mark.parametrize("name", ["w2", "w3"])
def test_the_reference_is_what_the_scripted_edits_make(name: str, tmp_path: Path) -> None:
    """From a project whose tests fail to one whose tests pass."""
    import workloads
    from place import Place

    workload, place = workloads.load(name), Place(tmp_path, tmp_path)
    place.repository(workload.repository)
    workload.write_texts(place.project)
    place.commit()
    assert place.check(workload.check), "the tests of the project pass before the work"
    script = workload.script(place.project)
    for turn in [*script["turns"], *(turn for line in script.get("subagents", []) for turn in line["turns"])]:
        for block in turn["blocks"]:
            if block.get("tool") == "edit":
                path, asked = Path(block["args"]["path"]), block["args"]
                assert path.read_text().count(asked["old"]) == 1
                path.write_text(path.read_text().replace(asked["old"], asked["new"]))
    assert place.check(workload.check) is None
    from run import _plain

    assert _plain(place.diff()) == _plain(workload.reference or "")


@pytest.mark.parametrize("name", ["w1", "w2", "w3", "w4"])
def test_a_script_fits_its_workload(name: str, tmp_path: Path) -> None:
    import workloads

    workload = workloads.load(name)
    script = workload.script(tmp_path)
    assert len(script["turns"]) == workload.turns and "tool" not in json.dumps(script["turns"][-1]["blocks"][-1])
    words = json.dumps([script, workload.arguments(tmp_path)])
    assert (
        "{project}" not in words
        and "{texts" not in words
        and all(len(w) < 120_000 for ws in workload.arguments(tmp_path) for w in ws)
    )
    workload.write_texts(tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.glob("part-*.txt")]
    assert len(sizes) == workload.texts.get("count", 0)
    assert all(abs(size - workload.texts["bytes"]) < 0.15 * workload.texts["bytes"] for size in sizes)
    from engine.prompt.script import Script

    assert Script.parse(script).lines.main.turns


def options(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"unscripted": False, **changes})


def test_work_that_did_not_succeed_does_not_count(tmp_path: Path) -> None:
    import workloads
    from place import Place
    from run import Failed, verify

    workload, place = workloads.load("w2"), Place(tmp_path, tmp_path)
    place.repository(workload.repository)
    place.commit()
    turns = [record(i) for i in range(9)] + [record(9, end="stop")]
    for found, words in (
        ([*turns[:9], record(9, end="error", error="FT-E1 x: no")], "FT-E1"),
        (turns[1:], "9 turns of 10"),
        ([*turns[:9], record(9)], "did not end in an answer"),
        (turns, "tests fail"),
    ):
        with pytest.raises(Failed, match=words):
            verify(workload, options(), place, found)
    spans = place.project / "spans.py"
    wrong = spans.read_text().replace("(merged[-1][0], end)", "(merged[-1][0], max(end, merged[-1][1]))")
    spans.write_text(wrong)
    assert place.check(workload.check) is None
    with pytest.raises(Failed, match="not the expected one"):
        verify(workload, options(), place, turns)
    verify(workload, options(unscripted=True), place, turns)  # its own words, its own way: the tests decide


def test_a_failed_command_is_named() -> None:
    from run import Failed, read

    results = [{"argv": ["ft", "launch", "pi"], "code": 1, "stdout": "", "stderr": "ft: no engine"}, {}]
    with pytest.raises(Failed, match="ft launch pi` ended with 1: ft: no engine"):
        read(results)


def test_recorded_requests_come_in_their_order(tmp_path: Path) -> None:
    import replay

    lines = [{"id": i, "started": started, "prompt": [1], "output": out} for i, started, out in
             (("b", 2, [1]), ("a", 1, [1]), ("c", 3, []), ("d", 4, [1]))]  # fmt: skip
    path = tmp_path / "tokens.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert [line["id"] for line in replay.read(path, ["a", "b", "c"])] == ["a", "b"]


def peer_python() -> Path:
    import sides

    python = sides.find_peer(None)
    if python is None or not python.exists():
        pytest.skip(sides.NO_PEER)
    return python


@pytest.mark.parametrize("shape", ["tiny-a", "tiny-b"])
def test_llama_cpp_keeps_what_its_server_would(shape: str, tmp_path: Path) -> None:
    """Appending, forking and a second conversation, with attention only and with recurrent layers."""
    import peer_models
    import replay

    python = peer_python()
    path = tmp_path / "model.gguf"
    peer_models.write(path, peer_models.SHAPES[shape], "bf16")
    base = [3 + i % 200 for i in range(700)]
    asks = [
        {"id": "a", "prompt": base, "output": [5, 6, 7]},
        {"id": "b", "prompt": [*base, 5, 6, 9, 9, 9], "output": [5, 6]},  # goes on, but for the last token
        {"id": "c", "prompt": [250 - i % 200 for i in range(300)], "output": [1, 2]},  # another conversation
        {"id": "d", "prompt": [*base[:650], 8, 8, 8], "output": [4, 4]},  # a fork
    ]
    made = replay.run(python, path, asks, threads=2)
    assert list(made) == list("abcd") and [each["decoded"] for each in made.values()] == [2, 1, 1, 1]
    assert all(each["decode_s"] > 0 and each["prefill_s"] > 0 for each in made.values())
    # attention is cut anywhere; recurrent layers go back to a kept state: 516 tokens before the end of 700
    assert [each["cached"] for each in made.values()] == [0, 702, 0, {"tiny-a": 650, "tiny-b": 184}[shape]]


def test_llama_cpp_runs_the_very_weights_of_the_tiny_hybrid(models_dir: Path, tmp_path: Path) -> None:
    """The same next token's distribution from both engines."""
    import numpy as np
    import peer_hybrid
    import sides

    python, directory = peer_python(), models_dir / "tiny-hybrid"
    gguf, tokens = tmp_path / "tiny.gguf", [300 + 37 * i % 40_000 for i in range(90)]
    peer_hybrid.write(gguf, json.loads((directory / "config.json").read_text()))
    with sides.llama(python, gguf, 2, 256) as side:
        side.prefill(tokens)
        side.logits(tmp_path / "theirs")
    with sides.ours(directory, 2, 256, "--activations", "f32") as side:
        vocab = side.ask({"op": "score", "tokens": tokens, "path": str(tmp_path / "ours")})["vocab"]
    ours = np.fromfile(tmp_path / "ours", np.float32).reshape(len(tokens), vocab)[-1]
    theirs = np.fromfile(tmp_path / "theirs", np.float32)
    assert theirs.argmax() == ours.argmax()
    assert np.abs(ours - theirs).max() < 0.01 * np.abs(ours).max()  # its keys and values are 16 bits wide


def bench(tmp_path: Path, models_dir: Path, *arguments: str, timeout_s: float) -> dict[str, dict[str, Any]]:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    command = [sys.executable, "-P", "-m", "engine", "bench", "agent", "--json", "--models-dir", str(models_dir)]
    command += ["--results", str(tmp_path / "kept"), *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    for row in rows:
        print(row)
    (kept,) = (tmp_path / "kept").glob("agent-*.json")
    assert json.loads(kept.read_text())["rows"] == rows
    return {row["name"]: row for row in rows}


@pytest.mark.agents
@pytest.mark.timeout(600)
def test_a_small_bug_is_mended_by_opencode(tmp_path: Path, models_dir: Path) -> None:
    rows = bench(
        tmp_path, models_dir, "--workload", "w1", "w2", "--model", "tiny-hybrid", "--quick", timeout_s=580
    )  # fmt: skip
    assert rows["agent.w1.turns"]["value"] == 1 and rows["agent.w2.turns"]["value"] == 10
    assert rows["agent.w2.replayed"]["value"] == 0 and rows["agent.w2.retries"]["value"] == 0
    assert rows["agent.w2.cached"]["ratio"] > 0.8 and rows["agent.w2.ttft_growth"]["ratio"] > 0
    assert all("wiring only" in row["note"] and row["scripted"] for row in rows.values())


@pytest.mark.slow
@pytest.mark.agents
@pytest.mark.timeout(900)
def test_the_default_model_at_work(tmp_path: Path, models_dir: Path) -> None:
    rows = bench(tmp_path, models_dir, "--workload", "w1", "w2", timeout_s=880)
    assert rows["agent.w2.turns"]["value"] == 10 and rows["agent.w2.replayed"]["value"] == 0
    assert rows["agent.w2.ttft_max"]["ratio"] < 1 and rows["agent.w2.forecast"]["samples"] >= 5


@pytest.mark.slow
@pytest.mark.agents
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name, turns", [("w3", 12), ("w4", 13)])
def test_long_sessions_on_the_tiny_hybrid(tmp_path: Path, models_dir: Path, name: str, turns: int) -> None:
    rows = bench(tmp_path, models_dir, "--workload", name, "--model", "tiny-hybrid", timeout_s=1780)
    assert rows[f"agent.{name}.turns"]["value"] == turns and rows[f"agent.{name}.ttft_growth"]["ratio"] > 0
    assert all("wiring only" in row["note"] for row in rows.values())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_foreign_server_is_measured_in_its_own_words(tmp_path: Path, models_dir: Path) -> None:
    """llama.cpp's Python server behind `ft serve --upstream`, answering the reasoning question."""
    with llama(tmp_path) as server:
        url = server.url
        flags = ["--workload", "w1", "--server", url, "--unscripted", "--kv", "4k"]
        rows = bench(tmp_path, models_dir, *flags, timeout_s=580)
    assert rows["agent.w1.turns"]["value"] == 1 and rows["agent.w1.decode"]["value"] > 0
    assert rows["agent.w1.wall"]["baseline"] is None and not rows["agent.w1.wall"]["scripted"]
    assert all(f"measured server: {url}" in row["note"] for row in rows.values())
    assert not {"agent.w1.cached", "agent.w1.prefill"} & set(rows)  # it does not tell
