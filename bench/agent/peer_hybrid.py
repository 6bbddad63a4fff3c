"""The tiny hybrid as a GGUF file: the very weights that our import writes, in fp32, as llama.cpp arranges them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import peer_models

from engine.weights.seeded import SeededHybrid

Values = npt.NDArray[np.float32]


def write(path: Path, config: dict[str, Any]) -> None:
    """`config` is the model's config.json. Token ids are the model's; what stands for them in the file is of no use."""
    shape = peer_models.Shape(
        hybrid=True,
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        experts=config["num_experts"],
        top_k=config["num_experts_per_tok"],
        width=config["moe_intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        vocab=config["vocab_size"],
        k_heads=config["linear_num_key_heads"],
        v_heads=config["linear_num_value_heads"],
        state=config["linear_key_head_dim"],
        conv=config["linear_conv_kernel_dim"],
    )
    writer = gguf.GGUFWriter(str(path), shape.arch)
    peer_models.metadata(writer, shape)
    peer_models.tokenizer(writer, shape.vocab)
    for name, values in tensors(config):
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(config: dict[str, Any]) -> Iterator[tuple[str, Values]]:
    """Under llama.cpp's names."""
    source = SeededHybrid(config)
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == "qwen35moe")
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name in sorted(source.names):
        values = source.read(name).numpy()
        layer = name.removeprefix("model.layers.").partition(".")[0]
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(values, 2, axis=1)
            yield f"blk.{layer}.ffn_gate_exps.weight", gate
            yield f"blk.{layer}.ffn_up_exps.weight", up
            continue
        if name.endswith("experts.down_proj"):
            yield f"blk.{layer}.ffn_down_exps.weight", values
            continue
        name = name.replace("linear_attn.dt_bias", "linear_attn.dt_proj.bias")
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        yield found, _arranged(name, values, config)


def _arranged(name: str, values: Values, config: dict[str, Any]) -> Values:
    """Norms as 1 + w, decays as -exp(A_log), convolutions without their middle dimension, and of value heads all first ones of
    the key heads before all second ones."""
    size, first = config["linear_value_head_dim"], 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    if name.endswith("A_log"):
        return _tiled(-np.exp(values), config, 1)
    if name.endswith(("dt_proj.bias", "in_proj_a.weight", "in_proj_b.weight")):
        return _tiled(values, config, 1)
    if name.endswith(("conv1d.weight", "in_proj_qkv.weight")):
        flat = values.reshape(len(values), -1)
        return np.concatenate([flat[:first], _tiled(flat[first:], config, size)])
    if name.endswith("in_proj_z.weight"):
        return _tiled(values, config, size)
    if name.endswith("linear_attn.out_proj.weight"):
        return _tiled(values.T, config, size).T
    if name.endswith("shared_expert_gate.weight"):
        return values.reshape(-1)
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return values + 1
    return values


def _tiled(values: Values, config: dict[str, Any], size: int) -> Values:
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    parts = values.reshape(keys, heads // keys, size, *values.shape[1:]).swapaxes(0, 1)
    return parts.reshape(values.shape)
