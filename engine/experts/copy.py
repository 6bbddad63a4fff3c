"""Experts from the host bank into slots: a copy thread paced by the device's copy engine."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.device.clock import sleep_until
from engine.device.contract import Device
from engine.experts.bank import Bank


class CopyTicket:
    """See Ticket."""

    def __init__(self, n: int, arrived: threading.Condition, times: list[float] | None) -> None:
        self._n, self._arrived, self.times = n, arrived, times
        self.done = 0
        self._start = time.perf_counter()
        self.end = self._start

    def wait(self, i: int) -> None:
        """See Ticket."""
        if self.done <= i:
            with self._arrived:
                self._arrived.wait_for(lambda: self.done > i)

    def wait_all(self) -> None:
        """See Ticket."""
        self.wait(self._n - 1)

    def span(self) -> tuple[float, float]:
        """See Ticket. Of a paced copy it is what the device says, not when the copy thread woke up."""
        return (self._start, self.end) if self.times is None else (self.times[0], self.times[-1])


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
        ticket = CopyTicket(n, self._arrived, self._device.copies(n, self.bytes_per_expert))
        if n:
            sources = self._bank.addresses[layer].numpy()[np.asarray(experts)].tolist()
            self._work.put((ticket, sources, self._slots[np.asarray(slots)].tolist()))
        return ticket

    def close(self) -> None:
        """See Fetcher."""
        self._work.put(None)
        self._thread.join()

    def _copy(self) -> None:
        while (job := self._work.get()) is not None:
            ticket, sources, targets = job
            for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
                ctypes.memmove(target, source, self.bytes_per_expert)
                if ticket.times is not None:
                    sleep_until(ticket.times[i + 1])
                with self._arrived:
                    ticket.end = time.perf_counter()
                    ticket.done = i + 1
                    self._arrived.notify_all()
