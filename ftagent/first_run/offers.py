"""What can be chosen on this machine: models as `ft models fit --costs` tells of them, agents as they are found or installed."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftagent.agents import loader
from ftagent.agents.install import Recipe, recipe_of, steps
from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.launch.find import agent_path, cached_version, find_executable
from ftagent.local_engine.models import find_model, installed
from ftagent.paths import short

LINE_BITS_PER_S = 100e6  # what a download is priced at; the person knows better
WRITE_BYTES_PER_S = 30e6  # at which one slow core converted and wrote a model (788 MB in 28 s of it)
FIRST_AGENTS = ("claude", "codex", "opencode", "qwen", "pi", "openclaw", "hermes")
MOST_SHOWN = 6


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """`pull` are the words behind `ft models pull`, () of one that lies here. `label` has one line."""

    name: str
    label: str
    pull: tuple[str, ...] = ()
    download_bytes: int | None = None
    disk_bytes: int = 0

    def costs(self) -> list[str]:
        if not self.pull:
            return ["It is here already; nothing is downloaded."]
        said = f"writes {size_text(self.disk_bytes)}"
        seconds = self.disk_bytes / WRITE_BYTES_PER_S
        if self.download_bytes:
            line_s = 8 * self.download_bytes / LINE_BITS_PER_S
            said = f"downloads {size_text(self.download_bytes)} ({time_text(line_s)} at 100 Mbit/s), {said}"
            seconds = max(seconds, line_s)
        elif self.download_bytes == 0:
            said = f"downloads nothing, {said}"
        return [f"Costs: {said}, about {time_text(seconds)}. Interrupted, it goes on where it stopped."]


@dataclass(frozen=True, slots=True)
class Models:
    """`reasons`: why something better is not offered, a line each."""

    offers: tuple[ModelOffer, ...]
    reasons: tuple[str, ...] = ()


def models_here(models_dir: Path, cwd: Path) -> list[ModelOffer]:
    """Those that can be used as they are, the serious ones first."""
    found = []
    for name in installed(models_dir):
        try:
            found.append(find_model(name, models_dir, cwd))
        except FtError:
            continue  # the doctor's business
    found.sort(key=lambda model: model.toy)
    return [
        ModelOffer(m.name, f"{m.name}  here, window {m.window_tokens:,} tokens{', a toy' if m.toy else ''}")
        for m in found
    ]


def models(document: Mapping[str, Any], here: Sequence[ModelOffer]) -> Models:
    """Of an `ft.models-fit/1` with costs; {} where it could not be had."""
    reasons: list[str] = []
    offers = list(here)
    known = {offer.name for offer in here}
    ranked = [row for row in document.get("models") or [] if row["serves"]]
    for row in ranked:
        cost = row.get("cost") or {}
        if cost.get("problem"):
            reasons.append(f"{row['name']} cannot be had from here: {cost['problem']}")
        elif row["pulled_name"] not in known:
            offers.append(_ranked(row, cost))
    if document and not ranked:
        nearest = min(document["models"], key=lambda row: row["total_bytes"] - row["available_bytes"])
        reasons.append(f"No known model fits here with room for an agent. The nearest: {nearest['why']}")
    package = document.get("builtin") or {}
    problem = (package.get("cost") or {}).get("problem")
    if package and problem:
        reasons.append(f"{package['name']} cannot be made here: {problem}")
    elif package and package["name"] not in known:
        offers.append(_packaged(package))
    return Models(tuple(offers[:MOST_SHOWN]), tuple(_once(reasons)))


def _ranked(row: Mapping[str, Any], cost: Mapping[str, Any]) -> ModelOffer:
    prompt = f"first prompt {time_text(row['first_prompt_s'])}"
    label = f"{row['pulled_name']}  window {row['window_tokens']:,}, {row['tokens_per_second']} tokens/s, {prompt}"
    words = tuple(shlex.split(row["command"]))[3:]
    return ModelOffer(row["pulled_name"], label, words, cost.get("download_bytes"), cost.get("disk_bytes") or 0)


def _packaged(package: Mapping[str, Any]) -> ModelOffer:
    cost, words = package["cost"], tuple(shlex.split(package["command"]))[3:]
    label = f"{package['name']}  from {package['from']}: a toy, no help with real work"
    return ModelOffer(package["name"], label, words, cost["download_bytes"], cost["disk_bytes"])


def _once(reasons: Sequence[str]) -> list[str]:
    """A reason that many models share is told once, with how many."""
    by_cause: dict[str, list[str]] = {}
    for reason in reasons:
        name, known, cause = reason.partition(" cannot be had from here: ")
        by_cause.setdefault(cause if known else reason, []).append(name if known else "")
    told = []
    for cause, names in by_cause.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        told.append(f"{names[0]}{more} cannot be had from here: {cause}" if names[0] else cause)
    return told


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """`install`: the recipe where it is not there yet; `missing` names the program that installing needs and that is not there."""

    name: str
    label: str
    install: Recipe | None = None
    missing: str = ""

    def costs(self, context: Context) -> list[str]:
        if self.install is None:
            return ["Costs: nothing. Next comes the dry run, which changes nothing."]
        commands = [short(shlex.join(step), context.paths.home) for step in steps(context.paths, self.install)]
        if self.missing:
            return [f"It needs {self.missing}, which is not here.", *commands]
        return ["Runs, into ft's own folder (your own installations stay):", *commands]


def agents(context: Context) -> list[AgentOffer]:
    """Those that are installed first; then those that can be installed; last the one that is part of ft."""
    there, installable, ours = [], [], []
    path = agent_path(context.env, context.paths)
    for name in sorted(loader.names(), key=lambda name: (_rank(name), name)):
        try:
            harness = loader.load(name)
            recipe = recipe_of(harness)
        except FtError:
            continue
        adapter = harness.adapter
        if not adapter.executables:
            ours.append(AgentOffer(name, f"{name}  part of ft: one question, a few tools, nothing to install"))
            continue
        found = find_executable(adapter.executables, path)
        if found.path is not None:
            version = cached_version(found.path, context.paths)
            where = short(found.path, context.paths.home)
            there.append(AgentOffer(name, "  ".join(filter(None, (name, version, where)))))
        elif recipe is not None:
            needs = "npm" if recipe.method == "npm" else ""
            lacks = needs if needs and shutil.which(needs, path=context.env.get("PATH")) is None else ""
            label = f"{name}  not installed: {recipe.package} {recipe.version}{f', needs {lacks}' if lacks else ''}"
            installable.append(AgentOffer(name, label, recipe, lacks))
    installable.sort(key=lambda offer: bool(offer.missing))
    return [*there, *installable, *ours] if there or any(not o.missing for o in installable) else [*ours, *installable]


def _rank(name: str) -> int:
    return FIRST_AGENTS.index(name) if name in FIRST_AGENTS else len(FIRST_AGENTS)


def size_text(n_bytes: int) -> str:
    """In powers of ten, as disks and lines are sold."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


def time_text(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
