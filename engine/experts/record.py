"""Access streams: which experts each step of each layer routed to, as a file that policies are replayed against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.errors import WeightsError

FORMAT = "ft.expert-stream/1"
_LIMIT_ROWS = 1 << 24  # of one recording: 16 bytes a row at top-8, so that a forgotten recorder stays small


@dataclass(frozen=True, slots=True)
class Stream:
    """Accesses in order. Access i is one layer of one step: layer `layer[i]`, the next `rows[i]` rows of `ids`
    [sum of rows, top_k]. `layers` and `experts` are the model's counts; `label` says where the stream is from."""

    layers: int
    experts: int
    layer: npt.NDArray[np.int16]
    rows: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int16]
    label: str = ""

    @property
    def top_k(self) -> int:
        return int(self.ids.shape[1])

    def __len__(self) -> int:
        return len(self.layer)

    def __iter__(self) -> Iterator[tuple[int, npt.NDArray[np.int16]]]:
        """(layer, ids [rows, top_k]) of each access."""
        end = 0
        for layer, rows in zip(self.layer.tolist(), self.rows.tolist(), strict=True):
            start, end = end, end + rows
            yield layer, self.ids[start:end]

    def steps(self) -> npt.NDArray[np.int64]:
        """The step of each access, from 0: layers ascend within a step."""
        return np.cumsum(np.diff(self.layer, prepend=self.layer[:1]) < 0)

    def save(self, path: Path) -> None:
        """Write to `path`, whole or not at all."""
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as out:
            np.savez_compressed(
                out,
                format=np.array(FORMAT),
                label=np.array(self.label),
                shape=np.array([self.layers, self.experts]),
                layer=self.layer,
                rows=self.rows,
                ids=self.ids,
            )
        partial.replace(path)


def load_stream(path: Path) -> Stream:
    """Raises WeightsError for a file that is missing or no stream."""
    try:
        with np.load(path, allow_pickle=False) as data:
            if str(data["format"]) != FORMAT:
                raise ValueError(f"its format is {str(data['format'])!r}")
            layers, experts = (int(n) for n in data["shape"])
            stream = Stream(layers, experts, data["layer"], data["rows"], data["ids"], str(data["label"]))
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, EOFError) as error:
        raise WeightsError(f"{path} is no recorded expert stream.", "Record one: --record FILE") from error
    inside = stream.ids.ndim == 2 and stream.rows.sum() == len(stream.ids) and len(stream.layer) == len(stream.rows)
    if not inside or not _within(stream.ids, stream.experts) or not _within(stream.layer, stream.layers):
        raise WeightsError(f"{path} contradicts itself.", "Record one: --record FILE")
    return stream


def _within(values: npt.NDArray[np.int16], n: int) -> bool:
    return bool(len(values) == 0 or (values.min() >= 0 and values.max() < n))


class Recorder:
    """Collects accesses. An executor that has one calls `note` once per layer and step, before it computes."""

    def __init__(self, layers: int, experts: int, label: str = "") -> None:
        self._layers, self._experts, self._label = layers, experts, label
        self._layer: list[int] = []
        self._ids: list[npt.NDArray[np.int16]] = []
        self._rows = 0

    def note(self, layer: int, ids: npt.NDArray[np.integer]) -> None:
        """ids [M, top_k]. Ignored once the recording has 2^24 rows."""
        if self._rows < _LIMIT_ROWS:
            self._layer.append(layer)
            self._ids.append(ids.astype(np.int16))
            self._rows += len(ids)

    def stream(self) -> Stream:
        """All that was noted so far."""
        return Stream(
            self._layers,
            self._experts,
            np.array(self._layer, dtype=np.int16),
            np.array([len(ids) for ids in self._ids], dtype=np.int32),
            np.concatenate(self._ids) if self._ids else np.zeros((0, 1), dtype=np.int16),
            self._label,
        )
