"""Where to look for the memory that other programs take: this machine's RAM, or a card's own. Torch-free."""

from __future__ import annotations

import importlib
from typing import Any

from engine.memory.available import Available
from engine.memory.foreign import Foreign, Host


class Gpu:
    """One card's memory, as the driver's management library tells it."""

    def __init__(self, library: Any, index: int) -> None:
        """`library`: the module `pynvml`, initialised. Raises its NVMLError when there is no such card."""
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> Available:
        """See Reader."""
        try:
            memory = self._library.nvmlDeviceGetMemoryInfo(self._handle)
        except self._library.NVMLError as error:
            raise OSError(f"the graphics driver does not tell its memory: {error}") from None
        return Available(int(memory.free), int(memory.total), "the memory of the card")


def open_gpu(index: int = 0, library: str = "pynvml") -> Gpu | None:
    """The reader of a card; None where the library, its driver or the card is missing."""
    try:
        found = importlib.import_module(library)
    except ImportError:
        return None
    try:
        found.nvmlInit()
        return Gpu(found, index)
    except found.NVMLError:
        return None


def watch(device: str, index: int = 0) -> Foreign:
    """What watches the fast tier of the device called `device`: the RAM, unless the device is a card that tells its memory."""
    reader = open_gpu(index) if device == "cuda" else None
    return Foreign(reader or Host())
