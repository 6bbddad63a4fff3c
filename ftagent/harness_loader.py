"""Harnesses as `ft` sees them: found without importing their adapters, and every fault is a sentence with a fix."""

from __future__ import annotations

from difflib import get_close_matches

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
        near = get_close_matches(name, names(), n=1, cutoff=0.5)
        hint = f"Did you mean: ft launch {near[0]}" if near else "Known agents: " + ", ".join(names())
        raise UsageError(f"Unknown agent {name!r}.", hint, code="FT-E0202 unknown-agent") from None
    except (ValueError, ImportError, AttributeError) as error:
        raise FtError(
            f"The harness {name!r} cannot be loaded: {error}.",
            "Correct its harness.toml or adapter.py.",
            code="FT-E0110 broken-harness",
        ) from None


def wire_declaration(harness: Harness) -> dict[str, object]:
    """What is registered at the engine for this harness."""
    return registry.wire_declaration(harness.declaration)
