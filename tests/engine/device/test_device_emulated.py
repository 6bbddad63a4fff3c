"""The emulated device: copies and host reads take what the bandwidths say, by the machine's clock and by the modelled one."""

from __future__ import annotations

import pytest

from engine.device import choose
from engine.device.clock import Clock, ModelClock
from engine.device.cpu import CpuDevice
from engine.device.emulated import EmulatedDevice, Speeds
from engine.errors import BadRequest

MB = 1_000_000


@pytest.fixture
def device():
    return EmulatedDevice(Speeds(fill=20 * MB, host=50 * MB), ModelClock())


def test_copies_queue_behind_each_other(device):
    assert device.copies(2, MB) == pytest.approx([0.0, 0.05, 0.1])
    assert device.copies(1, MB) == pytest.approx([0.1, 0.15])
    device.clock.sleep_until(1.0)
    assert device.copies(1, MB) == pytest.approx([1.0, 1.05])


def test_work_in_place_gets_what_copies_leave_of_the_bus(device):
    assert device.in_place(5 * MB, 0).wait() == pytest.approx((0.0, 0.1))
    device.copies(2, MB)  # until 0.2
    start, end = device.in_place(3 * MB, 0).wait()
    assert (start, end) == pytest.approx((0.1, 0.2)), "at 30 MB/s beside copies at 20"
    device.copies(2, MB)  # until 0.3
    start, end = device.in_place(8 * MB, 0).wait()
    assert end - start == pytest.approx(0.1 + 5 * MB / (50 * MB)), "and all of it after them"


def test_arithmetic_can_take_longer_than_reading():
    device = EmulatedDevice(Speeds(MB, MB, row_s=0.5), ModelClock())
    assert device.in_place(MB, 1).wait()[1] == pytest.approx(1.0)
    start, end = device.in_place(MB, 8).wait()
    assert end - start == pytest.approx(4.0)


def test_the_device_computes_one_thing_after_the_other():
    device = EmulatedDevice(Speeds(MB, MB, expert_s=0.25), ModelClock())
    device.computes(2)
    device.computes(1)
    device.synchronize()
    assert device.clock.now() == pytest.approx(0.75)


def test_a_throttle_holds_for_what_begins_after_it(device):
    first = device.copies(1, MB)
    device.throttle(fill=5 * MB)
    assert device.copies(1, MB) == pytest.approx([first[-1], first[-1] + 0.2])
    assert device.speeds.host == 50 * MB


def test_real_waits_are_exact_to_two_per_cent():
    device = EmulatedDevice(Speeds(fill=20 * MB, host=50 * MB))
    errors = []
    for _ in range(9):
        start = device.clock.now()
        device.clock.sleep_until(device.copies(2, MB)[-1])
        errors.append(abs((device.clock.now() - start) / 0.1 - 1))
    assert sorted(errors)[4] < 0.02


def test_devices_are_found_by_name():
    assert isinstance(choose.create("cpu"), CpuDevice)
    made = choose.create("emulated", 2.0, 3.0)
    assert isinstance(made, EmulatedDevice) and made.speeds == Speeds(2e9, 3e9)
    assert type(made.clock) is Clock
    with pytest.raises(BadRequest, match="quantum"):
        choose.create("quantum")
