"""What is written is what is read, bit for bit, and nothing half-written is ever a model."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import kernels
from engine.errors import WeightsError
from engine.kernels.contract import FORMATS, ExpertShape, Packed, packed_bytes
from engine.weights import direct
from engine.weights.crc import Combiner
from engine.weights.ftw import aligned_buffer, read_bank, read_dense, read_weights
from engine.weights.manifest import load_manifest
from engine.weights.store import model_names
from engine.weights.writer import FtwWriter, staged


@pytest.mark.parametrize("format", FORMATS)
def test_written_weights_are_read_back_bit_for_bit(toy: SimpleNamespace, tmp_path: Path, format: str) -> None:
    manifest = load_manifest(toy.write(tmp_path, format=format))
    weights = read_weights(manifest)
    assert set(weights.dense) == set(toy.tensors())
    for name, (tensor, tensor_format) in toy.tensors().items():
        stored = weights.dense[name]
        if not tensor_format:
            assert isinstance(stored, torch.Tensor)
            assert torch.equal(stored, tensor)
            continue
        assert isinstance(stored, Packed)
        assert (stored.n, stored.k, stored.format) == (*tensor.shape, tensor_format)
        assert torch.equal(stored.data, kernels.get("reference").pack(tensor, tensor_format))
        assert stored.data.data_ptr() % 64 == 0
    assert set(weights.banks) == {1, 2}
    layout = ExpertShape(toy.hidden, toy.width, format)
    for layer, bank in weights.banks.items():
        assert bank.shape == (toy.experts, layout.stride)
        assert bank.data_ptr() % 4096 == 0
        for stored, (gate_up, down, _) in zip(bank, toy.layer(layer), strict=True):
            assert torch.equal(
                stored[: packed_bytes(2 * toy.width, toy.hidden, format)],
                kernels.get("reference").pack(gate_up, format),
            )
            assert torch.equal(
                stored[layout.down_offset : layout.down_offset + packed_bytes(toy.hidden, toy.width, format)],
                kernels.get("reference").pack(down, format),
            )


def test_parts_can_be_read_alone(small: Path) -> None:
    manifest = load_manifest(small)
    whole = read_weights(manifest)
    assert torch.equal(read_bank(manifest, manifest.banks[1]), whole.banks[2])
    assert set(read_dense(manifest)) == set(whole.dense)


def test_small_reads_in_parallel_give_the_same_bytes_and_count_them(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = load_manifest(small)
    whole = read_weights(manifest)
    monkeypatch.setattr(direct, "READ_BYTES", 4096)
    seen: list[tuple[int, int]] = []
    again = read_weights(manifest, lambda done, total: seen.append((done, total)), threads=8)
    assert all(torch.equal(again.banks[layer], whole.banks[layer]) for layer in whole.banks)
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert len(done) > 10
    assert done[-1] == manifest.total_bytes == seen[0][1]


def test_file_cut_after_the_check_is_named(small: Path) -> None:
    manifest = load_manifest(small)
    os.truncate(small / "experts-002.bin", 5000)
    with pytest.raises(WeightsError, match=r"experts-002.bin is truncated: it ends at byte 5000"):
        read_weights(manifest)


def test_buffers_are_aligned() -> None:
    buffers = [aligned_buffer(n) for n in (1, 4095, 4096, 99999)]
    assert all(buffer.data_ptr() % (2 << 20) == 0 for buffer in buffers)
    assert [buffer.numel() for buffer in buffers] == [1, 4095, 4096, 99999]


def test_weights_lie_on_huge_pages(toy: SimpleNamespace, tmp_path: Path) -> None:
    memory = aligned_buffer(64 << 20)
    memory.fill_(1)
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    if "[never]" in mode:
        pytest.skip("this system has no transparent huge pages")
    start, huge_kb, inside = memory.data_ptr(), 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in (head := line.split(" ", 1)[0]) and ":" not in head:
            low, high = (int(part, 16) for part in head.split("-"))
            inside = low <= start < high
        elif inside and line.startswith("AnonHugePages:"):
            huge_kb = int(line.split()[1])
    assert huge_kb >= 32 << 10  # the system may be short of them, but then it is not where speed is measured


_PEAK = """
import sys, torch
from engine.kernels import contract
from engine.weights.ftw import read_weights
from engine.weights.manifest import load_manifest

def high_water():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

