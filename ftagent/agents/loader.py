"""Harnesses as `ft` sees them: found without importing their adapters, and every fault is a sentence with a fix."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from ftagent.errors import FtError, UsageError
from harnesses import registry
from harnesses.contract import Harness


def names() -> list[str]:
    return registry.names()


def load(name: str) -> Harness:
    """Raises UsageError for an unknown name, FtError when the harness itself is broken."""
    try:
        return registry.load(name)
    except KeyError:
        program = registry.program_of(name)
        if program is not None:
            hint = f"ft launch run -- {program} [arguments]"
            raise UsageError(f"{name} has no launcher of its own.", hint, code="FT-E0202 unknown-agent") from None
        near = get_close_matches(name, names(), n=1, cutoff=0.5)
        hint = f"Did you mean: ft launch {near[0]}" if near else "Known agents: " + ", ".join(names())
        raise UsageError(f"Unknown agent {name!r}.", hint, code="FT-E0202 unknown-agent") from None
    except (ValueError, ImportError, AttributeError) as error:
        raise FtError(
            f"The harness {name!r} cannot be loaded: {error}.",
            "Correct its harness.toml or adapter.py.",
            code="FT-E0110 broken-harness",
        ) from None


def load_command(arguments: list[str], declaration: Path | None, cwd: Path) -> Harness:
    """What `ft launch run -- COMMAND …` starts. Raises UsageError without a command or for a declaration that is none."""
    if not arguments:
        raise UsageError("ft launch run needs a command.", "ft launch run -- COMMAND [arguments]")
    command = str(cwd / arguments[0]) if "/" in arguments[0] else arguments[0]
    path = cwd / declaration.expanduser() if declaration is not None else None
    try:
        return registry.load_command(command, path)
    except (OSError, ValueError) as error:
        raise UsageError(f"The declaration cannot be read: {error}.", "Correct --declaration FILE.") from None


def wire_declaration(harness: Harness) -> dict[str, object]:
    """What is registered at the engine for this harness."""
    return registry.wire_declaration(harness.declaration)
