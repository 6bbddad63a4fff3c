"""Weights that are still being read while the model serves: what a layer needs next overtakes what lies further behind."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

from engine.errors import WeightsError
from engine.weights.direct import THREADS, Reader
from engine.weights.ftw import Load, Weights, check_banks, dense_views, load_bank, load_dense
from engine.weights.manifest import Bank, Manifest, Meter, Progress, reading, remedy


@dataclass(slots=True)
class _Coming:
    """A bank on its way: whether all of it is there and was checked, else which experts are and were."""

    bank: Bank
    load: Load
    whole: threading.Event = field(default_factory=threading.Event)
    checked: set[int] = field(default_factory=set)


class Background:
    """`weights` have their final places from the start; all dense ones are there, banks come in the order of layers.

    Nothing may look at an expert that `need` was not asked for. `close` when nothing more is wanted of it.
    """

    def __init__(self, manifest: Manifest, progress: Progress | None = None, threads: int = THREADS) -> None:
        """See ftw.read_weights; waits for the dense weights only. Raises WeightsError."""
        check_banks(manifest)
        self._manifest, self._progress = manifest, progress
        self.error: Exception | None = None
        self.unread_bytes = manifest.total_bytes
        self._reader = Reader(threads, Meter(manifest.total_bytes, self._advanced).advance)
        try:
            dense = load_dense(self._reader, manifest)
            ordered = sorted(manifest.banks, key=lambda bank: bank.layer)
            self._coming = [_Coming(bank, load_bank(self._reader, manifest, bank)) for bank in ordered]
            views = dense_views(manifest, dense.result())
        except BaseException:
            self.close()
            raise
        banks = {c.bank.layer: c.load.memory.view(c.bank.experts, c.bank.stride) for c in self._coming}
        self.weights = Weights(views, banks)
        self._ended: Callable[[], None] = lambda: None
        self._checker = threading.Thread(target=self._check, name="banks", daemon=True)

    def start(self, ended: Callable[[], None] = lambda: None) -> None:
        """Check what has arrived; `ended` is called from a thread when every bank is whole, or `error` says why one is not."""
        self._ended = ended
        self._checker.start()

    def need(self, layer: int, experts: Iterable[int]) -> None:
        """Return when these experts of the `layer`-th bank are there. For one thread. Raises WeightsError."""
        coming = self._coming[layer]
        if coming.whole.is_set():
            self._raise()
            return
        bank, memory = coming.bank, coming.load.memory.numpy().data
        if not bank.expert_crc32:  # nothing to check a single expert against
            coming.whole.wait()
            self._raise()
            return
        wanted = [e for e in sorted({int(e) for e in experts}) if e not in coming.checked]
        path = self._manifest.path(bank.file)
        with reading(self._manifest, path):
            coming.load.read.hurry((e * bank.stride, (e + 1) * bank.stride) for e in wanted)
        for expert in wanted:
            found = zlib.crc32(memory[expert * bank.stride : (expert + 1) * bank.stride])
            if found != bank.expert_crc32[expert]:
                raise WeightsError(
                    f"{path} is corrupt in expert {expert} of layer {bank.layer}: its checksum is {found:08x} and should be "
                    f"{bank.expert_crc32[expert]:08x}.",
                    remedy(self._manifest.directory),
                )
        coming.checked.update(wanted)

    def wait(self) -> None:
        """Return when every bank is whole; nothing is read or open any more then. Raises WeightsError."""
        self._checker.join()
        self.close()
        self._raise()

    def close(self) -> None:
        """Drop what has not begun to be read."""
        self._reader.__exit__()

    def _check(self) -> None:
        try:
            for coming in self._coming:
                coming.load.result()
                coming.whole.set()
        except CancelledError:
            self.error = WeightsError("The weights were not read to their end.")
        except Exception as failure:  # whatever it is, someone waits for it
            self.error = failure
        finally:
            for coming in self._coming:
                coming.whole.set()
            self._ended()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def _advanced(self, done: int, total: int) -> None:
        self.unread_bytes = total - done
        if self._progress is not None:
            self._progress(done, total)
