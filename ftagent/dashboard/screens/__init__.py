"""The screens. Each is made when it is first looked at."""

from __future__ import annotations

from importlib import import_module

from ftagent.dashboard.model import Part
from ftagent.dashboard.screens.view import View

_CLASSES: dict[Part, str] = {
    "overview": "Overview",
    "turns": "Turns",
    "memory": "MemoryView",
    "experts": "ExpertsView",
    "anchors": "AnchorsView",
    "engine": "EngineView",
    "logs": "LogsView",
    "doctor": "DoctorView",
}


def make(part: Part) -> View:
    """A fresh screen of this name."""
    made: View = getattr(import_module(f"{__name__}.{part}"), _CLASSES[part])()
    return made
