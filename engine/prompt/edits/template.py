"""The model's side of a session's edits: what its chat template does to history."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """A `template/1` declaration. `preserving`: the switch that keeps the thinking of earlier turns is on."""

    family: str
    thinking: str = "all"  # all | after_query | all_if_tools | none
    preserving: bool = False
