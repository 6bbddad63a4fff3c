"""Finds harnesses: the folders beside this file, and entry points `ftagent.harnesses` of other distributions.

A folder without `adapter.py` declares a client that `ft launch run -- COMMAND` starts: it is known by its program's name.
"""

from __future__ import annotations

import importlib
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from harnesses.contract import Adapter, Harness

ROOT = Path(__file__).parent
GENERIC = "generic"  # what any other client is given
LAUNCHER_SECTIONS = ("launch", "install", "card")  # read here; the engine never sees them


def names() -> list[str]:
    """Every harness that can be launched, sorted."""
    own = {path.parent.name for path in ROOT.glob("*/adapter.py")}
    return sorted(own | {point.name for point in _outside()})


def declared() -> list[str]:
    """Every client that has a declaration but no launcher of its own, sorted."""
    own = {path.parent.name for path in ROOT.glob("*/harness.toml")} - {GENERIC}
    return sorted(own - set(names()))


def program_of(name: str) -> str | None:
    """What starts the client without a launcher that is called `name`, or has a program of that name; None when there is none."""
    for folder in declared():
        programs = read_declaration(ROOT / folder).get("launch", {}).get("executables", ())
        if name.replace("-", "_") == folder or name in programs:
            return str(programs[0]) if programs else folder
    return None


def load(name: str) -> Harness:
    """The folder called `name`. Raises KeyError when there is none, ValueError when its declaration cannot be parsed."""
    if name.isidentifier() and (ROOT / name / "adapter.py").is_file():
        return _from_folder(name, ROOT / name, importlib.import_module(f"harnesses.{name}.adapter"))
    for point in _outside():
        if point.name == name:
            module: ModuleType = point.load()
            return _from_folder(name, Path(str(module.__file__)).parent, module)
    raise KeyError(name)


def load_command(command: str, declaration: Path | None = None) -> Harness:
    """What `ft launch run -- COMMAND` starts: any program, with what is declared of it.

    `declaration` is a file in the format of a harness.toml, such as a draft; without it the program's name decides.
    Raises ValueError when it is not TOML, OSError when it cannot be read.
    """
    from harnesses.generic.command import CommandAdapter

    if declaration is not None:
        return Harness("run", read_file(declaration), CommandAdapter(command), observe=True)
    program = Path(command).name
    for name in declared():
        data = read_declaration(ROOT / name)
        if program in data.get("launch", {}).get("executables", ()):
            return Harness(name, data, CommandAdapter(command, ROOT / name))
    return Harness("run", read_declaration(ROOT / GENERIC), CommandAdapter(command), observe=True)


def wire_declaration(declaration: dict[str, Any]) -> dict[str, Any]:
    """What is registered with the engine: the declaration without the launcher's own sections."""
    return {key: value for key, value in declaration.items() if key not in LAUNCHER_SECTIONS}


def read_declaration(folder: Path) -> dict[str, Any]:
    """The parsed harness.toml of a folder. Raises ValueError with file and position when it is not TOML."""
    return read_file(folder / "harness.toml")


def read_file(path: Path) -> dict[str, Any]:
    """A parsed declaration. Raises ValueError with file and position when it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def _outside() -> list[EntryPoint]:
    return list(entry_points(group="ftagent.harnesses"))


def _from_folder(name: str, folder: Path, module: ModuleType) -> Harness:
    adapter: Adapter = module.ADAPTER
    return Harness(name=name, declaration=read_declaration(folder), adapter=adapter)
