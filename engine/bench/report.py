"""`engine bench report`: the latest kept row of every figure, beside what it is to reach."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.bench.rows import Row
from engine.bench.runs import SCHEMA, SOURCE
from engine.errors import BadRequest

REACH = Path(__file__).with_name("reach.toml")
KEPT = SOURCE / "bench" / "results"


@dataclass(frozen=True, slots=True)
class Goal:
    """What rows whose whole name matches `pattern` are to reach. `most`: the ratio is to stay below, not above.

    With `bound_reach` a row also counts as reached when the row `<name>.bound` has that ratio.
    """

    pattern: str
    text: str
    reach: float | None = None
    aim: float | None = None
    most: bool = False
    bound_reach: float | None = None
    example: tuple[str, ...] = ()

    def reached(self, row: Row, others: dict[str, Row]) -> bool | None:
        """None where nothing is asked or nothing was compared."""
        if self.reach is None:
            return None
        bound = others.get(f"{row['name']}.bound", {}).get("ratio")
        if self.bound_reach is not None and bound is not None and bound >= self.bound_reach:
            return True
        if row["ratio"] is None:
            return None
        return bool(row["ratio"] <= self.reach if self.most else row["ratio"] >= self.reach)


def goals() -> list[Goal]:
    """From reach.toml, in the order of the report."""
    return [
        Goal(**{**entry, "example": tuple(entry.get("example", ()))})
        for entry in tomllib.loads(REACH.read_text())["goals"]
    ]


def latest(folders: Iterable[Path]) -> dict[str, Row]:
    """The newest kept row of every name, with the `date`, `commit`, `machine` and `settings` of its run: of its own `run` where it was
    measured apart from the rest.

    Raises BadRequest naming a file that is no kept run."""
    paths = [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.json"))]
    documents = [document for path in paths if (document := read(path))]
    found: dict[str, Row] = {}
    for document in sorted(documents, key=lambda d: str(d["date"])):
        run = {key: document[key] for key in ("date", "commit", "machine", "settings")}
        found |= {
            row["name"]: {"ratio": None, "baseline": None, "samples": 1, **row, **run, **row.get("run", {})}
            for row in document["rows"]
        }
    return found


def read(path: Path) -> dict[str, Any] | None:
    """A kept run; None for a file of another kind. Raises BadRequest for one that is damaged."""
    try:
        document = json.loads(path.read_text())
        if document.get("schema") != SCHEMA:
            return None
        return {"settings": {}, **document, "rows": [dict(row) for row in document["rows"]]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"{path} is no kept run ({error}).", "Delete the file, or measure again.") from None


def entries(rows: dict[str, Row]) -> Iterator[dict[str, Any]]:
    """Every figure of the goals in order, measured or not, then all other rows."""
    seen: set[str] = set()
    for goal in goals():
        matching = [row for name, row in rows.items() if name not in seen and re.fullmatch(goal.pattern, name)]
        seen |= {row["name"] for row in matching}
        asked = {"figure": goal.text, "reach": goal.reach, "aim": goal.aim, "at_most": goal.most}
        names = {row["name"] for row in matching}
        for row in matching:
            yield {**row, **asked, "reached": goal.reached(row, rows)}
        for name in goal.example:
            if name not in names and not (names and "<" in name):  # a pattern stands for whatever matches
                yield {"name": name, "value": None, **asked, "reached": None}
    for name, row in rows.items():
        if name not in seen:
            yield {**row, "figure": "", "reach": None, "aim": None, "at_most": False, "reached": None}


def main(arguments: Sequence[str], results: Path | None) -> int:
    """Print the report; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="engine bench report", description="The latest kept rows, beside their goals."
    )
    parser.add_argument("--json", action="store_true", help="a list of rows")
    parser.add_argument("--all", action="store_true", help="also rows without a goal")
    args = parser.parse_args(list(arguments))
    made = list(entries(latest([KEPT, *([results] if results else [])])))
    if args.json:
        sys.stdout.write(json.dumps(made, indent=1) + "\n")
        return 0
    for line in lines(made if args.all else [e for e in made if e["figure"]]):
        sys.stdout.write(line + "\n")
    return 0


def lines(made: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The report for people."""
    figure = None
    for entry in made:
        if entry["figure"] != figure:
            figure = entry["figure"]
            yield f"\n{figure or 'Others'}"
        yield "  " + _line(entry)
    sources = {
        (e["commit"], e["date"][:10], e["machine"]["cpu"], e["machine"]["cores"])
        for e in made
        if e["value"] is not None
    }
    yield ""
    for commit, date, cpu, cores in sorted(sources, key=lambda s: s[1]):
        yield f"commit {commit}, {date}, {cpu}, {cores} cores"


def _line(entry: dict[str, Any]) -> str:
    if entry["value"] is None:
        return f"{entry['name']:<32} not measured"
    text = f"{entry['name']:<32} {entry['value']:>10,.6g} {entry['unit']:<8}"
    text += f" {entry['baseline']:>10,.6g}  {entry['ratio']:>7.3f}" if entry["ratio"] is not None else " " * 20
    if entry["reach"] is not None:
        sign = "<=" if entry["at_most"] else ">="
        verdict = {True: "reached", False: "missed", None: "not compared"}[entry["reached"]]
        text += f"  {sign} {entry['reach']:g}" + (f" (aim {entry['aim']:g})" if entry["aim"] else "") + f"  {verdict}"
    return f"{text}  n={entry['samples']}"
