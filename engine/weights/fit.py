"""`models fit`: known models ranked by what they would do on this machine, by the arithmetic that also starts the engine."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.memory.amounts import parse_bytes
from engine.memory.geometry import Geometry
from engine.memory.hardware import Hardware, read_hardware
from engine.memory.plan import Plan, Settings, size_text
from engine.memory.planner import plan
from engine.weights import obtain
from engine.weights.catalogue import KnownModel, known_models
from engine.weights.making import pulled_name
from engine.weights.show import file_size_text, print_json

if TYPE_CHECKING:
    from engine.weights.machine import Speeds
    from engine.weights.sizes import Work

PROMPT_TOKENS = 16_384  # a coding agent's first request: instructions, tools and the first files
USEFUL_WINDOW = 131_072  # longer windows do not move a model up
DENSE_FORMAT = "q8_0"
FORMATS = ("bf16", "q8_0", "q4_0", "mxfp4")  # the closest to the original first


@dataclass(frozen=True, slots=True)
class Fit:
    """One known model in one format. `window_tokens`, `tokens_per_second` and `first_prompt_s` are predictions, 0 when it does
    not fit; `serves`: it fits with a window that an agent's first request goes into, and the first prompt has no time without it;
    `rate_from` is "profile" when the speed of these experts was measured before, "guess" when it is taken from memory
    reads; `why` says in one sentence how it comes out."""

    name: str
    repo: str
    arch: str
    license: str
    format: str
    weights_bytes: int
    total_bytes: int
    available_bytes: int
    fits: bool
    serves: bool
    window_tokens: int
    tokens_per_second: float
    first_prompt_s: float
    rate_from: str
    why: str

    @property
    def command(self) -> str:
        return f"ft models pull {self.name}:{self.format}"

    @property
    def pulled_name(self) -> str:
        """What `command` makes."""
        return pulled_name(self.name, self.format)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", type=parse_bytes, metavar="BYTES", help="as if so much were free, such as 16g")
    parser.add_argument("--all", action="store_true", help="every format of every model, not only the best that fits")
    parser.add_argument(
        "--costs", action="store_true", help="also ask the hub what getting each that serves would cost"
    )
    parser.add_argument("--profiles-dir", type=Path, metavar="DIR", help="bandwidths that ft bench bw has kept")


def command(args: argparse.Namespace) -> None:
    """`models fit`."""
    from engine.weights.machine import measure

    hardware = read_hardware()
    if args.memory is not None:
        hardware = Hardware(args.memory, hardware.cores, "--memory")
    speeds = measure(args.profiles_dir)
    rows = rank(hardware, speeds)
    shown = rows if args.all else best_of_each(rows)
    asked = obtain.costs(shown, args.models_dir) if args.costs else [None] * len(shown)
    if args.json:
        print_json(
            {
                "schema": "ft.models-fit/1",
                "available_bytes": hardware.available_bytes,
                "limited_by": hardware.limited_by,
                "speeds": speeds.to_json(),
                "prompt_tokens": PROMPT_TOKENS,
                "models": [
                    {
                        **asdict(row),
                        "command": row.command,
                        "pulled_name": row.pulled_name,
                        **({"cost": cost and cost.to_json()} if args.costs else {}),
                    }
                    for row, cost in zip(shown, asked, strict=True)
                ],
                **({"builtin": obtain.builtin(args.models_dir)} if args.costs else {}),
            }
        )
        return
    _print(shown, hardware, speeds, asked)


def rank(hardware: Hardware, speeds: Speeds, models: Sequence[KnownModel] | None = None) -> list[Fit]:
    """Every known model in every format, the most useful first; then those whose window is too small for an agent, and
    those that do not fit, the nearest first. Raises Unsupported for an architecture that is not offered."""
    rows = [
        predict(model, format, work, hardware, speeds)
        for model in (known_models().values() if models is None else models)
        for format, work in _works(model.name).items()
    ]

    def key(row: Fit) -> tuple[Any, ...]:
        if not row.fits:
            return (2, row.total_bytes - row.available_bytes)
        return (int(not row.serves), -min(row.window_tokens, USEFUL_WINDOW), -row.tokens_per_second, row.first_prompt_s)

    return sorted(rows, key=key)


@cache
def _works(name: str) -> dict[str, Work]:
    from engine.weights.sizes import works_of

    model = known_models()[name]
    return works_of(model.config, offered(model), DENSE_FORMAT)


def offered(model: KnownModel) -> list[str]:
    """Formats worth having a model in: the published ones and those that are smaller."""
    return [*model.formats, *FORMATS[1 + max(FORMATS.index(format) for format in model.formats) :]]


def best_of_each(rows: Sequence[Fit]) -> list[Fit]:
    """One row per model, in the order of `rows`: in the format closest to the published one that fits with a useful window, or
    else with the longest; of a model that fits in none, its smallest."""
    best: dict[str, Fit] = {}
    for model in known_models().values():
        mine = [row for row in rows if row.name == model.name]
        if not mine:
            continue
        order = offered(model)
        fitting = [row for row in mine if row.fits]
        useful = max((min(row.window_tokens, USEFUL_WINDOW) for row in fitting), default=0)
        wide = [row for row in fitting if min(row.window_tokens, USEFUL_WINDOW) == useful]
        best[model.name] = (
            min(wide, key=lambda row: order.index(row.format)) if wide else min(mine, key=lambda row: row.total_bytes)
        )
    return [row for row in rows if best.get(row.name) is row]


def predict(model: KnownModel, format: str, work: Work, hardware: Hardware, speeds: Speeds) -> Fit:
    """What `model` with its experts in `format` would do."""
    geometry = work.geometry
    made = plan(hardware, geometry, Settings(), model.name)
    weights = geometry.dense_bytes + geometry.bank_bytes
    speed = prompt_s = 0.0
    known_from = ""
    why = made.verdict
    if made.fits:
        context = min(PROMPT_TOKENS, made.window_tokens)
        kv_bytes = 2 * geometry.kv_values_per_token * context
        rate, known_from = speeds.bytes_per_second(work.shape)
        speed = 1 / ((work.token_bytes + kv_bytes) / rate)
        if made.window_tokens >= PROMPT_TOKENS:
            prompt_s = (work.token_flops * context + work.attention_flops(context)) / speeds.flops_per_second
        else:
            why = (
                f"{made.verdict}: too small for an agent, whose first request has about {PROMPT_TOKENS:,}"
                f"{_from_disk(made, geometry, hardware)}"
            )
    else:
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in made.tenants.items() if size >= 1 << 20)
        why = f"{made.verdict} ({parts}){_from_disk(made, geometry, hardware)}"
    return Fit(
        name=model.name,
        repo=model.repo,
        arch=model.arch,
        license=model.license,
        format=format,
        weights_bytes=weights,
        total_bytes=made.total_bytes,
        available_bytes=hardware.available_bytes,
        fits=made.fits,
        serves=made.fits and made.window_tokens >= PROMPT_TOKENS,
        window_tokens=made.window_tokens if made.fits else 0,
        tokens_per_second=round(speed, 1),
        first_prompt_s=round(prompt_s, 1),
        rate_from=known_from,
        why=why,
    )


def _from_disk(made: Plan, geometry: Geometry, hardware: Hardware) -> str:
    """How an agent could use it all the same, with experts that are read as needed; empty where that is no way either."""
    ways = [int(found) for way in made.ways_out for found in re.findall(r"--host-memory (\d+)", way)]
    for budget in [geometry.bank_bytes * 15 // 16] if made.fits else ways:
        other = plan(hardware, geometry, Settings(host_memory=budget), made.model)
        if other.fits and other.window_tokens >= PROMPT_TOKENS:
            return f"; slowly from disk: ft serve --model {made.model} --host-memory {budget}"
    return ""


def _print(rows: Sequence[Fit], hardware: Hardware, speeds: Speeds, costs: Sequence[obtain.Cost | None]) -> None:
    print(f"{'model':20} {'experts':8} {'weights':>9} {'window':>8} {'tokens/s':>9} {'first prompt':>13}")
    for row in rows:
        if row.serves:
            print(
                f"{row.name:20} {row.format:8} {size_text(row.weights_bytes):>9} {row.window_tokens:>8,}"
                f" {row.tokens_per_second:>8.1f}{'*' if row.rate_from == 'profile' else ' '} {row.first_prompt_s:>11.0f} s"
            )
    for row in rows:
        if not row.serves:
            print(f"{row.name:20} {row.format:8} {row.why}")
    for row, cost in zip(rows, costs, strict=True):
        if cost is not None:
            size = "" if cost.download_bytes is None else file_size_text(cost.download_bytes)
            print(f"{row.name:20} {f'not from here: {cost.problem}' if cost.problem else f'{size} to download'}")
    measured = any(row.rate_from == "profile" for row in rows)
    print(
        f"Predicted for {size_text(hardware.available_bytes)} ({hardware.limited_by}) and {speeds.source}"
        f"{'; * by what ft bench bw has measured' if measured else ''};"
        f" the first prompt has {PROMPT_TOKENS:,} tokens.",
        file=sys.stderr,
    )
    if rows and rows[0].serves:
        print(f"To get the first: {rows[0].command}", file=sys.stderr)
    else:
        print("None of them fits here. The small model that comes with ft: ft models pull smollm2-moe", file=sys.stderr)
