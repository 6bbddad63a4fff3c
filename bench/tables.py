"""Kept results beside their goals, as tables of docs/benchmarks.md: the rows of `ft bench report`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report as bench_report

from engine.bench import report

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "agent"))
import workloads as agent_workloads  # noqa: E402

GROUPS = {
    "kernels": r"experts\.(?!miss).*",
    "decode": r"decode\.[ab]\..*",
    "prefill": r"prefill\d+\..*",
    "tiers": r"(disk|split|prefill\.overlap)\..*",
    "misses": r"experts\.miss\..*",
    "load": r"load\..*",
    "agents": r"agent\..*",
    "memory": r"memory\..*",
}
AGENT_NAMES = {"claude": "Claude Code", "codex": "Codex", "opencode": "OpenCode"}
HEADS = ["row", "measured", "", "against", "ratio", "reach", "aim"]


def kept() -> list[dict[str, Any]]:
    return list(report.entries(report.latest([report.KEPT])))


def goals(group: str) -> str:
    """Rows with a goal, and goals whose rows are not measured."""
    lines = [_cells(entry) for entry in kept() if entry["figure"] and re.fullmatch(GROUPS[group], entry["name"])]
    return _markdown(HEADS, lines)


def accuracy() -> str:
    heads = ["experts", "activations", "mean divergence, nats", "largest", "largest logit error", "same best token"]
    lines = [
        [
            *entry["name"].split(".")[1:3],
            f"{entry['value']:.2g}",
            f"{entry['largest_kl']:.2g}",
            f"{entry['largest_logit_error']:.2g}",
            f"{entry['same_best']:.1%}",
        ]
        for entry in kept()
        if entry["name"].startswith("accuracy.") and entry["value"] is not None
    ]
    return _markdown(heads, lines)


def shares() -> str:
    """Where our time goes, by row."""
    rows = [entry for entry in kept() if entry["value"] is not None and entry.get("shares")]
    groups = list(rows[0]["shares"]) if rows else []
    lines = [[f"`{r['name'].removesuffix('.bound')}`", *(f"{r['shares'][g]:.0%}" for g in groups)] for r in rows]
    return _markdown(["row", *groups], lines)


def workloads() -> str:
    """The four pieces of work of published agents, beside llama.cpp on the same tokens where that was measured."""
    found = {entry["name"]: entry for entry in kept() if entry["value"] is not None}
    heads = ["work", "agent", "model", "turns", "first token: median, longest", "agent gives up", "tokens found"]
    heads += ["decode, tokens/s", "llama.cpp", "waited for the engine", "llama.cpp "]
    lines = []
    for name in agent_workloads.NAMES:
        work = agent_workloads.load(name)
        rows = {key.split(".")[2]: row for key, row in found.items() if key.startswith(f"agent.{name}.")}
        if "wall" not in rows:
            lines.append(
                [
                    f"{name.upper()}: {work.title}",
                    work.agent,
                    f"not measured: `python bench/keep.py agent --workload {name}`",
                ]
            )
            lines[-1] += [""] * (len(heads) - 3)
            continue

        def told(figure: str, form: str, field: str = "value", rows: dict[str, Any] = rows) -> str:
            number = rows.get(figure, {}).get(field)
            return "-" if number is None else format(number, form)

        first = f"{told('ttft_p50', '.2f')} s, {told('ttft_max', '.1f')} s"
        cells = [f"{name.upper()}: {work.title}", work.agent, str(rows["wall"]["model"]), told("turns", ".0f"), first]
        cells += [f"{told('ttft_max', ',.0f', 'baseline')} s", told("cached", ".0%", "ratio"), told("decode", ".1f")]
        cells += [told("decode", ".1f", "baseline"), f"{told('wall', '.1f')} s", f"{told('wall', '.1f', 'baseline')} s"]
        lines.append(cells)
    return _markdown(heads, lines)


def ceilings() -> str:
    """For each decode row: how fast memory was in its rounds, and what an engine that does nothing but read would have."""
    rows = {entry["name"]: entry for entry in kept() if entry["value"] is not None}
    lines = []
    for name, row in rows.items():
        bound = rows.get(f"{name}.bound")
        if re.fullmatch(r"decode\.[ab]\.\w+", name) and bound is not None and row["baseline"]:
            speed = bound["bytes_per_token"] * bound["baseline"] / 1e9
            reads = bound["baseline"] / row["baseline"]
            lines.append(
                [
                    f"`{name}`",
                    f"{bound['bytes_per_token'] / 1e6:,.0f} MB",
                    f"{speed:.0f} GB/s",
                    f"{reads:.2f}",
                    f"{row['ratio']:.2f}",
                ]
            )
    heads = [
        "row",
        "read for a token",
        "memory in its rounds",
        "only reading, against llama.cpp",
        "ft against llama.cpp",
    ]
    return _markdown(heads, lines)


def long_sessions() -> str:
    """What `make agents` counted in long sessions of published agents."""
    path = bench_report.RESULTS / "agents.json"
    if not path.exists():
        return "Nothing is kept yet. This makes it: `make agents`"
    heads = ["agent", "requests", "of them for a summary", "tokens asked for", "cached", "replayed", "new"]
    heads += ["computed ahead and used", "computed ahead, unused", "edits foreseen", "predictions that hit"]
    lines = []
    for name, counted in sorted(json.loads(path.read_text()).items()):
        cells = [
            f"{AGENT_NAMES.get(name, name)} {counted['version']}",
            f"{counted['requests']}",
            f"{counted['compactions']}",
        ]
        cells += [f"{counted[field]:,}" for field in ("prompt", "cached", "replayed", "new", "anticipated", "wasted")]
        cells += [f"{counted['edits_foreseen']} of {counted['edits']}"]
        cells += [f"{counted['edits_hit']} of {counted['edits_predicted']}, and {counted['appends_hit']} continuations"]
        lines.append(cells)
    return _markdown(heads, lines)


def captions() -> str:
    """Every run the tables rest on: machine, commit, date."""
    rows = [entry for entry in kept() if entry["figure"] and entry["value"] is not None]
    runs = {
        (entry["date"][:10], entry["commit"], entry["machine"]["cpu"], entry["machine"]["cores"])
        for entry in sorted(rows, key=lambda entry: str(entry["date"]))
    }
    return "\n".join(f"- {cpu}, {cores} cores, commit {commit}, {date}" for date, commit, cpu, cores in sorted(runs))


TABLES: dict[str, Callable[[], str]] = {
    **{group: lambda group=group: goals(group) for group in GROUPS},  # type: ignore[misc]
    "accuracy": accuracy,
    "shares": shares,
    "workloads": workloads,
    "ceilings": ceilings,
    "long_sessions": long_sessions,
    "runs": captions,
}


def _cells(entry: dict[str, Any]) -> list[str]:
    limit = "≤" if entry["at_most"] else "≥"
    reach = f"{limit} {entry['reach']:g}" if entry["reach"] else ""
    aim = f"{entry['aim']:g}" if entry["aim"] else ""
    if entry["value"] is None:
        return [f"`{entry['name']}`", "not measured", "", "", "", reach, aim]
    ratio = "" if entry["ratio"] is None else f"{entry['ratio']:.2f}"
    if entry["reached"] is not None and ratio:
        ratio = f"**{ratio}**" if entry["reached"] else f"{ratio} ✗"
    baseline = "" if entry["baseline"] is None else f"{entry['baseline']:,.4g}"
    return [f"`{entry['name']}`", f"{entry['value']:,.4g}", entry["unit"], baseline, ratio, reach, aim]


def _markdown(heads: list[str], lines: list[list[str]]) -> str:
    if not lines:
        return "Nothing is kept yet."
    rule = ["---", *["--:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *lines))
