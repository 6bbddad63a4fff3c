"""The disk tier over real files: the bytes of the bank, errors that name the file, and both ways of reading."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import engine.experts.disk as disk
import engine.kernels
from engine.device.cpu import CpuDevice
from engine.errors import WeightsError
from engine.experts.disk import DiskFetcher
from engine.experts.executor import in_place
from engine.experts.slots import SlotTable
from engine.experts.split import UNKNOWN, Rates
from engine.experts.tiered import Tiered
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import load
from engine.weights.ftw import aligned_buffer
from engine.weights.manifest import load_manifest

STRIDE, EXPERTS, LAYERS, SLOTS = 12288, 6, 2, 5


@pytest.fixture
def bank(tmp_path) -> list[Path]:
    random = np.random.default_rng(5)
    files = [tmp_path / f"experts-{layer:03d}.bin" for layer in range(LAYERS)]
    for file in files:
        file.write_bytes(random.bytes(EXPERTS * STRIDE))
    return files


class Slots:
    def __init__(self, offset: int = 0) -> None:
        self.memory = aligned_buffer(SLOTS * STRIDE + offset).zero_()[offset:]
        self.addresses = self.memory.data_ptr() + STRIDE * np.arange(SLOTS)

    def __getitem__(self, slot: int) -> bytes:
        return self.memory[slot * STRIDE : (slot + 1) * STRIDE].numpy().tobytes()


@pytest.fixture
def slots() -> Slots:
    return Slots()


def expert(files: list[Path], layer: int, number: int) -> bytes:
    return files[layer].read_bytes()[number * STRIDE : (number + 1) * STRIDE]


@pytest.mark.parametrize(("offset", "direct"), [(0, True), (0, False), (64, True)])
def test_slots_hold_the_banks_bytes_whichever_way_they_were_read(bank, offset, direct):
    slots = Slots(offset)
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses, direct=direct)
    assert fetcher.direct is (direct and offset == 0)
    random = np.random.default_rng(0)
    for _ in range(20):
        layer = int(random.integers(LAYERS))
        n = int(random.integers(0, SLOTS + 1))
        experts, places = random.permutation(EXPERTS)[:n].tolist(), random.permutation(SLOTS)[:n].tolist()
        ticket = fetcher.start(layer, experts, places)
        for i in range(n):
            ticket.wait(i)
            for place, number in zip(places[: i + 1], experts[: i + 1], strict=True):
                assert slots[place] == expert(bank, layer, number)
        ticket.wait_all()
    assert fetcher.stats.bytes == fetcher.stats.reads * STRIDE
    assert fetcher.stats.seconds > 0
    fetcher.close()


def test_tickets_under_way_are_finished_before_closing(bank, slots):
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses, threads=1)
    ahead = fetcher.start(0, [0, 1], [0, 1], ahead=True)
    ticket = fetcher.start(1, [3, 2, 5], [2, 3, 4])
    fetcher.close()
    ticket.wait_all()
    ahead.wait_all()
    wanted = [(0, 0), (0, 1), (1, 3), (1, 2), (1, 5)]
    assert [slots[i] for i in range(SLOTS)] == [expert(bank, *which) for which in wanted]
    first, last = ticket.span()
    assert 0 < first <= last


def test_reads_ahead_wait_for_demanded_ones(bank, slots, monkeypatch):
    order: list[int] = []
    gate, read = threading.Event(), disk._File.read

    def slow(self, number, target):
        gate.wait(5)
        order.append(number)
        read(self, number, target)

    monkeypatch.setattr(disk._File, "read", slow)
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses, threads=1)
    tickets = [fetcher.start(0, [0], [0]), fetcher.start(0, [1, 2], [1, 2], ahead=True), fetcher.start(0, [3], [3])]
    gate.set()
    for ticket in tickets:
        ticket.wait_all()
    fetcher.close()
    assert order == [0, 3, 1, 2]


def test_slots_that_move_between_tickets_are_read_where_they_are_now(bank, slots):
    addresses = slots.addresses.copy()
    fetcher = DiskFetcher(bank, STRIDE, addresses)
    addresses[0] = slots.addresses[4]
    fetcher.start(0, [2], [0]).wait_all()
    fetcher.close()
    assert slots[4] == expert(bank, 0, 2)


def test_a_file_that_is_missing_or_cut_is_named_at_once(bank, slots):
    with pytest.raises(WeightsError, match=r"gone\.bin cannot be read: No such file"):
        DiskFetcher([bank[0], bank[0].with_name("gone.bin")], STRIDE, slots.addresses)
    os.truncate(bank[1], 2 * STRIDE - 100)
    with pytest.raises(WeightsError, match=r"experts-001\.bin is truncated: it ends at byte 24476"):
        DiskFetcher(bank, STRIDE, slots.addresses)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("end", [2 * STRIDE, 2 * STRIDE + 4096, 2 * STRIDE + 100])
def test_a_file_cut_while_serving_is_named_and_the_others_still_arrive(bank, slots, direct, end):
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses, direct=direct)
    os.truncate(bank[0], end)
    ticket = fetcher.start(0, [0, 2, 1], [0, 1, 2])
    with pytest.raises(WeightsError, match=r"experts-000\.bin is truncated"):
        ticket.wait(1)
    with pytest.raises(WeightsError, match=r"experts-000\.bin is truncated"):
        ticket.wait_all()
    ticket.wait(0)
    assert (slots[0], slots[2]) == (expert(bank, 0, 0), expert(bank, 0, 1))
    fetcher.close()


def test_a_disk_error_is_raised_with_the_files_name(bank, slots, monkeypatch):
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses)

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(WeightsError, match=r"experts-001\.bin cannot be read: Input/output error"):
        fetcher.start(1, [0], [0]).wait_all()
    monkeypatch.undo()
    fetcher.start(1, [0], [0]).wait_all()
    assert slots[0] == expert(bank, 1, 0)
    fetcher.close()


def test_short_reads_are_continued(bank, slots, monkeypatch):
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses)
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:4096]], at))
    fetcher.start(1, [4], [1]).wait_all()
    fetcher.close()
    assert slots[1] == expert(bank, 1, 4)


def test_a_file_system_that_refuses_direct_reads_is_read_through_the_page_cache(bank, slots, monkeypatch):
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses, threads=1)
    preadv, refused = os.preadv, []

    def refuses_once(fd, views, at):
        if not refused:
            refused.append(fd)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return preadv(fd, views, at)

    monkeypatch.setattr(os, "preadv", refuses_once)
    fetcher.start(0, [1, 2], [0, 1]).wait_all()
    assert not fetcher.direct
    assert [slots[0], slots[1]] == [expert(bank, 0, 1), expert(bank, 0, 2)]
    fetcher.close()


def test_a_flipped_bit_is_found_by_the_first_read_of_its_expert(bank, slots):
    sums = [[zlib.crc32(expert(bank, layer, e)) for e in range(EXPERTS)] for layer in range(LAYERS)]
    data = bytearray(bank[1].read_bytes())
    data[3 * STRIDE + 7] ^= 1
    bank[1].write_bytes(data)
    fetcher = DiskFetcher(bank, STRIDE, slots.addresses, sums=sums)
    fetcher.start(1, [2, 4], [0, 1]).wait_all()
    for _ in range(2):
        with pytest.raises(WeightsError, match=r"experts-001\.bin is corrupt in expert 3: its checksum is"):
            fetcher.start(1, [3], [2]).wait_all()
    fetcher.close()


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("slots", [2, 3, 6, 11])
def test_experts_served_from_disk_give_the_bits_of_a_bank_in_memory(
    tmp_path, make_bank, make_slots, make_rows, direct, slots
):
    bank, ops = make_bank(2, 6, format="bf16"), engine.kernels.get("cpu")
    files = [tmp_path / f"experts-{layer:03d}.bin" for layer in range(2)]
    for file, layer in zip(files, bank.layers, strict=True):
        file.write_bytes(layer.numpy().tobytes())
    lie = make_slots(bank, slots)
    fetcher = DiskFetcher(files, bank.shape.stride, lie, direct=direct)
    served = Tiered(ops, bank.shape, SlotTable(2, 6, slots), lie, fetcher, CpuDevice(), 2, Rates(UNKNOWN))
    memory = in_place(ops, bank)
    for step, rows in enumerate([1, 17, 1, 1, 4, 1, 40, 1]):
        for layer in range(2):
            x, ids, weights = make_rows(rows, 6, 2, bank.shape.hidden, 10 * step + layer)
            assert torch.equal(served.run(layer, x, ids, weights), memory.run(layer, x, ids, weights))
            served.table.check()
    assert fetcher.stats.reads == sum(served.misses) > 0
    served.close()


def test_an_expert_that_cannot_be_read_is_an_error_and_the_next_try_reads_it(
    tmp_path, make_bank, make_slots, make_rows, monkeypatch
):
    bank, ops = make_bank(1, 6), engine.kernels.get("cpu")
    file = tmp_path / "experts-000.bin"
    file.write_bytes(bank.layers[0].numpy().tobytes())
    lie = make_slots(bank, 4)
    served = Tiered(
        ops,
        bank.shape,
        SlotTable(1, 6, 4),
        lie,
        DiskFetcher([file], bank.shape.stride, lie),
        CpuDevice(),
        2,
        Rates(UNKNOWN),
    )
    x, ids, weights = make_rows(1, 6, 2, bank.shape.hidden, 0)
    preadv = os.preadv

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(WeightsError, match=r"experts-000\.bin cannot be read: Input/output error"):
        served.run(0, x, ids, weights)
    monkeypatch.setattr(os, "preadv", preadv)
    assert torch.equal(served.run(0, x, ids, weights), in_place(ops, bank).run(0, x, ids, weights))
    served.close()


@pytest.mark.parametrize("sums", [True, False])
def test_a_model_with_a_flipped_bit_is_refused_by_name_when_served_from_disk(models_dir, tmp_path, sums):
    directory = tmp_path / "tiny-hybrid"
    shutil.copytree(models_dir / "tiny-hybrid", directory)
    bank = load_manifest(directory).banks[1]
    data = bytearray((directory / bank.file).read_bytes())
    for number in range(bank.experts):
        data[number * bank.stride + 5] ^= 1
    (directory / bank.file).write_bytes(data)
    if not sums:
        manifest = json.loads((directory / "ftw.json").read_text())
        for entry in manifest["banks"]:
            entry.pop("expert_crc32", None)
        (directory / "ftw.json").write_text(json.dumps(manifest))
    asked = Settings(kv_tokens=256, max_running=1, chunk_tokens=16, host_memory=20 * bank.stride)
    with pytest.raises(WeightsError, match=rf"{bank.file} is corrupt.*: its checksum is"):
        load(directory, plan_model(directory, asked), threads=1)
