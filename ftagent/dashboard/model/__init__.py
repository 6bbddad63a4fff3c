"""What one frame of the dashboard shows. Plain data: no source, no screen.

None is unknown everywhere and is shown as `-`, never as 0. Times `at` are seconds since the epoch, other `_s` are durations.
A part that can be out of date carries `told`: where it comes from and when it was read.
"""

from ftagent.dashboard.model.anchors import Anchor, Anchors
from ftagent.dashboard.model.engine import Crash, Engine, Fill, Flag, Phase, Version
from ftagent.dashboard.model.experts import CurvePoint, Experts, Layer
from ftagent.dashboard.model.frame import PARTS, SCHEMA, Act, Alert, Check, Frame, LogLine, Part, Totals
from ftagent.dashboard.model.history import Forecast, ForecastPoint, Series
from ftagent.dashboard.model.memory import Memory, Move, Tenant, WhatIf
from ftagent.dashboard.model.sessions import Cost, InFlight, Receipt, Session, Watchdog
from ftagent.dashboard.model.source import Outcome, Source
from ftagent.dashboard.model.told import Level, Told
from ftagent.dashboard.model.turns import Event, Explanation, Turn

__all__ = [
    "PARTS",
    "SCHEMA",
    "Act",
    "Alert",
    "Anchor",
    "Anchors",
    "Check",
    "Cost",
    "Crash",
    "CurvePoint",
    "Engine",
    "Event",
    "Experts",
    "Explanation",
    "Fill",
    "Flag",
    "Forecast",
    "ForecastPoint",
    "Frame",
    "InFlight",
    "Layer",
    "Level",
    "LogLine",
    "Memory",
    "Move",
    "Outcome",
    "Part",
    "Phase",
    "Receipt",
    "Series",
    "Session",
    "Source",
    "Tenant",
    "Told",
    "Totals",
    "Turn",
    "Version",
    "Watchdog",
    "WhatIf",
]
