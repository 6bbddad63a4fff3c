"""Both instruction sets, the reference, and batches with scrambled pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from engine import kernels
from engine.kernels import _cpu
from engine.kernels.contract import Batch, ExpertShape, Ops


def isas() -> list[str]:
    """Instruction sets this processor has."""
    start, found = _cpu.isa(), []
    for name in ("avx2", "avx512", "avx512bf16"):
        try:
            _cpu.set_isa(name)
            found.append(name)
        except ValueError:
            pass
    _cpu.set_isa(start)
    return found


@pytest.fixture(params=isas())
def cpu(request: pytest.FixtureRequest) -> Iterator[Ops]:
    """The C++ kernels, once per instruction set, with two threads."""
    start, threads = _cpu.isa(), _cpu.thread_count()
    _cpu.set_isa(request.param)
    _cpu.set_threads(2)
    yield kernels.get("cpu")
    _cpu.set_isa(start)
    _cpu.set_threads(threads)


@pytest.fixture
def each_way() -> Iterator[Callable[[Callable[[Ops], torch.Tensor]], list[torch.Tensor]]]:
    """Runs something on every instruction set with 1, 2 and 3 threads; returns the results."""
    start, threads = _cpu.isa(), _cpu.thread_count()

    def run(work: Callable[[Ops], torch.Tensor]) -> list[torch.Tensor]:
        results = []
        for isa in isas():
            for count in (1, 2, 3):
                _cpu.set_isa(isa)
                _cpu.set_threads(count)
                results.append(work(kernels.get("cpu")))
        return results

    yield run
    _cpu.set_isa(start)
    _cpu.set_threads(threads)


@pytest.fixture
def each_isa() -> Iterator[Callable[[], Iterator[Ops]]]:
    """Goes through the instruction sets, with two threads: for what is expected of all and dear to compute."""
    start, threads = _cpu.isa(), _cpu.thread_count()

    def run() -> Iterator[Ops]:
        _cpu.set_threads(2)
        for isa in isas():
            _cpu.set_isa(isa)
            yield kernels.get("cpu")

    yield run
    _cpu.set_isa(start)
    _cpu.set_threads(threads)


@pytest.fixture
def reference() -> Ops:
    return kernels.get("reference")


class Arena:
    """An arena with KV pages in scrambled order and states for `seqs` sequences; `batch` describes one step over it."""

    def __init__(
        self, seqs: int, tokens: int, page_tokens: int, page_bytes: int, state_bytes: int, layers: int
    ) -> None:
        generator = torch.Generator().manual_seed(seqs * 1000 + tokens)
        pages = -(-tokens // page_tokens)
        order = torch.randperm(seqs * pages, generator=generator).view(seqs, pages)
        self.page_tokens = page_tokens
        self.page_offsets = order * page_bytes
        self.spare = seqs * pages * page_bytes + seqs * layers * state_bytes
        self.states = (torch.arange(seqs * layers) * state_bytes + seqs * pages * page_bytes).view(seqs, layers)
        self.state_bytes, self.layers = state_bytes, layers
        self.data = torch.zeros(self.spare + 16 * layers * state_bytes, dtype=torch.uint8)
        floats = self.data[seqs * pages * page_bytes :].view(torch.float32)
        floats.copy_(torch.randn(floats.shape, generator=generator) * 0.3)

    def batch(
        self, rows: dict[int, tuple[int, int]], kv: str = "f32", snapshots: list[tuple[int, int]] | None = None
    ) -> Batch:
        """`rows`: sequence -> (first position, count). `snapshots`: (place in the batch, rows absorbed)."""
        chosen = list(rows)
        counts = torch.tensor([rows[s][1] for s in chosen])
        start = torch.tensor([rows[s][0] for s in chosen], dtype=torch.int32)
        positions = torch.cat([torch.arange(f, f + n) for f, n in rows.values()]).to(torch.int32)
        row_start = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]).to(torch.int32)
        taken = snapshots or []
        targets = torch.arange(len(taken) * self.layers).view(len(taken), self.layers) * self.state_bytes + self.spare
        return Batch(
            arena=self.data, row_start=row_start, positions=positions, start=start,
            page_offsets=self.page_offsets[chosen], page_tokens=self.page_tokens, kv_dtype=kv,
            states=self.states[chosen], snapshot_seq=torch.tensor([s for s, _ in taken], dtype=torch.int32),
            snapshot_rows=torch.tensor([n for _, n in taken], dtype=torch.int32), snapshot_states=targets,
        )  # fmt: skip


@pytest.fixture
def make_arena() -> type[Arena]:
    return Arena


def _make_bank(ops: Ops, experts: int, shape: ExpertShape) -> tuple[torch.Tensor, torch.Tensor]:
    """(bank bytes, addresses [experts]) of random experts."""
    hidden, width = shape.hidden, shape.width
    bank = torch.zeros(experts, shape.stride, dtype=torch.uint8)
    for expert in bank:
        gate_up = ops.pack(torch.randn(2 * width, hidden) * hidden**-0.5, shape.format)
        down = ops.pack(torch.randn(hidden, width) * width**-0.5, shape.format)
        expert[: gate_up.numel()] = gate_up
        expert[shape.down_offset : shape.down_offset + down.numel()] = down
        if shape.bias:
            biases = torch.randn(2 * width + hidden).view(torch.uint8)
            expert[shape.bias_offset : shape.bias_offset + biases.numel()] = biases
    return bank, torch.arange(experts) * shape.stride + bank.data_ptr()


@pytest.fixture
def make_bank() -> Callable[[Ops, int, ExpertShape], tuple[torch.Tensor, torch.Tensor]]:
    return _make_bank
