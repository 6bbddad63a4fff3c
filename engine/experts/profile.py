"""Measured bandwidths, kept from run to run: keyed by what was moved, and by the machine and device that moved it."""

from __future__ import annotations

import json
from pathlib import Path

from engine.device.contract import Device
from engine.experts.split import Profile
from engine.kernels.contract import ExpertShape
from engine.memory.hardware import machine_text as machine

SCHEMA = "ft.bandwidth/1"


class Profiles:
    """A folder of small files; None: nothing is found and nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find(self, shape: ExpertShape, device: Device) -> Profile | None:
        """What was measured for such experts on this machine and device; None when nothing was, or elsewhere."""
        if self._folder is None:
            return None
        try:
            data = json.loads(self._path(shape, device).read_text())
            if data["schema"] == SCHEMA and data["key"] == _key(shape, device):
                return Profile(float(data["fill"]), float(data["host"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def keep(self, shape: ExpertShape, device: Device, profile: Profile) -> None:
        """Raises OSError."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(shape, device)
        partial = path.with_suffix(".partial")
        data = {"schema": SCHEMA, "key": _key(shape, device), "fill": profile.fill, "host": profile.host}
        partial.write_text(json.dumps(data))
        partial.replace(path)

    def _path(self, shape: ExpertShape, device: Device) -> Path:
        assert self._folder is not None
        return self._folder / f"{device.name}-{shape.format}-{shape.hidden}x{shape.width}.json"


def _key(shape: ExpertShape, device: Device) -> str:
    return f"{machine()} | {device.identity} | {shape}"
