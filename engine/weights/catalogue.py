"""Models known by name: repository, licence and the numbers of their configuration (`catalogue.toml`). Torch-free."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from engine.errors import NotFound
from engine.weights.config import architecture


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`config` holds what the architecture's map reads of config.json. Do not mutate it."""

    name: str
    repo: str
    license: str
    formats: tuple[str, ...]
    config: dict[str, Any]

    @property
    def arch(self) -> str:
        return architecture(self.config)


@cache
def known_models() -> dict[str, KnownModel]:
    """By name, in the order of the file."""
    found: dict[str, KnownModel] = {}
    for entry in _read()["models"]:
        base = found[entry["like"]].config if "like" in entry else {}
        config = {**base, **entry.get("config", {})}
        found[entry["name"]] = KnownModel(
            entry["name"], entry["repo"], entry["license"], tuple(entry["formats"]), config
        )
    return found


def cut_names() -> list[str]:
    """Names that `config_of` knows: the models, and smaller cuts of them for benchmarks."""
    return [*_read()["shapes"], *known_models()]


def config_of(name: str, layers: int | None = None, vocab: int | None = None) -> dict[str, Any]:
    """A copy of a known model's configuration, with other numbers of layers and tokens where given.

    Raises NotFound with the names there are.
    """
    cut = _read()["shapes"].get(name)
    if cut is not None:
        return config_of(cut["like"], layers or cut["layers"], vocab or cut["vocab"])
    if name not in known_models():
        raise NotFound(f"There is no known model {name!r}.", f"Known: {', '.join(cut_names())}.")
    config = dict(known_models()[name].config)
    return {
        **config,
        "num_hidden_layers": layers or config["num_hidden_layers"],
        "vocab_size": vocab or config["vocab_size"],
    }


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(files("engine.weights").joinpath("catalogue.toml").read_text(encoding="utf-8"))
