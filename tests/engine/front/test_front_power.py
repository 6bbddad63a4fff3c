"""Watts, joules and degrees from meters: a made-up /sys and a made-up card against arithmetic, and this machine's own."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from engine.front.power import Card, Power, Processor, Reading, Thermometer, cards, processors


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def machine(root: Path, uj: int = 1_000_000, celsius: int | None = 61_000) -> Path:
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram")):
        folder = root / "powercap" / zone
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{uj}\n")
        (folder / "max_energy_range_uj").write_text("262143000000\n")
    for number, (name, value) in enumerate((("nvme", 40_000), ("coretemp", celsius))):
        folder = root / "hwmon" / f"hwmon{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        if value is not None:
            (folder / "temp1_input").write_text(f"{value}\n")
    return root


def test_a_processor_counts_its_package_and_its_memory_and_wraps(tmp_path: Path) -> None:
    clock, meters = Clock(), processors(machine(tmp_path))
    assert [meter.name for meter in meters] == ["processor 0", "dram"]
    power = Power(meters, clock)
    assert power.json()["power_w"] is None, "one look is no rate"
    machine(tmp_path, uj=31_000_000)
    clock.now += 2.0
    told = power.json()
    assert (told["energy_j"], told["power_w"], told["temperature_c"]) == (60.0, 30.0, 61.0)
    machine(tmp_path, uj=262_142_000_000)
    clock.now += 1.0
    before = power.json()["energy_j"]
    machine(tmp_path, uj=9_000_000)
    clock.now += 10.0
    assert power.json()["energy_j"] - before == pytest.approx(2 * 10.0)


def test_a_temperature_alone_is_told_and_nothing_is_nothing(tmp_path: Path) -> None:
    machine(tmp_path)
    for file in tmp_path.glob("powercap/*/energy_uj"):
        file.unlink()
    (meter,) = processors(tmp_path)
    assert isinstance(meter, Thermometer)
    told = Power([meter]).json()
    assert (told["temperature_c"], told["power_w"], told["energy_j"]) == (61.0, None, None)
    nothing = Power(processors(tmp_path / "absent")).json()
    assert nothing == {"schema": "ft.power/1", "power_w": None, "energy_j": None, "temperature_c": None, "meters": []}


class NVMLError(Exception):
    pass


def driver(monkeypatch: pytest.MonkeyPatch, count: bool = True) -> types.ModuleType:
    """A library with one card of 300 W that has used 5 kJ in its life; without `count` it does not tell that."""
    library = types.ModuleType("a_driver_for_tests")
    library.NVMLError, library.mj = NVMLError, 5_000_000  # type: ignore[attr-defined]

    def energy(handle: int) -> int:
        if not count:
            raise NVMLError("not supported")
        return int(library.mj)

    for name, value in (
        ("nvmlInit", lambda: None),
        ("nvmlDeviceGetCount", lambda: 1),
        ("nvmlDeviceGetHandleByIndex", lambda index: index),
        ("nvmlDeviceGetName", lambda handle: b"RTX"),
        ("nvmlDeviceGetTotalEnergyConsumption", energy),
        ("nvmlDeviceGetPowerUsage", lambda handle: 300_000),
        ("nvmlDeviceGetTemperature", lambda handle, sensor: 70 + sensor),
    ):
        setattr(library, name, value)
    monkeypatch.setitem(sys.modules, library.__name__, library)
    return library


@pytest.mark.parametrize("count", [True, False], ids=["counter", "power alone"])
def test_a_card_tells_power_temperature_and_energy(monkeypatch: pytest.MonkeyPatch, count: bool) -> None:
    library, clock = driver(monkeypatch, count), Clock()
    meters = cards(library.__name__)
    assert isinstance(meters[0], Card) and [meter.name for meter in meters] == ["RTX"]
    power = Power(meters, clock)
    clock.now += 2.0
    library.mj = 5_500_000  # type: ignore[attr-defined]
    told = power.json()
    assert (told["power_w"], told["temperature_c"]) == (300.0, 70.0)
    assert told["energy_j"] == (500.0 if count else 600.0)


def test_a_meter_that_goes_away_keeps_what_was_known() -> None:
    class Failing:
        name = "x"
        left = 2

        def read(self) -> Reading:
            self.left -= 1
            if self.left < 0:
                raise OSError("gone")
            return Reading(joules=10.0 * (2 - self.left))

    clock = Clock()
    power = Power([Failing()], clock)
    for _ in range(3):
        clock.now += 1.0
        power.look()
    assert power.json()["energy_j"] == 10.0


def test_the_meters_of_this_machine() -> None:
    """Whatever there is here: numbers that are possible, or None."""
    told = Power.of_machine().json()
    for meter in [told, *told["meters"]]:
        assert meter["temperature_c"] is None or -20 < meter["temperature_c"] < 130
        assert meter["energy_j"] is None or meter["energy_j"] >= 0
    packages = [meter for meter in processors() if isinstance(meter, Processor)]
    assert [m["name"] for m in told["meters"]][: len(packages)] == [meter.name for meter in packages]
