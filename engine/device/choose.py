"""The device that a setting names."""

from __future__ import annotations

from engine.device.contract import Device
from engine.device.cpu import CpuDevice
from engine.device.emulated import EmulatedDevice, Speeds
from engine.errors import BadRequest

GB = 1e9
DEFAULT_FILL_GBS, DEFAULT_HOST_GBS = 1.0, 4.0  # slow enough for any machine's kernels to be quicker


def create(name: str, fill_gbs: float | None = None, host_gbs: float | None = None) -> Device:
    """The device called `name`; the bandwidths are the emulated one's, in 10^9 bytes/s. Raises BadRequest."""
    if name == "cpu":
        return CpuDevice()
    if name == "emulated":
        return EmulatedDevice(Speeds((fill_gbs or DEFAULT_FILL_GBS) * GB, (host_gbs or DEFAULT_HOST_GBS) * GB))
    raise BadRequest(f"There is no device {name!r}.", "Use --device cpu or --device emulated.")
