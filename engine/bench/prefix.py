"""`engine bench prefix`: how many tokens of each session are computed, on demand and ahead of the request, with the real
policy, scheduler and caches. Exact counts; seconds follow from the stated rate."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.bench import traces
from engine.bench.bound import on_demand
from engine.bench.peers import PEERS, Sent, computed
from engine.bench.rows import hand_on
from engine.bench.scenarios import QUICK, SCENARIOS, Scenario, Sizes
from engine.bench.simulate import PREFILL_PER_S, Machine, Result, simulate
from engine.bench.toy import language
from engine.errors import BadRequest
from engine.prompt.edits.policy import EditPolicy
from engine.prompt.edits.schema import schema

TOOL_TIMES_S = (0.05, 1.0, 10.0)
GRID = 64
Row = dict[str, Any]


def row(name: str, value: float, unit: str = "tokens", baseline: float | None = None, samples: int = 1) -> Row:
    ratio = round(value / baseline, 4) if baseline else None
    return {"name": name, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio, "samples": samples}


def run(
    scenario: Scenario, sizes: Sizes, machine: Machine, anticipate: bool = False, tool_s: float | None = None
) -> Result:
    """One pass through a scenario with a fresh engine."""
    made = language(scenario.preserve_thinking)
    policy = EditPolicy.compose(scenario.declared(sizes), made.template, "1")
    return simulate(scenario.asks(sizes), made, policy, machine, anticipate, tool_s)


def as_sent(scenario: Scenario, sizes: Sizes) -> list[tuple[str, Sent]]:
    """(line, request) of a session as an engine without declarations gets it."""
    made = language(scenario.preserve_thinking)
    sent = []
    for ask in scenario.asks(sizes):
        prompt = made.render(ask.conversation)
        users = [m for m, message in enumerate(ask.conversation.messages) if message.role == "user"]
        starts = tuple(min(s.start for s in prompt.spans if s.message == m) for m in users)
        reply = made.script_tokens(ask.reply, ask.conversation)
        sent.append((ask.line, Sent(array("I", prompt.tokens), array("I", reply), starts)))
    return sent


def peer_rows(scenario: Scenario, sizes: Sizes, least: int) -> Iterator[Row]:
    """What the models of other engines compute."""
    sent = as_sent(scenario, sizes)
    for name in PEERS:
        tokens = computed(name, [request for _, request in sent])
        counted = [n for n, (line, _) in zip(tokens, sent, strict=True) if scenario.counted in ("", line)]
        yield row(f"prefix.{scenario.name}.modelled_{name}", sum(counted), baseline=least, samples=len(counted))


def bound(scenario: Scenario, sizes: Sizes) -> int:
    """Tokens that an exact engine must compute on demand for the counted line, when each history is tokenised as it was
    sent."""
    made = language(scenario.preserve_thinking)
    asks = list(scenario.asks(sizes))
    sent = [scenario.canonical(ask.conversation) for ask in asks]
    bounds = on_demand(
        [made.render(conversation).tokens for conversation in sent],
        [made.script_tokens(ask.reply, conversation) for ask, conversation in zip(asks, sent, strict=True)],
    )
    return sum(b for b, ask in zip(bounds, asks, strict=True) if scenario.counted in ("", ask.line))


def scenario_rows(scenario: Scenario, sizes: Sizes, machine: Machine) -> Iterator[Row]:
    name, line = f"prefix.{scenario.name}", scenario.counted
    least = bound(scenario, sizes)
    exact = run(scenario, sizes, machine)
    coarse = run(scenario, sizes, replace(machine, grid=GRID))
    ahead = run(scenario, sizes, machine, anticipate=True)
    asked = len(exact.of(line))
    yield row(f"{name}.prefilled", exact.prefilled(line), baseline=least, samples=asked)
    yield row(f"{name}.prefilled_grid{GRID}", coarse.prefilled(line), baseline=least, samples=asked)
    yield row(f"{name}.bound", least, samples=asked)
    yield from _ahead_rows(name, ahead, line, least)
    for tool_s in TOOL_TIMES_S[1:2] if sizes is QUICK else TOOL_TIMES_S:
        timed = run(scenario, sizes, machine, anticipate=True, tool_s=tool_s)
        yield from _timed_rows(name, timed, line, tool_s, least)
    live = max(exact.live, coarse.live, ahead.live)
    yield row(f"{name}.checkpoints", live, "checkpoints", machine.checkpoints)
    yield from peer_rows(scenario, sizes, least)


def _timed_rows(name: str, timed: Result, line: str, tool_s: float, least: int) -> Iterator[Row]:
    """With `tool_s` between a reply and the next request. Covered: only text that nobody had seen was left to compute."""
    served = timed.of(line)
    covered = sum(s.critical <= s.new for s in served)
    yield row(f"{name}.critical_{tool_s:g}s", timed.critical(line), baseline=least, samples=len(served))
    yield row(f"{name}.wait_{tool_s:g}s", round(timed.wait_s(line), 2), "s", samples=len(served))
    yield row(f"{name}.covered_{tool_s:g}s", round(covered / len(served), 4), "share", samples=len(served))


def _ahead_rows(name: str, ahead: Result, line: str, least: int) -> Iterator[Row]:
    asked = len(ahead.of(line))
    yield row(f"{name}.critical", ahead.critical(line), baseline=least, samples=asked)
    yield row(f"{name}.background", ahead.background, samples=asked)
    yield row(f"{name}.new", sum(s.new for s in ahead.of(line)), samples=asked)
    yield row(f"{name}.wait", round(ahead.wait_s(line), 2), "s", samples=asked)
    yield row(f"{name}.wasted", round(ahead.wasted, 4), "share", samples=asked)
    if ahead.predicted:
        yield row(f"{name}.edits_hit", round(ahead.hits / ahead.predicted, 4), "share", samples=ahead.predicted)


def run_trace(
    requests: Sequence[traces.Recorded],
    declaration: Mapping[str, Any] | None,
    preserve_thinking: bool,
    machine: Machine,
    anticipate: bool = False,
    tool_s: float | None = None,
) -> Result:
    """One recorded session through a fresh engine."""
    made = language(preserve_thinking)
    policy = EditPolicy.compose(declaration, made.template)
    asks = list(traces.asks(requests, policy, declaration))
    return simulate(asks, made, policy, machine, anticipate, tool_s, traces.window_of(asks, made, policy))


def trace_rows(
    name: str, requests: Sequence[traces.Recorded], declaration: Mapping[str, Any] | None, machine: Machine
) -> Iterator[Row]:
    for preserve_thinking, template in ((True, "preserving"), (False, "stripping")):
        prefix = f"prefix.real.{name}" if preserve_thinking else f"prefix.real.{name}.{template}"
        exact = run_trace(requests, declaration, preserve_thinking, machine)
        least = sum(on_demand([s.prompt for s in exact.served], [s.reply for s in exact.served]))
        yield row(f"{prefix}.prefilled", exact.prefilled(), baseline=least, samples=len(requests))
        yield row(f"{prefix}.bound", least, samples=len(requests))
        ahead = run_trace(requests, declaration, preserve_thinking, machine, anticipate=True)
        yield from _ahead_rows(prefix, ahead, "", least)
        for tool_s in TOOL_TIMES_S:
            timed = run_trace(requests, declaration, preserve_thinking, machine, anticipate=True, tool_s=tool_s)
            yield from _timed_rows(prefix, timed, "", tool_s, least)


def declarations(directory: Path | None) -> list[dict[str, Any]]:
    """What each `*/harness.toml` below `directory` declares to the engine: the sections of the format; others are the
    launcher's. Raises BadRequest naming a file that is none."""
    sections = schema("edits/1")["properties"]
    made = []
    for path in sorted(directory.glob("*/harness.toml")) if directory else ():
        try:
            declaration = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadRequest(f"{path} cannot be read as TOML: {error}.") from None
        made.append({key: value for key, value in declaration.items() if key in sections})
    return made


