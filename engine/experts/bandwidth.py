"""How fast experts move and are computed where they lie: `engine bench bw`. Keeps a profile for later starts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import engine.kernels
from engine.bench.rows import Row, row, show
from engine.device import choose
from engine.device.contract import Device
from engine.device.cpu import allocate_arena
from engine.experts.bank import Bank
from engine.experts.copy import CopyFetcher
from engine.experts.profile import Profiles
from engine.experts.split import Profile
from engine.kernels.contract import FORMATS, ExpertShape, Ops, packed_bytes
from engine.memory.hardware import physical_cores
from engine.memory.planner import DEVICES

BANK_BYTES = 512 << 20  # far beyond any cache
SLOTS = 32
SAMPLES = 15
DEFAULT_EXPERTS = (2048, 768, 8, 48)  # hidden, width, top-k and layers of a common 30B model


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples in bytes per second."""

    fill: list[float]
    host: list[float]

    @property
    def profile(self) -> Profile:
        return Profile(float(np.median(self.fill)), float(np.median(self.host)))


def measure(ops: Ops, device: Device, shape: ExpertShape, top_k: int, samples: int = SAMPLES) -> Measured:
    """Fill and in-place bandwidth for such experts, the two alternating. Takes about half a gigabyte of memory."""
    bank = _bank(ops, shape)
    arena = allocate_arena(SLOTS * shape.stride)
    slots = arena.data_ptr() + shape.stride * np.arange(SLOTS, dtype=np.int64)
    fetcher = CopyFetcher(bank, slots, device)
    random = np.random.default_rng(1)
    x, weights = torch.randn(1, shape.hidden), torch.full((1, top_k), 1 / top_k)
    fill, host = [], []
    try:
        for i in range(samples + 2):
            experts = random.permutation(bank.experts)[:SLOTS].tolist()
            ticket = fetcher.start(0, experts, range(len(experts)))
            ticket.wait_all()
            start, end = ticket.span()
            used = seconds = 0.0
            for _ in range(4):
                ids = torch.from_numpy(random.permutation(bank.experts)[None, :top_k].astype(np.int32))
                work = device.in_place(top_k * shape.stride, top_k)
                ops.experts(x, ids, weights, bank.addresses[0], shape)
                work.computed()
                began, done = work.wait()
                used, seconds = used + top_k * shape.stride, seconds + done - began
            if i >= 2:
                fill.append(len(experts) * shape.stride / (end - start))
                host.append(used / seconds)
    finally:
        fetcher.close()
    return Measured(fill, host)


def _bank(ops: Ops, shape: ExpertShape) -> Bank:
    experts = max(SLOTS, min(256, BANK_BYTES // shape.stride))
    memory = allocate_arena(experts * shape.stride).view(experts, shape.stride)
    one = torch.zeros(shape.stride, dtype=torch.uint8)
    for at, size in ((0, (2 * shape.width, shape.hidden)), (shape.down_offset, (shape.hidden, shape.width))):
        one[at : at + packed_bytes(*size, shape.format)] = ops.pack(torch.randn(size) * 0.02, shape.format)
    memory[:] = one
    return Bank([memory], shape)


def rows_of(measured: Measured, shape: ExpertShape, top_k: int, layers: int) -> list[Row]:
    """Bandwidths, the split they imply, and what they allow a whole model at most."""
    gb = [[value / 1e9 for value in side] for side in (measured.fill, measured.host)]
    profile, name = measured.profile, f"bw.{shape.format}"
    token = top_k * layers * shape.stride
    note = f"hidden {shape.hidden}, width {shape.width}, top-{top_k}, {layers} layers; expert weights only"
    share = min(1.0, profile.fill / profile.host)
    return [
        row(f"{name}.fill", "GB/s", gb[0], note="into slots, at most"),
        row(f"{name}.host", "GB/s", gb[1], note="computed in place, one token"),
        row(f"{name}.share", "of misses", [share], note="to be filled: q* / m"),
        row(f"{name}.decode", "tokens/s", [profile.host / token], note=f"ceiling in place; {note}"),
        row(f"{name}.offload", "tokens/s", [profile.fill / token], note="ceiling when every expert is filled"),
    ]


def main(argv: list[str]) -> int:
    """`engine bench bw`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="ft bench bw", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--dtype", choices=FORMATS, default=None, help="default: the model's, or bf16")
    parser.add_argument("--model", type=Path, help="model folder whose experts to measure")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--emulate-fill-gbs", type=float)
    parser.add_argument("--emulate-host-gbs", type=float)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--profiles-dir", type=Path, help="where to keep the profile; default: it is not kept")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    shape, top_k, layers = _asked(args.model, args.dtype)
    ops, device = engine.kernels.get("cpu"), choose.create(args.device, args.emulate_fill_gbs, args.emulate_host_gbs)
    ops.set_threads(args.threads or physical_cores())
    measured = measure(ops, device, shape, top_k, 5 if args.quick else SAMPLES)
    Profiles(args.profiles_dir).keep(shape, device, measured.profile)
    show(rows_of(measured, shape, top_k, layers), args.json)
    return 0


def _asked(model: Path | None, format: str | None) -> tuple[ExpertShape, int, int]:
    """(shape, top-k, layers). Raises WeightsError for a folder that is no model with experts."""
    if model is None:
        hidden, width, top_k, layers = DEFAULT_EXPERTS
        return ExpertShape(hidden, width, format or "bf16"), top_k, layers
    from engine.errors import WeightsError
    from engine.weights.manifest import load_manifest

    manifest = load_manifest(model)
    if not manifest.banks:
        raise WeightsError(f"{manifest.name} has no experts.", "Name a model with experts: ft models ls")
    geometry, bank = manifest.geometry, manifest.banks[0]
    shape = ExpertShape(geometry.hidden_size, geometry.expert_width, format or bank.format, bank.bias, bank.activation)
    return shape, geometry.top_k, geometry.moe_layers
