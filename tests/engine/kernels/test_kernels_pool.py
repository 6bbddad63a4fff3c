"""The thread pool: every task once, whatever is stolen; quiet when idle."""

from __future__ import annotations

import os
import time

import pytest
import torch

from engine import kernels
from engine.kernels import _cpu
from engine.kernels.contract import Packed


@pytest.fixture(params=[2, 3, 7])
def threads(request):
    before = _cpu.thread_count()
    _cpu.set_threads(request.param)
    yield request.param
    _cpu.set_threads(before)


def test_thousands_of_jobs_of_any_size_do_every_task_once(threads):
    """More threads than cores, so that claims, thefts and sleeping interleave; a task done twice or never shows."""
    ops, generator = kernels.get("cpu"), torch.Generator().manual_seed(0)
    weight = torch.eye(512)
    matrix = Packed(ops.pack(weight, "f32"), "f32", 512, 512)
    for i in range(400):
        rows = int(torch.randint(1, 40, (1,), generator=generator))
        x = torch.randn(rows, 512, generator=generator)
        assert torch.equal(ops.linear(x, matrix), x)
        if i % 50 == 0:
            time.sleep(0.001)  # the others have gone to sleep


def test_an_idle_pool_uses_no_processor_time(threads):
    """Threads stop spinning within 50 microseconds: a tenth of a second of idleness costs a fraction of a millisecond."""
    ops = kernels.get("cpu")
    matrix = Packed(ops.pack(torch.randn(512, 512), "f32"), "f32", 512, 512)
    x = torch.randn(8, 512)
    costs = []
    for _ in range(5):
        ops.linear(x, matrix)
        start = time.process_time()
        time.sleep(0.1)
        costs.append(time.process_time() - start)
    assert min(costs) < 0.001 + threads * 1e-4, costs


def test_a_step_allocates_nothing_once_it_has_run(threads):
    """Scratch memory is kept: a thousand more steps do not grow the process."""
    ops = kernels.get("cpu")
    matrix = Packed(ops.pack(torch.randn(512, 512), "bf16"), "bf16", 512, 512)
    x = torch.randn(4, 512)
    for _ in range(50):
        ops.linear(x, matrix)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    for _ in range(1000):
        ops.linear(x, matrix)
    assert resident() - before < 1 << 20
