"""GGUF files of every architecture: written from the random checkpoints as llama.cpp's converter does, and then served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import Loaded, load
from engine.weights.convert import ModelFacts, convert
from engine.weights.gguf import GgufSource
from tests.engine.models.test_models_contract import FP32_ERROR, alone

ARCHS = {
    "llama": "llama",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
    "qwen3_5_moe": "qwen35moe",
}
HYBRIDS = ("qwen35moe", "qwen3next")
# What the metadata cannot say: windows of their own, layers in an order of their own, biases llama.cpp does not expect.
INEXPRESSIBLE = ("qwen3_moe/dense-between", "gpt_oss/own-order", "qwen3_5_moe/multimodal", "llama/biases")
Tensors = Iterator[tuple[str, torch.Tensor]]


def permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's order of q and k rows in the llama family."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _tiled(tensor: torch.Tensor, config: Any, dim: int, size: int) -> torch.Tensor:
    """llama.cpp's order of value heads of `size` along `dim`: first ones of all key heads, then second ones, …"""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    whole = tensor.movedim(dim, 0)
    parts = whole.reshape(keys, values // keys, size, *whole.shape[1:]).swapaxes(0, 1)
    return parts.reshape(whole.shape).movedim(0, dim)


def stored(state: dict[str, torch.Tensor], arch: str, config: Any) -> Tensors:
    """The tensors of a transformers model under GGUF names and in GGUF order."""
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for name, tensor in state.items():
        layer = name.split(".")[2] if name.startswith("model.layers.") else ""
        if ".experts." in name:
            yield from stored_experts(name, tensor, layer, arch == "gpt-oss")
            continue
        if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            tensor = permuted(tensor, heads)
        if arch in HYBRIDS:
            if name.endswith(("in_proj_a.weight", "in_proj_b.weight")) and arch == "qwen3next":
                yield from stored_pair(name, state, layer, config)
                continue
            name, tensor = hybrid(name, tensor, config, arch == "qwen35moe")
        name = f"{name}.weight" if name.endswith("sinks") else name
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        yield found, tensor


def stored_experts(name: str, tensor: torch.Tensor, layer: str, oai: bool) -> Tensors:
    suffix = "bias" if name.endswith("_bias") else "weight"
    if oai and suffix == "weight":
        tensor = tensor.mT
    if "down_proj" in name:
        yield f"blk.{layer}.ffn_down_exps.{suffix}", tensor
        return
    half = tensor.shape[1] // 2
    gate, up = (tensor[:, ::2], tensor[:, 1::2]) if oai else (tensor[:, :half], tensor[:, half:])
    yield f"blk.{layer}.ffn_gate_exps.{suffix}", gate
    yield f"blk.{layer}.ffn_up_exps.{suffix}", up


def stored_pair(name: str, state: dict[str, torch.Tensor], layer: str, config: Any) -> Tensors:
    """Qwen3-Next has one matrix for both: for each key head its value heads' rows of b, then those of a."""
    if name.endswith("in_proj_b.weight"):
        b, a = state[name], state[name.replace("in_proj_b", "in_proj_a")]
        keys = config.linear_num_key_heads
        both = torch.stack([b.reshape(keys, -1, b.shape[1]), a.reshape(keys, -1, a.shape[1])], dim=1)
        yield f"blk.{layer}.ssm_ba.weight", both.reshape(-1, b.shape[1])


def hybrid(name: str, tensor: torch.Tensor, config: Any, tile: bool) -> tuple[str, torch.Tensor]:
    """The tensors of Qwen3.5, or with `tile` off of Qwen3-Next, as llama.cpp keeps them."""

    def tiled(tensor: torch.Tensor, config: Any, dim: int, size: int) -> torch.Tensor:
        return _tiled(tensor, config, dim, size) if tile else tensor

    size, first = config.linear_value_head_dim, 2 * config.linear_num_key_heads * config.linear_key_head_dim
    if name.endswith("A_log"):
        return name, tiled(-tensor.exp(), config, 0, 1)
    if name.endswith("dt_bias"):
        return name.replace("dt_bias", "dt_proj.bias"), tiled(tensor, config, 0, 1)
    if name.endswith("conv1d.weight"):
        tensor = tensor.squeeze()
    if name.endswith(("conv1d.weight", "in_proj_qkv.weight")):
        return name, torch.cat([tensor[:first], tiled(tensor[first:], config, 0, size)])
    if name.endswith("in_proj_z.weight"):
        return name, tiled(tensor, config, 0, size)
    if name.endswith(("in_proj_a.weight", "in_proj_b.weight")):
        return name, tiled(tensor, config, 0, 1)
    if name.endswith("out_proj.weight"):
        return name, tiled(tensor, config, 1, size)
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return name, tensor + 1
    return name, tensor


def write(path: Path, oracle: Any, arch: str) -> None:
    config, writer = oracle.config, gguf.GGUFWriter(path, arch)
    rope = config.rope_parameters
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    if hasattr(config, "intermediate_size"):
        writer.add_feed_forward_length(config.intermediate_size)
    if hasattr(config, "num_experts_per_tok"):
        writer.add_expert_count(getattr(config, "num_local_experts", None) or config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch != "llama":
        width = config.intermediate_size if arch == "gpt-oss" else config.moe_intermediate_size
        writer.add_expert_feed_forward_length(width)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        plain = 1 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0]).numpy())
    if arch in HYBRIDS:
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
        writer.add_full_attention_interval(4)
        writer.add_rope_dimension_count(int(config.head_dim * rope["partial_rotary_factor"]))
    state = dict(oracle.state_dict())
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    for name, tensor in stored(state, arch, config):
        writer.add_tensor(name, np.ascontiguousarray(tensor.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def served(source: GgufSource, folder: Path) -> Loaded:
    facts = ModelFacts(source.config, json.dumps(source.config), "{}", "", eos_token_ids=(0,), kv_dtype="f32")
    directory = convert(source, facts, folder, "m", "f32", "f32")
    return load(directory, plan_model(directory, Settings(kv_tokens=256, kv_dtype="f32", chunk_tokens=64)), threads=2)


@pytest.fixture
def arch(checkpoint, request) -> str:
    name = request.node.callspec.params["checkpoint"]
    if name in INEXPRESSIBLE:
        pytest.skip("its configuration has no place in GGUF")
    return ARCHS[name.split("/")[0]]


def test_a_gguf_file_computes_what_the_checkpoint_computes(checkpoint, arch, tmp_path):
    tokens = checkpoint.tokens(60, seed=4)
    with torch.inference_mode():
        expected = checkpoint.oracle(input_ids=torch.tensor([tokens])).logits[0]
    for name in HYBRIDS if arch in HYBRIDS else [arch]:
        write(tmp_path / "m.gguf", checkpoint.oracle, name)
        loaded = served(GgufSource(tmp_path / "m.gguf"), tmp_path / name)
        torch.testing.assert_close(alone(loaded, tokens, [60]), expected, atol=FP32_ERROR, rtol=0)
