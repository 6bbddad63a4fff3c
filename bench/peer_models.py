"""Mixture-of-Experts GGUF files with random weights at chosen shapes: `python bench/peer_models.py SHAPE FORMAT OUT.gguf`.

Both engines of a comparison read the same file. The weights carry no meaning, only the right sizes and magnitudes: scales are
chosen so that activations stay finite, and large tensors repeat a pool of random blocks from random offsets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

Bytes = npt.NDArray[np.uint8]
BLOCK = {"f32": (1, 4), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18), "mxfp4": (32, 17), "nvfp4": (64, 36)}
FORMATS = ("bf16", "q4_0", "mxfp4", "nvfp4")
POOL_WEIGHTS = 1 << 24


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one model. `hybrid`: three delta-rule layers to one of attention, and a shared expert."""

    hybrid: bool
    hidden: int
    layers: int
    experts: int
    top_k: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    k_heads: int = 16
    v_heads: int = 32
    state: int = 128
    conv: int = 4

    @property
    def arch(self) -> str:
        return "qwen35moe" if self.hybrid else "qwen3moe"

    def attention(self, layer: int) -> bool:
        return not self.hybrid or (layer + 1) % 4 == 0

    def cut(self, layers: int) -> Shape:
        return replace(self, layers=layers)


SHAPES = {
    "a": Shape(False, 2048, 8, 128, 8, 768, 32, 4, 128, 24576),
    "b": Shape(True, 2048, 8, 256, 8, 512, 16, 2, 256, 24576),
    "tiny-a": Shape(False, 128, 2, 8, 2, 64, 4, 2, 64, 1024),
    "tiny-b": Shape(True, 128, 4, 8, 2, 64, 4, 2, 64, 1024, 2, 4, 64),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape` as numpy orders it. `std` of random values; `value` when all are the same."""

    name: str
    shape: tuple[int, ...]
    format: str
    std: float = 0.0
    value: float | None = None
    per_token: float = 1.0  # share of its bytes that decoding one token reads


def dense_format(format: str) -> str:
    """Of matrices that are no routed experts."""
    return "bf16" if format == "bf16" else "q8_0"


def tensors(shape: Shape, format: str) -> Iterator[Tensor]:
    """Every tensor of the model with routed experts in `format`."""
    dense = dense_format(format)

    def matrix(name: str, rows: int, columns: int, of: str = dense, per_token: float = 1.0) -> Tensor:
        return Tensor(name, (rows, columns), of, columns**-0.5, None, per_token)

    def constant(name: str, size: int, value: float = 1.0) -> Tensor:
        return Tensor(name, (size,), "f32", value=value)

    hidden = shape.hidden
    yield Tensor("token_embd.weight", (shape.vocab, hidden), dense, 1.0, None, 1 / shape.vocab)
    yield constant("output_norm.weight", hidden)
    yield matrix("output.weight", shape.vocab, hidden)
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        yield constant(f"{at}attn_norm.weight", hidden)
        if shape.attention(layer):
            q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
            yield matrix(f"{at}attn_q.weight", 2 * q if shape.hybrid else q, hidden)
            yield matrix(f"{at}attn_k.weight", kv, hidden)
            yield matrix(f"{at}attn_v.weight", kv, hidden)
            yield matrix(f"{at}attn_output.weight", hidden, q)
            yield constant(f"{at}attn_q_norm.weight", shape.head_dim)
            yield constant(f"{at}attn_k_norm.weight", shape.head_dim)
        else:
            keys, values = shape.state * shape.k_heads, shape.state * shape.v_heads
            yield matrix(f"{at}attn_qkv.weight", 2 * keys + values, hidden)
            yield matrix(f"{at}attn_gate.weight", values, hidden)
            yield Tensor(f"{at}ssm_conv1d.weight", (2 * keys + values, shape.conv), "f32", 0.5)
            yield constant(f"{at}ssm_dt.bias", shape.v_heads, -2.0)
            yield constant(f"{at}ssm_a", shape.v_heads, -0.5)
            yield matrix(f"{at}ssm_beta.weight", shape.v_heads, hidden, "f32")
            yield matrix(f"{at}ssm_alpha.weight", shape.v_heads, hidden, "f32")
            yield constant(f"{at}ssm_norm.weight", shape.state)
            yield matrix(f"{at}ssm_out.weight", hidden, values)
        yield constant(f"{at}{'post_attention' if shape.hybrid else 'ffn'}_norm.weight", hidden)
        yield matrix(f"{at}ffn_gate_inp.weight", shape.experts, hidden, "f32")
        share = shape.top_k / shape.experts
        for name, rows, columns in (
            ("gate", shape.width, hidden),
            ("up", shape.width, hidden),
            ("down", hidden, shape.width),
        ):
            yield Tensor(
                f"{at}ffn_{name}_exps.weight", (shape.experts, rows, columns), format, columns**-0.5, None, share
            )
            if shape.hybrid:
                yield matrix(f"{at}ffn_{name}_shexp.weight", rows, columns)
        if shape.hybrid:
            yield Tensor(f"{at}ffn_gate_inp_shexp.weight", (hidden,), "f32", hidden**-0.5)


def stored_bytes(tensor: Tensor) -> int:
    weights, size = BLOCK[tensor.format]
    return int(np.prod(tensor.shape)) // weights * size


class Pool:
    """Random raw blocks, made once per format and magnitude."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, float], Bytes] = {}
        self._rng = np.random.default_rng(0)

    def take(self, format: str, count: int, std: float) -> Bytes:
        """The raw bytes of `count` weights."""
        key = (format, round(std, 6))
        if key not in self._made:
            self._made[key] = blocks(self._rng, format, POOL_WEIGHTS, std)
        pool, (weights, size) = self._made[key], BLOCK[format]
        need, parts = count // weights * size, []
        while need:
            start = int(self._rng.integers(POOL_WEIGHTS // weights)) * size
            parts.append(pool[start : start + need])
            need -= len(parts[-1])
        return np.concatenate(parts)


def blocks(rng: np.random.Generator, format: str, count: int, std: float) -> Bytes:
    """Raw blocks of `count` weights with a standard deviation of about `std`."""
    if format in ("f32", "bf16"):
        values = rng.standard_normal(count, dtype=np.float32) * np.float32(std)
        return (
            values.view(np.uint8)
            if format == "f32"
            else (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        )
    weights, size = BLOCK[format]
    made = rng.integers(0, 256, size=(count // weights, size), dtype=np.uint8)
    if format == "q8_0":  # no quantiser makes -128
        made[:, 2:][made[:, 2:] == 128] = 129
    if format in ("q8_0", "q4_0"):
        spread = rng.uniform(0.7, 1.3, len(made)) * std / {"q8_0": 74, "q4_0": 4.6}[format]
        made[:, :2] = spread.astype(np.float16).view(np.uint8).reshape(-1, 2)
    elif format == "mxfp4":
        made[:, 0] = 127 + round(np.log2(std / 2.6))
    else:  # nvfp4: an E4M3 scale per 16 weights, bias 7
        exponent = min(14, max(1, int(np.floor(np.log2(std / 2.6))) + 7))
        made[:, :4] = (exponent << 3) | rng.integers(0, 8, size=(len(made), 4), dtype=np.uint8)
    return made.reshape(-1)


def token_bytes(shape: Shape, format: str) -> int:
    """Bytes of weights, as stored in the file, that decoding one token reads."""
    return round(sum(stored_bytes(t) * t.per_token for t in tensors(shape, format)))


def write(path: Path, shape: Shape, format: str) -> None:
    """Write the model to `path`."""
    writer = gguf.GGUFWriter(str(path), shape.arch)
    metadata(writer, shape)
    tokenizer(writer, shape.vocab)
    pool = Pool()
    made = list(tensors(shape, format))
    for tensor in made:
        _declare(writer, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in made:
        count = int(np.prod(tensor.shape))
        if tensor.value is not None:
            data = np.full(count, tensor.value, np.float32).view(np.uint8)
        else:
            data = pool.take(tensor.format, count, tensor.std)
        writer.write_tensor_data(data)
    writer.close()


def _declare(writer: gguf.GGUFWriter, tensor: Tensor) -> None:
    weights, size = BLOCK[tensor.format]
    if tensor.format == "f32":
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), stored_bytes(tensor))
        return
    *rows, columns = tensor.shape
    kind = getattr(Type, tensor.format.upper())
    packed = (*rows, columns // weights * size)
    writer.add_tensor_info(tensor.name, packed, np.dtype(np.uint8), stored_bytes(tensor), raw_dtype=kind)


def metadata(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """What llama.cpp needs to know of `shape`, tokens aside."""
    writer.add_name(f"random {shape.arch}")
    writer.add_context_length(40960)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.width * shape.top_k)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_expert_feed_forward_length(shape.width)
    writer.add_vocab_size(shape.vocab)
    if shape.hybrid:
        rotated = shape.head_dim // 4
        third = rotated // 2 // 3
        writer.add_rope_dimension_count(rotated)
        writer.add_rope_dimension_sections([rotated // 2 - 2 * third, third, third, 0])
        writer.add_expert_shared_feed_forward_length(shape.width)
        writer.add_ssm_conv_kernel(shape.conv)
        writer.add_ssm_inner_size(shape.state * shape.v_heads)
        writer.add_ssm_state_size(shape.state)
        writer.add_ssm_time_step_rank(shape.v_heads)
        writer.add_ssm_group_count(shape.k_heads)
        writer.add_uint32(f"{shape.arch}.full_attention_interval", 4)


def tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    """Byte-level tokens, a few merges, and fillers up to the vocabulary's size."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = dict(zip(printable, map(chr, printable), strict=True))
    letters |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    words, alphabet, space = [letters[byte] for byte in range(256)], "abcdefghijklmnopqrstuvwxyz", letters[32]
    merges = [f"{space} {a}" for a in alphabet] + [f"{a} {b}" for a in alphabet for b in "aeiou"]
    words += [merge.replace(" ", "") for merge in merges]
    kinds = [int(gguf.TokenType.NORMAL)] * len(words)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words += special
    kinds += [int(gguf.TokenType.CONTROL)] * len(special)
    bos, eos = words.index(special[0]), words.index(special[2])
    kinds += [int(gguf.TokenType.NORMAL)] * (vocab - len(words))
    words += [f"<filler_{i}>" for i in range(vocab - len(words))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(eos)
    writer.add_add_bos_token(False)
    writer.add_chat_template(
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    write(args.out, shape, args.format)
    print(
        f"{args.out}: {args.out.stat().st_size / 1e9:.2f} GB, {token_bytes(shape, args.format) / 1e6:.1f} MB per token"
    )


if __name__ == "__main__":
    main()
