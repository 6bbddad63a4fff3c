"""Random weights at the real shapes of a model, for benchmarks: written in the kernels' layout as fast as the disk takes them.

A packed matrix is whole groups of 16 rows, one after the other. So a few groups of every row length are drawn and packed once,
and each matrix is a random choice of them. Values are scaled so that activations stay near one in every layer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.errors import Unsupported
from engine.kernels.contract import FORMATS, ExpertShape, Ops, packed_bytes
from engine.weights.convert import ModelFacts, packing_ops, weight_map_of, write_facts
from engine.weights.gguf_tokenizer import add_special_tokens
from engine.weights.manifest import Progress
from engine.weights.map import DenseTensor
from engine.weights.seeded import TINY_HYBRID_TOKENS, random_values
from engine.weights.shapes import Shapes, dense_shapes
from engine.weights.sizes import built_shape, dense_bytes, expert_shape_of
from engine.weights.space import require_space
from engine.weights.writer import FtwWriter, staged

GROUP_ROWS = 16
POOL_VALUES = 1 << 22  # drawn once for every row length
PIECE_BYTES = 8 << 20
EXACT_VALUES = 1 << 20  # matrices up to this size, such as routers, are drawn in full: equal rows would be ties
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *TINY_HYBRID_TOKENS)
_BYTES = 256


def synth(
    models_dir: Path,
    name: str,
    config: dict[str, Any],
    format: str,
    dense_format: str,
    progress: Progress | None = None,
    source: str = "",
    seed: int = 0,
) -> Path:
    """Write `models_dir/name` with random weights for `config` (see catalogue.config_of) and return it. `progress` counts bytes.

    Raises Unsupported for an unknown architecture or format, WeightsError when the disk has no room for it.
    """
    for wanted in (format, dense_format):
        if wanted not in FORMATS:
            raise Unsupported(f"The format {wanted!r} is not one of {', '.join(FORMATS)}.")
    weight_map, shapes = weight_map_of(config), dense_shapes(config)
    shape = expert_shape_of(weight_map, config, format)
    total_bytes = dense_bytes(weight_map, shapes, dense_format)
    total_bytes += shape.stride * weight_map.geometry.experts * len(weight_map.experts)
    require_space(models_dir, total_bytes)
    with staged(models_dir, name) as directory:
        draw = _Draw(packing_ops(), seed, total_bytes, progress)
        with FtwWriter(directory, packing_ops()) as writer:
            for our_name, tensor in weight_map.dense.items():
                draw.dense(writer, our_name, tensor, shapes, dense_format)
            for layer in weight_map.experts:
                pieces = draw.experts(shape, weight_map.geometry.experts)
                writer.bank_pieces(layer.layer, pieces, shape)
            write_facts(writer, weight_map, _facts(config, source), name)
    return models_dir / name


def plain_tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level, without merges: text is its bytes. The ids between bytes and control tokens are words that only a model
    says. Raises Unsupported for a vocabulary too small for bytes and control tokens."""
    words = vocab_size - _BYTES - len(CONTROL_TOKENS)
    if words < 0:
        raise Unsupported(
            f"A vocabulary of {vocab_size} tokens is too small.", f"Use at least {_BYTES + len(CONTROL_TOKENS)}."
        )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    entries = [*alphabet, *(f"\u0120{_word(i)}" for i in range(words))]  # U+0120 is how the alphabet spells a space
    tokenizer = Tokenizer(models.BPE(vocab={entry: i for i, entry in enumerate(entries)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    add_special_tokens(tokenizer, list(CONTROL_TOKENS))
    return tokenizer


def _word(number: int) -> str:
    letters = ""
    while True:
        number, letter = divmod(number, 26)
        letters += chr(ord("a") + letter)
        if not number:
            return letters


def _facts(config: dict[str, Any], source: str) -> ModelFacts:
    tokenizer = plain_tokenizer(config["vocab_size"])
    first = config["vocab_size"] - len(CONTROL_TOKENS)
    return ModelFacts(
        config=config,
        config_json=json.dumps(config, indent=2) + "\n",
        tokenizer_json=tokenizer.to_str(),
        chat_template=files("engine.weights").joinpath("tiny_hybrid.jinja").read_text(encoding="utf-8"),
        eos_token_ids=tuple(first + CONTROL_TOKENS.index(token) for token in ("<|im_end|>", "<|endoftext|>")),
        thinking=True,
        quality="synthetic",
        sampling_defaults={"temperature": 0.0},
        source=f"random values at the shapes of {source}" if source else "random values",
    )


class _Draw:
    """Random tensors, in the order they are asked for; the same for the same seed on every machine."""

    def __init__(self, ops: Ops, seed: int, total_bytes: int, progress: Progress | None) -> None:
        self._ops, self._random = ops, np.random.default_rng(seed)
        self._pools: dict[tuple[int, str], NDArray[np.uint8]] = {}
        self._done, self._total, self._progress = 0, total_bytes, progress

    def dense(self, writer: FtwWriter, name: str, tensor: DenseTensor, shapes: Shapes, dense_format: str) -> None:
        """Write one tensor of the map."""
        shape = built_shape(tensor, shapes)
        format = tensor.format or dense_format
        if not tensor.packed:
            writer.dense(name, self._plain(name, tensor, shapes), "")
            self._count(4 * int(np.prod(shape)))
            return
        n, k = shape
        if n * k <= EXACT_VALUES or n % GROUP_ROWS:
            writer.dense(name, torch.from_numpy(self._normal(n, k)), format)
            self._count(packed_bytes(n, k, format))
        else:
            writer.dense_pieces(name, self._groups(n // GROUP_ROWS, k, format), (n, k), format)

    def experts(self, shape: ExpertShape, count: int) -> Iterator[memoryview]:
        """Every expert of a layer, one buffer each."""
        block = np.zeros(shape.stride, dtype=np.uint8)
        for _ in range(count):
            for offset, n, k in ((0, 2 * shape.width, shape.hidden), (shape.down_offset, shape.hidden, shape.width)):
                pool = self._pool(k, shape.format)
                whole = n // GROUP_ROWS
                chosen = self._random.integers(len(pool), size=whole)
                assert n % GROUP_ROWS == 0, "expert rows"
                target = block[offset : offset + whole * pool.shape[1]].reshape(whole, -1)
                np.take(pool, chosen, axis=0, out=target)
            if shape.bias:
                values = 0.1 * self._random.standard_normal(2 * shape.width + shape.hidden, dtype=np.float32)
                block[shape.bias_offset : shape.bias_offset + values.nbytes] = values.view(np.uint8)
            yield block.data
            self._count(shape.stride)

    def _plain(self, name: str, tensor: DenseTensor, shapes: Shapes) -> torch.Tensor:
        if name.endswith(
            "norm"
        ):  # the factor itself, near one whether or not the checkpoint stores the difference from it
            return torch.from_numpy(1.0 + 0.1 * self._random.standard_normal(built_shape(tensor, shapes), np.float32))
        parts = [
            torch.from_numpy(random_values(source, shapes[source], self._random).astype(np.float32))
            for source in tensor.sources
        ]
        return tensor.build(parts) if tensor.build else torch.cat(parts)

    def _groups(self, groups: int, k: int, format: str) -> Iterator[memoryview]:
        pool = self._pool(k, format)
        per_piece = max(1, PIECE_BYTES // pool.shape[1])
        for start in range(0, groups, per_piece):
            chosen = self._random.integers(len(pool), size=min(per_piece, groups - start))
            piece = pool[chosen]
            yield piece.reshape(-1).data
            self._count(piece.nbytes)

    def _pool(self, k: int, format: str) -> NDArray[np.uint8]:
        """[groups, bytes of a packed group of 16 rows of k values]."""
        if (k, format) not in self._pools:
            groups = max(8, POOL_VALUES // (GROUP_ROWS * k))
            packed = self._ops.pack(torch.from_numpy(self._normal(groups * GROUP_ROWS, k)), format)
            self._pools[k, format] = packed.numpy().reshape(groups, -1)
        return self._pools[k, format]

    def _normal(self, n: int, k: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._random.standard_normal((n, k), dtype=np.float32)
        values *= np.float32(k**-0.5)
        return values

    def _count(self, n_bytes: int) -> None:
        self._done += n_bytes
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
