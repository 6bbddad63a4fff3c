"""Finds harnesses: the folders beside this file, and entry points `ftagent.harnesses` of other distributions."""

from __future__ import annotations

import importlib
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from harnesses.contract import Adapter, Harness

ROOT = Path(__file__).parent
LAUNCHER_SECTIONS = ("launch",)  # read here; the engine never sees them


def names() -> list[str]:
    """Every harness that can be launched, sorted."""
    own = {path.parent.name for path in ROOT.glob("*/harness.toml")}
    return sorted(own | {point.name for point in _outside()})


def load(name: str) -> Harness:
    """The folder called `name`. Raises KeyError when there is none, ValueError when its declaration cannot be parsed."""
    if (ROOT / name / "harness.toml").is_file() and name.isidentifier():
        return _from_folder(name, ROOT / name, importlib.import_module(f"harnesses.{name}.adapter"))
    for point in _outside():
        if point.name == name:
            module: ModuleType = point.load()
            return _from_folder(name, Path(str(module.__file__)).parent, module)
    raise KeyError(name)


def wire_declaration(declaration: dict[str, Any]) -> dict[str, Any]:
    """What is registered with the engine: the declaration without the launcher's own sections."""
    return {key: value for key, value in declaration.items() if key not in LAUNCHER_SECTIONS}


def read_declaration(folder: Path) -> dict[str, Any]:
    """The parsed harness.toml of a folder. Raises ValueError with file and position when it is not TOML."""
    path = folder / "harness.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def _outside() -> list[EntryPoint]:
    return list(entry_points(group="ftagent.harnesses"))


def _from_folder(name: str, folder: Path, module: ModuleType) -> Harness:
    adapter: Adapter = module.ADAPTER
    return Harness(name=name, declaration=read_declaration(folder), adapter=adapter)
