"""From one FTW directory to another: the same model in other formats, one expert at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch

from engine.errors import Unsupported, WeightsError
from engine.kernels.contract import FORMATS, ExpertShape, Ops, Packed, packed_bytes
from engine.weights.choice import KEEP
from engine.weights.config import read_config
from engine.weights.convert import packing_ops, weight_map_of
from engine.weights.direct import Reader
from engine.weights.ftw import expert_shape, read_dense
from engine.weights.manifest import Bank, Manifest, Meter, Progress, check_sum, remedy
from engine.weights.space import require_space
from engine.weights.writer import Buffer, Expert, FtwWriter, expert_block, staged

_WRITTEN = frozenset({"directory", "geometry", "dense_file", "dense_bytes", "dense_crc32", "dense", "banks", "name"})


def refit(
    manifest: Manifest,
    models_dir: Path,
    name: str,
    format: str,
    dense_format: str,
    progress: Progress | None = None,
) -> Path:
    """Write `models_dir/name` from the model of `manifest` and return it: experts in `format`, other matrices in
    `dense_format`, either of them "keep". What is kept stays bit for bit; the rest is rounded from the values of the model,
    never from an original. `progress` counts the source's bytes.

    Raises Unsupported for an unknown format, WeightsError when the source is damaged or the disk too small.
    """
    for wanted in (format, dense_format):
        if wanted not in (*FORMATS, KEEP):
            raise Unsupported(f"The format {wanted!r} is not one of {KEEP}, {', '.join(FORMATS)}.")
    config = read_config(manifest.path(manifest.config), remedy(manifest.directory))
    # Routers and other small matrices have a format of their own, whatever is asked for.
    fixed = {ours for ours, tensor in weight_map_of(config).dense.items() if tensor.format}
    formats = {
        ours: entry.format if ours in fixed or dense_format == KEEP or not entry.format else dense_format
        for ours, entry in manifest.dense.items()
    }
    shapes = [_shape(manifest, bank, format) for bank in manifest.banks]
    require_space(models_dir, sum(s.stride * b.experts for s, b in zip(shapes, manifest.banks, strict=True)))
    meter, ops = Meter(manifest.total_bytes, progress), packing_ops()
    with staged(models_dir, name) as directory, FtwWriter(directory, ops) as writer:
        for ours, stored in read_dense(manifest).items():
            if isinstance(stored, Packed) and stored.format == formats[ours]:
                writer.dense_pieces(ours, [stored.data.numpy().data], (stored.n, stored.k), stored.format)
            else:
                writer.dense(ours, ops.unpack(stored) if isinstance(stored, Packed) else stored, formats[ours])
        meter.advance(manifest.dense_bytes)
        for bank, shape in zip(manifest.banks, shapes, strict=True):
            writer.bank_pieces(bank.layer, _experts(manifest, bank, shape, ops, meter), shape)
        for file in (manifest.config, manifest.tokenizer, manifest.chat_template):
            writer.text(file, manifest.path(file).read_text(encoding="utf-8"))
        facts = {f.name: getattr(manifest, f.name) for f in fields(Manifest) if f.name not in _WRITTEN}
        writer.finish(manifest.geometry, name=name, **facts)
    return models_dir / name


def _shape(manifest: Manifest, bank: Bank, format: str) -> ExpertShape:
    old = expert_shape(manifest, bank)
    return ExpertShape(old.hidden, old.width, bank.format if format == KEEP else format, old.bias, old.activation)


def _experts(manifest: Manifest, bank: Bank, shape: ExpertShape, ops: Ops, meter: Meter) -> Iterator[Buffer]:
    old, path = expert_shape(manifest, bank), manifest.path(bank.file)
    if not bank.expert_crc32:
        with Reader() as reader:
            check_sum(manifest, reader.through(path, bank.bytes), bank.crc32)
    with path.open("rb") as file:
        for expert in range(bank.experts):
            block = file.read(old.stride)
            if bank.expert_crc32 and zlib.crc32(block) != bank.expert_crc32[expert]:
                raise WeightsError(f"{path} is corrupt in expert {expert} of layer {bank.layer}.", remedy(path.parent))
            meter.advance(len(block))
            if shape.format == old.format:
                yield block
            else:
                yield expert_block(
                    _unpacked(torch.frombuffer(bytearray(block), dtype=torch.uint8), old, ops), shape, ops
                )


def _unpacked(block: torch.Tensor, shape: ExpertShape, ops: Ops) -> Expert:
    def matrix(offset: int, n: int, k: int) -> torch.Tensor:
        return ops.unpack(Packed(block[offset : offset + packed_bytes(n, k, shape.format)].clone(), shape.format, n, k))

    hidden, width = shape.hidden, shape.width
    bias = None
    if shape.bias:
        bias = block[shape.bias_offset :][: 4 * (2 * width + hidden)].view(torch.float32)
    return Expert(matrix(0, 2 * width, hidden), matrix(shape.down_offset, hidden, width), bias)