manifest = load_manifest(sys.argv[1])
before = high_water()
weights = read_weights(manifest)
print(high_water() - before, manifest.total_bytes)
"""


def test_peak_memory_is_the_size_of_the_weights(tmp_path: Path) -> None:
    from engine.weights.catalogue import config_of
    from engine.weights.synth import synth

    config = {**config_of("shape-b", layers=1), "num_experts": 64}
    directory = synth(tmp_path, "large", config, "q8_0", "bf16")
    done = subprocess.run([sys.executable, "-c", _PEAK, str(directory)], capture_output=True, text=True, check=True)
    peak_bytes, size_bytes = map(int, done.stdout.split())
    assert size_bytes > 300 << 20
    assert 0.95 * size_bytes < peak_bytes <= 1.05 * size_bytes


@pytest.mark.parametrize("refuse", ["open", "read"])
def test_file_systems_that_refuse_direct_reads_are_read_all_the_same(
    small: Path, monkeypatch: pytest.MonkeyPatch, refuse: str
) -> None:
    manifest = load_manifest(small)
    whole, refused = read_weights(manifest), []
    real_open, real_read = os.open, os.preadv

    def open_(path: object, flags: int, *rest: object) -> int:
        if flags & os.O_DIRECT and refuse == "open":
            refused.append(path)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, *rest)

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(fd)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_read(fd, buffers, offset)

    monkeypatch.setattr(os, "open", open_)
    if refuse == "read":
        monkeypatch.setattr(os, "preadv", preadv)
    again = read_weights(manifest)
    assert refused
    assert all(torch.equal(again.banks[layer], whole.banks[layer]) for layer in whole.banks)


def test_a_disk_error_is_not_called_a_cut_file(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    manifest = load_manifest(small)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(WeightsError, match=r"dense.bin cannot be read: Input/output error"):
        read_weights(manifest)


def test_no_file_stays_open(small: Path) -> None:
    manifest = load_manifest(small)
    before = len(os.listdir("/proc/self/fd"))
    read_weights(manifest)
    os.truncate(small / "dense.bin", 5000)
    with pytest.raises(WeightsError):
        read_weights(manifest)
    assert len(os.listdir("/proc/self/fd")) == before


@given(st.binary(max_size=300), st.lists(st.integers(0, 40), max_size=8))
def test_sums_of_parts_make_the_sum_of_the_whole(data: bytes, sizes: list[int]) -> None:
    combine, total, start = Combiner(16), 0, 0
    for size in [*sizes, len(data)]:
        part = data[start : start + size]
        total, start = combine(total, zlib.crc32(part), len(part)), start + len(part)
    assert total == zlib.crc32(data)


def test_a_failed_write_leaves_the_old_model_and_no_new_one(small: Path) -> None:
    before = (small / "ftw.json").read_bytes()
    for name in ("small", "fresh"):
        with pytest.raises(RuntimeError, match="stop"), staged(small.parent, name) as folder:
            (folder / "ftw.json").write_text("{}")
            raise RuntimeError("stop")
    assert (small / "ftw.json").read_bytes() == before
    assert model_names(small.parent) == ["small"]
    assert sorted(p.name for p in small.parent.iterdir() if p.is_dir()) == ["small"]


_KILLED = """
import sys, time, torch
from pathlib import Path
from types import SimpleNamespace
from engine.weights.convert import packing_ops
from engine.weights.writer import FtwWriter, staged
with staged(Path(sys.argv[1]), "small") as folder, FtwWriter(folder, packing_ops()) as writer:
    writer.dense("embedding", torch.ones(64, 64), "bf16")
    print("half", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_nothing_that_looks_like_a_model(toy: SimpleNamespace, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert (tmp_path / ".small.partial" / "dense.bin").exists()
    assert model_names(tmp_path) == []
    load_manifest(toy.write(tmp_path))
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == ["small"]


def test_a_writer_killed_between_its_two_renames_loses_nothing(small: Path) -> None:
    before = (small / "ftw.json").read_bytes()
    small.rename(small.parent / ".small.old")
    with pytest.raises(RuntimeError), staged(small.parent, "small"):
        raise RuntimeError
    assert (small / "ftw.json").read_bytes() == before


def test_folders_that_are_not_models_are_never_replaced(toy: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(WeightsError, match="exists and is not a model directory"):
        toy.write(tmp_path, "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "words"


def test_writers_of_one_name_take_turns(toy: SimpleNamespace, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _KILLED.replace("sleep(60)", "sleep(0.5)").replace(
                "print", "(folder / 'ftw.json').write_text('{}'); print"
            ),
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    started = time.monotonic()
    toy.write(tmp_path)
    assert time.monotonic() - started > 0.3
    assert child.wait() == 0
    child.stdout.close()
    load_manifest(tmp_path / "small")


def test_one_name_is_one_tensor(tmp_path: Path) -> None:
    from engine.weights.convert import packing_ops

    with FtwWriter(tmp_path, packing_ops()) as writer:
        writer.dense("a", torch.ones(4), "")
        with pytest.raises(AssertionError):
            writer.dense("a", torch.ones(4), "")
