"""`ft bench agent`: published agents do scripted work on our engine, and every figure comes from the engine's own records.

The words of the replies are given, every token of them is computed; the agents, their tools and what these do are real. A run
counts only when the work succeeded: every turn was answered, the project's tests pass and its diff is the expected one.
--unscripted lets the model find its own words; then the tests decide alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import peer_model
import replay
import session_figures
import sides
import workloads
from place import FT, Place
from workloads import Workload

from engine.bench.rows import Row, show

DEFAULT_MODEL = "smollm2-moe"
WIRING = "wiring only"  # the model's weights are random and tiny


class Failed(Exception):
    """The work did not succeed, so that its figures do not count."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ft bench agent", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workload", nargs="+", choices=workloads.NAMES, default=list(workloads.NAMES), help="default: all"
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help=f"default: {DEFAULT_MODEL}")
    parser.add_argument("--models-dir", type=Path, default=_models_dir(), help="folder that holds the models")
    parser.add_argument(
        "--server", metavar="URL", help="measure this OpenAI-compatible server, behind `ft serve --upstream URL`"
    )
    parser.add_argument("--kv", help="tokens of KV cache; default: what the workload needs")
    parser.add_argument("--unscripted", action="store_true", help="the model's own words; the project's tests decide")
    parser.add_argument("--peer-python", type=Path, help="a Python with llama-cpp-python; `none`: no comparison")
    parser.add_argument(
        "--peer-gguf", type=Path, help="the same weights for llama.cpp, where --model was imported from elsewhere"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of llama.cpp")
    parser.add_argument(
        "--quick", action="store_true", help="without llama.cpp; unless --workload is given, w1 and w2 only"
    )
    parser.add_argument(
        "--keep-work", type=Path, metavar="DIR", help="leave project, records and tokens of each workload here"
    )
    parser.add_argument("--json", action="store_true", help="a list of rows")
    options = parser.parse_args(arguments)
    if options.server and not options.unscripted:
        parser.error("--server needs --unscripted: another server cannot be told what to answer")
    if options.quick and options.workload == list(workloads.NAMES):
        options.workload = ["w1", "w2"]
    rows: list[Row] = []
    first: dict[str, float] = {}
    code = 0
    asked = set(options.workload)
    for name in sorted({"w1", *asked}):  # what w1 decodes is what the others are compared with
        workload = workloads.load(name)
        replay.note(f"{name}: {workload.title}")
        try:
            made = measure(workload, options, first)
        except Failed as failure:
            replay.note(f"{name} does not count: {failure}")
            code = 1
            continue
        rows += made if name in asked else []
    show(rows, options.json)
    return code


def measure(workload: Workload, options: argparse.Namespace, first: dict[str, float]) -> list[Row]:
    """Rows of one workload. Adds W1's decode rates to `first`. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix=f"ft-{workload.name}-") as temporary:
        folder = options.keep_work / workload.name if options.keep_work else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        place = Place(folder, options.models_dir, apart=not options.server)
        place.repository(workload.repository)
        workload.write_texts(place.project)
        place.env.update(workload.env)
        place.commit()
        if workload.agent != "mini":
            place.install(workload.agent)
        results = place.run(commands(workload, options, place))
        records = read(results)
        verify(workload, options, place, records)
        notes: list[str] = []
        peer = compare(workload, options, place, records, notes)
    if workload.name == "w1":
        first |= session_figures.decode_rates(records, peer)
    more = {"model": options.model, "agent": workload.agent, "scripted": not options.unscripted}
    labels = _labels(options, place)
    if labels:
        more["note"] = "; ".join(labels)
    made = session_figures.rows(workload.name, records, peer, first, more)
    for entry in made:
        if entry["name"].endswith((".decode", ".wall")):
            entry["note"] = "; ".join([*labels, *notes])
    return made


def commands(workload: Workload, options: argparse.Namespace, place: Place) -> list[tuple[list[str], float]]:
    """Start the engine, launch the agent as often as the workload says, ask for records, stop."""
    ft, launch = str(FT), ["-m", options.model, *workload.options]
    for name in workload.env:
        launch += ["--keep-env", name]
    if options.server:
        place.env["FT_UPSTREAM"] = options.server
    if not options.unscripted:
        script = place.folder / "script.json"
        script.write_text(json.dumps(workload.script(place.project)))
        launch += ["--script", str(script)]
    made = [([ft, "engine", "start", "-q", "-m", options.model, "--kv", options.kv or workload.kv], 300.0)]
    for words in workload.arguments(place.project):
        made.append(([ft, "launch", workload.agent, *launch, "--force", "--", *words], workload.timeout_s))
    made.append(([ft, "ctl", "requests", "--json", "-n", "4096"], 60.0))
    made.append(([ft, "engine", "stop"], 60.0))
    return made


def read(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The request records. Raises Failed with the words of the first command that failed."""
    for result in results[:-1]:
        if result["code"] != 0:
            said = (result["stderr"].strip() or result["stdout"].strip())[-1500:]
            raise Failed(f"`{' '.join(map(str, result['argv'][:4]))}` ended with {result['code']}: {said}")
    records: list[dict[str, Any]] = json.loads(results[-2]["stdout"])["requests"]
    return records


def verify(workload: Workload, options: argparse.Namespace, place: Place, records: list[dict[str, Any]]) -> None:
    """Raises Failed unless the work is done and done as expected."""
    wrong = [r["error"] or r["end"] for r in records if r["end"] not in ("stop", "tool_use")]
    if wrong:
        raise Failed(f"{len(wrong)} requests failed, the first with {wrong[0]}")
    turns = session_figures.main_line(records)
    if not options.unscripted and len(turns) != workload.turns:
        raise Failed(f"{len(turns)} turns of {workload.turns} were played")
    if not turns or turns[-1]["end"] != "stop":
        raise Failed("the last turn did not end in an answer")
    if workload.check and (said := place.check(workload.check)):
        raise Failed(f"the project's tests fail: {said}")
    if workload.reference is not None and not options.unscripted and _plain(place.diff()) != _plain(workload.reference):
        raise Failed(f"the diff is not the expected one:\n{place.diff()}")


def compare(
    workload: Workload, options: argparse.Namespace, place: Place, records: list[dict[str, Any]], notes: list[str]
) -> session_figures.Peer:
    """What llama.cpp needed for the same tokens, by request; adds what rows must say to `notes`."""
    if options.quick or options.server:
        notes.append("not compared with llama.cpp")
        return {}
    python = sides.find_peer(options.peer_python)
    if python is None:
        notes.append(sides.NO_PEER)
        return {}
    found = peer_model.of(options.model, _directory(options), options.peer_gguf)
    if found is None:
        notes.append("not compared with llama.cpp: --peer-gguf names the same weights for it")
        return {}
    requests = replay.read(place.tokens, [r["id"] for r in session_figures.done(records)])
    made = replay.run(python, found, requests, options.threads)
    notes.append(replay.NOTE)
    if workload.name == "w3":
        notes.append("one request after another in llama.cpp")
    totals = {key: round(sum(each[key] for each in made.values()), 3) for key in ("prefill_s", "decode_s", "cached")}
    replay.note(f"llama.cpp: {json.dumps(totals)}")
    return made


def _labels(options: argparse.Namespace, place: Place) -> list[str]:
    """What every row must say."""
    manifest = _directory(options) / "ftw.json"
    random = manifest.exists() and json.loads(manifest.read_text()).get("quality") == "random"
    labels = [WIRING] if random and not options.server else []
    if options.server:
        labels.append(f"measured server: {options.server}")
    if not place.namespace and not options.server:
        labels.append("not cut off from the network")
    if os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1):
        labels.append("machine was busy")
    return labels


def _directory(options: argparse.Namespace) -> Path:
    return Path(options.model).expanduser() if "/" in options.model else options.models_dir / options.model


def _plain(diff: str) -> str:
    """Without the hashes of contents, whose length is a setting."""
    return "\n".join(text for text in diff.splitlines() if not text.startswith("index "))


def _models_dir() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(os.environ.get("FT_MODELS_DIR") or Path(data) / "ft" / "models")


if __name__ == "__main__":
    sys.exit(main())