def rows(args: argparse.Namespace) -> Iterator[Row]:
    machine = Machine(prefill_per_s=args.rate)
    sizes = QUICK if args.quick else Sizes()
    yield row("prefix.rate", args.rate, "tokens/s")
    for scenario in SCENARIOS:
        if not args.only or scenario.name in args.only:
            yield from scenario_rows(scenario, sizes, machine)
    if args.traces:
        known = declarations(args.declarations)
        for path in sorted(args.traces.glob("*.jsonl.gz")):
            name = path.name.partition(".")[0]
            if not args.only or name in args.only:
                yield from trace_rows(name, *traces.load(path, known), machine)


def main(arguments: Sequence[str]) -> int:
    """Print the rows; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="engine bench prefix", description="Tokens computed in sessions whose context is edited, exactly."
    )
    parser.add_argument(
        "--json", action="store_true", help="a list of rows {name, value, unit, baseline, ratio, samples}"
    )
    parser.add_argument("--quick", action="store_true", help="shorter sessions, one time of tools")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="this scenario or recorded session; may be repeated"
    )
    parser.add_argument(
        "--rate", type=float, default=PREFILL_PER_S, metavar="N", help="prefill tokens per second (%(default)s)"
    )
    parser.add_argument("--traces", type=Path, metavar="DIR", help="also recorded sessions, *.jsonl.gz")
    parser.add_argument(
        "--declarations", type=Path, metavar="DIR", help="where agents declare their edits: */harness.toml"
    )
    args = parser.parse_args(list(arguments))
    if args.rate <= 0:
        parser.error("--rate must be above 0")
    if args.traces and not args.traces.is_dir():
        parser.error(f"--traces {args.traces}: no such directory")
    made = []
    for entry in rows(args):
        made.append(entry)
        if not args.json:
            sys.stdout.write(_line(entry) + "\n")
            sys.stdout.flush()
    hand_on(made)
    if args.json:
        sys.stdout.write(json.dumps(made, indent=1) + "\n")
    return 0


def _line(entry: Row) -> str:
    value = f"{entry['value']:,}" if isinstance(entry["value"], int) else f"{entry['value']:,g}"
    ratio = f"{entry['ratio']:.3f} x {entry['baseline']:,}" if entry["ratio"] is not None else ""
    return f"{entry['name']:44} {value:>12} {entry['unit']:12} {ratio}".rstrip()
