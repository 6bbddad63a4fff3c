"""The commands, found by listing the folder; help lines are read from the files without importing them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "commands"
FIRST = (
    "launch",
    "resume",
    "run",
    "models",
    "top",
    "status",
    "doctor",
)  # what `ft --help` shows; the rest is under `ft help all`


def names() -> list[str]:
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def module_of(name: str) -> str:
    return f"ftagent.commands.{name.replace('-', '_')}"


def help_line(name: str) -> str:
    """The first line of the module's docstring."""
    with (FOLDER / f"{name.replace('-', '_')}.py").open(encoding="utf-8") as file:
        return file.readline().strip().strip('"').rstrip(".")


def nearest(name: str) -> str | None:
    from difflib import get_close_matches

    matches = get_close_matches(name, names(), n=1, cutoff=0.5)
    return matches[0] if matches else None
