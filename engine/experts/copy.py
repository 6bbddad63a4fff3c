"""Experts from the host bank into slots: a copy thread, and the time that the device's copy engine would have needed."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.device.clock import Clock
from engine.device.contract import Device
from engine.experts.bank import Bank


class CopyTicket:
    """See Ticket. `times` is when the device says that the first copy began and that each was done; None: as it happens."""

    def __init__(self, n: int, arrived: threading.Condition, clock: Clock, times: list[float] | None) -> None:
        self._n, self._arrived, self._clock, self._times = n, arrived, clock, times
        self._start = self._end = clock.now()
        self._done = 0

    def wait(self, i: int) -> None:
        """See Ticket."""
        if self._done <= i:
            with self._arrived:
                self._arrived.wait_for(lambda: self._done > i)
        if self._times is not None:
            self._clock.sleep_until(self._times[i + 1])

    def wait_all(self) -> None:
        """See Ticket."""
        if self._n:
            self.wait(self._n - 1)

    def span(self) -> tuple[float, float]:
        """See Ticket."""
        return (self._start, self._end) if self._times is None else (self._times[0], self._times[-1])

    def copied(self) -> None:
        """Called by the copy thread when the next expert is in its slot."""
        with self._arrived:
            self._end = self._clock.now()
            self._done += 1
            self._arrived.notify_all()


class CopyFetcher:
    """See Fetcher. `slots` [capacity] i64 are the slots' addresses now; the owner may change it between tickets."""

    def __init__(self, bank: Bank, slots: npt.NDArray[np.int64], device: Device) -> None:
        self.bytes_per_expert = bank.shape.stride
        self._bank, self._slots, self._device = bank, slots, device
        self._arrived = threading.Condition()
        self._work: queue.SimpleQueue[tuple[CopyTicket, list[int], list[int]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._copy, name="experts", daemon=True)
        self._thread.start()

    def start(self, layer: int, experts: Sequence[int], slots: Sequence[int], ahead: bool = False) -> CopyTicket:
        """See Fetcher."""
        n = len(experts)
        self._bank.need(layer, experts)
        ticket = CopyTicket(n, self._arrived, self._device.clock, self._device.copies(n, self.bytes_per_expert))
        if n:
            sources = self._bank.addresses[layer].numpy()[np.asarray(experts)].tolist()
            self._work.put((ticket, sources, self._slots[np.asarray(slots)].tolist()))
        return ticket

    def report(self) -> dict[str, Any]:
        """See Fetcher."""
        return {}

    def close(self) -> None:
        """See Fetcher."""
        self._work.put(None)
        self._thread.join()

    def _copy(self) -> None:
        while (job := self._work.get()) is not None:
            ticket, sources, targets = job
            for source, target in zip(sources, targets, strict=True):
                ctypes.memmove(target, source, self.bytes_per_expert)
                ticket.copied()
