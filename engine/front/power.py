"""What the machine draws and how warm it is, where that can be read: the processor's own counters, and those of graphics cards.

Energy is that of the whole machine part, whoever used it; what no meter tells stays None.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SYS = Path("/sys/class")
EVERY_S = 30.0  # a counter of the processor begins again after a quarter of an hour at full power
LEAST_S = 0.5  # between two readings that a rate is made from
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


@dataclass(frozen=True, slots=True)
class Reading:
    """`joules` counts on from anywhere and begins again at `wraps_at`, where that is not None."""

    joules: float | None = None
    watts: float | None = None
    celsius: float | None = None
    wraps_at: float | None = None


class Meter(Protocol):
    @property
    def name(self) -> str:
        """As people call it."""

    def read(self) -> Reading:
        """Raises OSError when it cannot be read any more."""


class Processor:
    """A RAPL zone of the kernel, and the processor's own temperature."""

    def __init__(self, zone: Path, name: str, sensor: Path | None = None) -> None:
        self.name, self._zone, self._sensor = name, zone, sensor

    def read(self) -> Reading:
        """See Meter."""
        joules = int((self._zone / "energy_uj").read_text()) / 1e6
        most = int((self._zone / "max_energy_range_uj").read_text()) / 1e6
        celsius = None
        if self._sensor is not None:
            with suppress(OSError, ValueError):
                celsius = int(self._sensor.read_text()) / 1000
        return Reading(joules, None, celsius, most)


class Thermometer:
    """The processor's temperature, where its energy cannot be read."""

    name = "processor"

    def __init__(self, sensor: Path) -> None:
        self._sensor = sensor

    def read(self) -> Reading:
        """See Meter."""
        return Reading(celsius=int(self._sensor.read_text()) / 1000)


class Card:
    """A graphics card, as the driver's management library tells it."""

    def __init__(self, library: Any, index: int) -> None:
        """`library`: the module `pynvml`, initialised. Raises its NVMLError when there is no such card."""
        self._library, self._handle = library, library.nvmlDeviceGetHandleByIndex(index)
        name = library.nvmlDeviceGetName(self._handle)
        self.name = name.decode() if isinstance(name, bytes) else str(name)

    def read(self) -> Reading:
        """See Meter. What this card does not tell is left out."""
        told: dict[str, float] = {}
        for field, ask, scale in (
            ("joules", self._library.nvmlDeviceGetTotalEnergyConsumption, 1000),
            ("watts", self._library.nvmlDeviceGetPowerUsage, 1000),
            ("celsius", lambda handle: self._library.nvmlDeviceGetTemperature(handle, 0), 1),
        ):
            with suppress(self._library.NVMLError):
                told[field] = ask(self._handle) / scale
        return Reading(**told)


@dataclass(slots=True)
class _Account:
    """One meter since the beginning."""

    meter: Meter
    last: Reading
    at: float
    joules: float | None
    watts: float | None


class Power:
    """Meters read now and then, by any thread."""

    def __init__(self, meters: Sequence[Meter], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._accounts: list[_Account] = []
        for meter in meters:
            with suppress(OSError, ValueError):
                first = meter.read()
                known = first.joules is not None or first.watts is not None
                self._accounts.append(_Account(meter, first, clock(), 0.0 if known else None, first.watts))

    @staticmethod
    def of_machine() -> Power:
        """With a thread that reads often enough for no counter to begin again unseen; none where there are no meters."""
        power = Power([*processors(), *cards()])
        if power._accounts:
            threading.Thread(target=power._keep_reading, name="power", daemon=True).start()
        return power

    def look(self) -> None:
        """Read all."""
        with self._lock:
            for account in self._accounts:
                with suppress(OSError, ValueError):
                    self._read(account)

    def json(self) -> dict[str, Any]:
        """`ft.power/1`: of all meters together, and of each. Watts and degrees are those of now, joules since the beginning."""
        self.look()
        with self._lock:
            meters = [
                {"name": a.meter.name, "power_w": a.watts, "energy_j": a.joules, "temperature_c": a.last.celsius}
                for a in self._accounts
            ]
        degrees = [meter["temperature_c"] for meter in meters if meter["temperature_c"] is not None]
        return {
            "schema": "ft.power/1",
            "power_w": _sum([meter["power_w"] for meter in meters]),
            "energy_j": _sum([meter["energy_j"] for meter in meters]),
            "temperature_c": max(degrees, default=None),
            "meters": meters,
        }

    def _read(self, account: _Account) -> None:
        now = self._clock()
        passed = now - account.at
        if passed < LEAST_S:
            return
        new, old = account.meter.read(), account.last
        used = None
        if new.joules is not None and old.joules is not None:
            used = new.joules - old.joules
            if used < 0:
                used = used + new.wraps_at if new.wraps_at else None
        elif new.watts is not None:
            used = new.watts * passed
        if used is not None and account.joules is not None:
            account.joules += used
        account.watts = new.watts if new.watts is not None else None if used is None else used / passed
        account.last, account.at = new, now

    def _keep_reading(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self.look()


def _sum(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) if known else None


def processors(root: Path = SYS) -> list[Meter]:
    """Packages and their memory where the kernel lets us read them, else the temperature alone, else nothing."""
    sensor = _sensor(root)
    found: list[Meter] = []
    for zone in sorted((root / "powercap").glob("*rapl:*")):
        with suppress(OSError):
            name = (zone / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                (zone / "energy_uj").read_text()
                first = not found and name.startswith("package")
                found.append(Processor(zone, name.replace("package-", "processor "), sensor if first else None))
    return found or ([] if sensor is None else [Thermometer(sensor)])


def _sensor(root: Path) -> Path | None:
    for folder in sorted((root / "hwmon").glob("*")):
        with suppress(OSError):
            if (folder / "name").read_text().strip() in _SENSORS:
                sensor = folder / "temp1_input"
                int(sensor.read_text())
                return sensor
    return None


def cards(library: str = "pynvml") -> list[Meter]:
    """All that the driver tells of; none without it."""
    try:
        found = importlib.import_module(library)
    except ImportError:
        return []
    made: list[Meter] = []
    with suppress(found.NVMLError):
        found.nvmlInit()
        for index in range(int(found.nvmlDeviceGetCount())):
            with suppress(found.NVMLError):
                made.append(Card(found, index))
    return made
