"""A card's memory: as the driver's library tells it, and nothing at all where it is missing."""

from __future__ import annotations

import sys
import types

import pytest

from engine.device.foreign import Gpu, open_gpu, watch
from engine.memory.foreign import Host


class NVMLError(Exception):
    pass


@pytest.fixture
def driver(monkeypatch):
    """A driver's library under a name of its own, with one card."""
    library = types.ModuleType("driver_of_a_test")
    library.NVMLError = NVMLError
    library.fails = False
    library.memory = types.SimpleNamespace(free=3 << 30, total=24 << 30, used=21 << 30)

    def initialise():
        if library.fails:
            raise NVMLError("no driver")

    def handle(index):
        if index:
            raise NVMLError("no such card")
        return "card 0"

    def info(handle):
        assert handle == "card 0"
        initialise()
        return library.memory

    library.nvmlInit, library.nvmlDeviceGetHandleByIndex, library.nvmlDeviceGetMemoryInfo = initialise, handle, info
    monkeypatch.setitem(sys.modules, library.__name__, library)
    return library


def test_a_cards_memory_is_what_its_driver_tells(driver):
    reader = open_gpu(0, driver.__name__)
    found = reader.read()
    assert (found.bytes, found.total_bytes, found.limited_by) == (3 << 30, 24 << 30, "the memory of the card")
    driver.memory.free = 1 << 30
    assert reader.read().bytes == 1 << 30


def test_without_library_driver_or_card_there_is_no_reader(driver):
    assert open_gpu(0, "a_library_that_nobody_has") is None
    assert open_gpu(1, driver.__name__) is None
    driver.fails = True
    assert open_gpu(0, driver.__name__) is None


def test_a_driver_that_goes_away_is_an_os_error(driver):
    reader = Gpu(driver, 0)
    driver.fails = True
    with pytest.raises(OSError, match="no driver"):
        reader.read()


def test_the_library_of_this_machine_is_used_where_there_is_one():
    """The real library: absent, or without a card, or a card whose numbers add up."""
    reader = open_gpu()
    if reader is None:
        assert isinstance(watch("cuda")._reader, Host)
    else:
        found = reader.read()
        assert 0 <= found.bytes <= found.total_bytes and found.total_bytes > 1 << 30
    assert isinstance(watch("cpu")._reader, Host)
